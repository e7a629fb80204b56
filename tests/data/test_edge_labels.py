"""Labels and splits of edges from tables, arrays and files: they are in the order of the list of edges."""

import numpy as np
import pandas as pd
import pytest

from spgnn import distribute, from_pandas, load_graph, run_threads, save_graph
from spgnn.data.save import report
from spgnn.errors import FormatError, GraphError, PartitionError, UsageError
from spgnn.graph import Graph, fingerprint, graph_from_coo
from spgnn.partition import PartitionFolder, part_graph, save_partition

LINES = """source,target,amount,fraud,part,grade
ann,bob,10,no,train,1.5
bob,cem,200,yes,val,2
ann,bob,11,,train,
cem,ann,12,no,test,0.5
dan,ann,0,yes,none,3
"""
Y, SPLIT = [0, 1, -1, 0, 1], [0, 1, 0, 2, -1]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "edges.csv").write_text(LINES)
    pd.read_csv(tmp_path / "edges.csv", keep_default_na=True).to_parquet(tmp_path / "edges.parquet")
    (tmp_path / "plain.txt").write_text("0 1 1\n1 2 0\n0 1 0\n")
    np.save(tmp_path / "y.npy", np.array([1, 0, -1]))
    np.save(tmp_path / "split.npy", np.array([0, 2, 1]))
    return tmp_path


@pytest.mark.parametrize("name", ["edges.csv", "edges.parquet", "frame"])
def test_columns_of_a_table_are_labels_and_split(folder, name):
    options = {"relabel": True, "edge_features": "amount", "edge_labels": "fraud", "edge_split": "part"}
    read = lambda **of: (
        from_pandas(pd.read_csv(folder / "edges.csv"), **of) if name == "frame" else load_graph(folder / name, **of)
    )
    graph = read(**options)
    assert graph.edge_y.tolist() == Y and graph.edge_split.tolist() == SPLIT and graph.edge_classes == ("no", "yes")
    assert graph.edge_attr[:, 0].tolist() == [10, 11, 200, 12, 0] and graph.meta["unread"] == ["grade"]
    numbers = read(relabel=True, edge_labels="grade")
    assert np.array_equal(numbers.edge_y, [1.5, 2, np.nan, 0.5, 3], equal_nan=True) and numbers.edge_attr.shape == (
        5,
        0,
    )
    assert numbers.edge_classes == ("grade",) and numbers.nnz == 5
    with pytest.raises(UsageError, match="edge_labels 'fraud' is an attribute or the split too"):
        read(relabel=True, edge_features="amount,fraud", edge_labels="fraud")
    with pytest.raises(FormatError, match="no column 'frod' .edge_labels.*did you mean 'fraud'"):
        read(relabel=True, edge_labels="frod")


def test_a_third_column_of_labels_is_no_weight(folder):
    graph = load_graph(folder / "plain.txt", edge_labels="3")
    assert graph.nnz == 3 and graph.edge_y.tolist() == [1, 0, 0] and set(graph.A.data) == {1}
    files = {"edge_labels": str(folder / "y.npy"), "edge_split": str(folder / "split.npy")}
    graph = load_graph(folder / "plain.txt", **files, weight="none")
    assert graph.edge_y.tolist() == [1, 0, -1] and graph.edge_split.tolist() == [0, 2, 1]
    with pytest.raises(UsageError, match="edge_labels is an option of files; see .*edge_y of graph_from_coo"):
        load_graph((np.array([0]), np.array([1])), edge_labels="y")


def labelled(edges="stored"):
    src, dst = np.array([0, 1, 0, 2, 3]), np.array([1, 2, 1, 0, 0])
    split = np.array(SPLIT, np.int8)
    graph = graph_from_coo(src, dst, 5, edge_y=np.array(Y), edge_split=split, edge_classes=("no", "yes"))
    return graph if edges == "stored" else graph.with_edges(edges)


