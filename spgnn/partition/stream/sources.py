"""Edge streams: chunks of (m, 2) ids from a file, an array, an iterator or a graph, which can be read many times.

Shapes: N nodes, E edges of the stream, m edges of a chunk.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...config import TableConfig
from ...data.readers.binary import DTYPES
from ...data.readers.frames import is_parquet, open_parquet
from ...data.readers.heads import ENDINGS, Head, edge_chunks, edge_columns, read_head
from ...data.readers.npz import npy_layout, read_npy
from ...data.readers.text import opened, text_bytes_bound, without_packing
from ...errors import FormatError, InputError, UsageError, is_integer, nearest
from ...graph import Graph

CHUNK = 1 << 16  # edges: 512 kB of int32 pairs, within a core's L2
FORMATS = ("text", "binary", "parquet", "npy")
MOST_EDGES = 2**50
PAIRS = (np.dtype("<i4"), np.dtype("<i8"))  # as a file of edges may have them
MOST_NODES = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class EdgeStream:
    """Edges u, v in some order, in one or both directions, that can be read many times.

    Args:
        name:        what messages call it.
        chunks:      () -> iterator of (m, 2) C-contiguous int32 or int64.
        n_nodes:     N if known, else None: 1 + the largest id.
        n_edges:     E if known, else None.
        nodes_from:  where N comes from, for messages: a table with as many rows.
        head:        the header of a text file.
        most_edges:  upper bound of E: ids with huge gaps are refused before memory is allocated for them.
    """

    name: str
    chunks: Callable[[], Iterator[np.ndarray]]
    n_nodes: int | None = None
    n_edges: int | None = None
    most_edges: int = MOST_EDGES
    nodes_from: str = ""
    head: Head | None = None


def edge_stream(source, n_nodes: int | None = None, format: str | None = None, nodes_from: str = "") -> EdgeStream:
    """Return the EdgeStream of a source.

    Args:   source   text file (.txt, .tsv, .csv; gz), binary pairs (.bin and .i32 int32, .i64 int64), .npy or .parquet;
                     (E, 2) or (2, E) integers, a memmap too; a Graph; an iterable of (u, v) or of (m, 2) chunks, or a
                     function that returns one. An iterator is first written to a temporary file.
            n_nodes  N, if ids up to N - 1 may be missing from the stream.
            nodes_from  where n_nodes comes from, for messages.
            format   text, binary, parquet or npy, if the name of a file does not say.
    Raises: InputError for other sources, UsageError for an unknown format.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"stream format {format!r} is not known{nearest(format, FORMATS)}")
    if n_nodes is not None and (not is_integer(n_nodes) or not 0 <= n_nodes <= MOST_NODES):
        raise UsageError(f"--nodes = {n_nodes!r}; expected an integer from 0 to {MOST_NODES}")
    stream = _stream_of(source, format)
    if n_nodes is None:
        return stream
    return replace(stream, n_nodes=int(n_nodes), nodes_from=nodes_from)


def _stream_of(source, format: str | None) -> EdgeStream:
    if isinstance(source, EdgeStream):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _file(Path(source), format)
    if isinstance(source, Graph):
        return _graph(source)
    if isinstance(source, np.memmap) and (mapped := _mapped(source)) is not None:
        return mapped
    if isinstance(source, np.ndarray):
        return _array(source, "array")
    if callable(source):
        return EdgeStream("iterator", lambda: _gathered(source()))
    if isinstance(source, Iterator):
        return _spooled(source)
    if isinstance(source, Iterable):
        return EdgeStream("iterator", lambda: _gathered(iter(source)))
    raise InputError(
        f"cannot stream edges from a {type(source).__module__}.{type(source).__qualname__}; expected a file, (E, 2) integers, "
        f"a Graph, or an iterable of pairs or of (m, 2) arrays"
    )


