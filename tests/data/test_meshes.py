"""Meshes by meshio: edges once, the boundary, columns of points, and what is refused."""

import itertools
import sys

import numpy as np
import pytest
import tiny_files as tiny

import spgnn
from spgnn.config import TrainConfig
from spgnn.data.readers.mesh_file import CELLS, add_to_mesh
from spgnn.dist import SelfCommunicator
from spgnn.errors import FormatError, GraphError, InputError, UsageError
from spgnn.experiment import predict, run
from spgnn.layers import GCN, Stack

meshio = pytest.importorskip("meshio")


def test_edges_are_there_once_and_the_boundary_is_marked(tmp_path):
    path = tiny.write_mesh(tmp_path)
    graph = spgnn.load_graph(path, labels=f"{path}:T")
    edges = {(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (4, 5), (2, 5)}
    row, col = graph.A.tocoo().coords
    assert set(zip(row.tolist(), col.tolist())) == edges | {(v, u) for u, v in edges} and (graph.A.data == 1).all()
    assert graph.feature_names == ("x", "y", "boundary") and graph.X[:, 2].tolist() == [1] * 6
    np.testing.assert_allclose(graph.y, graph.X[:, 0] / 3)
    graph = spgnn.load_graph(path, features=f"{path}:U,boundary")
    assert graph.feature_names == ("U_0", "U_1", "U_2", "boundary")
    mesh = meshio.vtu.read(path)
    graph = spgnn.from_meshio(mesh, features=["U"], label="T")
    assert graph.feature_names == ("x", "y", "boundary", "U_0", "U_1", "U_2") and graph.is_regression
    assert spgnn.load_graph(mesh).nnz == 16


def split_cube(kind):
    """Corners of cells of a kind that fill a cube: 8 corners, in the order of VTK, and its centre."""
    bottoms = [(0, 3, 2, 1), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)]
    return {
        "hexahedron": [range(8)],
        "wedge": [(0, 1, 2, 4, 5, 6), (0, 2, 3, 4, 6, 7)],
        "pyramid": [(*bottom, 8) for bottom in bottoms],
        "tetra": [(a, b, c, 8) for a, b, c, d in bottoms] + [(a, c, d, 8) for a, b, c, d in bottoms],
    }[kind]


@pytest.mark.parametrize("kind, edges", [("hexahedron", 12), ("wedge", 14), ("pyramid", 20), ("tetra", 26)])
def test_cells_that_fill_a_cube(kind, edges):
    cube = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1), (0.5, 0.5, 0.5)]
    cells = np.array([list(cell) for cell in split_cube(kind)])
    graph = spgnn.from_meshio(meshio.Mesh(np.array(cube, float)[: cells.max() + 1], [(kind, cells)]))
    assert graph.nnz == 2 * edges and graph.X[:8, 3].all() and not graph.X[8:, 3].any()
    assert all(len({*edge}) == 2 for edge in CELLS[kind].edges)
    corners = [set(facet) for facet in CELLS[kind].facets]  # each edge is of two facets
    assert all(sum({u, v} <= facet for facet in corners) == 2 for u, v in CELLS[kind].edges)


POINTS = np.array([*itertools.product((0.0, 1.0), repeat=2), (0.5, 0.5), (2, 2)])


@pytest.mark.parametrize("mesh, fault", [
    (meshio.Mesh(POINTS, [("triangle6", [[0, 1, 2, 3, 4, 5]])]), "cells of type triangle6; expected vertex, line"),
    (meshio.Mesh(POINTS, [("triangle", [[0, 1, 9]])]), "a triangle has the corner 9; expected points 0 to 5"),
    (meshio.Mesh(POINTS, [("line", [[0, 1]])], {"x": np.ones(6)}), "called 'x', as a coordinate or the boundary is"),
])  # fmt: skip
def test_what_is_no_mesh_of_linear_cells_is_refused(mesh, fault):
    with pytest.raises(GraphError, match=fault):
        spgnn.load_graph(mesh)


def test_names_and_files_that_do_not_fit_are_named(tmp_path, monkeypatch):
    path = tiny.write_mesh(tmp_path)
    with pytest.raises(GraphError, match="the points of the mesh have no 'temp'"):
        spgnn.from_meshio(meshio.vtu.read(path), label="temp")
    (tmp_path / "cut.vtu").write_bytes(path.read_bytes()[:200])
    with pytest.raises(FormatError, match=r"cut\.vtu: meshio cannot read it as vtu"):
        spgnn.load_graph(tmp_path / "cut.vtu")
    monkeypatch.setitem(sys.modules, "meshio", None)
    with pytest.raises(InputError, match=r"pip install 'spgnn\[mesh\]'"):
        spgnn.load_graph(path)


@pytest.mark.parametrize("label, loss", [("T", "mse"), ("kind", "auto")])
def test_predictions_are_added_to_the_points(tmp_path, label, loss):
    path = tiny.write_mesh(tmp_path)
    mesh = meshio.vtu.read(path)
    mesh.point_data["kind"] = np.array([0, 1, 1, 0, 1, 0])
    mesh.write(path)
    graph = spgnn.load_graph(path, labels=f"{path}:{label}")
    model = Stack(GCN(3, 4), GCN(4, 1 if label == "T" else 2))
    spgnn.train(model, spgnn.distribute(graph), epochs=2, loss=loss, out=tmp_path / "run")
    expected = predict(str(tmp_path / "run"), comm := SelfCommunicator(), out=str(tmp_path / "p.npy"))
    for _ in range(2):  # the second replaces the first
        found = predict(str(tmp_path / "run"), comm, out=str(path), embeddings=str(path), proba=label != "T")
    assert found["train"] == expected["train"]
    data, name = meshio.vtu.read(path).point_data, "spgnn_T" if label == "T" else "spgnn_class"
    np.testing.assert_array_equal(data[name], np.load(tmp_path / "p.npy"))
    assert data["spgnn_X"].shape == (6, 4) and {"T", "U"} <= data.keys()
    with pytest.raises(UsageError, match="absent.vtu: no such file"):
        predict(str(tmp_path / "run"), comm, out="absent.vtu")
    with pytest.raises(GraphError, match="has 6 points; expected 7, as the graph has nodes"):
        add_to_mesh(path, 7, "--out", {})


def test_classes_of_edges_are_no_data_of_points(tmp_path):
    ring = np.arange(6)
    graph = spgnn.graph_from_coo(ring, (ring + 1) % 6, 6, X=np.ones((6, 1)), edge_y=ring % 2)
    spgnn.save_graph(graph, tmp_path / "ring")
    config = TrainConfig(on="edges", split="random", epochs=1, hidden=4, out=str(tmp_path / "run"))
    run(str(tmp_path / "ring"), config, SelfCommunicator())
    with pytest.raises(UsageError, match="is a run on edges"):
        predict(str(tmp_path / "run"), SelfCommunicator(), out=str(tiny.write_mesh(tmp_path)))
