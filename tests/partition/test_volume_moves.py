"""Counts, loads and scores under moves, against counting anew from the matrix."""

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph

from spgnn.partition import cover_PP, rows_PP
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


def brute_cost(start, readers, per_vertex, owner_N, k, prices) -> float:
    """Sum over pairs of (net, part that reads it) of the two prices."""
    cost = 0.0
    for net in range(len(start) - 1):
        node, kind = divmod(net, per_vertex)
        q = owner_N[node]
        for p in {int(owner_N[u]) for u in readers[start[net] : start[net + 1]] if u != node} - {int(q)}:
            cost += prices[2 * kind][q] + prices[2 * kind + 1][p]
    return cost


def graph_of(seed: int) -> sp.csr_array:
    use = ("directed", "undirected", "reversed")[seed % 3]
    n = 2 + seed % 37
    return random_graph(n, 4 * n, seed=seed, use=use).A


def state_of(A, owner_N, k, use_lists, **settings):
    nets = readers_of(A)
    return nets, _volume.State(*nets, 1, np.diff(A.indptr).astype(np.int64) + 1, owner_N, k, use_lists, settings)


@pytest.mark.parametrize("use_lists", [False, True])
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_send_receive_and_total_follow_every_move_on_200_graphs(first, use_lists):
    for seed in range(first, first + 50):
        A, k = graph_of(seed), 1 + seed % 9
        rng = np.random.default_rng(seed)
        owner_N = rng.integers(0, k, A.shape[0]).astype(np.int32)
        _, state = state_of(A, owner_N, k, use_lists)
        for _ in range(8):
            v, b = int(rng.integers(A.shape[0])), int(rng.integers(k))
            state.move(v, b)
            owner_N[v] = b
            rows = rows_PP(A, owner_N, k)
            send, receive, work, total, _ = state.loads()
            np.testing.assert_array_equal(send, rows.sum(1))
            np.testing.assert_array_equal(receive, rows.sum(0))
            assert total == rows.sum()
            np.testing.assert_array_equal(work, np.bincount(owner_N, weights=np.diff(A.indptr) + 1, minlength=k))


@pytest.mark.parametrize("pressure", [{}, {"receive": True}, {"both": True}, {"send": False}])
@pytest.mark.parametrize("first", range(0, 200, 100))
def test_a_difference_of_scores_is_the_difference_of_costs_counted_anew(first, pressure):
    for seed in range(first, first + 100):
        A, k = graph_of(seed), 2 + seed % 8
        rng = np.random.default_rng(seed)
        owner_N = rng.integers(0, k, A.shape[0]).astype(np.int32)
        nets, state = state_of(A, owner_N, k, bool(seed % 2), **pressure)
        prices = state.loads()[4]
        v = int(rng.integers(A.shape[0]))
        parts, scores = state.scores(v)
        cost = []
        for p in parts:
            owner_N[v] = p
            cost.append(brute_cost(*nets, 1, owner_N, k, prices))
        np.testing.assert_allclose(np.array(scores) - scores[0], -(np.array(cost) - cost[0]), atol=1e-4)


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_masks_and_lists_score_alike_to_the_last_bit_on_every_instruction_set(first):
    for seed in range(first, first + 100):
        A, k = graph_of(seed), 2 + (seed * 7) % 63
        owner_N = np.random.default_rng(seed).integers(0, k, A.shape[0]).astype(np.int32)
        pressure = {"receive": bool(seed % 2)}
        _, lists = state_of(A, owner_N, k, True, **pressure)
        for isa in range(_volume.best_isa() + 1):
            _, masks = state_of(A, owner_N, k, False, isa=isa, **pressure)
            for v in range(0, A.shape[0], 5):
                parts, scores = lists.scores(v)
                order = np.argsort(parts)
                got_parts, got_scores = masks.scores(v)
                np.testing.assert_array_equal(parts[order], got_parts)
                np.testing.assert_array_equal(scores[order], got_scores)


def test_parts_that_no_net_touches_are_no_candidates():
    A = sp.csr_array((np.ones(2, np.float32), ([0, 1], [1, 0])), shape=(4, 4))
    _, state = state_of(A, np.array([0, 1, 2, 3], np.int32), 4, False)
    assert state.scores(0)[0].tolist() == [0, 1] and state.scores(2)[0].tolist() == [2]


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
        (lambda a: a["readers"].__setitem__(0, 9), "a reader is out of range"),
        (lambda a: a["owner"].__setitem__(0, 2), "an owner is not a part"),
        (lambda a: a["start"].__setitem__(1, 99), "start must rise"),
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
