"""Weights by whose sums no operator divides: negative ones, and those whose sums overflow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..errors import GraphError

DIVIDES = ("gcn", "row", "row_loops")  # normalisations that divide by sums of rows, or of rows and columns
LARGEST = 1e290  # sums of fewer than 1e18 weights of this size are finite
INSTEAD = (
    'Use --operator none (for sage --aggregator sum; in Python distribute(..., operator="none")), or give absolute '
    "values of the weights"
)


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
