"""Minimum vertex covers of off-diagonal blocks: the fewest rows that one SpMM can move between two parts.

For a nonzero (i, j) of a block either row j of H is sent to the reader, or the owner sends a partial sum of row i: a
vertex cover of the bipartite graph rows x columns. The smallest has as many vertices as a maximum matching has edges,
so it never exceeds the number of nonempty columns. The graph may be directed.
Shapes: N nodes, n rows, g columns, B ranges of columns, k parts; q owns and sends, p reads.
Source: Koenig 1931; Hopcroft & Karp 1973.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..errors import PartitionError
from ..machine import cores
from . import _loops
from .metrics import csr_arrays


@dataclass(frozen=True, slots=True, eq=False)
class Covers:
    """A minimum cover for each range b of columns: every nonzero once, raw if its column is in, else by its row.

    columns_g  (g,) bool: the column is in its range's cover and travels as a raw row of H.
    rows       (m,) int64: the rows in the cover of range 0, rising, then of range 1, ...; they travel
               as partial sums over the nonzeros of the range whose column is not in the cover.
    rows_ptr   (B + 1,) int64: rows[rows_ptr[b] : rows_ptr[b + 1]] are those of range b.
    sizes_B    (B,) int64: columns and rows in the cover, what the range's owner sends.
    moved_B    (B,) int64: nonzeros that the owner multiplies instead of the reader.
    """

    columns_g: np.ndarray
    rows: np.ndarray
    rows_ptr: np.ndarray
    sizes_B: np.ndarray
    moved_B: np.ndarray


def minimum_covers(A_ng: sp.csr_array, bounds_B: np.ndarray, threads: int = 0) -> Covers:
    """Cover the nonzeros of each range bounds[b] to bounds[b + 1] - 1 of the columns by the fewest rows and columns.

    Of all minimum covers it is the one with the most columns, which leaves the fewest nonzeros to the owner.
    Independent of the number of threads. Memory besides the matrix: 8 bytes per nonzero, and on each thread 4 per row
    and column and 20 per nonzero of its range.

    Args:   A_ng      (n, g) CSR; a stored zero counts as a nonzero.
            bounds_B  (B + 1,) integers, rising from 0 to g.
            threads   0: the cores that this process has.
    Raises: PartitionError if the arrays are no CSR matrix, or the bounds do not cut its columns.
    """
    bounds = np.ascontiguousarray(bounds_B, np.int64)
    columns_g, rows, rows_ptr, moved_B = _call(_loops.range_covers, A_ng, A_ng.shape[1], bounds, threads or cores())
    sums = np.concatenate([[0], np.cumsum(columns_g)])
    sizes_B = sums[bounds[1:]] - sums[bounds[:-1]] + np.diff(rows_ptr)
    return Covers(columns_g, rows, rows_ptr, sizes_B, moved_B)


def cover_tables(
    A: sp.csr_array, owner_N: np.ndarray, k: int, threads: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns_PP, rows_PP, moved_PP, each (k, k) int64 with a zero diagonal, of the covers of all pairs.

    Of the block of p's rows and q's columns, columns_PP[q, p] travel raw, rows_PP[q, p] as partial
    sums, and q multiplies moved_PP[q, p] nonzeros instead of p.

    Args:   A  (N, N) CSR; owner_N (N,) integers 0 to k-1.
    Raises: PartitionError if the arrays are no CSR matrix or owner_N is no partition of it.
    """
    owner_N = np.ascontiguousarray(owner_N, dtype=np.int32)
    if len(owner_N) and not 0 <= int(owner_N.min()) <= int(owner_N.max()) < k:
        raise PartitionError(f"cover: owners are {owner_N.min()} to {owner_N.max()}; expected 0 to {k - 1}")
    columns_PP, rows_PP, moved_PP = _call(_loops.pair_covers, A, owner_N, k, threads or cores())
    return columns_PP, rows_PP, moved_PP


def cover_PP(A: sp.csr_array, owner_N: np.ndarray, k: int) -> np.ndarray:
    """Count what one SpMM moves with minimum covers: rows that q sends p, raw and partial sums; (k, k) int64."""
    columns_PP, rows_PP, _ = cover_tables(A, owner_N, k)
    return columns_PP + rows_PP


def _call(loop: Callable[..., tuple], A: sp.csr_array, *args) -> tuple:
    try:
        return loop(*csr_arrays(A), *args)
    except ValueError as error:
        raise PartitionError(f"cover: {error}; the matrix has shape {A.shape} and {A.nnz} nonzeros") from None
