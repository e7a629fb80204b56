"""From the edge stream to the rows of each part: read and count, spill into buckets, sort each bucket.

Shapes: N nodes, E edges, k parts, n rows of a part, g nodes of other parts that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ....atomic import sync
from ....errors import InputError, PartitionError
from ....graph.structure import index_dtype
from ...metrics import rows_in_order
from ...stream.edge_passes import StreamPasses
from ...stream.sources import EdgeStream
from ..store import part_name
from . import _pipeline
from .part_tables import ID_ROWS, Show, by_part
from .work import NpyFile, WorkFolder, header_bytes, read_slice, write_npy

READ_ENTRIES = 1 << 17  # of a bucket's file at a time
COPY = "edges.i32"


def read_edges(
    work: WorkFolder, stream: EdgeStream, edges: str, *, relabel: bool, copies: bool, progress: Show
) -> dict:
    """Pass over the stream once: check it, count the entries of each row, and copy it if it is slow to read.

    Writes: counts.npy (N,) uint32; edges.i32 if copies; new/ids.npy (N,) int64 if relabel.
    """
    passes = StreamPasses(stream, relabel, progress)
    known = -1 if passes.n_nodes is None else passes.n_nodes
    counts = _pipeline.RowCounts(known, passes.most_nodes, edges)
    if copies:
        with open(work.folder / COPY, "wb") as file:
            passes.run("read", counts.add, lambda chunk: file.write(chunk.astype("<i4").data))
        sync(work.folder / COPY)
    else:
        passes.run("read", counts.add)
    counts_N = counts.counts()
    n_nodes = passes.with_declared(len(counts_N))
    passes.learn_nodes(n_nodes)
    file = NpyFile(work.folder / "counts.npy", np.uint32)
    file.append(counts_N)
    file.append(np.zeros(n_nodes - len(counts_N), np.uint32))
    file.finish()
    if passes.ids_N is not None:
        write_npy(work.new / "ids.npy", passes.ids_N)
    # After relabelling the copy has numbers instead of ids.
    fingerprint = None if relabel else passes.fingerprint
    return {
        "n_nodes": n_nodes,
        "n_edges": passes.edges(),
        "entries": int(counts_N.sum(dtype=np.int64)),
        "fingerprint": fingerprint,
    }


def spill_edges(
    work: WorkFolder,
    passes: StreamPasses,
    owner_N: np.ndarray,
    k: int,
    edges: str,
    bucket_entries: int,
    spill_entries: int,
) -> dict:
    """Pass over the stream and append each nonzero to the file of its bucket, a range of rows of one part.

    Writes: bucket-* files of row << 32 | column, rows numbered part after part; counts.npy in that order.
    """
    work.drop("bucket-*")
    rank_N, part_ends = _ranks(owner_N, k)
    counts_N = np.empty(len(owner_N), np.uint32)
    # counts.npy stays in the order of the nodes: this stage may be done again after a kill.
    counts_N[rank_N] = np.load(work.folder / "counts.npy")
    write_npy(work.folder / "ranked.npy", counts_N)
    bounds, sizes = _buckets(counts_N, part_ends, bucket_entries)
    del counts_N
    spill = _pipeline.Spill(rank_N, bounds, edges, spill_entries)

    def flush() -> None:
        entries, offsets = spill.sort(), spill.offsets()
        for b in range(len(offsets) - 1):
            if offsets[b] < offsets[b + 1]:
                with open(_bucket(work, b), "ab") as file:
                    file.write(entries[offsets[b] : offsets[b + 1]].data)

    def add(chunk: np.ndarray) -> None:
        if spill.room < 2 * len(chunk):
            flush()
        spill.add(chunk)

    passes.run("split edges", add)
    flush()
    for path in work.folder.glob("bucket-*"):
        sync(path)
    return {"bounds": bounds, "sizes": sizes, "part_ends": part_ends.tolist()}


def _ranks(owner_N: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank of each node when sorted by (part, id), (N,) uint32, and the ends of the parts, (k,)."""
    rank_N, part_ends = np.empty(len(owner_N), np.uint32), np.cumsum(np.bincount(owner_N, minlength=k))
    next_k = np.concatenate([[0], part_ends[:-1]])
    for start in range(0, len(owner_N), ID_ROWS):
        order, bounds = by_part(owner_N[start : start + ID_ROWS], k)
        sizes_k = np.diff(bounds)
        rank_N[start + order] = np.repeat(next_k - bounds[:-1], sizes_k) + np.arange(len(order))
        next_k += sizes_k
    return rank_N, part_ends