def is_read_fast(source, format: str | None = None) -> bool:
    """A pass costs little more than reading: true of binary files and arrays, not of text, Parquet or an iterator."""
    if isinstance(source, (str, os.PathLike)):
        return (format or _format_of(Path(source))) in ("binary", "npy")
    return isinstance(source, (np.ndarray, Graph))


def _format_of(path: Path) -> str:
    ending = Path(without_packing(path.name.lower())).suffix
    return "text" if ending in ENDINGS else "binary" if ending in DTYPES else ending[1:]


def _file(path: Path, format: str | None) -> EdgeStream:
    format = format or ("parquet" if is_parquet(path) else _format_of(path))
    if not path.exists() and format != "parquet":
        raise InputError(f"{path}: no such file")
    if format == "text":
        most = text_bytes_bound(path) // 4 + 1
        return EdgeStream(str(path), lambda: edge_chunks(path, CHUNK), most_edges=most, head=read_head(path))
    if format == "binary":
        return _pairs(path, np.dtype(DTYPES.get(path.suffix.lower(), "<i4")))
    if format == "npy":
        offset, shape, dtype, is_fortran = npy_layout(path)
        if not is_fortran and len(shape) == 2 and shape[1] == 2 and dtype in PAIRS:
            return _pairs(path, dtype, offset, shape[0])
        is_empty = not math.prod(shape)
        return _array(np.zeros(shape, dtype) if is_empty else read_npy(path, mmap=True), str(path))
    if format == "parquet":
        return EdgeStream(str(path), lambda: _parquet(path))
    raise FormatError(
        f"{path}: not a stream of a known format; expected {', '.join(ENDINGS)}, {', '.join(DTYPES)}, .npy or .parquet"
    )


def _pairs(path: Path, dtype: np.dtype, offset: int = 0, n_edges: int | None = None) -> EdgeStream:
    """Pairs of integers from a byte offset on, read into one buffer: mapped pages would count as memory of this process."""
    size = path.stat().st_size - offset
    if n_edges is None:
        if size % (2 * dtype.itemsize):
            raise FormatError(
                f"{path}: {size} bytes; expected a multiple of {2 * dtype.itemsize}, two {dtype.name} per edge"
            )
        n_edges = size // (2 * dtype.itemsize)

    def chunks():
        if not n_edges:
            return
        buffer = np.empty((CHUNK, 2), dtype)
        with opened(path) as file:
            file.seek(offset)
            left = n_edges
            while left:
                want = buffer[: min(left, CHUNK)].data.cast("B")
                got = 0
                while got < len(want) and (n := file.readinto(want[got:])):
                    got += n
                m = got // (2 * dtype.itemsize)
                if m == 0:
                    return
                left -= m
                yield buffer[:m]

    return EdgeStream(str(path), chunks, n_edges=n_edges, most_edges=n_edges)


def _mapped(array: np.memmap) -> EdgeStream | None:
    """The file behind an (E, 2) memmap of int32 or int64; None for other layouts, which are copied chunk by chunk."""
    is_pairs = array.ndim == 2 and array.shape[1] == 2 and array.flags.c_contiguous and array.dtype in PAIRS
    start = getattr(array, "offset", None)
    if array.mode == "c":  # changes to it are in no file
        return None
    if not is_pairs or start is None or array.base is None or isinstance(array.base, np.memmap) or not array.filename:
        return None
    path = Path(array.filename)  # it may be gone, and its memory still there
    return _pairs(path, array.dtype, start, len(array)) if path.is_file() else None


def _array(array: np.ndarray, name: str) -> EdgeStream:
    if array.ndim != 2 or 2 not in array.shape:
        raise InputError(f"{name}: edges have shape {array.shape}; expected (E, 2) or (2, E)")
    edges = array if array.shape[1] == 2 else array.T
    n_edges = len(edges)

    def chunks():
        for start in range(0, n_edges, CHUNK):
            yield as_chunk(edges[start : start + CHUNK], name)

    as_chunk(edges[:0], name)
    return EdgeStream(name, chunks, n_edges=n_edges, most_edges=n_edges)


