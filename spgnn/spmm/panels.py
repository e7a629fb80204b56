"""Column panels: a product in passes, each over some columns of A, so that fewer rows of X are in use at a time.

Z = A X is added up as A[:, p] X[p] over panels p of columns that hold equally many nonzeros. Where rows of A are
long, more rows of X are then found in a cache near the core, and Z, which every pass reads and writes, costs less
than that. The kernel begins each sum with what is there already, so that one pass and several give the same bits.
Whether it pays depends on the machine: the first products of a width are timed, in turns, and the faster way stays.
Imports no torch. A matrix is multiplied by one thread of Python at a time.
Shapes: n rows, m columns, F width.
Source: Nishtala et al. 2007, "When cache blocking of sparse matrix vector multiply works and why".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

NONZEROS_A_PANEL = 13  # of a row: with fewer, passes over Z cost more than they save
MOST_PANELS = 8
SMALLEST_NNZ = 1 << 20
NARROWEST = 128  # bytes of a row of X: two vectors or more, for which the kernel keeps one sum (rows.h); else bits would differ
SMALLEST_X = 1 << 23  # bytes: less is in a cache anyway
TRIALS = 3  # products of each way that are timed; the fastest counts, as the first finds nothing in a cache
GAIN = 0.97  # of the seconds of one pass, to stay
CHUNK = 1 << 20


def panel_count(n: int, nnz: int) -> int:
    """Return the panels of a block; 1: they would not pay at any width."""
    if nnz < SMALLEST_NNZ:
        return 1
    return int(min(MOST_PANELS, nnz // (NONZEROS_A_PANEL * max(n, 1)))) or 1


def panel_bytes(n: int, m: int, nnz: int, row_bytes: int, nonzero: int = 8) -> int:
    """Return the bytes that the panels of an (n, m) block take, which is stored once more in them; row_bytes of X."""
    count = panel_count(n, nnz)
    return nnz * nonzero + 8 * count * (n + 1) if count > 1 and _may_pay(m, row_bytes) else 0


def _may_pay(m: int, row_bytes: int) -> bool:
    return row_bytes >= NARROWEST and m * row_bytes >= SMALLEST_X


@dataclass(slots=True)
class Panels:
    """The panels of one matrix, and for each width what the first products took in one pass and in several."""

    count: int
    parts: list | None = None  # (columns, indptr, indices, weights) of each
    seconds: dict[tuple, tuple[list[float], list[float]]] = field(default_factory=dict)
    chosen: dict[tuple, bool] = field(default_factory=dict)

    def fit(self, m: int, F: int, itemsize: int) -> bool:
        """Return whether a width is one for which several passes may pay."""
        return self.count > 1 and _may_pay(m, F * itemsize)

    def next_way(self, key: tuple) -> bool:
        """Return whether the next product of a width is to be made in several passes."""
        if key in self.chosen:
            return self.chosen[key]
        one, several = self.seconds.setdefault(key, ([], []))
        return len(several) < len(one)

    def took(self, key: tuple, in_panels: bool, seconds: float) -> None:
        """Note what a product took, and choose after the last trial; panels that no width uses or tries are given up."""
        one, several = self.seconds.get(key, ([], []))
        (several if in_panels else one).append(seconds)
        if key in self.chosen or min(len(one), len(several)) < TRIALS:
            return
        self.chosen[key] = min(several) < GAIN * min(one)
        del self.seconds[key]
        if not any(self.chosen.values()) and not any(several for _, several in self.seconds.values()):
            self.parts = None

    def passes(self, A) -> list:
        """Return the panels of a LocalCSR, made when first asked for."""
        if self.parts is None:
            self.parts = cut(A.indptr, A.indices, A.weights, A.shape[1], self.count)
        return self.parts


def cut(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, m: int, count: int) -> list[tuple]:
    """Return (columns, indptr, indices from the first of them, weights or None) of panels with nearly equal nonzeros.

    Takes up to 7 bytes a nonzero while it works, beside what it returns.
    """
    nnz = len(indices)
    if nnz:
        found_m = np.zeros(m, np.int64)
        for start in range(0, nnz, CHUNK):  # bincount makes int64 of them
            found_m += np.bincount(indices[start : start + CHUNK], minlength=m)
        ends = np.minimum(np.searchsorted(np.cumsum(found_m), nnz * np.arange(1, count + 1) / count) + 1, m)
        ends[-1] = m
    else:
        ends = [m] * count
    parts, start = [], 0
    for end in map(int, ends):
        nonzeros = np.flatnonzero((indices >= start) & (indices < end))
        columns = indices[nonzeros]
        columns -= columns.dtype.type(start)
        here = None if weights is None else weights[nonzeros]
        parts.append((slice(start, end), np.searchsorted(nonzeros, indptr).astype(np.int64, copy=False), columns, here))
        start = end
    return parts
