"""The halo of each part beyond its first hop: the nodes within h hops, and the rows of those within h - 1.

Shapes: N nodes, k parts, g nodes of a halo.
"""

from __future__ import annotations

import numpy as np

from ..store import part_name
from . import _pipeline
from .npy import NpyFile, read_slice, write_npy
from .work import WorkFolder

GROUP = 64  # parts at a time, a bit each


def grow_halo(work: WorkFolder, rows, owner_N: np.ndarray, k: int, hops: int, block_entries: int, progress) -> dict:
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
