"""Column panels: long rows of a product in passes, each over some columns of A, so that fewer rows of X are in use at a time.

Z = A X is added up as A[:, p] X[p] over panels p of columns that hold equally many nonzeros. Rows of X are then found
in a cache near the core, and Z, which every pass reads and writes, costs less than that where a row has nonzeros
enough in each panel: so rows are taken in groups by length, the longest in most panels, short ones in one pass.
The first columns, where long rows have much in them (hubs, in an order that puts these first), go before, in tiles
of 128: their rows of X are in a cache while each row of a block takes what it has there.
The kernels begin each sum with the value in Y, so that one pass and several are bitwise identical.
Whether it pays depends on the machine: see trials. Imports no torch.
Shapes: n rows, m columns, F width.
Source: Nishtala et al. 2007, "When cache blocking of sparse matrix vector multiply works and why".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

PANELS = (16, 4)  # of a row with as many times NONZEROS_A_PANEL, or more
NONZEROS_A_PANEL = 6
LONG = 24  # nonzeros per row on average: with fewer, passes over Z cost about what they save
SMALLEST_NNZ = 1 << 20
NARROWEST = 128  # bytes of a row of X: of fewer, reading and writing Z costs what is saved
SMALLEST_X = 1 << 23  # bytes: less is in a cache anyway


def has_panels(n: int, nnz: int) -> bool:
    """Return whether rows of a block are long enough for panels to pay at some width."""
    return nnz >= SMALLEST_NNZ and nnz >= LONG * n


def row_groups(length_n: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of panels and the rows, rising, of each group of rows that is not empty; the longest first."""
    shorter_n = np.ones(len(length_n), bool)
    for count in (*PANELS, 1):
        here_n = shorter_n & (length_n >= NONZEROS_A_PANEL * count) if count > 1 else shorter_n
        shorter_n = shorter_n & ~here_n
        if here_n.any():
            yield count, np.flatnonzero(here_n)


def panel_bytes(n: int, m: int, nnz: int, row_bytes: int, nonzero: int = 8) -> int:
    """Return the bytes that the panels of an (n, m) block take, which is stored once more in them; row_bytes of X.

    Pointers and places of rows are counted as if all rows had the average length and no tiles, and
    indices as if all had 16 bits where panels of equal width had: short rows of a wide block have more, tiles less.
    """
    if not (has_panels(n, nnz) and may_pay(m, row_bytes)):
        return 0
    count = max((count for count in PANELS if nnz >= NONZEROS_A_PANEL * count * n), default=1)
    return nnz * (nonzero - 2 * (m <= count << 16)) + 8 * (count + 1) * (n + 1)


def may_pay(m: int, row_bytes: int) -> bool:
    """Return whether a width, in bytes of a row of X, is one for which several passes may pay."""
    return row_bytes >= NARROWEST and m * row_bytes >= SMALLEST_X
