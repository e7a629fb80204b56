"""The native folder: what is written comes back, what is damaged is refused, what is killed does not load."""

import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spgnn.data import load_graph, load_native, save_graph
from spgnn.data import save as saving
from spgnn.data.gallery import path as path_graph
from spgnn.data.gallery import sbm
from spgnn.data.manifest import seal
from spgnn.errors import FormatError, GraphError, InputError, ResourceError, UsageError
from spgnn.graph import Graph, graph_from_coo

ONCE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def graphs(draw):
    """A graph of 0 to 12 nodes with any of weights, dense or sparse X, one or many labels, one or many splits."""
    n = draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m = draw(st.integers(0, 3 * n)) if n else 0
    src, dst = rng.integers(0, max(n, 1), m), rng.integers(0, max(n, 1), m)
    dtype = draw(st.sampled_from([None, np.float32, np.float64]))
    weights = None if dtype is None else rng.standard_normal(m).astype(dtype)
    f = draw(st.integers(0, 5))
    kind = draw(st.sampled_from(["none", "dense", "dense64", "fortran", "sparse"]))
    X = {
        "none": None,
        "dense": rng.standard_normal((n, f)).astype(np.float32),
        "dense64": rng.standard_normal((n, f)),
        "fortran": np.asfortranarray(rng.standard_normal((n, f))),
        "sparse": sp.random_array((n, f), density=0.4, format="csr", dtype=np.float32, random_state=rng),
    }[kind]
    labels = {"none": None, "one": rng.integers(-1, 4, n), "many": rng.integers(0, 2, (n, 3)).astype(np.int8)}
    splits = {
        "none": None,
        "one": rng.integers(-1, 3, n).astype(np.int8),
        "many": rng.integers(-1, 3, (n, 2)).astype(np.int8),
    }
    y = labels[draw(st.sampled_from(sorted(labels)))]
    split = splits[draw(st.sampled_from(sorted(splits)))]
    return graph_from_coo(src, dst, n, weights, X=X, y=y, split=split, name=draw(st.text(max_size=5)))


def assert_same(found: Graph, expected: Graph):
    assert found.digest() == expected.digest()
    assert (found.name, found.edges, found.meta) == (expected.name, expected.edges, expected.meta)
    assert sp.issparse(found.X) == sp.issparse(expected.X)
    if sp.issparse(expected.X):
        assert found.X.shape == expected.X.shape and found.X.dtype == expected.X.dtype
        assert (found.X != expected.X).nnz == 0
    for field in ("y", "split") if sp.issparse(expected.X) else ("X", "y", "split"):
        a, b = getattr(found, field), getattr(expected, field)
        assert (a is None) == (b is None)
        assert a is None or (a.dtype == b.dtype and np.array_equal(a, b))


@pytest.mark.slow
@ONCE
@given(graph=graphs())
def test_what_is_saved_is_loaded_again(graph, tmp_path):
    save_graph(graph, tmp_path / "g")
    assert_same(load_native(tmp_path / "g", verify=True), graph)
    assert os.listdir(tmp_path) == ["g"]


def test_arrays_are_mapped_not_copied(tmp_path):
    save_graph(sbm(200), tmp_path / "g")
    graph = load_native(tmp_path / "g")
    assert is_mapped(graph.A.indices) and is_mapped(graph.X) and is_mapped(graph.y)
    assert not graph.X.flags.writeable


def is_mapped(array) -> bool:
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def test_manifest_tells_sizes_and_direction(tmp_path):
    save_graph(replace(graph_from_coo([0, 1], [1, 2], 3), meta={"lines": np.int64(3)}), tmp_path / "g")
    manifest = json.loads((tmp_path / "g" / "manifest.json").read_text())
    assert (manifest["n"], manifest["nnz"], manifest["directed"], manifest["meta"]) == (3, 2, True, {"lines": 3})


def test_meta_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(GraphError, match="meta holds a set"):
        save_graph(replace(path_graph(2), meta={"ids": {1}}), tmp_path / "g")
    assert os.listdir(tmp_path) == []


