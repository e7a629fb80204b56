"""The sums of each part and of its halo, and what the manifest has of labels and splits, from the files of the parts.

Shapes: N nodes, n own nodes, g nodes of a halo, S splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..store import part_name, train_counts
from .npy import NpyFile, header_bytes, read_slice
from .part_tables import Dense
from .work import WorkFolder

AT_ONCE = 1 << 18  # nodes


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
        s = _rows(folder, "split", split, start, len(ids))
        n_classes = n_classes if labels.tail or is_number else max(n_classes, int(y.max()) + 1)
        found = train_counts(y, s)
        train_S = found if train_S is None else np.add(train_S, found).tolist()
        start += len(ids)
    if train_S is None and split is not None:  # a part without nodes
        train_S = [0] * (split.tail[0] if split.tail else 1)
    return n_classes, train_S


def _rows(folder: Path, name: str, table: Dense | None, start: int, count: int) -> np.ndarray | None:
    if table is None:
        return None
    width = int(np.prod(table.tail))
    values = read_slice(folder / f"{name}.npy", table.dtype, start * width, count * width)
    return values.reshape(count, *table.tail)


def _stretches(path: Path) -> Iterator[np.ndarray]:
    """Yield the ids of an .npy, AT_ONCE at a time; read, as mapped pages would count as memory of this process."""
    offset, start = header_bytes(path), 0
    while len(ids := read_slice(path, np.int64, start, AT_ONCE, offset)):
        yield ids
        start += len(ids)
