"""Array files: sizes, types and indices are checked before anything is allocated or multiplied; pickles stay unread."""

import io
import os
import shutil
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import tiny_files as tiny

from spgnn.data.formats import read_graph
from spgnn.errors import FormatError, InputError


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def rewrite(path, **changes):
    """Write the archive again with arrays, or raw bytes of members, changed; None drops one."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    for name, value in changes.items():
        members[f"{name}.npy"] = value if value is None or isinstance(value, bytes) else npy(value)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, raw in members.items():
            if raw is not None:
                new.writestr(name, raw)
    return path


def refusal(path, peak_mb=4, kind=InputError) -> str:
    """Read a file and return the error's message; the memory that it took is bounded."""
    tracemalloc.start()
    try:
        with pytest.raises(kind) as caught:
            read_graph(path)
        assert tracemalloc.get_traced_memory()[1] < peak_mb * 2**20
    finally:
        tracemalloc.stop()
    assert caught.value.exit_code == 3 and str(caught.value).startswith(str(path))
    return str(caught.value)


ONES = np.ones(7, np.float32)


@pytest.mark.parametrize("changes, message", [
    ({"indices": np.array([1, 2, 2, 0, 3, 3, 6])}, "row 4 has column 6; expected 0 to 5"),
    ({"indices": np.array([1, 2, 2, 0, -3, 3, 0])}, "row 2 has column -3"),
    ({"indices": np.array([1, 2, 2, 0, 3, 3, 10**9])}, "column 1000000000"),
    ({"indices": np.array([1, 2, 2, 0, 3, 3, 2**32 + 1])}, "row 4 has column 4294967297"),
    ({"indices": ONES}, "indices is float32; expected integers"),
    ({"indptr": np.array([0, 2, 3, 5, 6, 7, 99])}, "indptr must rise from 0 to 7, got 0 to 99"),
    ({"indptr": np.array([0, 2, 9, 5, 6, 7, 7])}, "indptr must rise"),
    ({"indptr": np.array([0, 2, 3])}, "indptr has 3 entries; expected rows + 1 = 7"),
    ({"indptr": np.zeros(0, int)}, "indptr has 0 entries"), ({"data": ONES[:3]}, "7 indices and 3 values"),
    ({"data": ONES * np.nan}, "expected finite numbers"),
    ({"data": np.float32([1, 2, 3, 4, 5, 6, np.inf])}, "entry 6 is inf"),
    ({"data": np.array(["a"] * 7)}, "data is <U1; expected numbers"),
    ({"data": np.ones((7, 1))}, "data has shape (7, 1)"), ({"shape": np.array([6, 5])}, "adjacency has shape (6, 5)"),
    ({"shape": np.array([2**40, 2**40])}, "expected rows + 1 = 1099511627777"),
    ({"shape": np.array([-6, 6])}, "shape (-6, 6)"), ({"shape": np.array([6.0, 6.0])}, "expected two integers"),
    ({"shape": np.array([6])}, "expected two integers"),
    ({"format": np.array(b"bsr")}, "sparse format 'bsr'; expected csr, csc or coo"),
    ({"format": np.array([b"csr"])}, "sparse format None"), ({"indptr": None}, "has no array 'indptr'"),
])  # fmt: skip
def test_scipy_parts_that_make_no_matrix_are_refused(tmp_path, changes, message):
    assert message in refusal(rewrite(tiny.write_scipy(tmp_path), **changes))


@pytest.mark.parametrize("form", ["coo", "csc"])
def test_other_sparse_formats_check_their_indices_too(tmp_path, form):
    name = "row" if form == "coo" else "indices"
    for bad in (6, -1):
        path = rewrite(tiny.write_scipy(tmp_path, form), **{name: np.array([0, 1, 2, 3, 4, 5, bad])})
        assert f"{bad}" in refusal(path)
    path = rewrite(tiny.write_scipy(tmp_path, form), shape=np.array([2**40, 2**40]))
    refusal(path)


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize("raw, message", [
    (header("(99999999999,)"), "and holds 128"), (header("(2305843009213693952, 4)"), "and holds"),
    (header("(-7,)") + b"\0" * 28, "sizes cannot be negative"),
    (header("(7,)", "'|O'") + b"\0" * 56, "pickled objects, which are never loaded"),
    (header("(7,)", "'<c8'") + b"\0" * 56, "holds complex64; expected numbers"),
    (header("(7,)", "'|V4'") + b"\0" * 28, "expected numbers"),
    (header("(7,)", "[('a', '<f4')]") + b"\0" * 28, "expected numbers"), (header("(7,)", "'|S0'"), "expected numbers"),
    (header("7") + b"\0" * 28, "cannot be read"), (header("(7,)", "__import__('os')"), "cannot be read"),
    (b"\x93NUMPY\x09\x00", "version (9, 0)"), (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "cannot be read"),
    (b"", "cannot be read"),
])  # fmt: skip
def test_an_array_header_is_held_against_the_member_before_allocation(tmp_path, raw, message):
    assert message in refusal(rewrite(tiny.write_scipy(tmp_path), data=raw))


