"""Graphs with attributes of edges: the order of the list, several edges between two nodes, reverse edges, errors."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.errors import GraphError
from spgnn.graph import Graph, graph_from_coo

SRC, DST = np.array([2, 0, 2, 1, 3, 3, 0]), np.array([1, 1, 1, 0, 3, 0, 2])  # 2 -> 1 twice, 0 <-> 1, a loop at 3
ATTR = np.arange(14, dtype=np.float64).reshape(7, 2) + 1


def edges_of(graph):
    """(row, column, place in the list, attributes) of each nonzero, sorted."""
    row_E = np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))
    return sorted(zip(row_E, graph.A.indices, graph.edge_ids, map(tuple, graph.edge_attr)))


def listed(skip=()):
    return sorted((u, v, e, tuple(ATTR[e])) for e, (u, v) in enumerate(zip(SRC, DST)) if e not in skip)


def test_equal_edges_stay_several_with_attributes_and_are_one_without():
    graph = graph_from_coo(SRC, DST, edge_attr=ATTR)
    assert graph.nnz == 7 and edges_of(graph) == listed() and graph.meta["edges_listed"] == 7
    assert graph.edge_ids[graph.A.indptr[2] :][:2].tolist() == [0, 2]  # 2 -> 1, in the order of the list
    merged = graph.without_edge_attr()
    assert merged.nnz == graph_from_coo(SRC, DST).nnz == 6 and merged.edge_attr is None
    assert merged.A[2, 1] == 2 and "edges_listed" not in merged.meta


def test_a_tensor_or_a_vector_of_integers_are_attributes():
    assert graph_from_coo(SRC, DST, edge_attr=torch.arange(7)).edge_attr.dtype == np.float32
    assert graph_from_coo(SRC, DST, edge_attr=torch.from_numpy(ATTR)).edge_attr.dtype == np.float64


def test_edges_of_weight_zero_lose_their_attributes():
    weights = np.array([1, 1, 0, 1, 1, 2, 1])
    graph = graph_from_coo(SRC, DST, weights=weights, edge_attr=ATTR)
    assert graph.meta["zeros"] == 1 and graph.meta["edges_listed"] == 7 and edges_of(graph) == listed(skip=[2])
    A = sp.csr_array(([1.0, 0.0, 3.0], [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    assert Graph(A, edge_attr=ATTR[:3]).edge_ids.tolist() == [0, 2]


def test_pairs_without_an_edge_back_get_the_reverse_of_each_edge():
    graph = graph_from_coo(SRC, DST, edge_attr=ATTR, meta={"antisymmetric": [1]}).with_edges("both")
    back = [(v, u, -1 - e, (x, -y)) for u, v, e, (x, y) in listed() if e in (0, 2, 5, 6)]
    assert edges_of(graph) == sorted(listed() + back)
    assert graph.with_edges("auto") is graph
    assert not np.shares_memory(graph.edge_attr, ATTR) and ATTR[0, 1] == 2


def test_weights_of_reverse_edges_are_those_of_their_edges():
    weights = np.arange(7) + 1.0
    graph = graph_from_coo(SRC, DST, weights=weights, edge_attr=ATTR).in_use()
    places = np.where(graph.edge_ids < 0, -1 - graph.edge_ids, graph.edge_ids)
    assert (graph.A.data == weights[places]).all() and graph.nnz == 11


@pytest.mark.parametrize("fields, message", [
    ({"edge_attr": ATTR[1:]}, r"edge_attr has shape \(6, 2\); expected \(7, F\): a row for each of the 7 edges"),
    ({"edge_attr": np.where(ATTR == 6, np.nan, ATTR)}, "edge_attr: row 2, column 1 is nan, not finite"),
    ({"edge_attr": np.array(["a"] * 7)}, "edge_attr holds <U1; expected real numbers"),
    ({"edge_attr": ATTR, "duplicates": "sum"}, "omit duplicates, and they stay several edges"),
    ({"edge_attr": ATTR, "duplicates": "refuse"}, "2 -> 1 first, 2 times"),
    ({"edge_attr": ATTR, "meta": {"antisymmetric": [2]}}, "names column 2; edges have 2 attributes, from 0 on"),
])  # fmt: skip
def test_what_is_wrong_with_attributes_is_named(fields, message):
    with pytest.raises(GraphError, match=message):
        graph_from_coo(SRC, DST, **fields)


def test_a_matrix_has_equal_entries_only_with_attributes():
    A = sp.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    with pytest.raises(GraphError, match="twice"):
        Graph(A)
    assert Graph(A, edge_attr=ATTR[:3]).nnz == 3
    with pytest.raises(GraphError, match=r"expected \(3, F\)"):
        Graph(A, edge_attr=ATTR)
    with pytest.raises(GraphError, match="edge_ids are 0 to 5; the edge list has 3 edges"):
        Graph(A, edge_attr=ATTR[:3], edge_ids=np.array([0, 1, 5]))