def _buckets(counts_N: np.ndarray, part_ends: np.ndarray, most: int) -> tuple[list[int], list[int]]:
    """Return the bounds of buckets, ranges of rows inside a part with at most `most` entries or one row, and their entries."""
    ends_N, bounds, sizes = np.cumsum(counts_N, dtype=np.int64), [0], []
    for end in part_ends.tolist():
        while (first := bounds[-1]) < end:
            before = ends_N[first - 1] if first else 0
            stop = int(np.searchsorted(ends_N, before + most, side="right"))
            bounds.append(min(max(stop, first + 1), end))
            sizes.append(int(ends_N[bounds[-1] - 1] - before))
    return bounds, sizes


def sort_part(
    work: WorkFolder, spilled: dict, part: int, owner_N: np.ndarray, reads: _pipeline.Reads, k: int, bucket_entries: int
) -> dict:
    """Write the rows of one part from its buckets: indptr, indices, weights, and the halo of the first hop.

    Returns: nnz, cut nonzeros, rows read from each part, and their sum g.
    """
    folder = work.new / part_name(part)
    folder.mkdir(exist_ok=True)
    first, last = (spilled["part_ends"][part - 1] if part else 0), spilled["part_ends"][part]
    bounds = spilled["bounds"]
    buckets = [b for b in range(np.searchsorted(bounds, first), len(bounds) - 1) if bounds[b] < last]
    # From the spilled entries, duplicates included, so that all parts have one type.
    dtype = spilled["index_dtype"]
    indices, weights = NpyFile(folder / "indices.npy", dtype), NpyFile(folder / "weights.npy", np.float32)
    indptr = NpyFile(folder / "indptr.npy", dtype)
    indptr.append(np.zeros(1, dtype))
    reads.begin(part)
    for b in buckets:
        for lengths, columns in _sorted_bucket(work, spilled, b, len(owner_N), bucket_entries):
            reads.add(columns)
            indices.append(columns.view(np.int32).astype(dtype, copy=False))
            weights.append(np.ones(len(columns), np.float32))
            if lengths is not None:
                indptr.append(
                    (indices.rows - int(lengths.sum(dtype=np.int64)) + np.cumsum(lengths, dtype=np.int64)).astype(dtype)
                )
    halo_g, sent_k = reads.ids(k)
    write_npy(folder / "halo.npy", halo_g)
    for file in (indices, weights, indptr):
        file.finish()
    sync(folder)
    return {"nnz": indices.rows, "cut": reads.cut, "sent": sent_k.tolist(), "halo": len(halo_g)}


def _sorted_bucket(
    work: WorkFolder, spilled: dict, b: int, n_nodes: int, bucket_entries: int
) -> Iterator[tuple[np.ndarray | None, np.ndarray]]:
    """Yield (lengths, columns) of the rows of a bucket; a single wide row comes in pieces, its length last."""
    first, last = spilled["bounds"][b], spilled["bounds"][b + 1]
    if last - first == 1 and spilled["sizes"][b] > bucket_entries:
        is_column_N, step = np.zeros(n_nodes, bool), bucket_entries // 8 + 1

        def add(entries: np.ndarray) -> None:
            columns = entries.astype(np.uint32)  # the lower half
            if np.any(entries >> np.uint64(32) != first) or columns.max() >= n_nodes:
                raise ValueError("holds entries that the edges did not have")
            is_column_N[columns] = True

        _fill(work, spilled, b, add)
        for start in range(0, n_nodes, step):
            yield None, (start + np.flatnonzero(is_column_N[start : start + step])).astype(np.uint32)
        yield np.array([np.count_nonzero(is_column_N)]), np.zeros(0, np.uint32)
        return
    counts = read_slice(work.folder / "ranked.npy", np.uint32, first, last - first)
    rows = _pipeline.Bucket(first, counts, n_nodes)
    _fill(work, spilled, b, rows.add)
    try:
        yield rows.finish()
    except ValueError as error:
        raise PartitionError(f"{_bucket(work, b)}: {error}") from None


