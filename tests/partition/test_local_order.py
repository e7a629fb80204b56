"""The order of rows in a cache: a permutation, a function of the matrix, and fewer rows read where there are communities."""

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph

from spgnn import load_graph
from spgnn.partition import _loops, locality
from spgnn.partition.locality import in_order, local_order
from spgnn.partition.metrics import csr_arrays


def cost(A):
    """Count rows and pages of 16 rows that were not read within 4,096 and 512 reads, one by one."""
    missed, rows, pages = 0, {}, {}
    for now, column in enumerate(A.indices):
        missed += now - rows.get(column, -np.inf) > 4096
        missed += now - pages.get(column // 16, -np.inf) > 512
        rows[column] = pages[column // 16] = now
    return missed


def shuffled_blocks(n=20_000, block=50, degree=8, seed=0):
    """Communities of 50 nodes whose numbers tell nothing."""
    rng = np.random.default_rng(seed)
    i = rng.integers(0, n, n * degree)
    j = i // block * block + rng.integers(0, block, n * degree)
    ids = rng.permutation(n)
    A = sp.csr_array((np.ones(n * degree), (ids[i], ids[j])), shape=(n, n))
    return sp.csr_array(A + A.T)


def test_communities_come_together_and_the_cost_is_what_a_plain_count_says():
    A = shuffled_blocks()
    order = local_order(A)
    assert sorted(order) == list(range(A.shape[0])) and (local_order(A, threads=2) == order).all()
    _, before, after = _loops.local_order(*csr_arrays(A), 1.0)
    assert (before, after) == (cost(A), cost(in_order(A, order)))
    assert after < 0.2 * before


def test_hubs_come_first_where_there_are_no_communities():
    A = load_graph("rmat:scale=15,degree=16,seed=0").with_edges("undirected").A
    order = local_order(A)
    assert (order == np.argsort(-np.diff(A.indptr), kind="stable")).all()  # equal degrees by number


def test_a_good_order_is_left_alone():
    n = 1 << 15
    A = sp.csr_array(sp.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]))
    assert local_order(A) is None


def test_an_order_that_saves_too_little_is_not_taken(monkeypatch):
    A = shuffled_blocks()
    _, before, after = _loops.local_order(*csr_arrays(A), 1.0)
    for enough, is_taken in ((1.01 * after / before, True), (0.99 * after / before, False)):
        monkeypatch.setattr(locality, "ENOUGH", enough)
        assert (local_order(A) is not None) == is_taken


def test_small_and_empty_blocks_are_left_alone():
    assert local_order(random_graph().A) is None
    assert local_order(sp.csr_array((40_000, 40_000))) is None


@pytest.mark.parametrize("use", ["directed", "undirected"])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_any_small_graph_gets_a_permutation(monkeypatch, n, use):
    monkeypatch.setattr(locality, "SMALLEST", 0)
    monkeypatch.setattr(locality, "ENOUGH", 2.0)
    A = random_graph(n=n, edges=4 * n, use=use).A
    order = local_order(A)
    assert order is None or sorted(order) == list(range(n))
    for order in [np.arange(n)[::-1], np.random.default_rng(0).permutation(n)]:
        assert (in_order(A, order).toarray() == A.toarray()[np.ix_(order, order)]).all()
