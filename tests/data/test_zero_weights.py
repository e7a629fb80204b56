"""A weight of 0 is no edge: no self-loop, no neighbour, whatever the graph is made of."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from edited_parts import replaced
from graphs import random_graph
from test_memory import Data, DGLGraph, Tensor

from spgnn.data import convert, from_coo, from_dgl, from_networkx, from_pyg, from_scipy, load_graph, load_native
from spgnn.data.save import report
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import GraphError, PartitionError
from spgnn.graph import Graph, normalise
from spgnn.partition import PartitionFolder, part_graph, save_partition

SRC, DST = np.array([0, 0, 1, 2, 3]), np.array([0, 1, 0, 1, 3])
WEIGHTS = np.array([0.0, 2.0, 2.0, -0.0, 0.5])
EDGES = {(0, 1): 2.0, (1, 0): 2.0, (3, 3): 0.5}
STORED = sp.coo_array((WEIGHTS, (SRC, DST)), shape=(4, 4)).tocsr()


def edges_of(graph):
    A = graph.A.tocoo()
    return dict(zip(zip(A.row.tolist(), A.col.tolist()), A.data.tolist()))


def in_file(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    return load_graph(tmp_path / name)


def in_npz(tmp_path, form):
    sp.save_npz(tmp_path / form, STORED.asformat(form))
    return load_graph(tmp_path / f"{form}.npz")


def in_native_folder(tmp_path):
    """A folder whose weights were written with zeros, as earlier versions did."""
    convert(from_scipy(sp.csr_array((np.arange(1.0, 6), STORED.indices, STORED.indptr))), tmp_path / "native")
    np.save(tmp_path / "native" / "weights.npy", STORED.data)
    return load_native(tmp_path / "native")


def networkx_graph():
    G = nx.DiGraph()
    G.add_nodes_from(range(4))
    G.add_weighted_edges_from(zip(SRC.tolist(), DST.tolist(), WEIGHTS.tolist()))
    return from_networkx(G)


def dgl_graph():
    g = DGLGraph(4)
    g.edges, g.edata = (lambda: (Tensor(SRC), Tensor(DST))), {"w": Tensor(WEIGHTS)}
    return from_dgl(g, weight="w")


LINES = "".join(f"{u} {v} {w}\n" for u, v, w in zip(SRC, DST, WEIGHTS))
ENTRIES = "".join(f"{u + 1} {v + 1} {w}\n" for u, v, w in zip(SRC, DST, WEIGHTS))
DOORS = {
    "arrays": lambda tmp_path: from_coo(SRC, DST, 4, WEIGHTS),
    "Graph": lambda tmp_path: Graph(STORED),
    "csr": lambda tmp_path: load_graph(STORED),
    "csc": lambda tmp_path: from_scipy(STORED.tocsc()),
    "coo": lambda tmp_path: from_scipy(STORED.tocoo()),
    "NetworkX": lambda tmp_path: networkx_graph(),
    "PyG": lambda tmp_path: from_pyg(Data(edge_index=Tensor([SRC, DST]), edge_weight=Tensor(WEIGHTS), num_nodes=4)),
    "DGL": lambda tmp_path: dgl_graph(),
    "edge list": lambda tmp_path: in_file(tmp_path, "g.txt", LINES),
    "mtx": lambda tmp_path: in_file(
        tmp_path, "g.mtx", f"%%MatrixMarket matrix coordinate real general\n4 4 5\n{ENTRIES}"
    ),
    "csr.npz": lambda tmp_path: in_npz(tmp_path, "csr"),
    "csc.npz": lambda tmp_path: in_npz(tmp_path, "csc"),
    "coo.npz": lambda tmp_path: in_npz(tmp_path, "coo"),
    "native folder": in_native_folder,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_weight_of_0_is_no_edge_and_is_counted(door, tmp_path):
    graph = DOORS[door](tmp_path)
    assert edges_of(graph) == EDGES and graph.n_nodes == 4
    assert graph.meta["zeros"] == graph.describe()["zeros"] == report(graph)["zeros"] == 2
    assert graph.notes() == ["2 stored weights of 0 are no edges, and left out"]
    assert not replace(graph, meta={}).notes() and "zeros" not in from_scipy(graph.A).meta


def test_an_edge_of_a_metis_file_may_weigh_0(tmp_path):
    graph = in_file(tmp_path, "g.graph", "3 2 1\n2 0 3 4\n1 0\n1 4\n")
    assert edges_of(graph) == {(0, 2): 4, (2, 0): 4} and graph.meta["zeros"] == 2


def test_of_duplicates_a_0_does_not_count():
    graph = from_coo([0, 0, 1], [1, 1, 0], weights=np.array([-3.0, 0.0, -3.0]))
    assert edges_of(graph) == {(0, 1): -3, (1, 0): -3}
    assert (graph.meta["duplicates"], graph.meta["zeros"]) == (0, 1)


def test_the_reverse_of_an_edge_of_weight_0_is_added():
    graph = from_coo([0, 1], [1, 0], weights=np.array([0.0, 5.0])).in_use()
    assert edges_of(graph) == {(0, 1): 5, (1, 0): 5}


def test_stored_zeros_on_the_diagonal_are_no_self_loops():
    A = random_graph(weighted=True, use="undirected").A.tolil()
    A.setdiag(0)
    without = sp.csr_array(A)
    without.eliminate_zeros()
    zeros = sp.csr_array(without + 2 * sp.eye_array(40, format="csr"))
    zeros.setdiag(0)
    assert zeros.nnz == without.nnz + 40
    expected = normalise(without).toarray()
    assert (np.diag(expected) > 0).all()
    np.testing.assert_array_equal(normalise(zeros).toarray(), expected)
    graph = Graph(zeros, edges="undirected")
    for made in (graph.normalise(), distribute(graph, SelfCommunicator(), dtype="float64").A.A_oo.to_scipy()):
        np.testing.assert_allclose(made.toarray(), expected, rtol=1e-6)


def test_a_weight_that_became_0_in_place_is_refused():
    A = random_graph(weighted=True).A.copy()
    graph = Graph(A)
    A.data[3] = 0
    with pytest.raises(GraphError, match="changed in place after it was made: A: the weight of entry 3 is 0"):
        graph.in_use()


@pytest.mark.parametrize("name", ["weights", "halo_weights"])
def test_a_folder_of_parts_with_a_weight_of_0_is_refused(name, tmp_path):
    graph = random_graph(weighted=True)
    save_partition(part_graph(graph, 2, "random"), tmp_path / "p", graph, hops=2)
    replaced(tmp_path / "p", name, lambda weights: np.concatenate([[0], weights[1:]]).astype(weights.dtype))
    folder = PartitionFolder(tmp_path / "p")
    with pytest.raises(PartitionError, match=f"{name}.npy: node .* weight 0, which is none; partition again"):
        folder.check_values(folder.block(1) if name == "weights" else folder.halo(1))
