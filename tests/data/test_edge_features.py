"""Attributes of edges from tables, arrays and other libraries: each edge has its row, in the order of the list."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from spgnn import convert, from_pandas, load_graph, save_graph
from spgnn.data import check, from_dgl, from_networkx, from_pyg
from spgnn.errors import FormatError, GraphError, UsageError
from spgnn.graph import graph_from_coo

EDGES = [(0, 1), (0, 1), (1, 0), (2, 1), (3, 2)]  # 0 -> 1 twice
ATTR = np.array([[1, 10], [2, 20], [3, 30], [4, 40], [5, 0.5]])
LINES = "\n".join(f"{u},{v},{x},{y}" for (u, v), (x, y) in zip(EDGES, ATTR))


def listed(edges=EDGES):
    return sorted((u, v, e, *ATTR[e]) for e, (u, v) in enumerate(edges))


def stored(graph):
    row_E = np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))
    return sorted(
        (u, v, e, *map(float, row)) for u, v, e, row in zip(row_E, graph.A.indices, graph.edge_ids, graph.edge_attr)
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target,dx,length\n" + LINES + "\n")
    (tmp_path / "plain.txt").write_text("\n".join(f"{u} {v}" for u, v in EDGES) + "\n")
    (tmp_path / "one.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n4 4 5\n" + "\n".join(f"{u + 1} {v + 1}" for u, v in EDGES)
    )
    np.array(EDGES, "<i4").tofile(tmp_path / "pairs.bin")
    pd.read_csv(tmp_path / "edges.csv").to_parquet(tmp_path / "edges.parquet")
    np.save(tmp_path / "attr.npy", ATTR)
    return tmp_path


@pytest.mark.parametrize("name", ["edges.csv", "edges.parquet"])
def test_columns_of_a_table_of_edges_are_attributes(folder, name):
    graph = load_graph(folder / name, edge_features="dx,length", antisymmetric="dx")
    assert stored(graph) == listed() and graph.meta["antisymmetric"] == [0] and "unread" not in graph.meta
    one = load_graph(folder / name, edge_features="length")
    assert one.edge_attr.ravel().tolist() == ATTR[one.edge_ids, 1].tolist() and one.meta["unread"] == ["dx"]


@pytest.mark.parametrize("name", ["edges.csv", "edges.parquet", "plain.txt", "one.mtx", "pairs.bin"])
def test_an_npy_has_a_row_for_each_edge_of_the_file(folder, name):
    options = {"edge_features": str(folder / "attr.npy"), "antisymmetric": "1"}
    graph = load_graph(folder / name, **options)
    assert stored(graph) == listed() and graph.meta["antisymmetric"] == [1] and graph.edge_attr.dtype == np.float64


def test_columns_without_names_have_numbers(folder):
    (folder / "numbers.csv").write_text(LINES + "\n")
    graph = load_graph(folder / "numbers.csv", source="1", target="2", edge_features="3,4")
    assert stored(graph) == listed()


def test_a_native_folder_keeps_attributes_and_their_order(folder):
    convert(folder / "edges.csv", folder / "native", edge_features="dx,length", antisymmetric="dx")
    graph = load_graph(folder / "native")
    assert stored(graph) == listed() and graph.meta["edges_listed"] == 5 and graph.meta["antisymmetric"] == [0]
    assert check(folder / "native")["files"] == 4
    used = graph.in_use()
    save_graph(used, folder / "used")
    again = load_graph(folder / "used")
    assert again.edges == "undirected" and stored(again) == stored(used) and again.nnz == 7
    (folder / "native" / "edge_ids.npy").unlink()
    with pytest.raises(FormatError, match="missing; the manifest names it"):
        load_graph(folder / "native")


def test_a_symmetric_matrix_has_a_row_for_each_entry_of_the_file(folder):
    (folder / "s.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n2 1 7\n3 1 8\n3 3 9\n")
    np.save(folder / "three.npy", ATTR[:3])
    graph = load_graph(folder / "s.mtx", edge_features=str(folder / "three.npy"))
    assert sorted(graph.edge_ids.tolist()) == [-2, -1, 0, 1, 2] and graph.edges == "stored"
    assert graph.A.toarray().tolist() == [[0, 7, 8], [7, 0, 0], [8, 0, 9]]


def test_a_frame_has_columns_of_edges():
    frame = pd.DataFrame(EDGES, columns=["from", "to"]).assign(dx=ATTR[:, 0], length=ATTR[:, 1])
    graph = from_pandas(frame, edge_features=["dx", "length"], antisymmetric=["dx"])
    assert stored(graph) == listed() and graph.meta["edge_features"] == ["dx", "length"]
    with pytest.raises(UsageError, match="combine sum"):
        from_pandas(frame, edge_features="dx", combine="sum")
    with pytest.raises(GraphError, match="omit duplicates, and they stay several edges"):
        from_pandas(frame, edge_features="dx", duplicates="sum")


def test_edges_of_pyg_and_dgl_keep_their_attributes():
    edge_index = np.array(EDGES).T
    graph = from_pyg(SimpleNamespace(edge_index=edge_index, edge_attr=ATTR, num_nodes=4))
    assert stored(graph) == listed() and stored(graph.in_use()) == sorted((v, u, *row) for u, v, *row in listed())
    one = SimpleNamespace(edge_index=edge_index, edge_attr=ATTR[:, :1], edge_weight=np.arange(5) + 1.0, num_nodes=4)
    assert from_pyg(one).edge_attr.shape == (5, 1) and from_pyg(one).A.data.sum() == 15
    del one.edge_weight
    assert from_pyg(one, edge_attr=ATTR[:, 1:]).edge_attr.shape[1] == ATTR.shape[1] - 1
    g = SimpleNamespace(edges=lambda: edge_index, ndata={}, edata={"attr": ATTR, "w": ATTR[:, 0]}, num_nodes=lambda: 4)
    assert stored(from_dgl(g)) == listed() and from_dgl(g, edge_features="w", weight="w").edge_attr.shape == (5, 1)


def test_edges_of_networkx_keep_their_attributes():
    G = nx.MultiDiGraph()
    G.add_nodes_from(range(4))
    for (u, v), (x, y) in zip(EDGES, ATTR):
        G.add_edge(u, v, dx=x, both=[x, y])
    assert stored(from_networkx(G, edge_features="both")) == listed()
    assert from_networkx(G, edge_features=["dx", "both"]).meta["edge_features"] == ["dx", "both_0", "both_1"]
    one = nx.Graph([(1, 0, {"dx": 2.0}), (2, 2, {"dx": 3.0})])
    graph = from_networkx(one, edge_features="dx", meta={"antisymmetric": [0]})
    assert graph.edges == "stored" and sorted(graph.edge_attr.ravel().tolist()) == [-2, 2, 3]
    G.add_edge(3, 3)
    with pytest.raises(GraphError, match="1 edges have no attribute 'dx'"):
        from_networkx(G, edge_features="dx")


@pytest.mark.parametrize("options, message", [
    ({"edge_features": "dx,lenght"}, "no column 'lenght' .*length"),
    ({"edge_features": "dx", "antisymmetric": "length"}, "antisymmetric 'length' is no edge_feat"),
    ({"antisymmetric": "dx"}, "requires edge_features"),
    ({"edge_features": "short.npy"}, r"edges.csv: edge_attr has shape \(4, 2\); expected \(5, F\)"),
    ({"edge_features": "attr.npy", "antisymmetric": "dx"}, "expected numbers of columns of the .npy, from 0"),
    ({"edge_features": "attr.npy", "antisymmetric": "2"}, "names column 2; edges have 2 attributes"),
])  # fmt: skip
def test_what_is_wrong_with_the_option_is_named(folder, monkeypatch, options, message):
    monkeypatch.chdir(folder)
    np.save("short.npy", ATTR[1:])
    with pytest.raises((FormatError, GraphError, UsageError), match=message):
        load_graph("edges.csv", **options)


def test_a_missing_value_is_named_with_its_row(folder):
    (folder / "edges.csv").write_text("source,target,dx\n0,1,1.5\n1,0,\n")
    with pytest.raises(FormatError, match="column 'dx' has no value for 1 edges, the first in row 2"):
        load_graph(folder / "edges.csv", edge_features="dx")
    (folder / "edges.csv").write_text("source,target\n0,1\n1,0\n")
    np.save(folder / "nan.npy", np.array([1.0, np.nan]))
    with pytest.raises(GraphError, match="edge_attr: row 1, column 0 is nan"):
        load_graph(folder / "edges.csv", edge_features=str(folder / "nan.npy"))


def test_what_has_no_list_of_edges_refuses_the_option(folder):
    for source in ("wordnet", np.array(EDGES).T):
        with pytest.raises(UsageError, match="edge_attr, edge_y of graph_from_coo"):
            load_graph(source, edge_features="dx")
    save_graph(graph_from_coo([0], [1]), folder / "native")
    with pytest.raises(UsageError, match="edge_features is no option of the format native"):
        load_graph(folder / "native", edge_features="attr.npy")
    with pytest.raises(UsageError, match="columns are those of tables of edges"):
        load_graph(folder / "one.mtx", edge_features="dx")


@pytest.mark.parametrize("head, column", [("source,target,weight\n", "weight"), ("", "3")])
def test_a_column_of_attributes_is_no_weight_unless_it_is_named(tmp_path, head, column):
    path = tmp_path / "edges.csv"
    path.write_text(head + "0,1,0\n1,2,3\n2,0,-1\n")
    graph = load_graph(path, edge_features=column)
    assert graph.A.data.tolist() == [1, 1, 1] and graph.edge_attr[:, 0].tolist() == [0, 3, -1]
    assert load_graph(path, edge_features=column, weight=column).A.data.tolist() == [3, -1]
