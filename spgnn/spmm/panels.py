"""Column panels: a product in passes, each over columns of A whose rows of X stay in a core's cache.

Z = A X is added up as A[:, p] X[p] over panels p of columns that hold equally many nonzeros. Where rows of A are
long, fewer rows of X come from the caches that cores share, and Z, which every pass reads and writes, costs less
than that. The kernel begins each sum with what is there already, so that one pass and several give the same bits.
Whether it pays depends on the machine: the first products of a width are timed, in turns, and the faster way stays.
Shapes: n rows, m columns, F width.
Source: Nishtala et al. 2007, "When cache blocking of sparse matrix vector multiply works and why".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

NONZEROS_A_PANEL = 13  # of a row: with fewer, passes over Z cost more than they save
MOST_PANELS = 8
SMALLEST_NNZ = 1 << 20
NARROWEST = 128  # bytes of a row of X
SMALLEST_X = 1 << 23  # bytes: less is in a cache anyway
TRIALS = 2  # products of each way that are timed, after one of each that is not
GAIN = 0.97  # of the seconds of one pass, to stay


def panel_count(n: int, nnz: int) -> int:
    """Return the panels of a block; 1: they would not pay at any width."""
    if nnz < SMALLEST_NNZ:
        return 1
    return int(min(MOST_PANELS, nnz // (NONZEROS_A_PANEL * max(n, 1)))) or 1


def panel_bytes(n: int, nnz: int, row_bytes: int, nonzero: int = 8) -> int:
    """Return the bytes that the panels of a block take, which is stored once more in them."""
    count = panel_count(n, nnz)
    return nnz * nonzero + 8 * count * (n + 1) if count > 1 and row_bytes >= NARROWEST else 0


@dataclass(slots=True)
class Panels:
    """The panels of one matrix, and for each width what the first products took in one pass and in several."""

    count: int
    parts: list | None = None  # (columns, indptr, indices, weights) of each
    seconds: dict[tuple, tuple[list[float], list[float]]] = field(default_factory=dict)
    chosen: dict[tuple, bool] = field(default_factory=dict)

    def fit(self, m: int, F: int, itemsize: int) -> bool:
        """Return whether a width is one for which several passes may pay."""
        return self.count > 1 and F * itemsize >= NARROWEST and m * F * itemsize >= SMALLEST_X

    def next_way(self, key: tuple) -> bool:
        """Return whether the next product of a width is to be made in several passes."""
        if key in self.chosen:
            return self.chosen[key]
        one, several = self.seconds.setdefault(key, ([], []))
        return len(several) < len(one)

    def took(self, key: tuple, in_panels: bool, seconds: float) -> None:
        """Note what a product took, and choose after the last trial."""
        if key in self.chosen:
            return
        one, several = self.seconds[key]
        (several if in_panels else one).append(seconds)
        if len(several) > TRIALS:
            self.chosen[key] = min(several[1:]) < GAIN * min(one[1:])
            del self.seconds[key]
            if not self.seconds and not any(self.chosen.values()):
                self.parts = None

    def passes(self, A) -> list:
        """Return the panels of a LocalCSR, made when first asked for."""
        if self.parts is None:
            self.parts = cut(A.to_scipy(), self.count)
            if A.weights is None:
                self.parts = [(columns, indptr, indices, None) for columns, indptr, indices, _ in self.parts]
        return self.parts


def cut(A: sp.csr_array, count: int) -> list[tuple[slice, np.ndarray, np.ndarray, np.ndarray]]:
    """Return (columns, indptr, indices from the first of them, weights) of panels with nearly equal nonzeros."""
    n, m = A.shape
    up_to_m = np.cumsum(np.bincount(A.indices, minlength=m))
    ends = np.searchsorted(up_to_m, A.nnz * np.arange(1, count + 1) / count) + 1
    ends[-1] = m
    parts, start = [], 0
    for end in np.minimum(ends, m).tolist():
        is_in = (A.indices >= start) & (A.indices < end)
        before = np.concatenate([[0], np.cumsum(is_in, dtype=np.int64)])
        parts.append((slice(start, end), before[A.indptr], A.indices[is_in] - A.indices.dtype.type(start), A.data[is_in]))
        start = end
    return parts
