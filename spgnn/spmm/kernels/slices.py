"""Feature slices: A X some columns of X at a time, so that the rows of X that are in use stay in a cache near the core.

The columns of a slice are copied, (m, f), and multiplied before the next ones are. Each sum takes the nonzeros in the same
order as without slices, so the result is bitwise identical. Pays where A is small, with rows of some length, and X is
wide: a subgraph of GraphSAINT. Sizes alone decide.
Shapes: n rows, m columns, F width, f width of a slice.
Source: Zeng et al., Accurate, efficient and scalable training of GNNs, 2021, Algorithm 7, with f bounded by the cache.
"""

from __future__ import annotations

import numpy as np
import torch  # noqa: F401  before the kernels: both then share one OpenMP library

from . import _kernels

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
    """out = A X (+ out), then add, bias and relu, f columns at a time; out is written in place."""
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
