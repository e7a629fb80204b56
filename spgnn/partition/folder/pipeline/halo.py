"""The halo of each part beyond its first hop, the sums of its nodes, and what the manifest has of labels and splits.

Shapes: N nodes, k parts, n own nodes, g nodes of a halo, S splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..store import part_name, train_counts
from . import _pipeline
from .part_tables import Dense, Show
from .rows import GlobalRows
from .work import NpyFile, WorkFolder, header_bytes, read_slice, write_npy

AT_ONCE = 1 << 18  # nodes
GROUP = 64  # parts at a time, a bit each


def grow_halo(
    work: WorkFolder, rows: GlobalRows, owner_N: np.ndarray, k: int, hops: int, block_entries: int, progress: Show
) -> dict:
    """Extend halo.npy of each part from one hop to `hops`, and write halo_hops.npy.

    Writes: halo.npy (g,) int64 rising, halo_hops.npy (g,) int8, 1 to hops. Goes over all rows (hops - 1) ceil(k / 64) times.
    """
    sizes = []
    for first in range(0, k, GROUP):
        group = range(first, min(first + GROUP, k))
        reach = _pipeline.Reach(owner_N, first)
        for p in group:
            # The stage may be done again after a kill: the first hop is moved to a file of its own.
            near = work.folder / f"near-{p:05d}.npy"
            if not near.exists():
                (work.new / part_name(p) / "halo.npy").rename(near)
            reach.hold(p - first, np.load(near))
        for hop in range(2, hops + 1):
            if hop > 2:
                reach.next_hop()
            for row, lengths, columns in rows.blocks(block_entries):
                reach.spread(row, lengths, columns)
                progress(f"halo {hop}", row + len(lengths), len(owner_N))
            for p in group:
                np.save(work.folder / f"hop-{p:05d}-{hop}.npy", reach.added(p - first))
        del reach
        for p in group:
            sizes.append(_merge(work, p, hops))
    return {"sizes": sizes}


def _merge(work: WorkFolder, p: int, hops: int) -> int:
    files = [work.folder / f"near-{p:05d}.npy"] + [work.folder / f"hop-{p:05d}-{hop}.npy" for hop in range(2, hops + 1)]
    found = [np.load(path) for path in files]
    hop_g = np.repeat(np.arange(1, hops + 1, dtype=np.int8), [len(ids) for ids in found])
    halo_g = np.concatenate(found)
    order = np.argsort(halo_g, kind="stable")
    for name, values in (("halo", halo_g), ("halo_hops", hop_g)):
        write_npy(work.new / part_name(p) / f"{name}.npy", values[order])
    return len(halo_g)


class HaloRows:
    """Writes the rows of the halo's nodes within hops - 1: halo_indptr, halo_indices, halo_weights; others are empty."""

    def __init__(self, work: WorkFolder, k: int, hops: int, dtype: str):
        self.hops, self.dtype = hops, np.dtype(dtype)
        self.parts = []
        for p in range(k):
            folder = work.new / part_name(p)
            files = [
                NpyFile(folder / f"halo_{name}.npy", kind)
                for name, kind in (("indptr", dtype), ("indices", dtype), ("weights", np.float32))
            ]
            files[0].append(np.zeros(1, self.dtype))
            self.parts.append((folder, files))
        self.at_k = [0] * k

    def add(self, first: int, lengths: np.ndarray, columns: np.ndarray) -> None:
        """Add the rows first, first + 1, ... of A."""
        start = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=start[1:])
        for p, (folder, (indptr, indices, weights)) in enumerate(self.parts):
            at = self.at_k[p]
            ids, hop = (
                read_slice(folder / f"{name}.npy", kind, at, len(lengths))
                for name, kind in (("halo", np.int64), ("halo_hops", np.int8))
            )
            count = int(np.searchsorted(ids, first + len(lengths)))
            ids, hop = ids[:count] - first, hop[:count]
            self.at_k[p] = at + count
            length = np.where(hop < self.hops, lengths[ids], 0)
            ends = np.cumsum(length, dtype=np.int64)
            chosen = np.repeat(start[ids] - (ends - length), length) + np.arange(ends[-1] if count else 0)
            indptr.append((indices.rows + ends).astype(self.dtype))
            indices.append(columns[chosen].astype(self.dtype))
            weights.append(np.ones(len(chosen), np.float32))

    def finish(self) -> None:
        """Write the headers and wait for the disk."""
        for _, files in self.parts:
            for file in files:
                file.finish()


