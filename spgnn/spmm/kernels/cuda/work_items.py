"""How the rows of a CSR are shared out over warps: once a matrix, from indptr alone.

A row of more than `longest` nonzeros is cut into items of nearly equal length, whose sums are added by a second
kernel; a shorter one is one item. A large matrix has longer items: their sums are written and read once more, and the
warps that end last are a small part of its time. Items with more than SHORT nonzeros get a warp each, the others a
group of lanes. Within a bin the rows keep their order, so that neighbours read neighbours' rows from the cache.
Shapes: n rows, M items, J rows of several items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....errors import ShapeError

LONG, LONGEST, SHORT = 256, 2048, 16
ITEMS = 25_000  # of the longest kind in a large matrix: 8 for each warp that an H200 runs at once
THREADS, WARP = 256, 32
MOST_VECTORS = 4  # packs of a lane; of 8 columns each, 2
ITEM = np.dtype([("start", "<i8"), ("length", "<i4"), ("row", "<i4")])  # as spmm.cu has them
JOIN = np.dtype([("row", "<i4"), ("first", "<i4"), ("count", "<i4"), ("unused", "<i4")])


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """The items of a matrix, those for a warp first, those of empty rows last.

    items_M (M,) ITEM; row < 0: the sum goes to slot ~row. joins_J (J,) JOIN.
    n_warps items for a warp each; n_filled items that have nonzeros; n_slots sums that wait to be added.
    """

    items_M: np.ndarray
    joins_J: np.ndarray
    n_warps: int
    n_filled: int
    n_slots: int


def row_plan(indptr: np.ndarray) -> RowPlan:
    """Return the plan of a CSR with these row bounds, (n + 1,)."""
    starts, lengths_n = np.asarray(indptr[:-1], dtype=np.int64), np.diff(indptr).astype(np.int64)
    if len(lengths_n) >= 2**31 - 1:
        raise ShapeError(
            f"a block of {len(lengths_n):,} rows; a device takes fewer than 2^31 rows per rank, so use more ranks"
        )
    longest = int(np.clip(lengths_n.sum() // ITEMS, LONG, LONGEST))
    long = np.flatnonzero(lengths_n > longest)
    counts = -(-lengths_n[long] // longest)
    firsts = np.cumsum(counts) - counts
    n_slots = int(counts.sum())
    piece, within = np.repeat(np.arange(len(long)), counts), np.arange(n_slots) - np.repeat(firsts, counts)
    bound = lambda k: lengths_n[long][piece] * k // counts[piece]
    cut = np.empty(n_slots, ITEM)
    cut["start"], cut["length"], cut["row"] = (
        starts[long][piece] + bound(within),
        bound(within + 1) - bound(within),
        ~np.arange(n_slots),
    )
    whole = np.flatnonzero(lengths_n <= longest)
    # Classes of at most a factor of two between lengths; of short rows, which share warps, of 4 nonzeros.
    classes = np.where(
        lengths_n[whole] > SHORT, 64 + np.ceil(np.log2(np.maximum(lengths_n[whole], 1))), -(-lengths_n[whole] // 4)
    )
    whole = whole[np.argsort(-classes, kind="stable")]
    rows = np.empty(len(whole), ITEM)
    rows["start"], rows["length"], rows["row"] = starts[whole], lengths_n[whole], whole
    joins = np.zeros(len(long), JOIN)
    joins["row"], joins["first"], joins["count"] = long, firsts, counts
    n_warps, n_filled = n_slots + int((rows["length"] > SHORT).sum()), n_slots + int((rows["length"] > 0).sum())
    return RowPlan(np.concatenate([cut, rows]), joins, n_warps, n_filled, n_slots)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a row of F columns lies on lanes: G lanes of V columns each, NV times, in `tiles` blocks along the row."""

    V: int
    G: int
    NV: int
    tiles: int


def tiling(F: int, x_bytes: int, aligned: int) -> Tiling:
    """Return the tiling of rows of F columns of x_bytes each.

    Args: aligned  the largest V by which addresses and F may be divided, of all matrices; see common_pack.
    """
    V = max(1, min(16 // x_bytes, aligned))
    lanes = -(-F // V)
    if lanes <= WARP:
        return Tiling(V, 1 << (lanes - 1).bit_length(), 1, 1)
    most = 2 if V == 8 else MOST_VECTORS
    tiles = -(-lanes // (WARP * most))
    NV = -(-lanes // (WARP * tiles))
    return Tiling(V, WARP, NV, tiles)


def common_pack(F: int, *matrices: tuple[int, int]) -> int:
    """Return the largest power of two V <= 8 that divides F and the packs of which are aligned in all matrices.

    Args: matrices  (address, bytes of an entry); a pack is read in words of its size or of 16 bytes.
    """
    V = 8
    while V > 1 and (F % V or any(address % min(16, V * size) for address, size in matrices)):
        V //= 2
    return V


def launches(plan: RowPlan, tile: Tiling, n_items: int) -> list[tuple[int, int, int, int]]:
    """Return (first item, items, E, blocks) of each launch: warps first, then groups of lanes.

    Args: n_items  of the plan's items, all or those that have nonzeros.
    """
    E = WARP // tile.G
    n_warps = n_items if E == 1 else min(plan.n_warps, n_items)
    parts = [(0, n_warps, E), (n_warps, n_items - n_warps, 1)]
    return [(first, count, e, -(-count * tile.G * e // THREADS)) for first, count, e in parts if count]


def row_block(C: int) -> tuple[int, int]:
    """Return (lanes per row, rows) of a block of THREADS for passes over rows of C entries."""
    lanes = min(WARP, 1 << max(C - 1, 0).bit_length())
    return lanes, THREADS // lanes


def chunk_rows(n: int, rows: int) -> int:
    """Return the rows whose column sums a block adds up: enough blocks to fill a device, sums of n alone."""
    return rows * int(np.clip(-(-n // (rows * 1024)), 8, 64))
