"""What one product with A moves and multiplies: between parts, and on the ranks of a 1.5D grid.

Shapes: N nodes, k parts, P = k c ranks; q owns and sends, p reads. Imports neither torch nor a communicator.
Source: sparsity-aware paper (ICPP'24), Algorithm 1 (columns), its baseline (broadcast) and Algorithm 2 (1.5D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..errors import UsageError, check_integer
from ..partition import Partition
from ..partition.checks import MAX_PARTS
from ..partition.cover import cover_tables, two_tier_tables
from ..partition.metrics import nnz_kk
from ..partition.metrics import rows_PP as columns_kk


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """Rank r = i c + j: process row i holds block row i, process column j multiplies the blocks of stages(j).

    c = 1 is 1D: one process column, whose stages are all blocks. Shapes: R = P/c block rows, s = P/c^2 stages.
    Args:   size  P; c: replication; hosts: of each rank, (): all are on one.
    Raises: UsageError unless c^2 divides P, naming the c that do.
    Source: Mukhodopadhyay et al. 2024, Algorithm 2; Koanantakool et al. 2016.
    """

    size: int
    c: int = 1
    hosts: tuple[int, ...] = ()

    def __post_init__(self):
        check_integer("ranks", self.size, 1)
        check_integer("replication", self.c)
        if self.c < 1 or self.size % (self.c * self.c):
            works = ", ".join(str(c) for c in valid_replications(self.size))
            raise UsageError(
                f"replication {self.c} does not fit {self.size} rank(s): its square must divide the number of ranks; those that work: {works}"
            )

    @property
    def rows(self) -> int:
        """Block rows R = P/c: the parts of the partition."""
        return self.size // self.c

    @property
    def n_stages(self) -> int:
        """Blocks that one process column multiplies, s = P/c^2."""
        return self.rows // self.c

    @property
    def host_P(self) -> np.ndarray:
        """The host of each rank, (P,)."""
        return np.array(self.hosts or (0,) * self.size)

    @property
    def crosses_PP(self) -> np.ndarray:
        """Which pairs of ranks are on different hosts, (P, P) bool."""
        return self.host_P[:, None] != self.host_P[None, :]

    @property
    def is_tiered(self) -> bool:
        """Whether the two-tier exchange is one: 1D, on several hosts. Elsewhere it is cover."""
        return self.c == 1 and any(self.hosts)

    def row_of(self, rank: int) -> int:
        return rank // self.c

    def column_of_rank(self, rank: int) -> int:
        return rank % self.c

    def stages(self, j: int) -> range:
        """Return the blocks that process column j multiplies with."""
        return range(j * self.n_stages, (j + 1) * self.n_stages)

    def column_of(self, q: int) -> int:
        """Return the process column that multiplies with block q."""
        return q // self.n_stages

    @property
    def holders(self) -> np.ndarray:
        """The ranks (q, q // s) that own block q and multiply with it, (R,)."""
        q = np.arange(self.rows)
        return q * self.c + q // self.n_stages


def slices(n: int, c: int) -> np.ndarray:
    """Return the bounds of the c slices of n rows that the ranks of a process row add up, (c + 1,)."""
    return np.arange(c + 1) * n // c


def valid_replications(size: int) -> list[int]:
    """Return the c whose square divides P."""
    return [c for c in range(1, int(size**0.5) + 1) if size % (c * c) == 0]


IN_FLIGHT = 2  # stages of 1.5D that are under way at once
WHOLE = 0.9  # of the edges: a layer of a training step that multiplies more of them takes all rows


@dataclass(frozen=True, eq=False)
class Counts:
    """One product Z[T] = A[T] H, T all rows or those that a training step needs: between parts, and on the ranks of a grid.

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
    grid: ProcessGrid

    @cached_property
    def rows_PP(self) -> np.ndarray:
        """The rows that rank q sends rank p, forward."""
        return on_ranks(self.rows_kk, self.grid)

    @cached_property
    def own_P(self) -> np.ndarray:
        """The nonzeros that each rank multiplies with own rows of H; backward multiplies the same ones."""
        return self._held(np.diag(self.nnz_kk))

    @cached_property
    def sender_P(self) -> np.ndarray:
        """The nonzeros that each rank multiplies for partial sums that it sends."""
        return self._held(self.moved_kk.sum(axis=1))

    @cached_property
    def ghost_P(self) -> np.ndarray:
        """The nonzeros that each rank multiplies with rows that came."""
        ghost_kk = self.nnz_kk - self.moved_kk
        np.fill_diagonal(ghost_kk, 0)
        columns = ghost_kk.reshape(self.grid.c, self.grid.n_stages, -1).sum(axis=1)  # of a process column
        return columns.T.ravel()

    @property
    def edges_P(self) -> np.ndarray:
        """The nonzeros of the rows of each rank, whoever multiplies them: own columns and ghosts, (P,)."""
        return replace(self, moved_kk=np.zeros_like(self.moved_kk)).ghost_P + self.own_P

    @property
    def total_P(self) -> np.ndarray:
        return self.own_P + self.ghost_P + self.sender_P

    def _held(self, of_k: np.ndarray) -> np.ndarray:
        """Return numbers of blocks on the ranks that multiply with them as their own, (P,)."""
        of_P = np.zeros(self.grid.size, np.int64)
        of_P[self.grid.holders] = of_k
        return of_P

    def with_loops(self, loops_k: np.ndarray) -> Counts:
        """Return the same with self-loops of the rows of each part."""
        return replace(self, nnz_kk=self.nnz_kk + np.diag(loops_k))

    def sums_PP(self, is_shared: bool = False) -> np.ndarray:
        """Return the rows that ranks of a process row send each other so that each has the sum of all c, (P, P).

        Forward: reduce-scatter by slices, then all-gather: a sends b slice b of its partial result, and its own
        slice when it is summed. Backward (is_shared): one rank of the row has the whole result and sends it to the others.
        """
        c = self.grid.c
        out_PP = np.zeros((self.grid.size, self.grid.size), np.int64)
        for i, n in enumerate(self.in_k if is_shared else self.out_k):
            slices_c = np.diff(slices(int(n), c))
            block = np.zeros((c, c), np.int64) if is_shared else slices_c[:, None] + slices_c[None, :]
            if is_shared:
                block[self.grid.column_of(i)] = n
            np.fill_diagonal(block, 0)
            out_PP[i * c : (i + 1) * c, i * c : (i + 1) * c] = block
        return out_PP

    def on_rank(self, rank: int, suffix: str = "") -> dict[str, int]:
        """Return the rows that a rank sends, reads and has in flight, and the nonzeros of its blocks, by name."""
        read_P, j = self.rows_PP[:, rank], self.grid.column_of_rank(rank)
        read = [int(read_P[q * self.grid.c + j]) for q in self.grid.stages(j)]
        counts = {"s": self.rows_PP[rank].sum(), "g": read_P.sum()}
        counts["f"] = read_P.sum() if self.grid.c == 1 else flying(read)  # 1D has one stage
        counts |= {"own_nnz": self.own_P[rank], "ghost_nnz": self.ghost_P[rank], "sender_nnz": self.sender_P[rank]}
        counts["edges"] = self.edges_P[rank]
        return {name + suffix: int(count) for name, count in counts.items()}


def flying(received: Sequence[int]) -> int:
    """Return the most rows of stages, of these rows each, that are in flight at once."""
    return max((sum(received[i : i + IN_FLIGHT]) for i in range(len(received))), default=0)


def count_pairs(
    A: sp.csr_array,
    part: Partition,
    grid: ProcessGrid,
    scheme: str,
    rows_N: np.ndarray | None = None,
    in_N: np.ndarray | None = None,
) -> Counts:
    """Count one product of a scheme.

    Args: rows_N, in_N  (N,) bool, the rows of Z that are wanted and those of H that there are; None: all.
    """
    k, owner_N, table = part.k, part.owner_N, part.table
    if rows_N is not None:
        A = only_rows(A, rows_N)
        table = lambda of, A: of(A, owner_N, k)
    in_k = np.bincount(owner_N if in_N is None else owner_N[in_N], minlength=k)
    out_k = in_k if rows_N is None else np.bincount(owner_N[rows_N], minlength=k)
    moved_kk = np.zeros((k, k), np.int64)
    if scheme == "broadcast":
        rows_kk = np.repeat(in_k[:, None], k, axis=1)
        np.fill_diagonal(rows_kk, 0)
    elif scheme == "columns":
        rows_kk = table(columns_kk, A)
    else:
        columns, sums, moved_kk = table(cover_tables, A)
        rows_kk = columns + sums
        if scheme == "two-tier" and grid.is_tiered:
            rows_PP, moved_PP = two_tier_tables(A, owner_N, grid.host_P)
            rows_kk, moved_kk = rows_PP + rows_kk * ~grid.crosses_PP, moved_PP + moved_kk * ~grid.crosses_PP
    return Counts(rows_kk, table(nnz_kk, A), moved_kk, out_k, in_k, grid)


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
    return with_whole_layers(rows, hops, edges_of_rows(A))


def edges_of_rows(A: sp.csr_array) -> np.ndarray:
    """Return the nonzeros of each row of A that are no self-loops."""
    return np.diff(A.indptr) - (A.diagonal() != 0)


def with_whole_layers(
    masks: list[np.ndarray], hops: Sequence[int], edges_n: np.ndarray, total=lambda counts: counts
) -> list[np.ndarray]:
    """Return T_0 ... T_L with all rows in the layers that would copy nearly all of A: these read A itself.

    A layer whose rows have WHOLE of the edges saves little work, and its copy of A takes as much memory as A. The rows of
    a layer are among those that it reads, so the layers before it take all rows too. T_L, and T of the layer before local
    ones at the end, are always the rows of the loss.
    Args: hops     of each layer, 0 (local) or 1; edges_n: of edges_of_rows.
          total    adds counts of all ranks, in place.
    """
    last = max((number for number, of_layer in enumerate(hops, start=1) if of_layer), default=0)
    counts = np.array([edges_n.sum(), *(edges_n[mask].sum() for mask in masks[1:last])], dtype=np.float64)
    total(counts)
    whole = sum(counts[1:] >= WHOLE * counts[0])
    read = whole + 1 if whole else 0
    return [np.ones_like(mask) for mask in masks[:read]] + masks[read:]


def grid_of(k: int, c: int, ranks_per_host: int = 0) -> ProcessGrid:
    """Return the grid of P = k c ranks on which each of k parts is held c times; ranks_per_host: 0, all on one host.

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
    hosts = np.arange(k * c) // ranks_per_host if 0 < ranks_per_host < k * c else ()
    return ProcessGrid(k * c, c, tuple(map(int, hosts)))


def on_ranks(kk: np.ndarray, grid: ProcessGrid) -> np.ndarray:
    """Return what the pairs of ranks send for a table of the pairs of parts, (P, P).

    Block q travels in process column q // s: rank (q, q // s) sends rank (p, q // s). Backward is the transpose.
    """
    out_PP = np.zeros((grid.size, grid.size), kk.dtype)
    q = np.arange(grid.rows)
    out_PP[grid.holders[:, None], q[None, :] * grid.c + q[:, None] // grid.n_stages] = kk
    return out_PP


def summed_rows(n: int, c: int) -> int:
    """Return the rows that ranks send each other to add up the c partial results of n rows in one SpMM: sums_PP's, forward."""
    return 2 * (c - 1) * n
