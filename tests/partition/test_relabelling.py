"""Relabelling there and back: parts become contiguous, and nothing is lost."""

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.errors import PartitionError
from spgnn.graph import Graph, graph_from_coo
from spgnn.partition import Partition, part_graph, partition_of


def labelled_graph(n=60, sparse=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 5)) * (rng.random((n, 5)) < 0.5)
    return graph_from_coo(
        rng.integers(0, n, 4 * n), rng.integers(0, n, 4 * n), n, rng.random(4 * n),
        edges="directed", X=sp.csr_array(X) if sparse else X, y=rng.integers(0, 4, n), split=rng.integers(-1, 3, (n, 2)).astype(np.int8),
    )  # fmt: skip


def dense(M):
    return M.toarray() if sp.issparse(M) else M


def assert_same(one: Graph, two: Graph):
    for name in ("A", "X", "y", "split"):
        np.testing.assert_array_equal(dense(getattr(one, name)), dense(getattr(two, name)))
    assert one.digest() == two.digest()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", ["block", "random", "metis"])
def test_permute_makes_each_parts_rows_contiguous_and_unpermute_takes_it_back(method, sparse):
    graph = labelled_graph(sparse=sparse)
    part = part_graph(graph, 5, method)
    moved = part.permute(graph)
    assert np.all(np.diff(part.owner_N[part.order_N]) >= 0)
    order = part.order_N
    np.testing.assert_array_equal(moved.A.toarray(), graph.A.toarray()[order][:, order])
    np.testing.assert_array_equal(dense(moved.X), dense(graph.X)[order])
    np.testing.assert_array_equal(moved.y, graph.y[order])
    assert_same(part.unpermute(moved), graph)


def test_order_and_rank_are_inverse_and_stable_inside_a_part():
    part = partition_of(labelled_graph(6), np.array([1, 0, 2, 0, 1, 1]))
    np.testing.assert_array_equal(part.order_N, [1, 3, 0, 4, 5, 2])
    np.testing.assert_array_equal(part.rank_N[part.order_N], np.arange(6))
    np.testing.assert_array_equal(part.own(1), [0, 4, 5])
    np.testing.assert_array_equal(part.sizes_k, [2, 3, 1])


def test_order_is_right_at_the_largest_number_of_parts():
    part = Partition(np.array([8191, 3, 300, 0, 8191]), 8192)
    np.testing.assert_array_equal(part.order_N, [3, 1, 2, 0, 4])
    assert part.own(8191).tolist() == [0, 4]


def test_a_graph_of_another_size_or_other_edges_is_refused():
    graph = labelled_graph()
    part = part_graph(graph, 3)
    with pytest.raises(PartitionError, match="60 entries, .* has 61 nodes; was this partition made for another graph"):
        part.permute(labelled_graph(61))
    with pytest.raises(PartitionError, match="made for another graph, or with other --edges"):
        part.check_graph(graph.with_edges("undirected"))
