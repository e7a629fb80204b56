"""Rows of H at the columns of A, own and ghost: exchanges of layers that read rows and not sums, and cached ghosts of X.

Shapes: n rows out, m own rows in, g ghost rows, t = m + g columns, F columns of H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ...config.names import SENDS_SUMS
from ...errors import ShapeError
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.features import SparseRows
from ..operator.place import OUTSIDE, Place
from ..operator.timing import GHOST, OWN, spmm_flops
from .exchange_plan import ExchangePlan
from .row_sum import adding


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlock:
    """A (n, c), the own or the ghost columns of A; with the original ids of the columns and the number of those before."""

    A: LocalCSR
    ids_c: np.ndarray
    is_ghost: bool = False
    start: int = 0

    @property
    def of_table(self) -> slice:
        """Where the rows of the columns are in a table (t, F)."""
        return slice(self.start, self.start + self.A.shape[1])


class PulledRows:
    """The primitives of DistSpMM that bring rows of H to the columns of A, and their adjoints."""

    _ghost_plan: ExchangePlan | None = None
    _column_ids: np.ndarray | None = None
    _columns: tuple[ColumnBlock, ...] | None = None

    @property
    def ghost_plan(self) -> ExchangePlan | None:
        """The plan that fetches the ghosts as they are, whatever the scheme; None on one rank. Collective at first."""
        if self._ghost_plan is None and self.layout.column.size > 1:
            if self.plan is None:  # pruned rows
                self.plan = ExchangePlan(self.layout.column, self.blocks.index, self.pool, self.threads)
            self._ghost_plan = self.plan.under(self.layout)
        return self._ghost_plan

    @property
    def column_blocks(self) -> tuple[ColumnBlock, ...]:
        """The own columns of A, and its ghost columns where it has any: the columns of `columns`."""
        if self._columns is None:
            self._columns = (ColumnBlock(self.A_oo, self.node_n),)
            if self.g:
                is_whole = len(self.stages) == 1 and self.layout.scheme not in SENDS_SUMS
                A = self.stages[0].A if is_whole else LocalCSR(self.blocks.A_og, self.dtype, self.threads)
                self._columns += (ColumnBlock(A, np.ascontiguousarray(self.blocks.index.ghost_g), True, self.m),)
        return self._columns

    @property
    def column_ids(self) -> np.ndarray:
        """The original ids of own and ghost columns, (t,)."""
        if self._column_ids is None:
            self._column_ids = np.concatenate([block.ids_c for block in self.column_blocks])
        return self._column_ids

    @property
    def holds_own(self) -> bool:
        """Whether this rank multiplies with its own columns: in 1.5D one rank of a process row does."""
        return self.row_sum is None or self.row_sum.comm.rank == self.row_sum.holder

    @property
    def out_ids(self) -> np.ndarray:
        """The original ids of the rows of A H, (n,)."""
        return self.node_n if self.selected is None else self.node_n[self.selected]

    def _sparse_ghosts(self, X: SparseRows) -> SparseRows:
        X_gF = self.plan.pull_csr(X.csr.to_scipy())
        X_gF.sort_indices()
        return SparseRows(X_gF, self.pool, X.dtype, self.threads)

    def over_columns(self, H_mF: torch.Tensor, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, rows of H) for the own columns, while the ghost rows travel, then for the ghost columns. Collective."""
        check_rows(H_mF, self.m, self.comm.rank)
        own, *ghosts = self.column_blocks
        with self.layout.counted(place):
            plan, flight, rows_gF = self.ghost_plan, None, None
            if plan is not None and H_mF.is_sparse:
                rows_gF = self._sparse_ghosts(H_mF)
            elif plan is not None:
                flight = plan.start_pull(H_mF)
            yield own, H_mF
            rows_gF = rows_gF if flight is None else flight.finish()
            for block in ghosts:
                yield block, rows_gF

    def add_columns(
        self, rows_of: Callable[[bool], torch.Tensor], dtype: torch.dtype, place: Place = OUTSIDE
    ) -> torch.Tensor:
        """Return (m, F) in a dtype: the gradients of own rows, with those of ghost rows added at their owners. Collective.

        The adjoint of over_columns. Those of ghosts are computed first, and travel while the own ones are. 1.5D: own
        columns are multiplied on one rank of a process row, whose sum all ranks of the row get.
        Args: rows_of  (is_ghost) -> (g, F), or (m, F) of the type of sums, which is added to.
        """
        with self.layout.counted(place):
            plan, flight = self.ghost_plan, None
            if plan is not None:
                flight = plan.start_push(rounded(self.pool, rows_of(True), dtype))
            out_mF = rows_of(False)
            if flight is not None:
                plan.add(flight.finish(), out_mF)
        out_mF = rounded(self.pool, out_mF, dtype)
        if self.row_sum is None:
            return out_mF
        with self.layout.counted(place, " sum"):
            return self.row_sum.share(out_mF)

    def combine(self, Z_nF: torch.Tensor, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return the partial results Z of a process row as one, in place; see RowSum.combined. In 1D: Z. Collective."""
        if self.row_sum is None:
            return Z_nF
        with self.layout.counted(place, " sum"):
            return self.row_sum.total(Z_nF) if add is None else self.row_sum.combined(Z_nF, add)

    def _apply_here(self, H_mF, ghosts_gF, bias_F, relu: bool, dtype, place: Place, add_nF) -> torch.Tensor:
        """Return relu(A H + add + bias), (n, F), from own and ghost rows of H. Collective in 1.5D alone, by the sum over the process row."""
        own, *ghosts = self.column_blocks
        dtype, wide = dtype or self.dtype, sum_dtype(self.dtype)
        begin = {} if add_nF is None or not self.holds_own else {"add_nF": add_nF}
        end = {"bias_F": bias_F, "relu": relu} if self.row_sum is None else {}
        is_whole = not ghosts and self.row_sum is None
        Z_nF = self.pool.empty(self.n, H_mF.shape[1], dtype=dtype if is_whole else wide)
        with self.ops.span(OWN, spmm_flops(own.A, H_mF)):
            own.A.apply(H_mF, Z_nF, **begin, **({} if ghosts else end))
        for block in ghosts:  # one block
            with self.ops.span(GHOST, spmm_flops(block.A, ghosts_gF)):
                block.A.apply(ghosts_gF, Z_nF, accumulate=True, **end)
        if self.row_sum is not None:
            Z_nF = self.combine(Z_nF, adding(bias_F, relu), place)
        return rounded(self.pool, Z_nF, dtype)


def edge_index_of(A) -> torch.Tensor:
    """Return the places of column j and row i of each nonzero in a table of own and ghost columns, (2, E) int64."""
    if A.device.type == "meta":
        return torch.empty(2, A.n_edges, dtype=torch.int64, device=A.device)
    row_n = np.arange(A.n) if A.selected is None else np.asarray(A.selected)
    lengths = [np.diff(block.A.indptr) for block in A.column_blocks]
    columns_E = np.concatenate([block.A.indices.astype(np.int64) + block.start for block in A.column_blocks])
    rows_E = np.concatenate([np.repeat(row_n, lengths_n) for lengths_n in lengths])
    return torch.from_numpy(np.stack([columns_E, rows_E])).to(A.device)


def edge_ids_of(A) -> np.ndarray:
    """Return the original id of the column of each nonzero, (E,) int64."""
    parts = [block.ids_c[block.A.indices] for block in A.column_blocks]
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.int64)


def rounded(pool, sum_nF: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return rows in a dtype."""
    return sum_nF if sum_nF.dtype == dtype else pool.copy(sum_nF, dtype)


def check_rows(H, rows: int, rank: int) -> None:
    """Raise ShapeError unless H has a row for each own node."""
    if H.ndim != 2 or H.shape[0] != rows:
        raise ShapeError(f"rank {rank}: H has shape {tuple(H.shape)}; expected ({rows}, F), one row per own node")