class SumsOfNodes:
    """Row sum, column sum and diagonal of each node, every nonzero being 1; 5 bytes per node, 1 for undirected edges.

    Args: is_multi  a node may have several self-loops, which take 3 bytes more.
    """

    def __init__(self, lengths_N: np.ndarray, is_symmetric: bool, is_multi: bool = False):
        self.lengths_N, self.is_symmetric = lengths_N, is_symmetric
        self.counts_N = lengths_N if is_symmetric else np.zeros(len(lengths_N), np.uint32)
        self.loops_N = np.zeros(len(lengths_N), np.uint32 if is_multi else bool)

    def add(self, first: int, lengths: np.ndarray, columns: np.ndarray) -> None:
        """Add the rows first, first + 1, ... of A."""
        if not self.is_symmetric:
            np.add.at(self.counts_N, columns, np.uint32(1))
        rows = np.repeat(np.arange(first, first + len(lengths), dtype=np.uint32), lengths)
        np.add.at(self.loops_N, rows[rows == columns], self.loops_N.dtype.type(1))

    def write(self, work: WorkFolder, k: int, with_halo: bool) -> None:
        """Write sums.npy of each part, and halo_sums.npy; halo_hops.npy where the halo has a single hop."""
        for p in range(k):
            folder = work.new / part_name(p)
            for nodes, name in (("own", "sums"), ("halo", "halo_sums"))[: 1 + with_halo]:
                file = NpyFile(folder / f"{name}.npy", np.float64, (3,))
                for ids in _stretches(folder / f"{nodes}.npy"):
                    diagonal = np.where(self.loops_N[ids], self.loops_N[ids], np.nan)
                    file.append(np.stack([self.lengths_N[ids], self.counts_N[ids], diagonal], axis=1))
                file.finish()
            if with_halo and not (folder / "halo_hops.npy").exists():
                hops = NpyFile(folder / "halo_hops.npy", np.int8)
                for ids in _stretches(folder / "halo.npy"):
                    hops.append(np.ones(len(ids), np.int8))
                hops.finish()


def count_train(folder: Path, labels: Dense | None, split: Dense | None) -> tuple[int, list[int] | None]:
    """Return 1 + the largest label of a part, or its columns of labels or numbers, and its labelled training nodes in each split."""
    if labels is None:
        return 0, None
    is_number = labels.dtype.kind == "f"
    n_classes, train_S = labels.tail[0] if labels.tail else int(is_number), None
    start = 0
    for ids in _stretches(folder / "own.npy"):
        # Every node of several labels counts as labelled: they are not read.
        is_read = not labels.tail or is_number
        y = _rows(folder, "labels", labels, start, len(ids)) if is_read else np.empty((len(ids), 0), np.int8)
        s = None if split is None else _rows(folder, "split", split, start, len(ids))
        n_classes = n_classes if labels.tail or is_number else max(n_classes, int(y.max()) + 1)
        found = train_counts(y, s)
        if found is not None:
            train_S = found if train_S is None else np.add(train_S, found).tolist()
        start += len(ids)
    if train_S is None and split is not None:  # a part without nodes
        train_S = [0] * (split.tail[0] if split.tail else 1)
    return n_classes, train_S


def _rows(folder: Path, name: str, table: Dense, start: int, count: int) -> np.ndarray:
    width = int(np.prod(table.tail))
    values = read_slice(folder / f"{name}.npy", table.dtype, start * width, count * width)
    return values.reshape(count, *table.tail)


def _stretches(path: Path) -> Iterator[np.ndarray]:
    """Yield the ids of an .npy, AT_ONCE at a time; read, as mapped pages would count as memory of this process."""
    offset, start = header_bytes(path), 0
    while len(ids := read_slice(path, np.int64, start, AT_ONCE, offset)):
        yield ids
        start += len(ids)
