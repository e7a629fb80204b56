"""Tiles: the first columns of long rows, 128 at a time, so that the rows of X in use stay in a cache.

Where an order puts hubs first, long rows have many nonzeros in the first columns. A block of up to 512 such rows takes
what it has in 128 columns, then in the next 128; the other nonzeros follow row by row. Each sum begins with the value
in Y and takes the nonzeros in the order of A, so the result is bitwise identical to the product without tiles.
Sizes alone decide whether a product is made in tiles: tile_rule.
Shapes: n rows, m columns, F width, b blocks of rows.
Source: Nishtala et al. 2007, "When cache blocking of sparse matrix vector multiply works and why".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch  # noqa: F401  before the kernels: both then share one OpenMP library

from . import _kernels

LONG_ROW = 96  # nonzeros of a row that may be in tiles
LEAST_A_TILE = 8  # nonzeros per row in a tile, on average: with fewer, taking its sum up again costs more than is saved
USES_A_TILE = 8  # of a row of X in a tile, on average: with fewer, it is fetched about as often as without tiles
LEAST_SHARE = 0.2  # of all nonzeros: with fewer in tiles, nothing is saved


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

    def apply(self, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, isa: str = "") -> None:
        """out[rows] = A X (+ out)."""
        _kernels.spmm_tiles(
            self.blocks, self.counts, self.indices, self.weights, X, out, accumulate, self.rows, threads, isa
        )


class Rest(NamedTuple):
    """The nonzeros of some rows that are in no tile: a CSR, and the places of its rows."""

    rows: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None


class Tiled(NamedTuple):
    """A matrix cut up: tiles of long rows, the rest of these, and the other rows."""

    tiles: Tiles
    long: Rest
    short: Rest

    def multiply(
        self, X: np.ndarray, out: np.ndarray, accumulate: bool, threads: int = 0, isa: str = "", **last
    ) -> None:
        """out = A X (+ out), then add, bias and relu of `last`; out is written in place."""
        self.tiles.apply(X, out, accumulate, threads, isa)
        for rest, adds in ((self.long, True), (self.short, accumulate)):
            _kernels.spmm(
                rest.indptr, rest.indices, rest.weights, X, out, adds, threads=threads, isa=isa, rows=rest.rows, **last
            )


def cut(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, m: int, threads: int = 0) -> Tiled | None:
    """Return a CSR with sorted columns in tiles, None where these would hold too little."""
    lengths = np.diff(indptr)
    long = np.flatnonzero(lengths >= LONG_ROW)
    *tiled, taken = _kernels.cut_tiles(indptr, indices, weights, long, m, LEAST_A_TILE, USES_A_TILE, threads)
    if taken.sum() < LEAST_SHARE * len(indices):
        return None
    short = np.flatnonzero(lengths < LONG_ROW)

    def rest(rows: np.ndarray, skipped: np.ndarray) -> Rest:
        return Rest(rows, *_kernels.take_ends(indptr, indices, weights, rows, skipped, threads))

    return Tiled(Tiles(long, *tiled), rest(long, taken), rest(short, np.zeros(len(short), np.int64)))
