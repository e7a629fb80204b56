"""load_graph: names, paths and objects; features, labels and split from files of their own."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.data import is_built_in, load_graph, save_graph
from spgnn.data.gallery import path as path_graph
from spgnn.data.readers.make_graph import named_labels
from spgnn.errors import FormatError, GraphError, InputError, UsageError


@pytest.fixture
def folder(tmp_path):
    save_graph(path_graph(5), tmp_path / "five")
    return tmp_path


def saved(folder, array, name="a.npy", **options):
    np.save(folder / name, array, **options)
    return folder / name


def saved_csr(folder, X, name="a.npz"):
    sp.save_npz(folder / name, X)
    return folder / name


def test_built_in_names_and_specs_are_no_paths(tmp_path, monkeypatch):
    assert is_built_in("wordnet") and is_built_in("rmat:scale=3") and not is_built_in("./wordnet")
    save_graph(path_graph(7), tmp_path / "star")
    monkeypatch.chdir(tmp_path)
    assert load_graph("star").n_nodes == 10
    assert load_graph("./star").n_nodes == load_graph("star", format="native").n_nodes == 7
    assert load_graph("star:n=4").meta["source"] == "star:n=4"


@pytest.mark.parametrize("name, message", [
    ("wordnett", "did you mean 'wordnet'"), ("five2", "did you mean 'five'"), ("sub/none", "no such file or folder"),
    ("qqqqqq", "expected a path or one of: wordnet, path, star"),
])  # fmt: skip
def test_an_unknown_name_gives_the_nearest_known_ones(folder, monkeypatch, name, message):
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=message):
        load_graph(name)


def test_an_object_is_taken_and_no_format_goes_with_it():
    assert load_graph(sp.csr_array((3, 3))).n_nodes == 3
    with pytest.raises(UsageError, match="goes with a path"):
        load_graph(sp.csr_array((3, 3)), format="mtx")


def test_features_labels_and_split_come_from_files_of_their_own(folder):
    X, y, split = np.arange(10.0).reshape(5, 2), np.array([0, 1, 2, -1, 0]), np.array([0, 1, 2, -1, 0])
    graph = load_graph(
        folder / "five",
        features=saved(folder, X, "x.npy"),
        labels=str(saved(folder, y, "y.npy")),
        split=saved(folder, split, "s.npy"),
    )
    assert np.array_equal(graph.X, X) and graph.y.tolist() == y.tolist()
    assert graph.split.dtype == np.int8 and graph.split.tolist() == split.tolist()


def test_labels_that_are_text_are_named_classes_and_kept(folder):
    graph = load_graph(folder / "five", labels=saved(folder, np.array(["red", "", "blue", "red", "blue"])))
    assert graph.y.tolist() == [1, -1, 0, 1, 0] and graph.classes == ("blue", "red")
    graph = replace(graph, ids=["a", "b", "ü", "", "e" * 300])
    save_graph(graph, folder / "named")
    again = load_graph(folder / "named")
    assert again.classes == graph.classes and again.ids.tolist() == graph.ids.tolist()
    save_graph(replace(graph, ids=np.arange(5) * 7), folder / "named")
    assert load_graph(folder / "named").ids.tolist() == [0, 7, 14, 21, 28]
    (folder / "named" / "ids.npy").unlink()
    with pytest.raises(FormatError, match="ids.npy: missing"):
        load_graph(folder / "named")
    for ids in (["a"], np.ones(5), [None] * 5):
        with pytest.raises(GraphError, match="ids h"):
            replace(graph, ids=ids)
    with pytest.raises(GraphError, match="1 names of classes; the labels have 2"):
        replace(graph, classes=["red"])
    mixed = replace(graph, **named_labels("y", np.array([1, "a", None, float("nan"), True], object)))
    assert mixed.y.tolist() == [0, 2, -1, -1, 1] and mixed.classes == ("1", "True", "a")


def test_features_that_a_graph_has_not_are_made():
    made = {
        what: load_graph(
            (
                [0, 0, 2],
                [1, 2, 2],
            ),
            features=what,
        ).X
        for what in ("degree", "ones", "identity")
    }
    assert made["degree"].tolist() == [[2], [1], [1]] and made["ones"].tolist() == [[1]] * 3
    assert sp.issparse(made["identity"]) and np.array_equal(made["identity"].toarray(), np.eye(3))


@pytest.mark.parametrize(
    "name, text",
    [("w.csv", "0,1,2\n0,1,3\n1,2,1\n"), ("w.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 2\n1 2 3\n2 3 1\n")],
)  # fmt: skip
def test_duplicates_and_two_directions_follow_one_rule(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    coo = sp.coo_array((np.array([2.0, 3, 1]), ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    for source in (tmp_path / name, coo, sp.csr_array((coo.data, coo.col, [0, 2, 3, 3]), shape=(3, 3))):
        for how, weight in (("auto", 5), ("sum", 5), ("max", 3), ("mean", 2.5)):
            assert load_graph(source, duplicates=how).A[0, 1] == weight
            assert load_graph(source, duplicates=how, combine="sum").A[1, 0] == weight
        with pytest.raises(InputError, match="more than once|duplicates of others"):
            load_graph(source, duplicates="refuse")
    with pytest.raises(UsageError, match="duplicates is no option of the format native"):
        save_graph(path_graph(3), tmp_path / "g")
        load_graph(tmp_path / "g", duplicates="max")
    with pytest.raises(UsageError, match="load_graph: unknown key 'duplicate'; did you mean 'duplicates'"):
        load_graph(coo, duplicate="max")


def test_features_as_csr_stay_sparse_and_are_put_in_order(folder):
    X = sp.csr_array((np.float32([1, 2, 3]), np.array([2, 0, 1]), np.array([0, 2, 2, 3, 3, 3])), shape=(5, 3))
    graph = load_graph(folder / "five", features=saved_csr(folder, X))
    assert sp.issparse(graph.X) and (graph.X != X).nnz == 0
    assert graph.X.indices.tolist() == [0, 2, 1]


@pytest.mark.parametrize("dtype", [">f8", ">i4", "float16", "uint8", "bool"])
def test_features_of_any_number_type_become_native_floats(folder, dtype):
    X = np.array([[0], [1], [1], [0], [1]], dtype)
    graph = load_graph(folder / "five", features=saved(folder, X))
    assert graph.X.dtype in (np.float32, np.float64) and graph.X.ravel().tolist() == [0, 1, 1, 0, 1]


def test_labels_in_one_column_or_whole_floats_are_classes(folder):
    for y in (np.array([[2], [0], [1], [0], [0]]), np.array([2.0, 0, 1, 0, 0])):
        graph = load_graph(folder / "five", labels=saved(folder, y))
        assert graph.y.tolist() == [2, 0, 1, 0, 0] and graph.n_classes == 3


def bad_csr(indices, indptr, shape=(5, 3)):
    def write(folder):
        data = np.ones(len(indices), np.float32)
        arrays = {
            "format": b"csr", "shape": shape, "data": data, "indices": np.array(indices), "indptr": np.array(indptr),
        }  # fmt: skip
        np.savez(folder / "a.npz", **arrays)
        return folder / "a.npz"

    return write


def text(content, name="a.npy"):
    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return write


REFUSED = {
    "features rows": (
        "features",
        lambda f: saved(f, np.ones((4, 2))),
        r"a.npy: shape \(4, 2\), expected \(5, F\): .* has 5 nodes",
    ),
    "features one axis": ("features", lambda f: saved(f, np.ones(5)), r"expected \(5, F\)"),
    "features nan": ("features", lambda f: saved(f, np.full((5, 1), np.nan)), "a.npy: features: entry 0 is nan"),
    "features inf": ("features", lambda f: saved(f, np.full((5, 1), np.inf)), "a.npy: features: entry 0 is inf"),
    "features text": ("features", lambda f: saved(f, np.full((5, 1), "x")), "a.npy: holds <U1; expected numbers"),
    "features pickled": ("features", lambda f: saved(f, np.full((5, 1), {}), allow_pickle=True), "pickle"),
    "features empty file": ("features", text(b""), "empty"),
    "features not npy": ("features", text(b"1 2 3\n"), "not an .npy array"),
    "features cut": ("features", text(np.lib.format.magic(1, 0) + b"\x76\x00{'descr'"), "not an .npy array"),
    "features missing": ("features", lambda f: f / "none.npy", "no such file; expected the features as .npy or .npz"),
    "csr rows": ("features", lambda f: saved_csr(f, sp.csr_array((4, 2))), r"shape \(4, 2\), expected \(5, F\)"),
    "csr of another format": (
        "features",
        lambda f: saved_csr(f, sp.coo_array((5, 2))),
        "features are coo; expected csr",
    ),
    "csr column too large": ("features", bad_csr([0, 3], [0, 1, 2, 2, 2, 2]), "row 1 has column 3; expected 0 to 2"),
    "csr column negative": ("features", bad_csr([0, -1], [0, 1, 2, 2, 2, 2]), "row 1 has column -1"),
    "csr indptr falls": ("features", bad_csr([0, 1], [0, 2, 1, 2, 2, 2]), "indptr must rise"),
    "csr absurd shape": ("features", bad_csr([0, 1], [0, 1, 2, 2, 2, 2], (2**40, 3)), "expected rows \\+ 1"),
    "csr without data": (
        "features",
        lambda f: np.savez(f / "a.npz", indices=[0]) or f / "a.npz",
        "has no array 'format'",
    ),
    "csr cut": ("features", text(b"PK\x03\x04 nothing", "a.npz"), "a.npz"),
    "labels rows": ("labels", lambda f: saved(f, np.zeros(6, int)), r"shape \(6,\), expected \(5,\) or \(5, classes\)"),
    "labels negative": ("labels", lambda f: saved(f, np.array([0, 1, -7, 0, 0])), "a.npy: node 2 has label -7"),
    "labels multi 2": ("labels", lambda f: saved(f, np.full((5, 2), 2)), "has label 2; expected 0 to 1"),
    "labels npz": ("labels", lambda f: saved_csr(f, sp.csr_array((5, 2))), "expected the labels as .npy"),
    "split rows": ("split", lambda f: saved(f, np.zeros(4, np.int8)), r"expected \(5,\) or \(5, S\)"),
    "split value": ("split", lambda f: saved(f, np.array([0, 1, 2, 3, 0])), "0 train, 1 val, 2 test, -1 none"),
    "split floats": ("split", lambda f: saved(f, np.zeros(5)), "is float64; expected integers: 0 train"),
    "labels inf": (
        "labels",
        lambda f: saved(f, np.array([[0], [1], [-np.inf], [0], [0]])),
        "a.npy: node 2 has the target -inf; expected finite",
    ),
    "split wraps unsigned": (
        "split",
        lambda f: saved(f, np.array([0, 255, 0, 0, 0], np.uint8)),
        "node 1 has split 255; expected 0 train",
    ),
    "split wraps": ("split", lambda f: saved(f, np.array([0, 256, 0, 0, 0])), "node 1 has split 256; expected 0 train"),
}


@pytest.mark.parametrize("dtype", ["u1", ">u2", "u8", "i2", ">i8"])
def test_a_split_may_be_integers_of_any_type(folder, dtype):
    graph = load_graph(folder / "five", split=saved(folder, np.array([0, 1, 2, 2, 0], dtype)))
    assert graph.split.dtype == np.int8 and graph.split.tolist() == [0, 1, 2, 2, 0]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("what, write, message", REFUSED.values(), ids=REFUSED)
def test_a_part_that_does_not_fit_is_refused_with_its_file_named(folder, what, write, message):
    with pytest.raises(InputError, match=message):
        load_graph(folder / "five", **{what: write(folder)})


def test_a_header_that_declares_more_than_the_file_holds_is_refused(folder):
    file = saved(folder, np.ones((5, 2)))
    data = file.read_bytes().replace(b"(5, 2), }          ", b"(5, 2000000000), } ")
    file.write_bytes(data)
    with pytest.raises(FormatError, match="80000000128 bytes"):
        load_graph(folder / "five", features=file)


def test_progress_is_called_with_bytes(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    seen = []
    load_graph(tmp_path / "e.txt", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8, 8)