def test_a_mapped_graph_is_saved_over_itself(tmp_path):
    save_graph(sbm(50), tmp_path / "g")
    graph = load_native(tmp_path / "g")
    save_graph(replace(graph, name="again"), tmp_path / "g")
    assert_same(load_native(tmp_path / "g", verify=True), replace(graph, name="again"))


def test_a_folder_that_is_no_graph_is_not_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("...")
    with pytest.raises(UsageError, match="not overwritten"):
        save_graph(path_graph(4), tmp_path / "thesis")
    save_graph(path_graph(4), tmp_path / "g")
    (tmp_path / "g" / "summary.json").write_text("of a run")
    with pytest.raises(UsageError, match="is not replaced: summary.json would be lost"):
        save_graph(path_graph(5), tmp_path / "g")
    (tmp_path / "file").write_text("...")
    with pytest.raises(UsageError, match="is a file"):
        save_graph(path_graph(4), tmp_path / "file")
    assert (tmp_path / "thesis" / "chapter1.tex").exists()


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path):
    (tmp_path / "empty").mkdir()
    save_graph(path_graph(4), tmp_path / "empty")
    save_graph(path_graph(4), tmp_path / "a" / "b" / "g")
    assert load_native(tmp_path / "empty").n_nodes == load_native(tmp_path / "a" / "b" / "g").n_nodes == 4


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    save_graph(path_graph(4), tmp_path / "g")

    def full(file, chunk):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving._File, "write", full)
    with pytest.raises(ResourceError, match="No space left"):
        save_graph(path_graph(9), tmp_path / "g")
    assert load_native(tmp_path / "g").n_nodes == 4 and os.listdir(tmp_path) == ["g"]


def test_progress_ends_at_the_total(tmp_path):
    seen = []
    save_graph(sbm(50), tmp_path / "g", progress=lambda done, total: seen.append((done, total)))
    load_native(tmp_path / "g", verify=True, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] and all(done <= total for done, total in seen)


def edit(**changes):
    def change(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(seal(manifest | changes)))

    return change


def edit_file(name, **changes):
    def change(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][name] |= changes
        (folder / "manifest.json").write_text(json.dumps(seal(manifest)))

    return change


def swap(name, array):
    """Replace an array and have the manifest agree with it."""

    def change(folder):
        np.save(folder / f"{name}.npy", array, allow_pickle=array.dtype == object)
        file = folder / f"{name}.npy"
        edit_file(name, bytes=file.stat().st_size, dtype=array.dtype.str, shape=list(array.shape))(folder)

    return change


@pytest.mark.parametrize("seed", range(40))
def test_a_manifest_with_a_changed_bit_is_refused(tmp_path, seed):
    save_graph(sbm(50), tmp_path / "g")
    path, rng = tmp_path / "g" / "manifest.json", np.random.default_rng(seed)
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)
    with pytest.raises(FormatError, match="manifest.json"):
        load_native(tmp_path / "g")


def truncate(name, n_bytes):
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - n_bytes)


