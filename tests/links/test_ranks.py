"""LinkRanks are exact integers, the same on any ranks, threads and blocks."""

import numpy as np
import pytest
import torch
from worlds import parallel

import spgnn
from spgnn.errors import NumericalError, ShapeError, UsageError
from spgnn.links import Candidates, LinkRanks
from spgnn.spmm.kernels import _kernels

N, F = 100, 24


def candidates_of(comm, Z_NF, among=None, **options):
    graph = spgnn.graph_from_coo(np.arange(len(Z_NF) - 1), np.arange(1, len(Z_NF)), len(Z_NF))
    dgraph = spgnn.distribute(graph, comm, method="random", **options)
    return Candidates(dgraph, torch.from_numpy(Z_NF[dgraph.node_n]), among)


def with_ties(comm, dtype, among):
    """Candidates, their rows, queries, and what is known of these; integers: NumPy's sums are exact, and ties are many."""
    rng = np.random.default_rng(0)
    Z_NF = rng.integers(-2, 3, (N, F)).astype(dtype)
    Z_NF[50:] = Z_NF[:50]  # structural twins
    head_q, target_q = rng.integers(0, N, 40), rng.integers(*(among or (0, N)), 40)
    known = [rng.choice(N, rng.integers(0, 9), replace=False) for _ in head_q]
    return candidates_of(comm, Z_NF, among), Z_NF, head_q, target_q, known


def counted(S_qN, target_q, known=(), among=(0, N)):
    """The ranks of dense scores, one query at a time."""
    above, equal = [], []
    for i, (s, t) in enumerate(zip(S_qN, target_q)):
        counts = (np.arange(len(s)) >= among[0]) & (np.arange(len(s)) < among[1])
        counts[[t, *(known[i] if len(known) else ())]] = False
        above.append(np.sum((s > s[t]) & counts))
        equal.append(np.sum((s == s[t]) & counts))
    return np.array(above), np.array(equal)


def flat(known):
    return np.concatenate([[0], np.cumsum([len(ids) for ids in known])]), np.concatenate([*known, []]).astype(np.int64)


@parallel([1, 2, 3, 4], mpi=[3])
@pytest.mark.parametrize("dtype, among", [("float32", None), ("float64", None), ("float32", (30, 77))])
def test_filtered_ranks_are_those_of_dense_scores(comm, dtype, among):
    Z, Z_NF, head_q, target_q, known = with_ties(comm, dtype, among)
    x_qF = Z.rows(head_q)
    assert np.array_equal(x_qF, Z_NF[head_q])
    for given in ([], known):
        found = Z.ranks(x_qF, target_q, flat(given) if given else None)
        above, equal = counted(Z_NF[head_q] @ Z_NF.T, target_q, given, among or (0, N))
        assert np.array_equal(found.above_q, above) and np.array_equal(found.equal_q, equal)
        assert equal.any()


@parallel([1, 2, 3, 4], mpi=[])
def test_ranks_do_not_depend_on_ranks_blocks_and_threads(comm):
    rng = np.random.default_rng(1)
    Z_NF = rng.normal(size=(700, 33)).astype(np.float32)
    Z_NF[rng.permutation(700)[:350]] = Z_NF[0]
    head_q, target_q = rng.integers(0, 700, (2, 97))
    alone = candidates_of(spgnn.dist.run_threads(1, lambda one: one)[0], Z_NF)
    expected = alone.ranks(Z_NF[head_q], target_q)
    Z = candidates_of(comm, Z_NF)
    for block in (1, 7, 64, 1000):
        for threads in (1, 2):
            Z.threads = threads
            Z.block_bytes = block * 33 * 4
            found = Z.ranks(Z.rows(head_q), target_q)
            assert np.array_equal(found.above_q, expected.above_q)
            assert np.array_equal(found.equal_q, expected.equal_q)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("isa", ["", "base"])
@pytest.mark.parametrize(
    "sizes", [(7, 5, 3), (200, 1300, 33), (97, 600, 1030), (7, 2100, 1030), (1, 1, 1), (3, 0, 2), (0, 3, 2)]
)
def test_a_score_is_one_chain_of_additions_everywhere(sizes, isa, dtype):
    (q, m, k), rng = sizes, np.random.default_rng(2)
    Q_qk, C_mk = rng.normal(size=(q, k)).astype(dtype), rng.normal(size=(m, k)).astype(dtype)
    S_qm = np.zeros((q, m), dtype)
    _kernels.gemm(Q_qk, C_mk, S_qm, True, threads=1, isa=isa)
    target_q, above, equal = np.zeros(q, dtype), np.zeros(q, np.int64), np.zeros(q, np.int64)
    if m:
        index_q = rng.integers(0, m, q)
        _kernels.pair_scores(Q_qk, C_mk, index_q, target_q, threads=2, isa=isa)
        assert np.array_equal(target_q, S_qm[np.arange(q), index_q])
    nothing = np.zeros(0, np.int64)
    assert _kernels.rank_counts(Q_qk, C_mk, target_q, np.zeros(q + 1, np.int64), nothing, above, equal, 2, isa)
    assert np.array_equal(above, (S_qm > target_q[:, None]).sum(1))
    assert np.array_equal(equal, (S_qm == target_q[:, None]).sum(1))
    ids, scores, expected = np.zeros((q, 3), np.int64), np.zeros((q, 3), dtype), np.full((q, 3), np.nan, dtype)
    given = np.arange(m), np.zeros(q + 1, np.int64), nothing, ids, scores, 2, isa
    assert _kernels.top_candidates(Q_qk, C_mk, *given)
    expected[:, : min(m, 3)] = -np.sort(-S_qm)[:, :3]
    assert np.array_equal(-np.sort(-scores), expected, equal_nan=True)


