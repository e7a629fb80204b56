"""normalise: from an adjacency matrix to the operator that layers multiply with.

Shapes: N nodes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from ..errors import UsageError, nearest
from .structure import canonical

Norm = Literal["gcn", "row", "none"]
NORMS = ("gcn", "row", "none")


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
        sums = np.asarray(A.sum(axis=1, dtype=np.float64)).ravel()
        left, right = inverse_or_zero(sums), None
    else:
        A = with_self_loops(A)
        left = inverse_or_zero(np.sqrt(np.maximum(np.asarray(A.sum(axis=1, dtype=np.float64)).ravel(), 0)))
        right = inverse_or_zero(np.sqrt(np.maximum(np.asarray(A.sum(axis=0, dtype=np.float64)).ravel(), 0)))
    data = A.data * np.repeat(left, np.diff(A.indptr))
    if right is not None:
        data *= right[A.indices]
    return sp.csr_array((data.astype(dtype), A.indices, A.indptr), shape=A.shape)


def with_self_loops(A: sp.csr_array) -> sp.csr_array:
    """Return A with a diagonal entry of 1 in every row that has none."""
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    missing = np.ones(A.shape[0], A.data.dtype)
    missing[rows[rows == A.indices]] = 0
    loops = sp.dia_array((missing[None, :], [0]), shape=A.shape).tocsr()
    loops.eliminate_zeros()
    return canonical(A + loops) if loops.nnz else A


def inverse_or_zero(x: np.ndarray) -> np.ndarray:
    return np.divide(1.0, x, out=np.zeros_like(x), where=x != 0)