def test_the_size_that_a_member_declares_is_held_against_the_file(tmp_path):
    path = tiny.write_scipy(tmp_path)
    raw = path.read_bytes()
    at = raw.index(b"PK\x01\x02")  # the first entry of the central directory
    path.write_bytes(raw[: at + 24] + struct.pack("<I", 0xF0000000) + raw[at + 28 :])
    message = refusal(path)
    assert "would unpack to 4026531840 bytes" in message or "and holds 4026531840" in message


@pytest.mark.slow
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = rewrite(tiny.write_scipy(tmp_path), data=header("(10000000,)") + bytes(40_000_000))
    assert path.stat().st_size < 1 << 20
    assert "would unpack to 40000128 bytes" in refusal(path)


def test_pickled_members_are_never_read(tmp_path):
    class Call:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    path = rewrite(tiny.write_gnn_benchmark(tmp_path), labels=np.array([Call()], dtype=object))
    assert "array 'labels' holds pickled objects" in refusal(path)
    assert not (tmp_path / "executed").exists()


def test_damage_in_an_archive_is_named(tmp_path):
    path = tiny.write_scipy(tmp_path)
    raw = path.read_bytes()
    for cut in (10, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:cut])
        with pytest.raises(FormatError, match="csr.npz"):
            read_graph(path, "scipy")
    crc = raw.index(b"PK\x01\x02") + 16
    path.write_bytes(raw[:crc] + b"\0\0\0\0" + raw[crc + 4 :])
    assert "CRC" in refusal(path)
    method = raw.index(b"PK\x01\x02") + 10
    path.write_bytes(raw[:method] + b"\x0e\0" + raw[method + 2 :])
    assert "packed by method 14" in refusal(path)
    flags = raw.index(b"PK\x01\x02") + 8
    path.write_bytes(raw[:flags] + b"\x01\0" + raw[flags + 2 :])
    assert "encrypted" in refusal(path)


def test_big_endian_arrays_and_odd_booleans_are_read_right(tmp_path):
    path = rewrite(tiny.write_scipy(tmp_path), data=tiny.WEIGHTS.astype(">f8"), shape=np.array([6, 6], ">i4"))
    np.testing.assert_array_equal(read_graph(path).A.toarray(), tiny.adjacency(tiny.WEIGHTS.astype(float)).toarray())
    path = rewrite(path, data=header("(7,)", "'|b1'") + bytes([1, 2, 255, 1, 1, 0, 1]))
    graph = read_graph(path)
    assert graph.A.data.tolist() == [1] * 6 and graph.meta["zeros"] == 1


def test_unsorted_columns_and_duplicates_become_one_edge_each(tmp_path):
    path = tmp_path / "unsorted.npz"
    np.savez(path, format="csr", shape=(3, 3), data=np.float32([1, 5, 2]), indices=[2, 0, 2], indptr=[0, 3, 3, 3])
    graph = read_graph(path)
    np.testing.assert_array_equal(graph.A.toarray(), [[5, 0, 3], [0, 0, 0], [0, 0, 0]])
    assert graph.meta["duplicates"] == 1


@pytest.mark.parametrize("changes, message", [
    ({"attr_shape": np.array([5, 3])}, "indptr has 7 entries"),
    ({"attr_data": np.full(7, np.nan, np.float32)}, "features"), ({"attr_shape": np.array([6, 2**50])}, "wide with"),
    ({"labels": np.array([0, 1])}, "labels have shape (2,); expected (6,)"),
    ({"labels": np.array([0, 1, 2, 3, 4, -7])}, "node 5 has label -7"),
    ({"labels": np.zeros(6)}, "labels are float64; expected integers"),
])  # fmt: skip
def test_gnn_benchmark_features_and_labels_must_fit(tmp_path, changes, message):
    assert message in refusal(rewrite(tiny.write_gnn_benchmark(tmp_path), **changes))


