"""Labels that are numbers: how they are told from classes, and that every file and every way to the ranks keeps them."""

import json

import numpy as np
import pytest

import spgnn
from spgnn.data import convert, load_native, save_graph
from spgnn.graph import loaded_line
from spgnn.partition import PartitionFolder, part_graph, part_to_folder, save_partition

EDGES = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 0]])
NAN = np.nan
READ = [  # labels as they are given, task, labels as they are read
    ([0.0, 1, 2, 1, 0, 2, -1, 0], "classes", [0, 1, 2, 1, 0, 2, -1, 0]),
    ([0.0, 1, 2, 1, 0, 2, NAN, 0], "classes", [0, 1, 2, 1, 0, 2, -1, 0]),
    ([0.0, 1, 2, 1, 0, 2, NAN, 0.5], "numbers", [0, 1, 2, 1, 0, 2, NAN, 0.5]),
    ([0.0, -2, 2, 1, 0, 2, 1, 0], "numbers", [0, -2, 2, 1, 0, 2, 1, 0]),
    ([[0.0, 1]] * 8, "labels", [[0, 1]] * 8),
    ([[0.0, 2]] * 8, "numbers", [[0, 2]] * 8),
    ([[0.0, NAN]] * 8, "numbers", [[0, NAN]] * 8),
    ([[3.5]] * 8, "numbers", [3.5] * 8),
]


def numbers_graph():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((8, 2))
    y[3], y[5, 1] = NAN, NAN
    split = np.array([0, 0, 1, 0, 2, 0, 1, 2], np.int8)
    return spgnn.graph_from_coo(*EDGES, y=y, X=rng.standard_normal((8, 3)), split=split, classes=("u", "v"))


@pytest.mark.parametrize("given, task, read", READ)
def test_floats_are_numbers_unless_they_are_whole_classes_or_labels_of_0_and_1(given, task, read, tmp_path):
    np.save(tmp_path / "y.npy", given)
    edges = spgnn.graph_from_coo(*EDGES)
    graph = spgnn.load_graph(edges, labels=tmp_path / "y.npy")
    assert graph.task == task and graph.is_regression == (task == "numbers")
    np.testing.assert_array_equal(graph.y, read)
    folder = part_to_folder(EDGES.T, 2, tmp_path / "parts", memory="16GB", labels=tmp_path / "y.npy")
    parts = PartitionFolder(tmp_path / "parts").graph()
    assert parts.task == task and folder is not None
    np.testing.assert_array_equal(parts.y, read)


def test_a_native_folder_and_a_partition_keep_numbers_and_the_names_of_their_columns(tmp_path):
    graph = numbers_graph()
    save_graph(graph, tmp_path / "g")
    assert json.loads((tmp_path / "g/manifest.json").read_text())["task"] == "numbers"
    save_partition(part_graph(graph, 3, "random"), tmp_path / "parts", graph, hops=1)
    folder = PartitionFolder(tmp_path / "parts")
    assert folder.manifest["n_classes"] == 2 and sum(sum(of) for of in folder.manifest["train"]) == 3
    for read in (load_native(tmp_path / "g", verify=True), folder.graph()):
        np.testing.assert_array_equal(read.y, graph.y)
        assert read.task == "numbers" and read.n_classes == 2 and read.classes == ("u", "v")
    assert "2 numbers to predict (u, v)" in loaded_line(read) and "2 numbers to predict" in repr(read)


def test_columns_of_a_table_are_numbers_with_names(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    (tmp_path / "n.csv").write_text("id,temp,wind,kind\n0,1.5,2,7\n1,,3,8\n2,2.5,,\n")
    report = convert(tmp_path / "e.csv", tmp_path / "g", labels=f"{tmp_path}/n.csv:temp,wind")
    graph = load_native(tmp_path / "g")
    assert report["task"] == "numbers" and report["labelled"] == 3 and graph.classes == ("temp", "wind")
    np.testing.assert_array_equal(graph.y, [[1.5, 2], [NAN, 3], [2.5, NAN]])
    one = spgnn.load_graph(tmp_path / "e.csv", labels=f"{tmp_path}/n.csv:temp")
    np.testing.assert_array_equal(one.y, [1.5, NAN, 2.5])
    assert one.classes == ("temp",)
    kinds = spgnn.load_graph(tmp_path / "e.csv", labels=f"{tmp_path}/n.csv:kind")
    assert kinds.task == "classes" and kinds.y.tolist() == [7, 8, -1]
