"""normalise: from an adjacency matrix to the operator that layers multiply with.

Shapes: N nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from ..config.names import NORMS, Norm
from ..errors import GraphError, UsageError, nearest
from .structure import index_dtype, without_zeros

TWO_SIDED = ("gcn", "sym")  # normalisations that divide by sums of rows and of columns
DIVIDES = (*TWO_SIDED, "row", "row_loops")  # normalisations that divide by sums of rows, or of rows and columns
LARGEST = 1e290  # sums of fewer than 1e18 weights of this size are finite
INSTEAD = "Use --operator none (for sage --aggregator sum), or give absolute values of the weights"
WITH_LOOPS = ("gcn", "row_loops", "loops")  # normalisations of A + I
AT_ONCE = 1 << 22  # nonzeros per pass of scaling and sums; sums take at least one per column


def normalise(A: sp.csr_array, how: Norm = "gcn") -> sp.csr_array:
    """Return the operator of a normalisation: gcn: Dr^-1/2 (A + I) Dc^-1/2; sym: Dr^-1/2 A Dc^-1/2; row: D^-1 A, the
    mean over a row; none: A; row_loops: D^-1 (A + I); loops: the pattern of A + I, all ones.

    A + I has a self-loop of weight 1 where a node of A has none. Dr and Dc are the row and column sums
    of A + I (sym: of A): they are equal when A is symmetric, which gives Kipf & Welling's operator, and keep the
    norm at most 1 when A is not. A row without nonzeros stays zero. A stored 0 is no entry.
    Raises: GraphError unless A is a scipy CSR, and for a negative weight where sums are divided by; UsageError for another how.
    Source: Kipf & Welling 2017, eq. (2); sym: He et al. 2020 (LightGCN), eq. (8); directed form: Tong et al. 2020 use the
    same two-sided scaling.
    """
    if how not in NORMS:
        raise UsageError(f"normalisation {how!r} is not known{nearest(how, NORMS)}")
    if not (sp.issparse(A) and A.format == "csr"):  # the arrays of a CSC would be read as those of its transpose
        kind = A.format if sp.issparse(A) else type(A).__name__
        raise GraphError(f"got a {kind}; expected a scipy CSR, see .tocsr() and Graph.normalise")
    A, _ = without_zeros(A)
    if how == "none":
        return A
    dtype = A.data.dtype if A.data.dtype == np.float64 else np.float32
    if how in DIVIDES and (bad := bad_weight(A)):
        raise bad.error(f"operator {how}")
    if how in WITH_LOOPS:
        A = with_self_loops(A)
    if how == "loops":
        return sp.csr_array((np.ones(A.nnz, dtype), A.indices, A.indptr), shape=A.shape)
    left_n, right_m = factors(how, axis_sums(A, 1), axis_sums(A, 0) if how in TWO_SIDED else None)
    assert left_n is not None  # how is in DIVIDES
    return scaled(A, left_n, right_m, dtype)


def factors(
    how: Norm, row_n: np.ndarray, column_m: np.ndarray | None = None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return left (n,) and right (m,) of a normalisation from the sums of rows and columns; None: all 1.

    gcn, sym: Dr^-1/2 and Dc^-1/2; row, row_loops: Dr^-1 and None; others: None and None. The inverse of 0 is 0.
    """
    if how in TWO_SIDED:
        assert column_m is not None
        return inverse_or_zero(np.sqrt(row_n)), inverse_or_zero(np.sqrt(column_m))
    return (inverse_or_zero(row_n), None) if how in DIVIDES else (None, None)


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
    return sp.csr_array(
        (np.insert(A.data, at, 1), np.insert(A.indices, at, missing).astype(index, copy=False), indptr), shape=A.shape
    )


def lacks_loop(A: sp.csr_array) -> np.ndarray:
    """Return which rows have no diagonal entry, (n,) bool."""
    is_missing = np.ones(A.shape[0], bool)
    for stretch, first, lengths in _stretches(A, AT_ONCE):
        rows = np.repeat(np.arange(first, first + len(lengths)), lengths)
        is_missing[rows[rows == A.indices[stretch]]] = False
    return is_missing


def scaled(A: sp.csr_array, left_n: np.ndarray, right_m: np.ndarray | None, dtype: DTypeLike) -> sp.csr_array:
    """Return diag(left) A diag(right) of a dtype, each product taken in float64."""
    data = np.empty(A.nnz, dtype)
    for stretch, first, lengths in _stretches(A, AT_ONCE):
        product = A.data[stretch] * np.repeat(left_n[first : first + len(lengths)], lengths)
        if right_m is not None:
            product *= right_m[A.indices[stretch]]
        data[stretch] = product
    return sp.csr_array((data, A.indices, A.indptr), shape=A.shape)


def axis_sums(A: sp.csr_array, axis: int) -> np.ndarray:
    """Return the sums of the rows (axis 1) or columns (axis 0), each nonzero taken as float64.

    SciPy's sum(dtype=float64) adds up float32 first.
    """
    total = np.zeros(A.shape[1 - axis])
    for stretch, first, lengths in _stretches(A, max(AT_ONCE, len(total))):
        if axis == 0:
            total += np.bincount(A.indices[stretch], A.data[stretch], len(total))
        else:
            rows = np.repeat(np.arange(len(lengths)), lengths)
            total[first : first + len(lengths)] += np.bincount(rows, A.data[stretch], len(lengths))
    return total


def _stretches(A: sp.csr_array, step: int) -> Iterator[tuple[slice, int, np.ndarray]]:
    """Yield slices of the nonzeros, each with its first row and its nonzeros in that row and the following ones."""
    for start in range(0, A.nnz, step):
        stop = min(start + step, A.nnz)
        first, end = int(np.searchsorted(A.indptr, start, "right")) - 1, int(np.searchsorted(A.indptr, stop))
        yield slice(start, stop), first, np.diff(np.clip(A.indptr[first : end + 1], start, stop))


def inverse_or_zero(x: np.ndarray) -> np.ndarray:
    """Return 1 / x, and 0 where x is 0."""
    return np.divide(1.0, x, out=np.zeros_like(x), where=x != 0)


@dataclass(frozen=True, slots=True)
class BadWeight:
    """An edge, by its original ids, whose weight is negative or larger than LARGEST."""

    weight: float
    row: int
    column: int

    def error(self, what: str, instead: str = INSTEAD) -> GraphError:
        """Return the error of what divides by sums of weights, such as an operator."""
        edge = f"the edge between nodes {self.row} and {self.column} has weight {self.weight:.6g}"
        if self.weight > 0:
            return GraphError(f"{edge}, and sums of such weights are not finite. Divide all weights by the largest")
        return GraphError(f"{edge}; {what} divides by sums of weights, none of which may be negative. {instead}")


def bad_weight(
    A: sp.csr_array, row_n: np.ndarray | None = None, column_m: np.ndarray | None = None
) -> BadWeight | None:
    """Return the smallest weight of A if it is negative, else the largest if it is too large, else None.

    Args: row_n, column_m  original ids of rows and columns; None: 0, 1, ...
    """
    data = A.data[:1] if A.data.strides == (0,) else A.data  # one number for all
    for e in (data.argmin(), data.argmax()) if len(data) else ():
        weight = float(data[e])
        if not 0 <= weight <= LARGEST:
            row, column = int(np.searchsorted(A.indptr, e, side="right")) - 1, int(A.indices[e])
            ids = (row if row_n is None else row_n[row]), (column if column_m is None else column_m[column])
            return BadWeight(weight, *map(int, ids))
    return None