def _graph(graph: Graph) -> EdgeStream:
    """The nonzeros A_ij as j, i, row after row: what each node reads, in the order of the nodes."""
    A = graph.in_use().A

    def chunks():
        for start in range(0, A.nnz, CHUNK):
            stop = min(start + CHUNK, A.nnz)
            first, last = np.searchsorted(A.indptr, (start, stop - 1), side="right") - 1
            bounds = np.clip(A.indptr[first : last + 2], start, stop)
            chunk = np.empty((stop - start, 2), A.indices.dtype)
            chunk[:, 0] = A.indices[start:stop]
            chunk[:, 1] = np.repeat(np.arange(first, last + 1, dtype=chunk.dtype), np.diff(bounds))
            yield as_chunk(chunk, graph.name)

    return EdgeStream(graph.name, chunks, graph.n_nodes, A.nnz, A.nnz)


def _parquet(path: Path) -> Iterator[np.ndarray]:
    with open_parquet(path) as parts:
        names = parts.schema.names
        used = [names[place] for place in edge_columns(str(path), names, len(names), TableConfig())[:2]]
        for batch in parts.to_batches(columns=used, batch_size=CHUNK):
            if batch.column(0).null_count or batch.column(1).null_count:
                raise FormatError(f"{path}: an id is null; expected integers")
            yield as_chunk(
                np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns]), str(path)
            )


def _gathered(items: Iterator) -> Iterator[np.ndarray]:
    """Yield chunks of an iterator of chunks or of single pairs."""
    pairs = []
    for item in items:
        if isinstance(item, np.ndarray) and item.ndim == 2:
            if pairs:
                yield _of_pairs(pairs)
                pairs = []
            if 2 not in item.shape:
                raise InputError(f"iterator: a chunk has shape {item.shape}; expected (m, 2)")
            edges = item if item.shape[1] == 2 else item.T
            for start in range(0, len(edges), CHUNK):
                yield as_chunk(edges[start : start + CHUNK], "iterator")
        else:
            pairs.append(item)
            if len(pairs) == CHUNK:
                yield _of_pairs(pairs)
                pairs = []
    if pairs:
        yield _of_pairs(pairs)


def _of_pairs(pairs: list) -> np.ndarray:
    try:
        array = np.array(pairs)
    except (ValueError, OverflowError, TypeError):
        array = np.array(None)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(f"iterator: its items look like {pairs[0]!r}; expected pairs (u, v), or arrays (m, 2)")
    return as_chunk(array, "iterator")


def _spooled(items: Iterator) -> EdgeStream:
    """The edges of an iterator, from an anonymous temporary file."""
    file = tempfile.TemporaryFile(prefix="spgnn-edges-")
    n_edges = 0
    for chunk in _gathered(items):
        file.write(np.ascontiguousarray(chunk, np.int64).data)
        n_edges += len(chunk)
    file.flush()

    def chunks():
        for start in range(0, n_edges, CHUNK):
            m = min(CHUNK, n_edges - start)
            yield np.frombuffer(os.pread(file.fileno(), 16 * m, 16 * start), np.int64).reshape(-1, 2)

    return EdgeStream("iterator", chunks, n_edges=n_edges, most_edges=n_edges)


def as_chunk(edges: np.ndarray, name: str) -> np.ndarray:
    """Return (m, 2) edges as C-contiguous int32 or int64; InputError unless they are integers."""
    if edges.dtype.kind not in "iu":
        raise InputError(f"{name}: ids are {edges.dtype}; expected integers")
    if edges.dtype == np.uint64 and edges.size and edges.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name}: id {edges.max()} does not fit into a signed 64-bit integer")
    wanted = np.int32 if edges.dtype.itemsize < 4 or edges.dtype == np.int32 else np.int64
    return np.ascontiguousarray(edges, wanted)