def best(S_qN, k, known, among, exclude_q):
    """The best candidates of dense scores, equal ones by their ids."""
    ids_qk, scores_qk = np.full((len(S_qN), k), -1), np.full((len(S_qN), k), np.nan, S_qN.dtype)
    for i, s in enumerate(S_qN):
        left = np.setdiff1d(np.arange(*among), [*known[i], exclude_q[i]])
        ids = left[np.lexsort((left, -s[left]))][:k]
        ids_qk[i, : len(ids)], scores_qk[i, : len(ids)] = ids, s[ids]
    return ids_qk, scores_qk


@parallel([1, 2, 3, 4], mpi=[3])
@pytest.mark.parametrize("dtype, among", [("float32", (30, 77)), ("float64", (0, N))])
def test_the_best_are_those_of_dense_scores(comm, dtype, among):
    Z, Z_NF, head_q, _, known = with_ties(comm, dtype, among)
    known[3], known[4] = np.arange(N), np.arange(2, N)
    nothing, nobody_q = [[]] * len(head_q), np.full(len(head_q), N)
    for k in (1, 10, N + 7):
        found = Z.top(Z.rows(head_q), k, flat(known), head_q)
        for got, expected in zip(found, best(Z_NF[head_q] @ Z_NF.T, k, known, among, head_q)):
            assert np.array_equal(got, expected, equal_nan=got.dtype != np.int64) and got.dtype == expected.dtype
        assert np.array_equal(Z.top(Z_NF[head_q], k)[0], best(Z_NF[head_q] @ Z_NF.T, k, nothing, among, nobody_q)[0])


@parallel([1, 3], mpi=[])
def test_the_best_do_not_depend_on_ranks_blocks_and_threads(comm):
    rng = np.random.default_rng(1)
    Z_NF = rng.normal(size=(1300, 33)).astype(np.float32)
    Z_NF[rng.permutation(1300)[:650]] = Z_NF[0]
    Z = candidates_of(comm, Z_NF)
    x_qF = Z.rows(np.arange(0, 1300, 40))
    S_qN = np.zeros((len(x_qF), 1300), np.float32)
    _kernels.gemm(x_qF, Z_NF, S_qN, True)
    for Z.block_bytes, Z.threads in ((1, 2), (1 << 17, 1), (1 << 26, 2)):
        ids_qk, scores_qk = Z.top(x_qF, 20)
        expected = best(S_qN, 20, [[]] * len(x_qF), (0, 1300), np.full(len(x_qF), -1))
        assert np.array_equal(ids_qk, expected[0]) and np.array_equal(scores_qk, expected[1])


def test_equal_scores_are_in_the_order_of_ids_that_come_in_any_order():
    ids, scores, of = np.zeros((1, 3), np.int64), np.zeros((1, 3)), np.arange(600)[::-1].copy()
    given = np.ones((1, 2)), np.ones((600, 2)), of, np.zeros(2, np.int64), np.zeros(0, np.int64)
    assert _kernels.top_candidates(*given, ids, scores) and sorted(ids[0]) == [0, 1, 2]


def test_constant_scores_have_the_mean_rank():
    found = candidates_of(spgnn.dist.run_threads(1, lambda one: one)[0], np.ones((N, 2))).ranks(
        np.ones((5, 2)), np.arange(5)
    )
    assert found.rank_q("optimistic").tolist() == [1] * 5 and found.rank_q("pessimistic").tolist() == [N] * 5
    assert found.mrr() == pytest.approx(1 / 50.5) and found.mrr("optimistic") == 1
    assert found.hits(50) == 0 and found.hits(51) == 1


@parallel([2], mpi=[])
def test_scores_that_are_no_numbers_and_rows_that_do_not_fit_are_errors(comm):
    Z = candidates_of(comm, np.ones((6, 2)))
    with pytest.raises(NumericalError, match="not finite"):
        Z.ranks(np.full((1, 2), np.nan), np.zeros(1, np.int64))
    with pytest.raises(NumericalError, match="not finite"):
        Z.top(np.full((2, 2), np.inf), 2)
    with pytest.raises(UsageError, match="k = 0; expected an integer of 1 or more"):
        Z.top(np.ones((2, 2)), 0)
    with pytest.raises(ShapeError, match="expected float32 or float64"):
        candidates_of(comm, np.ones((6, 2), np.int64))
    with pytest.raises(UsageError, match="target 1 is no candidate; expected nodes 2 to 4"):
        candidates_of(comm, np.ones((6, 2)), (2, 5)).ranks(np.ones((3, 2)), np.array([4, 1, 5]))
    with pytest.raises(UsageError, match="0 <= first < last <= 6"):
        candidates_of(comm, np.ones((6, 2)), (2, 2))
    with pytest.raises(UsageError, match="ties='worst'"):
        LinkRanks(np.zeros(1), np.zeros(1)).rank_q("worst")
