"""Tiles, panels and slices: long rows of a product in passes over some columns, so that the rows of X in use stay in a cache.

Z = A X is added up as A[:, p] X[p] over panels p of columns that hold equally many nonzeros. Rows of X are then found
in a cache near the core, and Z, which every pass reads and writes, costs less than that where a row has nonzeros
enough in each panel: so rows are taken in groups by length, the longest in most panels, short ones in one pass.
Where an order puts hubs first, long rows have many nonzeros in the first columns: a block of up to 512 such rows takes
what it has in 128 columns, a tile, then in the next 128, before the panels.
Each sum begins with the value in Y and takes the nonzeros in the order of A, so the result is bitwise identical to the
product in one pass. Sizes alone decide whether a product is made in passes: tile_rule.
Shapes: n rows, m columns, F width, b blocks of rows.
Source: Nishtala et al. 2007, "When cache blocking of sparse matrix vector multiply works and why".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch  # noqa: F401  before the kernels: both then share one OpenMP library

from . import _kernels

PANELS = (16, 4)  # of a row with as many times NONZEROS_A_PANEL, or more
NONZEROS_A_PANEL = 6
LEAST_COLUMNS = 1024  # of a panel but the last: their rows of X are in a cache near the core in any case
LEAST_A_TILE = 8  # nonzeros per row in a tile, on average: with fewer, taking its sum up again costs more than is saved
USES_A_TILE = 8  # of a row of X in a tile, on average: with fewer, it is fetched about as often as without tiles


class Tiles(NamedTuple):
    """The first columns of some rows; see the module.

    rows     int64, places of the rows.
    blocks   (b + 1, 4) int64: first row in the list, number of tiles, where counts and nonzeros begin.
    counts   uint8, of each row in each tile of its block.
    indices  uint8, within a tile.
    """

    rows: np.ndarray
    blocks: np.ndarray
    counts: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    is_first: bool = True
    is_last: bool = False

    def apply(self, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, isa: str = "") -> None:
        """out[rows] = A X (+ out)."""
        _kernels.spmm_tiles(
            self.blocks, self.counts, self.indices, self.weights, X, out, accumulate, self.rows, threads, isa
        )


class Panel(NamedTuple):
    """Some columns of some rows: indptr, indices counted from the first of the columns, weights or None.

    rows  int64, places of the rows.
    """

    rows: np.ndarray
    columns: slice
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    is_first: bool
    is_last: bool

    def apply(self, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, isa: str = "", **last) -> None:
        """out[rows] = A X[columns] (+ out), and what comes last of a product: bias, relu, add."""
        _kernels.spmm(
            self.indptr, self.indices, self.weights, X[self.columns], out, accumulate, threads=threads, isa=isa,
            rows=self.rows, **last,
        )  # fmt: skip


class Passes(tuple):
    """The tiles and panels of a matrix, in order."""

    __slots__ = ()

    def multiply(
        self, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, isa: str = "", **last
    ) -> None:
        """out = A X (+ out), then add, bias and relu of `last`; out is written in place."""
        for part in self:
            part.apply(X, out, accumulate or not part.is_first, threads, isa, **(last if part.is_last else {}))


def cut(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, m: int, threads: int = 0) -> Passes:
    """Return the passes of a CSR with sorted columns. Rows are grouped by length; each group has passes of its own."""
    passes: list[Tiles | Panel] = []
    lengths = np.diff(indptr)
    group = sum((lengths >= NONZEROS_A_PANEL * count).astype(np.int8) for count in PANELS)  # 2: the longest
    for number, count in zip((2, 1, 0), (*PANELS, 1)):
        rows = np.flatnonzero(group == number)
        if not len(rows):
            continue
        begins, ends, in_tiles = indptr[rows], indptr[rows + 1], False
        if number == 2:
            *tiled, taken = _kernels.cut_tiles(indptr, indices, weights, rows, m, LEAST_A_TILE, USES_A_TILE, threads)
            in_tiles = bool(taken.any())
            if in_tiles:
                passes.append(Tiles(rows, *tiled))
                begins += taken
        bounds = panel_bounds(_kernels.count_columns(begins, ends, indices, m), count) if count > 1 else [0, m]
        pieces = _kernels.cut_panels(begins, ends, indices, weights, np.array(bounds), threads)
        for p, (ptr, places, values) in enumerate(pieces):
            columns, is_last = slice(bounds[p], bounds[p + 1]), p == len(pieces) - 1
            passes.append(Panel(rows, columns, ptr, places, values, p == 0 and not in_tiles, is_last))
    return Passes(passes)


def panel_bounds(found_m: np.ndarray, count: int) -> list[int]:
    """Return where panels begin and the last one ends: count of them, or fewer where they use up the columns before.

    Each holds an equal share of the nonzeros that are left, or those of LEAST_COLUMNS if that is more.
    """
    m, up_to_m, bounds = len(found_m), np.cumsum(found_m), [0]
    while bounds[-1] < m:
        begin, left = bounds[-1], count - len(bounds) + 1
        done = up_to_m[begin - 1] if begin else 0
        end = int(np.searchsorted(up_to_m, done - (done - up_to_m[-1]) // left)) + 1  # in integers: exact
        end = min(m, max(end, begin + LEAST_COLUMNS))
        bounds.append(m if left == 1 or up_to_m[end - 1] == up_to_m[-1] else end)
    return bounds


SMALLEST_X = 24 << 20  # bytes: a smaller X is mostly found in a cache
LARGEST_SLICE = 1 << 23  # bytes: more is not
ROW_BYTES = (128, 512)  # of a slice, least and most: rows of one vector are summed otherwise, see plus in lanes.h
LEAST_LENGTH = 8  # nonzeros per row on average: with fewer, the copy costs what is saved


def slice_width(n: int, m: int, nnz: int, F: int, itemsize: int) -> int:
    """Return f, the largest divisor of F that suits, or 0 where slices cannot pay."""
    if m * F * itemsize < SMALLEST_X or nnz < LEAST_LENGTH * n or nnz < LEAST_LENGTH * m:
        return 0
    least, most = (row // itemsize for row in ROW_BYTES)
    most = min(most, F // 2, LARGEST_SLICE // (m * itemsize))
    return next((f for f in range(most, least - 1, -1) if F % f == 0), 0)


def multiply_slices(
    A, f: int, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, bias=None, relu=False, add=None
) -> None:
    """out = A X (+ out), then add, bias and relu, f columns at a time, so that the rows of X in use stay in a cache.

    The columns of a slice are copied, (m, f), and multiplied before the next ones are. Each sum takes the nonzeros in
    the same order as without slices, so the result is bitwise identical. Pays where A is small, with rows of some length,
    and X is wide: a subgraph of GraphSAINT. Sizes alone decide, see slice_width.
    Source: Zeng et al. 2021, Accurate, efficient and scalable training of GNNs, Algorithm 7, f bounded by the cache.
    """
    (n, F), m = out.shape, len(X)
    S = F // f
    piece = np.empty((m, f), X.dtype)
    pieces, out, add = X.reshape(m * S, f), out.reshape(n * S, f), None if add is None else add.reshape(n * S, f)
    row_m, row_n = S * np.arange(m), S * np.arange(n)  # of slice 0 in the views with rows of f
    for s in range(S):
        _kernels.take_rows(pieces, row_m + s, piece, threads)
        _kernels.spmm(
            A.indptr, A.indices, A.weights, piece, out, accumulate,
            bias=None if bias is None else bias[s * f : (s + 1) * f], relu=relu, threads=threads, add=add,
            rows=row_n + s,
        )  # fmt: skip
