"""What the refinement returns after its moves, counted again from the matrix; the two stores and every instruction set."""

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph

from spgnn.partition.cover import cover_PP
from spgnn.partition.metrics import rows_PP
from spgnn.partition.refine import _volume


def readers_of(A) -> tuple[np.ndarray, np.ndarray]:
    T = sp.csr_array(A.T.tocsr())
    return T.indptr.astype(np.int64), T.indices.astype(np.int32)


def brute_rows(start, readers, per_vertex, owner_N, k) -> np.ndarray:
    """rows[s, r] that part s sends part r, net after net: kind 0 is sent by its owner, kind 1 to it."""
    rows = np.zeros((k, k), np.int64)
    for net in range(len(start) - 1):
        node, kind = divmod(net, per_vertex)
        q = owner_N[node]
        for p in {int(owner_N[u]) for u in readers[start[net] : start[net + 1]] if u != node} - {int(q)}:
            rows[(p, q) if kind else (q, p)] += 1
    return rows


def graph_of(seed: int) -> sp.csr_array:
    use = ("directed", "undirected", "reversed")[seed % 3]
    n = 2 + seed % 37
    return random_graph(n, 4 * n, seed=seed, use=use).A


def refined(A, nets, per_vertex, owner_N, k, seed, use_lists, **settings):
    work = np.diff(A.indptr).astype(np.int64) + 1
    return _volume.refine(*nets, per_vertex, work, owner_N, k, 1.03, seed, use_lists, 1, settings)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_rows_of_nets_that_go_to_their_owner_are_kept_count_of_too(first):
    for seed in range(first, first + 20):
        A, k = graph_of(3 * seed), 2 + seed % 8  # directed
        rng = np.random.default_rng(seed)
        owner_N = rng.integers(0, k, A.shape[0]).astype(np.int32)
        nets = _volume.nets_of_covers(A.indptr.astype(np.int64), A.indices.astype(np.int32), owner_N, k, False, 1)
        got, total, largest_send = refined(A, nets, 2, owner_N, k, seed, bool(seed % 2), receive=bool(seed % 3))
        rows = brute_rows(*nets, 2, got, k)
        assert (total, largest_send) == (rows.sum(), rows.sum(1).max())


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_masks_and_lists_give_the_same_parts_on_every_instruction_set_and_count_their_rows(first):
    for seed in range(first, first + 100):
        A, k = graph_of(seed), 1 + (seed * 7) % 64
        owner_N = np.random.default_rng(seed).integers(0, k, A.shape[0]).astype(np.int32)
        sides = {"receive": bool(seed % 2), "send": seed % 5 > 0, "both": seed % 4 == 1, "levels": seed % 3}
        want, *of_want = refined(A, readers_of(A), 1, owner_N, k, seed, True, **sides)
        rows = rows_PP(A, want, k)
        assert of_want == [rows.sum(), rows.sum(1).max()]
        for isa in range(_volume.best_isa() + 1):
            got, *of_got = refined(A, readers_of(A), 1, owner_N, k, seed, False, isa=isa, **sides)
            np.testing.assert_array_equal(got, want)
            assert of_got == of_want


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_nets_of_covers_send_what_minimum_covers_send(first):
    for seed in range(first, first + 20):
        A, k = graph_of(seed), 2 + seed % 5
        A = sp.csr_array(A)
        owner_N = np.random.default_rng(seed).integers(0, k, A.shape[0]).astype(np.int32)
        is_symmetric = not (A.astype(bool) != A.T.tocsr().astype(bool)).nnz
        indptr, indices = A.indptr.astype(np.int64), A.indices.astype(np.int32)
        start, readers = _volume.nets_of_covers(indptr, indices, owner_N, k, is_symmetric, 1)
        rows = brute_rows(start, readers, 1 if is_symmetric else 2, owner_N, k)
        want = cover_PP(A, owner_N, k)
        np.testing.assert_array_equal(rows + rows.T if is_symmetric else rows, want)
        edges = A.nnz - np.count_nonzero(A.diagonal())
        assert len(readers) == (edges // 2 if is_symmetric else edges), "each edge belongs to one net"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a: a["readers"].__setitem__(0, 9), "a column index is out of range"),
        (lambda a: a["owner"].__setitem__(0, 2), "an owner is not a part"),
        (lambda a: a["start"].__setitem__(1, 99), "indptr must rise"),
        (lambda a: a.update(work=a["work"][:2]), "do not fit each other"),
        (lambda a: a["work"].__setitem__(0, 0), "work must be positive"),
        (lambda a: a.update(k=0), "k is out of range"),
        (lambda a: a.update(k=65), "masks have 64 parts"),
        (lambda a: a.update(per_vertex=3), "one or two nets"),
        (lambda a: a.update(settings={"sweps": 3}), "a setting is not known"),
        (lambda a: a.update(settings={"isa": 7}), "does not have that instruction set"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_any_loop(spoil, message):
    arguments = {
        "start": np.array([0, 1, 2, 2], np.int64), "readers": np.array([1, 2], np.int32), "per_vertex": 1,
        "work": np.ones(3, np.int64), "owner": np.array([0, 1, 0], np.int32), "k": 2, "balance": 1.03, "seed": 0,
        "use_lists": False, "threads": 1, "settings": {},
    }  # fmt: skip
    spoil(arguments)
    with pytest.raises(ValueError, match=message):
        _volume.refine(**arguments)
