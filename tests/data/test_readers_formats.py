"""Every format, as its own tools write it, is detected and read to the graph that was written."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import tiny_files as tiny

from spgnn.data.formats import detect_format, known_formats, read_graph
from spgnn.errors import FormatError, InputError

DIRECTED = [key for key in tiny.WRITERS if key[0] not in ("metis", "planetoid", "triples", "interactions", "mesh")]
WEIGHTED = {
    ("edges", "csv"), ("parquet", "one file"), ("dimacs", "arcs"), ("mtx", "plain"), ("scipy", "csr"),
    ("scipy", "csc"), ("scipy", "coo"), ("h5ad", "csr"), ("h5ad", "csc"),
}  # fmt: skip
ENTIRE = [key for key in DIRECTED if key[0] in ("gnn-benchmark", "heterophilous", "graphsaint", "ogb")]


def edges_of(graph):
    A = graph.A.tocoo()
    return sorted(zip(A.row.tolist(), A.col.tolist()))


def written(tmp_path, key):
    return read_graph(tiny.WRITERS[key](tmp_path))


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("key", tiny.WRITERS, ids=" ".join)
def test_each_file_is_detected_as_its_own_format_only(tmp_path, key):
    assert detect_format(tiny.WRITERS[key](tmp_path)) == key[0]


@pytest.mark.parametrize("key", DIRECTED, ids=" ".join)
def test_edges_and_weights_are_those_of_the_file(tmp_path, key):
    graph = written(tmp_path, key)
    # These say nothing of an isolated last node.
    n = tiny.N - 1 if key[0] in ("binary", "parquet") or key[1] in ("csv", "quoted") else tiny.N
    expected = tiny.adjacency(tiny.WEIGHTS if key in WEIGHTED else None)[:n, :n]
    assert graph.A.shape == (n, n)
    np.testing.assert_array_equal(graph.A.toarray(), expected.toarray())
    assert graph.A.data.dtype in (np.float32, np.float64)


@pytest.mark.parametrize("key", ENTIRE, ids=" ".join)
def test_features_labels_and_split_are_those_of_the_file(tmp_path, key):
    graph = written(tmp_path, key)
    np.testing.assert_array_equal(dense(graph.X), tiny.X)
    np.testing.assert_array_equal(graph.y, np.eye(3)[tiny.Y] if key[1] == "multi-label" else tiny.Y)
    if key[0] != "gnn-benchmark":
        np.testing.assert_array_equal(graph.split_N(0), tiny.SPLIT)


def test_sparse_features_stay_sparse(tmp_path):
    for i, key in enumerate([("gnn-benchmark", "sparse"), ("graphsaint", "classes"), ("planetoid", "python 2")]):
        (tmp_path / str(i)).mkdir()
        assert sp.issparse(written(tmp_path / str(i), key).X)


def test_ten_splits_stand_side_by_side(tmp_path):
    graph = written(tmp_path, ("heterophilous", "2 splits"))
    assert graph.split.shape == (tiny.N, 2) and graph.split.dtype == np.int8
    np.testing.assert_array_equal(graph.split_N(1), np.roll(tiny.SPLIT, 1))


def test_metis_reads_neighbours_and_edge_weights_and_ignores_node_weights(tmp_path):
    plain = read_graph(tiny.write_metis(tmp_path))
    assert plain.n_nodes == 5
    assert edges_of(plain) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 3), (3, 2)]
    weighted = read_graph(tiny.write_metis_weighted(tmp_path))
    expected = [[0, 5, 0, 0], [5, 0, 6, 0], [0, 6, 0, 7], [0, 0, 7, 0]]
    np.testing.assert_array_equal(weighted.A.toarray(), expected)
    assert weighted.meta["node_weights"] == "ignored"


def test_planetoid_places_test_rows_and_leaves_a_missing_node_empty(tmp_path):
    graph = read_graph(tiny.write_planetoid(tmp_path))
    assert graph.n_nodes == 10 and graph.meta["duplicates"] == 1
    assert edges_of(graph) == [(0, 1), (1, 0), (2, 8), (3, 6), (6, 3), (8, 2), (9, 9)]
    rows = dense(graph.X)[[8, 6, 9, 7]]
    np.testing.assert_array_equal(rows, [[0, 8, 0], [6, 0, 0], [0, 0, 9], [0, 0, 0]])
    np.testing.assert_array_equal(graph.y, [*tiny.Y, 0, -1, 2, 1])
    np.testing.assert_array_equal(graph.split, [0, 0, 1, 1, 1, 1, 2, -1, 2, 2])


def test_planetoid_written_by_this_python_reads_the_same(tmp_path):
    old = read_graph(tiny.write_planetoid(tmp_path))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        graph = read_graph(tiny.write_planetoid(tmp_path, lambda value: pickle.dumps(value, protocol)))
        assert graph.digest() == old.digest()
        np.testing.assert_array_equal(dense(graph.X), dense(old.X))


@pytest.mark.parametrize("part, value, message", [
    ("ty", np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]]), "ind.tiny.ty: row 1 is not one-hot"),
    ("ty", np.array([[1, 0, 0], [0, 2, 0], [0, 0, 1]]), "ind.tiny.ty: row 1 is not one-hot"),
    ("ty", np.eye(2, 3), "ind.tiny.tx: shape (3, 3); expected (2, 3)"),
    ("ally", [[1, 0]], "ind.tiny.ally: holds list; expected an array"),
    ("allx", np.eye(6), "ind.tiny.allx: holds ndarray; expected a scipy CSR"),
    ("tx", sp.csr_matrix(np.ones((3, 2))), "ind.tiny.tx: shape (3, 2); expected (3, 3)"),
    ("tx", sp.csr_matrix(np.full((3, 3), np.nan)), "ind.tiny.tx: features"),
    ("graph", {u: [10] * (u == 1) for u in range(10)}, "edge 0 is 1 -> 10; node ids must be 0 to 9"),
    ("graph", {0: [1], 1: (0,)}, "expected a dict of node: [neighbours]"),
    ("graph", {0: [1.0]}, "a neighbour is not an integer"), ("test.index", b"8\n6\n", "test.index: 2 ids; expected 3"),
    ("test.index", b"8\n6\n8\n", "test.index: 3 ids; expected 3 different ones"),
    ("test.index", b"8\n6\n5\n", "test.index: ids 5 to 8; expected 6 to 9"),
    ("test.index", b"8\n6\n10\n", "test.index: ids 6 to 10; expected 6 to 9"),
    ("test.index", b"8\n6\nx\n", "test.index:3: test node id is 'x'"),
])  # fmt: skip
def test_planetoid_parts_must_fit_each_other(tmp_path, part, value, message):
    prefix = tiny.write_planetoid(tmp_path)
    (tmp_path / f"ind.tiny.{part}").write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, 2))
    with pytest.raises(InputError) as caught:
        read_graph(prefix)
    assert message in str(caught.value) and caught.value.exit_code == 3


def test_a_planetoid_row_of_zeros_has_no_label(tmp_path):
    prefix = tiny.write_planetoid(tmp_path)
    (tmp_path / "ind.tiny.ty").write_bytes(pickle.dumps(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 1]]), 2))
    assert read_graph(prefix).y[[8, 6, 9]].tolist() == [1, -1, 2]


@pytest.mark.parametrize("key", tiny.WRITERS, ids=" ".join)
def test_progress_ends_at_the_total(tmp_path, key):
    seen = []
    path = tiny.WRITERS[key](tmp_path)
    read_graph(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0 if path.is_file() else True
    assert all(done <= total for done, total in seen)


def files_of(path):
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.is_file())
    return [path] if path.is_file() else sorted(path.parent.glob(path.name + "[._]*"))


@pytest.mark.parametrize("key", tiny.WRITERS, ids=" ".join)
def test_an_empty_file_is_named(tmp_path, key):
    path = tiny.WRITERS[key](tmp_path)
    for file in files_of(path):
        if file.name.startswith("num-edge-list"):
            continue
        kept = file.read_bytes()
        file.write_bytes(b"")
        with pytest.raises(InputError, match=f"{file.name}.*empty|{file.name}.*rows"):
            known_formats()[key[0]].read(path, None)
        file.write_bytes(kept)


@pytest.mark.parametrize("key", tiny.WRITERS, ids=" ".join)
def test_a_file_cut_at_any_place_is_refused_or_still_a_graph(tmp_path, key):
    path = tiny.WRITERS[key](tmp_path)
    read = known_formats()[key[0]].read
    whole = read(path, None)
    for file in files_of(path):
        raw = file.read_bytes()
        for cut in range(1, len(raw), max(1, len(raw) // 12)):
            file.write_bytes(raw[:cut])
            try:
                assert read(path, None).nnz <= whole.nnz
            except InputError as error:
                assert str(error).startswith(str(tmp_path))
        file.write_bytes(raw)


def test_a_folder_that_is_no_graph_is_refused_with_what_was_looked_for(tmp_path):
    (tmp_path / "notes.md").write_text("nothing here")
    with pytest.raises(FormatError, match="adj_full.npz"):
        read_graph(tmp_path)


def test_a_missing_part_of_a_folder_is_named(tmp_path):
    path = tiny.write_graphsaint(tmp_path)
    (path / "role.json").unlink()
    with pytest.raises(FormatError, match="role.json: no such file"):
        read_graph(path)