@pytest.mark.parametrize("edges", ["stored", "both", "in"])
def test_labels_are_kept_by_folders_and_parts(tmp_path, edges):
    graph = labelled(edges)
    save_graph(graph, tmp_path / "graph")
    part = part_graph(graph, 2, "random")
    save_partition(part, tmp_path / "parts", graph)
    for again in (load_graph(tmp_path / "graph"), PartitionFolder(tmp_path / "parts").graph()):
        assert again.edge_y.tolist() == Y and again.edge_split.tolist() == SPLIT and again.edge_classes == ("no", "yes")
        assert fingerprint(again.in_use()) == fingerprint(graph.in_use())
    other = graph_from_coo(*(np.array([0, 1]),) * 2, 5, edge_y=[1.0, np.nan])
    assert fingerprint(other) != fingerprint(graph_from_coo(*(np.array([0, 1]),) * 2, 5, edge_y=[1.0, 2.0]))


@pytest.mark.parametrize("edges", ["both", "in", "out"])
@pytest.mark.parametrize("source", ["graph", "root", "folder"])
def test_ranks_have_the_labels_of_their_nonzeros(tmp_path, edges, source):
    graph = labelled(edges)
    save_partition(part_graph(graph, 3, "random"), tmp_path / "parts", graph)

    def body(comm):
        given = {"graph": graph, "root": graph if comm.rank == 0 else None, "folder": tmp_path / "parts"}[source]
        dgraph = distribute(given, comm, method="random").on_edges()
        assert dgraph.collect(dgraph.y_n.numpy()).tolist() == Y and dgraph.collect(dgraph.split_n).tolist() == SPLIT
        assert dgraph.edge_ends().tolist() == [[0, 1], [1, 2], [0, 1], [2, 0], [3, 0]]
        is_added = dgraph.own_rows(np.ones(5), of_added=0) == 0
        assert (dgraph.y_n.numpy()[is_added] == -1).all() and (dgraph.split_n[is_added] == -1).all()
        assert dgraph.n_classes == 2 and dgraph.task == "classes"

    run_threads(3, body)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"edge_y": [1, 2]}, r"edge_y has shape \(2,\); expected \(3,\)"),
        ({"edge_y": [0, -2, 1]}, "edge 1 has label -2"),
        ({"edge_y": [0, 1, np.inf]}, "edge 2 has the target inf"),
        ({"edge_y": [0, 1, 1], "edge_split": [0, 1, 5]}, "edge_split is int64 of shape .*; expected int8"),
        ({"edge_y": [0, 1, 1], "edge_classes": ("one",)}, "1 names of classes; the labels have 2"),
        ({"edge_y": [0, 1, 1], "duplicates": "sum"}, "makes one edge of several"),
    ],
)
def test_wrong_labels_are_refused_with_their_edge(fields, message):
    with pytest.raises(GraphError, match=message):
        graph_from_coo([0, 1, 0], [1, 2, 2], 3, **fields)


def test_listed_edges_of_weight_0_are_not_predicted():
    graph = graph_from_coo([0, 1], [1, 2], 3, weights=[0.0, 1.0], edge_y=[0, 1], X=np.ones((3, 1)))
    assert graph.edge_y.tolist() == [0, 1] and graph.nnz == 1
    with pytest.raises(GraphError, match="1 of 2 listed edges weigh 0"):
        distribute(graph).on_edges()


def test_a_report_says_what_edges_have():
    said = report(labelled())
    assert (said["edge_task"], said["edge_classes"], said["edge_labelled"]) == ("classes", ("no", "yes"), 4)
    assert (said["edge_train"], said["edge_val"], said["edge_test"]) == (2, 1, 1)
    assert "2 classes of edges" in repr(labelled()) and labelled().without_edge_attr().edge_y is None


def test_a_part_with_a_damaged_label_is_named(tmp_path):
    graph = labelled()
    save_partition(part_graph(graph, 1, "block"), tmp_path / "parts", graph)
    file = next((tmp_path / "parts").rglob("edge_labels.npy"))
    np.save(file, np.full(len(np.load(file)), -5))
    with pytest.raises(PartitionError):
        PartitionFolder(tmp_path / "parts").graph()


def test_labels_alone_make_a_multigraph():
    A = graph_from_coo([0, 1], [1, 2], 3).A
    graph = Graph(A, edge_y=np.array([3, 0]))
    assert graph.edge_attr.shape == (2, 0) and graph.edge_ids.tolist() == [0, 1]
