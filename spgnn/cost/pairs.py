"""What one product with A moves and multiplies: between parts, and on the ranks of a 1.5D grid.

Shapes: N nodes, k parts, P = k c ranks; q owns and sends, p reads. Imports neither torch nor a communicator.
Source: sparsity-aware paper (ICPP'24), Algorithm 1 (columns), its baseline (broadcast) and Algorithm 2 (1.5D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import scipy.sparse as sp

from ..errors import UsageError, check_integer
from ..partition.checks import MAX_PARTS
from ..partition.cover import cover_tables
from ..partition.metrics import rows_PP as columns_kk
from .grid import ProcessGrid, slices


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """One product Z[T] = A[T] H between parts: T all rows, or those that a training step needs.

    rows_kk[q, p]   rows that q sends p for it; backward sends the transpose.
    nnz_kk[q, p]    nonzeros of p's rows in q's columns.
    moved_kk[q, p]  of those, the nonzeros that q multiplies, in the partial sums of `cover`.
    out_k, in_k     rows of Z and of H that the product writes and reads, by owner.
    """

    rows_kk: np.ndarray
    nnz_kk: np.ndarray
    moved_kk: np.ndarray
    out_k: np.ndarray
    in_k: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class RankNonzeros:
    """Nonzeros that each rank multiplies in one product forward, (P,) int64: with own rows of H, with rows
    that came, and for partial sums that it sends. Backward multiplies the same ones."""

    own_P: np.ndarray
    ghost_P: np.ndarray
    sender_P: np.ndarray

    @property
    def total_P(self) -> np.ndarray:
        return self.own_P + self.ghost_P + self.sender_P

    def with_loops(self, loops_k: np.ndarray, grid: ProcessGrid) -> RankNonzeros:
        """Return the same with self-loops of the rows of each part, where the own block is multiplied."""
        own_P, q = self.own_P.copy(), np.arange(grid.rows)
        own_P[q * grid.c + q // grid.n_stages] += loops_k
        return RankNonzeros(own_P, self.ghost_P, self.sender_P)

    def times(self, factor: float) -> dict[str, np.ndarray]:
        """Return the three times a factor, as keyword arguments."""
        return {f.name: getattr(self, f.name) * factor for f in fields(self)}


def count_pairs(
    A: sp.csr_array, owner_N: np.ndarray, k: int, scheme: str, rows_N: np.ndarray | None = None
) -> PairCounts:
    """Count one product of a scheme.

    Args: rows_N  (N,) bool, the rows T of Z that are wanted; None: all. H then has T and what T reads.
    """
    in_N = None
    if rows_N is not None:
        A = only_rows(A, rows_N)
        in_N = rows_N | reads(A)
    in_k = np.bincount(owner_N if in_N is None else owner_N[in_N], minlength=k)
    out_k = in_k if rows_N is None else np.bincount(owner_N[rows_N], minlength=k)
    moved_kk = np.zeros((k, k), np.int64)
    if scheme == "broadcast":
        rows_kk = np.repeat(in_k[:, None], k, axis=1)
        np.fill_diagonal(rows_kk, 0)
    elif scheme == "columns":
        rows_kk = columns_kk(A, owner_N, k)
    else:
        columns, sums, moved_kk = cover_tables(A, owner_N, k)
        rows_kk = columns + sums
    return PairCounts(rows_kk, nnz_kk(A, owner_N, k), moved_kk, out_k, in_k)


def nnz_kk(A: sp.csr_array, owner_N: np.ndarray, k: int) -> np.ndarray:
    """Count the nonzeros of each block: nnz_kk[q, p] = |{A_ij != 0 : owner[i] = p, owner[j] = q}|."""
    counts, chunk = np.zeros(k * k, np.int64), 1 << 16
    for start in range(0, A.shape[0], chunk):
        indptr = A.indptr[start : start + chunk + 1]
        readers = np.repeat(owner_N[start : start + chunk].astype(np.int64), np.diff(indptr))
        counts += np.bincount(owner_N[A.indices[indptr[0] : indptr[-1]]] * np.int64(k) + readers, minlength=k * k)
    return counts.reshape(k, k)


def only_rows(A: sp.csr_array, rows_N: np.ndarray) -> sp.csr_array:
    """Return A with the rows outside of rows_N empty; its shape stays."""
    lengths = np.diff(A.indptr)
    indptr = np.concatenate([[0], np.cumsum(np.where(rows_N, lengths, 0))]).astype(A.indptr.dtype)
    kept = np.repeat(rows_N, lengths)
    return sp.csr_array((A.data[kept], A.indices[kept], indptr), shape=A.shape)


def reads(A: sp.csr_array) -> np.ndarray:
    """Return which columns of A have a nonzero, (N,) bool."""
    read_N = np.zeros(A.shape[1], bool)
    read_N[A.indices] = True
    return read_N


def reached_rows(A: sp.csr_array, train_N: np.ndarray, hops: Sequence[int]) -> list[np.ndarray]:
    """Return the rows T_0 ... T_L of a training step: T_L trains, T_(l-1) = T_l | columns of A[T_l], T_l if local.

    Args: hops  of each layer, 0 (local) or 1.
    """
    rows = [train_N]
    for of_layer in reversed(hops):
        rows.insert(0, rows[0] | reads(only_rows(A, rows[0])) if of_layer else rows[0])
    return rows


def grid_of(k: int, c: int) -> ProcessGrid:
    """Return the grid of P = k c ranks on which each of k parts is held c times.

    Raises: UsageError unless c^2 divides P, that is c divides k, naming the c that do; for more ranks than
            tables of all pairs have room for.
    """
    check_integer("replication", c)
    if k * c > MAX_PARTS:
        raise UsageError(f"replication {c} of k = {k} parts: P = k c = {k * c} ranks; expected at most {MAX_PARTS}")
    if c < 1 or k % c:
        works = ", ".join(str(d) for d in range(1, k + 1) if k % d == 0)
        raise UsageError(
            f"replication {c} does not fit k = {k} parts: P = k c = {k * max(c, 0)} ranks, and c^2 must divide P; those that work: {works}"
        )
    return ProcessGrid(k * c, c)


def on_ranks(kk: np.ndarray, grid: ProcessGrid) -> np.ndarray:
    """Return what the pairs of ranks send for a table of the pairs of parts, (P, P).

    Block q travels in process column q // s: rank (q, q // s) sends rank (p, q // s). Backward is the transpose.
    """
    c, k = grid.c, grid.rows
    out_PP = np.zeros((grid.size, grid.size), kk.dtype)
    q = np.arange(k)
    column = q // grid.n_stages
    out_PP[(q * c + column)[:, None], q[None, :] * c + column[:, None]] = kk
    return out_PP


def sums_PP(rows_k: np.ndarray, grid: ProcessGrid, direction: str) -> np.ndarray:
    """Return the rows that ranks of a process row send each other so that each has the sum of all c, (P, P).

    Forward: reduce-scatter by slices, then all-gather: a sends b slice b of its partial result, and its own
    slice when it is summed. Backward: one rank of the row has the whole result and sends it to the others.
    """
    c = grid.c
    out_PP = np.zeros((grid.size, grid.size), np.int64)
    for i, n in enumerate(rows_k):
        slices_c = np.diff(slices(int(n), c))
        block = slices_c[:, None] + slices_c[None, :] if direction == "forward" else np.zeros((c, c), np.int64)
        if direction == "backward":
            block[grid.column_of(i)] = n
        np.fill_diagonal(block, 0)
        out_PP[i * c : (i + 1) * c, i * c : (i + 1) * c] = block
    return out_PP


def summed_rows(n: int, c: int) -> int:
    """Return the rows that ranks send each other to add up the c partial results of n rows in one SpMM: sums_PP's, forward."""
    return 2 * (c - 1) * n


def nonzeros_of(counted: PairCounts, grid: ProcessGrid) -> RankNonzeros:
    """Return the nonzeros that each rank multiplies."""
    c, q = grid.c, np.arange(grid.rows)
    column = q // grid.n_stages
    own_P, sender_P, ghost_P = (np.zeros(grid.size, np.int64) for _ in range(3))
    own_P[q * c + column] = np.diag(counted.nnz_kk)
    sender_P[q * c + column] = counted.moved_kk.sum(axis=1)
    ghost_kk = counted.nnz_kk - counted.moved_kk
    np.fill_diagonal(ghost_kk, 0)
    for j in range(c):
        ghost_P[j::c] = ghost_kk[column == j].sum(axis=0)
    return RankNonzeros(own_P, ghost_P, sender_P)
