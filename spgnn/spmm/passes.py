"""Cut a CSR into the passes of a product in column panels: longer rows into more panels.

Shapes: n rows, m columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch  # noqa: F401  before the kernels: both then share one OpenMP library

from . import _kernels
from .panels import row_groups

LEAST_COLUMNS = 1024  # of a panel but the last: their rows of X are in a cache near the core in any case


class Pass(NamedTuple):
    """Some columns of some rows: indptr, indices counted from the first of the columns, weights or None.

    rows: int64, where the rows stand; None: all of them, in order.
    """

    rows: np.ndarray | None
    columns: slice
    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    is_first: bool
    is_last: bool


def whole(A) -> list[Pass]:
    """Return the one pass over a LocalCSR as it is."""
    return [Pass(None, slice(None), A.indptr, A.indices, A.weights, True, True)]


def cut(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, m: int, threads: int = 0) -> list[Pass]:
    """Return the passes of a CSR with sorted columns: each row once in the panels of its group, in the order of columns.

    Takes up to 19 bytes a row and 16 a column beside what it returns.
    """
    passes = []
    for count, rows in row_groups(np.diff(indptr)):
        bounds = _bounds(_kernels.count_columns(indptr, indices, rows, m), count) if count > 1 else [0, m]
        listed = None if len(rows) == len(indptr) - 1 else rows
        pieces = _kernels.cut(indptr, indices, weights, rows, np.array(bounds), threads)
        for p, piece in enumerate(pieces):
            passes.append(Pass(listed, slice(bounds[p], bounds[p + 1]), *piece, p == 0, p == len(pieces) - 1))
    return passes


def _bounds(found_m: np.ndarray, count: int) -> list[int]:
    """Return where panels begin and the last one ends: count of them, or fewer where they use up the columns before.

    Each holds an equal share of the nonzeros that are left, or those of LEAST_COLUMNS if that is more.
    """
    m, up_to_m, bounds = len(found_m), np.cumsum(found_m), [0]
    while bounds[-1] < m:
        begin, left = bounds[-1], count - len(bounds) + 1
        done = up_to_m[begin - 1] if begin else 0
        end = int(np.searchsorted(up_to_m, done - (done - up_to_m[-1]) // left)) + 1  # in integers: nothing is converted
        end = min(m, max(end, begin + LEAST_COLUMNS))
        bounds.append(m if left == 1 or up_to_m[end - 1] == up_to_m[-1] else end)
    return bounds