@pytest.mark.parametrize("changes, message", [
    ({"node_features": tiny.X[:5]}, "node_labels is int64 of shape (6,); expected integers (5,)"),
    ({"node_features": np.full_like(tiny.X, np.inf)}, "features"),
    ({"edges": np.array([[0, 6]])}, "edge 0 is 0 -> 6; node ids must be 0 to 5"),
    ({"edges": np.array([[0, -1]])}, "edge 0 is 0 -> -1"),
    ({"edges": np.array([0, 1])}, "expected integers (edges, 2)"),
    ({"train_masks": np.zeros((2, 5), bool)}, "train_masks is bool of shape (2, 5); expected bool (splits, 6)"),
    ({"val_masks": np.zeros((3, 6), bool)}, "val_masks is bool of shape (3, 6)"),
    ({"test_masks": np.ones((2, 6), bool)}, "node 0 is in two parts of split 0"),
])  # fmt: skip
def test_heterophilous_arrays_must_fit_each_other(tmp_path, changes, message):
    assert message in refusal(rewrite(tiny.write_heterophilous(tmp_path), **changes))


@pytest.mark.parametrize("dtype", ["u1", "u4", "u8", ">u8", ">i2"])
def test_ids_may_be_integers_of_any_type(tmp_path, dtype):
    for write, names in (
        (tiny.write_heterophilous, ("edges",)), (lambda folder: tiny.write_scipy(folder, "coo"), ("row", "col")),
        (lambda folder: tiny.write_scipy(folder, "csc"), ("indices", "indptr")), (tiny.write_scipy, ("indices", "indptr")),
    ):  # fmt: skip
        path = write(tmp_path)
        expected = read_graph(path).digest()
        with np.load(path) as arrays:
            changes = {name: arrays[name].astype(dtype) for name in names}
        assert read_graph(rewrite(path, **changes)).digest() == expected


def test_graphsaint_matrices_must_be_csr(tmp_path):
    path = tiny.write_graphsaint(tmp_path)
    for name, message in (
        ("feats_csr", "features are csc; expected csr"),
        ("adj_full", "the adjacency is csc; expected csr"),
    ):
        rewrite(path / f"{name}.npz", format=np.array(b"csc"))
        assert message in refusal(path)


def test_graphsaint_features_must_fit(tmp_path):
    path = tiny.write_graphsaint(tmp_path, multilabel=True)
    for X, message in [
        (tiny.X[:4], "features have 4 rows; expected 6"),
        (np.float32([[np.nan]] * 6), "entry 0 is nan"),
        (np.ones(6), "expected numbers (6, features)"),
    ]:
        np.save(path / "feats.npy", X)
        assert message in refusal(path)
    (path / "feats.npy").write_bytes(header("(6, 99999999999)"))
    assert "and holds 128" in refusal(path)


def test_binary_edge_files_are_whole_pairs_of_ids_from_0(tmp_path):
    path = tiny.write_binary(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert "55 bytes; expected a multiple of 8: two int32 each" in refusal(path)
    np.array([0, 1, 2, -5], "<i4").tofile(path)
    assert "edge 1, byte 8, is 2 -> -5" in refusal(path)
    np.array([0, 2**31 - 1], "<i4").tofile(path)
    assert "node id 2147483647 makes 2147483648 nodes for 1 edges" in refusal(path)
    bin_path = shutil.copy(tiny.write_binary(tmp_path), tmp_path / "edges.bin")
    np.testing.assert_array_equal(read_graph(bin_path).A.toarray(), tiny.adjacency()[:5, :5].toarray())


def test_features_listed_twice_are_summed_and_sorted(tmp_path):
    changes = {
        "attr_data": np.float32([1, 2, 4]),
        "attr_indices": np.array([2, 0, 2]),
        "attr_indptr": np.array([0, 3, 3, 3, 3, 3, 3]),
    }
    graph = read_graph(rewrite(tiny.write_gnn_benchmark(tmp_path), **changes))
    assert graph.X[[0]].toarray().tolist() == [[2, 0, 5]] and graph.X.nnz == 2