def _fill(work: WorkFolder, spilled: dict, b: int, add: Callable[[np.ndarray], None]) -> None:
    path, left = _bucket(work, b), spilled["sizes"][b]
    if left == 0:
        return
    if path.stat().st_size != 8 * left:
        raise InputError(
            f"{path}: {path.stat().st_size} bytes; expected {8 * left}; remove {work.folder} and start again"
        )
    with open(path, "rb", buffering=0) as file:
        while left:
            entries = np.fromfile(file, np.uint64, min(left, READ_ENTRIES))
            try:
                add(entries)
            except ValueError as error:
                raise InputError(f"{path}: {error}; remove {work.folder} and start again") from None
            left -= len(entries)


def drop_buckets(work: WorkFolder, spilled: dict, part: int) -> None:
    """Remove the buckets of a part that has been written."""
    bounds, ends = spilled["bounds"], spilled["part_ends"]
    for b in range(np.searchsorted(bounds, ends[part - 1] if part else 0), len(bounds) - 1):
        if bounds[b] >= ends[part]:
            return
        _bucket(work, b).unlink(missing_ok=True)


def _bucket(work: WorkFolder, b: int) -> Path:
    return work.folder / f"bucket-{b:06d}"


def spill_index_dtype(n_nodes: int, spilled: dict) -> str:
    """Return the type of ids and offsets of all parts: int32 if N and the largest part allow it."""
    bounds, sizes = np.array(spilled["bounds"][:-1]), np.array(spilled["sizes"], np.int64)
    part = np.searchsorted(spilled["part_ends"], bounds, side="right")
    largest = int(np.bincount(part, weights=sizes).max()) if len(sizes) else 0
    return np.dtype(index_dtype(max(n_nodes, largest))).str


class GlobalRows:
    """The rows of A in the order of the nodes, a block at a time, from the files of the parts."""

    def __init__(self, new: Path, owner_N: np.ndarray, k: int, dtype: str):
        self.owner_N, self.k = owner_N, k
        self.dtype = np.dtype(dtype)
        self._files = [new / part_name(p) / "indices.npy" for p in range(k)]
        self._offset = header_bytes(self._files[0]) if k else 0
        self.lengths_N = np.zeros(len(owner_N), np.uint32)
        for p in range(k):
            own_n = np.load(new / part_name(p) / "own.npy")
            self.lengths_N[own_n] = np.diff(np.load(new / part_name(p) / "indptr.npy"))

    def blocks(self, most: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield (first row, lengths (m,) uint32, columns uint32), about `most` columns at a time."""
        cursor_k = np.zeros(self.k, np.int64)
        start, n_nodes = 0, len(self.owner_N)
        while start < n_nodes:
            window = np.cumsum(self.lengths_N[start : start + (1 << 18)], dtype=np.int64)
            stop = start + max(int(np.searchsorted(window, most, side="right")), 1)
            lengths, owner = self.lengths_N[start:stop], self.owner_N[start:stop]
            order = rows_in_order(owner)
            counts_k = np.bincount(owner, weights=lengths, minlength=self.k).astype(np.int64)
            columns = np.empty(int(counts_k.sum()), np.uint32)
            at = 0
            for p in np.flatnonzero(counts_k):
                got = read_slice(self._files[p], self.dtype, int(cursor_k[p]), int(counts_k[p]), self._offset)
                columns[at : at + counts_k[p]] = got
                at += counts_k[p]
            cursor_k += counts_k
            yield start, lengths, _pipeline.place_rows(lengths, order, columns)
            start = stop
