"""Which products are made in tiles and panels, from sizes alone. Imports no torch.

Shapes: n rows, m columns of A.
"""

SMALLEST_NNZ, LEAST_MEAN = 1 << 20, 24  # nonzeros of a matrix, and per row
NARROWEST, SMALLEST_X = 512, 1 << 23  # bytes of a row of X, and of X: a smaller X is in a cache anyway


def may_tile(n: int, nnz: int) -> bool:
    """Return whether rows of a block are long enough for tiles to pay at some width."""
    return nnz >= SMALLEST_NNZ and nnz >= LEAST_MEAN * n


def is_wide(m: int, row_bytes: int) -> bool:
    """Return whether a width, in bytes of a row of X, is one for which tiles may pay."""
    return row_bytes >= NARROWEST and m * row_bytes >= SMALLEST_X


def tile_bytes(n: int, m: int, nnz: int, row_bytes: int, nonzero: int = 8) -> int:
    """Return the bytes that the passes of an (n, m) block take, which is stored once more; row_bytes of X.

    Pointers and places of rows are counted as if all rows had the average length and no tiles.
    """
    if not (may_tile(n, nnz) and is_wide(m, row_bytes)):
        return 0
    return nnz * nonzero + 8 * ((16 if nnz >= 96 * n else 4) + 1) * (n + 1)
