"""Cut a CSR into the passes of a product in column panels: longer rows into more panels.

Shapes: n rows, m columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch  # noqa: F401  before the kernels: both then share one OpenMP library

from . import _kernels
from .panels import row_groups


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

    The panels of a group hold nearly equal nonzeros. Takes 8 bytes a row and 16 a column beside what it returns.
    """
    passes = []
    for count, rows in row_groups(np.diff(indptr)):
        ends = np.minimum(_ends(_kernels.count_columns(indptr, indices, rows, m), count), m) if count > 1 else []
        bounds = np.array([0, *ends[:-1], m], dtype=np.int64)
        listed = None if len(rows) == len(indptr) - 1 else rows
        pieces = _kernels.cut(indptr, indices, weights, rows, bounds, threads)
        for p, piece in enumerate(pieces):
            passes.append(Pass(listed, slice(int(bounds[p]), int(bounds[p + 1])), *piece, p == 0, p == count - 1))
    return passes


def _ends(found_m: np.ndarray, count: int) -> np.ndarray:
    """Return where each of the panels with nearly equal nonzeros ends, (count,)."""
    up_to_m = np.cumsum(found_m)
    return np.searchsorted(up_to_m, up_to_m[-1] * np.arange(1, count + 1) / count) + 1
