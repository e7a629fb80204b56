"""Negatives are uniform, never a known link, and the same in any batches and on any threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.errors import GraphError, ShapeError, UsageError
from spgnn.links import Negatives

N = 40


def csr_of(is_known_NN):
    A = sp.csr_array(is_known_NN)
    return A.indptr.astype(np.int64), A.indices.astype(np.int32)


def links(seed=0, density=0.3, n=N):
    is_known_NN = np.random.default_rng(seed).random((n, n)) < density
    return is_known_NN, csr_of(is_known_NN), csr_of(is_known_NN.T)


@pytest.mark.parametrize("side", ["target", "either"])
def test_draws_are_no_known_links_whatever_the_batches_the_order_and_the_threads(side):
    is_known_NN, known, of_targets = links()
    source_t, target_t = np.nonzero(is_known_NN)
    number_t = 7 * np.arange(len(source_t)) + 2**40
    negatives = Negatives(known, (5, 35), 3, 1, side, of_targets)
    node_tK, is_source_tK = negatives.draw(source_t, target_t, number_t, 2)
    ends = np.where(is_source_tK, node_tK, source_t[:, None]), np.where(is_source_tK, target_t[:, None], node_tK)
    assert not is_known_NN[ends].any() and (ends[0] != ends[1]).all()
    assert node_tK.min() == 5 and node_tK.max() == 34
    assert abs(is_source_tK.mean() - (side == "either") / 2) < 0.05
    order = np.random.default_rng(1).permutation(len(source_t))
    for batch, threads, K in ((order, 0, 3), (order[:50], 3, 2), (order[50:51], 2, 1), (order[:0], 2, 1)):
        part = Negatives(known, (5, 35), K, 1, side, of_targets)
        found = part.draw(source_t[batch], target_t[batch], number_t[batch], 2, threads)
        assert np.array_equal(found[0], node_tK[batch, :K]) and np.array_equal(found[1], is_source_tK[batch, :K])
    for other in (negatives.draw(source_t, target_t, number_t, 3), part.draw(source_t, target_t, number_t + 1, 2)):
        assert (other[0] != node_tK[:, : other[0].shape[1]]).mean() > 0.8


@pytest.mark.parametrize("left", [2, 5, 20])
def test_draws_are_uniform_also_where_they_are_of_the_few_that_are_left(left):
    n = 3000 if left == 2 else 31
    is_known_NN = np.ones((n, n), bool)
    free = np.random.default_rng(3).choice(np.arange(1, n), left, replace=False)
    is_known_NN[0, free] = False
    t = 4000
    node_tK, _ = Negatives(csr_of(is_known_NN[:1]), (0, n)).draw(np.zeros(t, int), np.ones(t, int), np.arange(t), 0)
    counts = np.bincount(node_tK.ravel(), minlength=n)[free]
    assert counts.sum() == t
    assert ((counts - t / left) ** 2 / (t / left)).sum() < left - 1 + 5 * np.sqrt(2 * (left - 1))  # chi-square


def test_the_one_that_is_left_is_found_and_a_complete_row_is_named():
    is_known_NN = ~np.eye(N, dtype=bool)
    is_known_NN[3, 17] = False
    known = csr_of(is_known_NN)
    assert Negatives(known, (0, N), 5).draw(*np.array([[3], [4], [0]]), 0)[0].tolist() == [[17] * 5]
    with pytest.raises(GraphError, match=r"no negative is left of node 4: linked .* every candidate, 0 to 39; leave"):
        Negatives(known, (0, N)).draw(*np.array([[3, 4, 5], [4, 9, 9], [0, 1, 2]]), 0, threads=2)


def test_the_other_end_is_replaced_where_one_has_no_candidate_left():
    is_known_NN, *_ = links()
    is_known_NN[2] = True
    is_known_NN[:, 8] = True
    of_both = csr_of(is_known_NN), csr_of(is_known_NN.T)
    negatives = Negatives(of_both[0], (0, N), 20, 0, "either", of_both[1])
    assert negatives.draw(*np.array([[2], [4], [0]]), 0)[1].all()
    with pytest.raises(GraphError, match="node 2 or node 8"):
        negatives.draw(*np.array([[2], [8], [0]]), 0)


def test_what_does_not_fit_is_named():
    _, (indptr, indices), _ = links()
    with pytest.raises(UsageError, match="node 40 has no row of known links; there are 40 rows"):
        Negatives((indptr, indices), (0, N)).draw(*np.array([[1, 40], [2, 2], [0, 1]]), 0)
    with pytest.raises(UsageError, match="among=.*0 <= first < last"):
        Negatives((indptr, indices), (3, 3))
    with pytest.raises(UsageError, match="give known_of_targets"):
        Negatives((indptr, indices), (0, N), side="either")
    with pytest.raises(ShapeError, match="int64 and int64; expected int64 and int32"):
        Negatives((indptr, indices.astype(np.int64)), (0, N))
