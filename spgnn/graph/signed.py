"""Negative weights: which sums no normalisation may divide by, and what to use instead.

Shapes: n rows or columns, E nonzeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import GraphError

DIVIDES = ("gcn", "row", "row_loops")  # normalisations that divide by sums of rows, or of rows and columns
ROUNDING = 64 * np.finfo(np.float64).eps  # of a sum in float64, relative to the sum of magnitudes
LARGEST = 1e290  # sums of fewer than 1e18 weights of this size are finite
INSTEAD = (
    "Use what divides by no sum (gin, sage --aggregator sum, gcn --operator none; or without weights: gat, sage "
    '--aggregator max, mlp, gcn --operator loops; in Python, distribute(..., operator="none") for a Stack of '
    'SAGE("sum"), SAGE("max"), GIN, GAT or MLP), or drop, shift or square the negative weights'
)


@dataclass(frozen=True, slots=True)
class Signs:
    """How many of the E weights of a whole graph are negative, and how many larger than sums can be."""

    negative: int
    huge: int
    E: int

    def __bool__(self) -> bool:
        """Whether sums have to be looked at."""
        return self.negative > 0 or self.huge > 0

    def __str__(self) -> str:
        return f"{self.negative:,} of {self.E:,} weights are negative"

    def check_size(self) -> None:
        """Raise GraphError for weights whose sums are not finite."""
        if self.huge:
            raise GraphError(
                f"{self.huge:,} weights are larger than {LARGEST:g}, and sums of them no numbers of float64; divide all "
                "weights by the largest"
            )


def signs_of(weights_E: np.ndarray) -> Signs:
    """Return the signs of weights, in two passes over them where none is negative or huge."""
    E = len(weights_E)
    if not E or (weights_E.strides == (0,) and 0 <= weights_E[0] <= LARGEST):
        return Signs(0, 0, E)
    low, high = float(weights_E.min()), float(weights_E.max())
    huge = int(np.count_nonzero(np.abs(weights_E) > LARGEST)) if max(high, -low) > LARGEST else 0
    return Signs(int(np.count_nonzero(weights_E < 0)) if low < 0 else 0, huge, E)


def sizes_of(weights_E: np.ndarray) -> np.ndarray:
    """Return |w|, as float64 where weights are integers: int8 has no 128."""
    return np.abs(weights_E if np.issubdtype(weights_E.dtype, np.floating) else weights_E.astype(np.float64))


def lost_sums(sums_n: np.ndarray, sizes_n: np.ndarray, dtype) -> np.ndarray:
    """sum w <= eps sum |w|: return which sums are negative, or 0 up to rounding, (n,) bool; a sum of no weight is none.

    Args: sizes_n  the sums of |w|; dtype: of the weights.
    """
    eps = np.finfo(dtype).eps if np.issubdtype(dtype, np.floating) else 0.0
    return (sizes_n > 0) & (sums_n <= max(eps, ROUNDING) * sizes_n)


def lost_error(signs: Signs, how: str, rows: int, columns: int, node: int) -> GraphError:
    """Return the error for rows and columns whose sums are lost; node: the first of them, by its original id."""
    what = f"{rows:,} rows" + (f" and {columns:,} columns" if how == "gcn" else "")
    matrix, does = "A" if how == "row" else "A + I", "takes the roots of" if how == "gcn" else "divides by"
    return GraphError(
        f"{signs}, and {what} of {matrix} have a sum of 0 or less, node {node} first: the operator {how} {does} these "
        f"sums. {INSTEAD}"
    )


def check_sums(signs: Signs, how: str, dtype, rows: tuple, columns: tuple) -> None:
    """Raise GraphError where an operator of a whole graph divides by a sum that is lost.

    Args: rows, columns  (sums, sums of |w|) of A, or of A + I, each (N,); dtype: of the weights.
    """
    signs.check_size()
    lost_N = lost_sums(*rows, dtype)
    columns_N = lost_sums(*columns, dtype) if how == "gcn" else np.zeros_like(lost_N)
    if lost_N.any() or columns_N.any():
        node = int(np.argmax(lost_N | columns_N))
        raise lost_error(signs, how, np.count_nonzero(lost_N), np.count_nonzero(columns_N), node)
