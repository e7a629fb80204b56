"""normalise: from an adjacency matrix to the operator that layers multiply with.

Shapes: N nodes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from ..errors import UsageError, nearest
from .structure import index_dtype

Norm = Literal["gcn", "row", "none"]
NORMS = ("gcn", "row", "none")
AT_ONCE = 1 << 22  # nonzeros that axis_sums looks at; fewer than columns are not worth a pass over the sums


def normalise(A: sp.csr_array, how: Norm = "gcn") -> sp.csr_array:
    """Return the operator: gcn: Dr^-1/2 (A + I) Dc^-1/2; row: D^-1 A, the mean over a row; none: A.

    gcn adds a self-loop of weight 1 where a node has none. Dr and Dc are the row and column sums
    of A + I: they are equal when A is symmetric, which gives Kipf & Welling's operator, and keep the
    norm at most 1 when A is not. A row without nonzeros stays zero.
    Source: Kipf & Welling 2017, eq. (2); directed form: Tong et al. 2020 use the same two-sided scaling.
    """
    if how not in NORMS:
        raise UsageError(f"normalisation {how!r} is not known{nearest(how, NORMS)}")
    if how == "none":
        return A
    dtype = A.data.dtype if A.data.dtype == np.float64 else np.float32
    if how == "row":
        left, right = inverse_or_zero(axis_sums(A, 1)), None
    else:
        A = with_self_loops(A)
        left, right = (inverse_or_zero(np.sqrt(np.maximum(axis_sums(A, axis), 0))) for axis in (1, 0))
    data = A.data * np.repeat(left, np.diff(A.indptr))
    if right is not None:
        data *= right[A.indices]
    return sp.csr_array((data.astype(dtype), A.indices, A.indptr), shape=A.shape)


def with_self_loops(A: sp.csr_array) -> sp.csr_array:
    """Return A, its indices sorted, with a diagonal entry of 1 in every row that has none; stored zeros stay."""
    A = A if A.has_sorted_indices else A.sorted_indices()
    rows = np.repeat(np.arange(A.shape[0], dtype=A.indices.dtype), np.diff(A.indptr))
    is_missing = np.ones(A.shape[0], bool)
    is_missing[rows[rows == A.indices]] = False
    missing = np.flatnonzero(is_missing)
    if not len(missing):
        return A
    at = (A.indptr[:-1] + np.bincount(rows[A.indices < rows], minlength=A.shape[0]))[missing]
    index = index_dtype(A.nnz + len(missing))
    indptr = (A.indptr + np.concatenate([[0], np.cumsum(is_missing)])).astype(index)
    return sp.csr_array((np.insert(A.data, at, 1), np.insert(A.indices, at, missing).astype(index, copy=False), indptr), shape=A.shape)


def axis_sums(A: sp.csr_array, axis: int) -> np.ndarray:
    """Return the sums of the rows (axis 1) or columns (axis 0), each nonzero taken as float64.

    SciPy's sum(dtype=float64) adds up float32 first.
    """
    total = np.zeros(A.shape[1 - axis])
    step = max(AT_ONCE, len(total))
    for start in range(0, A.nnz, step):
        stop = min(start + step, A.nnz)
        if axis == 0:
            total += np.bincount(A.indices[start:stop], A.data[start:stop], len(total))
            continue
        first, end = np.searchsorted(A.indptr, start, "right") - 1, np.searchsorted(A.indptr, stop)
        lengths = np.diff(np.clip(A.indptr[first : end + 1], start, stop))
        total[first:end] += np.bincount(np.repeat(np.arange(len(lengths)), lengths), A.data[start:stop], len(lengths))
    return total


def inverse_or_zero(x: np.ndarray) -> np.ndarray:
    return np.divide(1.0, x, out=np.zeros_like(x), where=x != 0)
