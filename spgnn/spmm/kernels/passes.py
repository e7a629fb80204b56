"""Cut a CSR into the passes of a product: long rows into tiles and column panels, longer ones into more panels.

Shapes: n rows, m columns, b blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch  # noqa: F401  before the kernels: both then share one OpenMP library

from . import _kernels, panels

LEAST_COLUMNS = 1024  # of a panel but the last: their rows of X are in a cache near the core in any case
LEAST_A_TILE = (
    8  # nonzeros of a row, on average over a block: with fewer, taking its sum up again costs more than is saved
)
USES_A_TILE = 8  # of a row of X in a tile, on average: with fewer, it is fetched about as often as without tiles


class Tiles(NamedTuple):
    """The first columns of some rows, 128 at a time over blocks of rows, as long as these hold enough on average.

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


class Pass(NamedTuple):
    """Some columns of some rows: indptr, indices counted from the first of the columns, weights or None.

    rows     int64, places of the rows; None: all rows, in order.
    indices  uint16 where a cut has 65,536 columns at most, else as those of the CSR.
    """

    rows: np.ndarray | None
    columns: slice
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    is_first: bool
    is_last: bool

    def apply(self, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, isa: str = "", **last) -> None:
        """out[rows] = A X[columns] (+ out), and what comes last of a product: bias, relu, add."""
        _kernels.spmm(
            self.indptr,
            self.indices,
            self.weights,
            X[self.columns],
            out,
            accumulate,
            threads=threads,
            isa=isa,
            rows=self.rows,
            **last,
        )


def whole(A) -> list[Pass]:
    """Return the one pass over a LocalCSR as it is."""
    return [Pass(None, slice(None), A.indptr, A.indices, A.weights, True, True)]


def multiply(
    passes: Sequence[Tiles | Pass],
    X: np.ndarray,
    out: np.ndarray,
    accumulate: bool,
    threads: int = 0,
    isa: str = "",
    **last,
) -> None:
    """out = A X (+ out), then add, bias and relu of `last`; out is written in place."""
    for part in passes:
        part.apply(X, out, accumulate or not part.is_first, threads, isa, **(last if part.is_last else {}))


def cut(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, m: int, threads: int = 0
) -> list[Tiles | Pass]:
    """Return the passes of a CSR with sorted columns: each row in those of its group, in the order of columns.

    Rows of the group with most panels are in tiles first. Takes up to 45 bytes per row, 16 per column, and two for
    each row of a tile, in addition to its result.
    """
    passes: list[Tiles | Pass] = []
    for count, rows in panels.row_groups(np.diff(indptr)):
        begins, ends, in_tiles = indptr[rows], indptr[rows + 1], False
        if count == panels.PANELS[0]:
            *tiled, taken = _kernels.cut_tiles(indptr, indices, weights, rows, m, LEAST_A_TILE, USES_A_TILE, threads)
            in_tiles = bool(taken.any())
            if in_tiles:
                passes.append(Tiles(rows, *tiled))
                begins += taken
        bounds = _bounds(_kernels.count_columns(begins, ends, indices, m), count) if count > 1 else [0, m]
        listed = None if len(rows) == len(indptr) - 1 else rows
        pieces = _kernels.cut(begins, ends, indices, weights, np.array(bounds), threads)
        for p, piece in enumerate(pieces):
            passes.append(
                Pass(listed, slice(bounds[p], bounds[p + 1]), *piece, p == 0 and not in_tiles, p == len(pieces) - 1)
            )
    return passes


def _bounds(found_m: np.ndarray, count: int) -> list[int]:
    """Return where panels begin and the last one ends: count of them, or fewer where they use up the columns before.

    Each holds an equal share of the nonzeros that are left, or those of LEAST_COLUMNS if that is more.
    """
    m, up_to_m, bounds = len(found_m), np.cumsum(found_m), [0]
    while bounds[-1] < m:
        begin, left = bounds[-1], count - len(bounds) + 1
        done = up_to_m[begin - 1] if begin else 0
        end = (
            int(np.searchsorted(up_to_m, done - (done - up_to_m[-1]) // left)) + 1
        )  # in integers: nothing is converted
        end = min(m, max(end, begin + LEAST_COLUMNS))
        bounds.append(m if left == 1 or up_to_m[end - 1] == up_to_m[-1] else end)
    return bounds