REFUSED = {
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "no manifest.json"),
    "manifest cut off": (truncate("manifest.json", 9), "not JSON"),
    "manifest of another kind": (edit(format="spgnn-partition"), "not the manifest of a graph"),
    "newer version": (edit(version=3), "this spgnn reads version 2"),
    "n is text": (edit(n="6"), "n = '6'; expected int"),
    "n is wrong": (edit(n=7), "expected \\(8,\\) from n = 7"),
    "n is absurd": (edit(n=10**15), "from n = 10+"),
    "nnz is wrong": (edit(nnz=3), "expected \\(3,\\) from nnz = 3"),
    "edges unknown": (edit(edges="both"), "edges = 'both'"),
    "features width": (edit(n_features=9), "expected \\(6, 9\\)"),
    "files is a list": (edit(files=[]), "expected dict"),
    "no arrays": (edit(files={}), "names no indices, indptr"),
    "foreign array": (edit(files={"../../etc/passwd": {}}), "names the array"),
    "declared bytes": (edit_file("indices", bytes=10**12), "the manifest says"),
    "declared dtype": (edit_file("indices", dtype="<f4"), "the manifest says"),
    "array missing": (lambda folder: (folder / "labels.npy").unlink(), "missing"),
    "array truncated": (truncate("indices.npy", 4), "declared|truncated"),
    "array empty": (lambda folder: (folder / "indptr.npy").write_bytes(b""), "empty"),
    "array of objects": (swap("labels", np.array([{}] * 6)), "pickle|object"),
    "index out of range": (swap("indices", np.int32([1, 0, 2, 1, 3, 2, 4, 3, 5, 6])), "row 5 has column 6"),
    "index negative": (swap("indices", np.int32([1, 0, 2, 1, 3, 2, 4, 3, 5, -4])), "row 5 has column -4"),
    "indptr falls": (swap("indptr", np.int64([0, 1, 3, 2, 7, 9, 10])), "indptr must rise"),
    "indptr past the end": (swap("indptr", np.int64([0, 1, 3, 5, 7, 9, 11])), "indptr must rise"),
    "indptr wraps in 32 bits": (swap("indptr", np.int64([0, 1, 3 + 2**32, 5, 7, 9, 10])), "indptr must rise"),
    "indices are floats": (swap("indices", np.float32([1, 0, 2, 1, 3, 2, 4, 3, 5, 4])), "expected kind"),
    "weights not finite": (swap("features", np.full((6, 2), np.nan)), "nan"),
    "label out of range": (swap("labels", np.int64([0, 1, 2, 3, 4, -2])), "node 5 has label -2"),
    "split out of range": (swap("split", np.int8([0, 1, 2, 3, 0, 0])), "node 3 has split 3"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native") / "sound"
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2)), np.arange(6)
    save_graph(replace(path_graph(6), X=X, y=y, split=np.int8([0, 1, 2, -1, 0, 0])), folder)
    return folder


@pytest.mark.parametrize("damage, message", REFUSED.values(), ids=REFUSED)
def test_a_damaged_folder_gives_one_clear_error(sound, tmp_path, damage, message):
    folder = tmp_path / "g"
    shutil.copytree(sound, folder)
    damage(folder)
    with pytest.raises(InputError, match=message):
        load_graph(folder, format="native")


@pytest.mark.slow
def test_a_mutated_folder_loads_or_gives_an_input_error(sound, tmp_path):
    rng = random.Random(0)
    names = sorted(p.name for p in sound.iterdir())
    refused = 0
    for trial in range(400):
        folder = tmp_path / f"g{trial}"
        shutil.copytree(sound, folder)
        file = folder / rng.choice(names)
        data = bytearray(file.read_bytes())
        for _ in range(rng.choice([1, 1, 4, 40])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        file.write_bytes(data)
        try:
            graph = load_graph(folder, format="native")
            graph.A @ np.ones(graph.n_nodes)
        except InputError:
            refused += 1
        if data != (sound / file.name).read_bytes() and file.name != "manifest.json":
            with pytest.raises(InputError):
                load_native(folder, verify=True)
    assert 200 < refused < 400


SAVE_FOREVER = """
import sys
from spgnn.data import save_graph
from spgnn.data.gallery import sbm
graph = sbm(20000, features=64)
while True:
    save_graph(graph, sys.argv[1])
"""


@pytest.mark.slow
def test_a_killed_save_leaves_no_half_graph(tmp_path):
    expected = sbm(20000, features=64).digest()
    loaded = interrupted = 0
    for trial in range(4):
        folder = tmp_path / str(trial)
        folder.mkdir()
        # Once as the first file appears, else at some moment of the saves that replace a whole one.
        kill_when_there_is(
            folder / "g" if trial else folder, SAVE_FOREVER, folder / "g", random.Random(trial).random() * 0.05
        )
        for place in folder.iterdir():  # the folder itself and what was being written beside it
            try:
                graph = load_native(place, verify=True)
            except InputError:
                assert place.name.startswith((".g.new-", ".g.old-"))
                interrupted += 1
            else:
                assert graph.digest() == expected
                loaded += 1
    assert loaded and interrupted


def kill_when_there_is(awaited, code, argument, delay_s):
    """Run code with an argument, and kill it delay_s after the file or folder awaited holds something."""
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", code, argument], env=environment) as process:
        while process.poll() is None and not (awaited.is_dir() and any(awaited.iterdir())):
            time.sleep(0.001)
        time.sleep(delay_s)
        process.kill()
