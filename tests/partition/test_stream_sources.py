"""Edge streams of every kind, bad input, and streams that change."""

import gzip

import numpy as np
import pytest

from spgnn.errors import FormatError, InputError, PartitionError, UsageError
from spgnn.partition import part_stream
from spgnn.partition.stream import edge_stream, sources

EDGES = np.random.default_rng(0).integers(0, 50, (300, 2))
METHODS = ("spring", "spring+", "dbh", "greedy", "hdrf", "2psl")


def edges_of(source, **options) -> np.ndarray:
    """What a stream gives, twice over."""
    stream = edge_stream(source, **options)
    first, second = (
        np.concatenate([chunk.copy() for chunk in stream.chunks()] or [np.zeros((0, 2), int)]) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert stream.n_edges in (None, len(first))
    return first


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(sources, "CHUNK", 64)


@pytest.mark.parametrize(
    "name, separator", [("e.txt", " "), ("e.tsv", "\t"), ("e.csv", ","), ("e.csv", ", "), ("e.el", "  ")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_text_is_streamed(tmp_path, name, separator, packed):
    text = ("# Nodes: 50 Edges: 300\n\n" + "".join(f"{u}{separator}{v}\n" for u, v in EDGES)).encode()
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(text) if packed else text)
    np.testing.assert_array_equal(edges_of(path), EDGES)


@pytest.mark.parametrize("name, dtype", [("e.bin", "<i4"), ("e.i32", "<i4"), ("e.i64", "<i8")])
def test_binary_pairs_are_streamed(tmp_path, name, dtype):
    EDGES.astype(dtype).tofile(tmp_path / name)
    np.testing.assert_array_equal(edges_of(tmp_path / name), EDGES)


def test_binary_files_are_whole_edges_and_are_not_cut_while_read(tmp_path):
    path = tmp_path / "e.bin"
    path.write_bytes(b"\0" * 12)
    with pytest.raises(FormatError, match="12 bytes; expected a multiple of 8"):
        edge_stream(path)
    EDGES.astype("<i4").tofile(path)
    stream = edge_stream(path)
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(InputError, match="10 edges read, expected 300"):
        part_stream(stream, 2)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("is_rows", [True, False])
def test_npy_files_and_memmaps_are_streamed(tmp_path, dtype, is_rows):
    array = (EDGES if is_rows else EDGES.T).astype(dtype)
    np.save(tmp_path / "e.npy", array)
    mapped = np.load(tmp_path / "e.npy", mmap_mode="r")
    np.testing.assert_array_equal(edges_of(tmp_path / "e.npy"), EDGES)
    np.testing.assert_array_equal(edges_of(mapped), EDGES)
    if is_rows:
        np.testing.assert_array_equal(edges_of(mapped[5:]), EDGES[5:])
        np.testing.assert_array_equal(edges_of(mapped[::3]), EDGES[::3])


def test_a_memmap_that_was_written_into_is_streamed_as_it_is_in_memory(tmp_path):
    np.save(tmp_path / "e.npy", (EDGES + 1).astype(np.int64))
    for mode in ("c", "r+"):
        mapped = np.load(tmp_path / "e.npy", mmap_mode=mode)
        mapped -= 1
        np.testing.assert_array_equal(edges_of(mapped), EDGES)
    (tmp_path / "e.npy").unlink()
    np.testing.assert_array_equal(edges_of(mapped), EDGES)


def test_parquet_is_streamed_where_it_holds_edges_of_integers(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "e.parquet"
    for columns, error in [
        ({"a": [1, 2]}, "1 columns; expected source and target"), ({"a": [1, None], "b": [1, 2]}, "an id is null"),
        ({"a": [0.5, 1.0], "b": [1, 2]}, "ids are float64; expected integers"), ({"a": ["x", "y"], "b": [1, 2]}, "expected integers"),
    ]:  # fmt: skip
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(InputError, match=error):
            part_stream(path, 2)
    parquet.write_table(pyarrow.table({"src": EDGES[:, 0], "dst": EDGES[:, 1], "w": np.ones(300)}), path)
    np.testing.assert_array_equal(edges_of(path), EDGES)
    whole = path.read_bytes()
    for spoiled in (whole[:100], b"no Parquet", whole[:40] + b"\xff" * 60 + whole[100:]):
        path.write_bytes(spoiled)
        with pytest.raises(InputError, match="e.parquet: cannot be read as a table|expected"):
            part_stream(path, 2)


def test_iterators_are_streamed_once_or_many_times():
    pairs = [tuple(map(int, edge)) for edge in EDGES]
    for source in (
        pairs,
        iter(pairs),
        lambda: iter(pairs),
        (chunk for chunk in np.array_split(EDGES, 7)),
        [EDGES[:9].T, *pairs[9:]],
    ):
        np.testing.assert_array_equal(edges_of(source), EDGES)


@pytest.mark.parametrize("source, error", [
    ([(0, 1), (2,)], "items look like"), ([(0, 1, 2)], "items look like"), ([(0.5, 1)], "ids are float64"),
    ([np.zeros((3, 3), int)], r"shape \(3, 3\)"), (np.zeros((4, 3), int), r"shape \(4, 3\); expected \(E, 2\)"),
    (np.zeros((4, 2)), "ids are float64"),
    (np.array([[2**63, 1]], np.uint64), "does not fit into a signed 64-bit integer"),
    (7, "cannot stream edges from a builtins.int"), ("no/such/file.txt", "no such file"),
    (__file__, "not a stream of a known format"),
])  # fmt: skip
def test_what_is_no_stream_of_edges_is_refused(source, error):
    with pytest.raises(InputError, match=error):
        part_stream(source, 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("edges, error", [
    ([[0, 1], [3, -2]], "edge 1 of the stream is 3 -> -2"),
    ([[0, 1], [2**40, 2]],
     f"edge 1 of the stream is {2**40} -> 2.*use relabel for ids with large gaps"),
    ([[0, 1], [2**62, 2]], r"use relabel"),
    ([[0, 1], [2**31 - 1, 2]], r"use relabel"),
])  # fmt: skip
def test_a_bad_id_is_named(method, edges, error):
    with pytest.raises(InputError, match=error):
        part_stream(np.array(edges), 1, method)
    with pytest.raises(InputError, match="use relabel"):
        part_stream([(0, 1), (0, 2**33)], 1, method)
    with pytest.raises(InputError, match="edge 0 of the stream is 0 -> 5; expected ids from 0 to 4"):
        part_stream([(0, 5)], 1, method, n_nodes=5)


@pytest.mark.parametrize("method", METHODS)
def test_ids_with_any_gaps_are_numbered_when_asked(method):
    ids = np.sort(np.random.default_rng(1).integers(0, 2**62, 50))
    part = part_stream(ids[EDGES], 3, method, relabel=True, hops=1)
    plain = part_stream(EDGES, 3, method, n_nodes=50, hops=1)
    np.testing.assert_array_equal(part.ids_N, ids)
    np.testing.assert_array_equal(part.owner_N, plain.owner_N)
    np.testing.assert_array_equal(part.rows_PP, plain.rows_PP)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", [np.zeros((0, 2), int), [], np.array([[0, 0]] * 5), np.array([[3, 3]])])
def test_nothing_but_isolated_nodes_is_partitioned(method, source):
    part = part_stream(source, 2, method, hops=1)
    assert part.n_nodes == (int(np.max(source)) + 1 if len(source) else 0)
    assert part.rows_PP.sum() == 0 and part.describe()["replication_factor"] == 1


@pytest.mark.parametrize("options, error", [
    ({"k": 0}, "k = 0"), ({"k": -3}, "k = -3"), ({"k": 2.5}, "k = 2.5"), ({"k": 10**6}, "k = 1000000"), ({"balance": 0.5}, "balance"),
    ({"balance": float("nan")}, "balance"), ({"seed": -1}, "seed"), ({"hops": -1}, "hops"), ({"hops": 10**30}, "hops = 10+; expected an integer from 0 to 127"), ({"method": "sprnig"}, "did you mean 'spring'"),
    ({"thresold": 1}, "did you mean 'threshold'"), ({"threshold": 0}, "threshold"), ({"n_nodes": -1}, r"n_nodes = -1"), ({"format": "xml"}, "xml"),
    ({"method": "spring+", "rounds": -1}, "rounds"), ({"method": "2psl", "capacity": 0.5}, "capacity"), ({"method": "hdrf", "weight": -1}, "weight"),
    ({"degrees": "guessed"}, "degrees"), ({"relabel": True, "n_nodes": 50}, "omit n_nodes"),
])  # fmt: skip
def test_a_bad_option_is_refused(options, error):
    with pytest.raises(UsageError, match=error):
        part_stream(EDGES, **({"k": 2} | options))


@pytest.mark.parametrize("degrees", [[1, 2], np.full(50, -1), np.ones(50), np.ones((50, 1), int)])
def test_degrees_that_do_not_fit_are_refused(degrees):
    with pytest.raises(PartitionError, match="degrees"):
        part_stream(EDGES, 2, degrees=degrees, n_nodes=50)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("change", ["fewer", "more", "other", "order", "ids", "negative"])
def test_a_stream_that_changes_between_passes_is_refused(method, change):
    later = {
        "fewer": EDGES[:-1],
        "more": np.concatenate([EDGES, EDGES[:1]]),
        "other": np.concatenate([EDGES[:-1], EDGES[-1:, ::-1]]),
        "order": EDGES[::-1],
        "ids": EDGES + 1000,
        "negative": EDGES - 60,
    }[change]
    passes = iter([EDGES])
    with pytest.raises(PartitionError, match="the stream changed between passes"):
        part_stream(lambda: iter([next(passes, later)]), 3, method)
