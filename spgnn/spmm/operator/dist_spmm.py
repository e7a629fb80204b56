"""The operator A that layers see: Z = A H on own rows, whoever owns the rest.

Shapes: N nodes, n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F columns, P ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch

from ...config.names import SENDS_SUMS, Norm
from ...cost.pairs import IN_FLIGHT
from ...cost.schedule import keeps_sparse
from ...graph import BadWeight
from ...partition.cover import Covers
from ..exchange.context import Layout
from ..exchange.exchange_plan import ExchangePlan
from ..exchange.ghosts import ColumnBlock, check_rows, rounded
from ..exchange.row_sum import adding
from ..exchange.stages import Blocks, Stage, make_stages
from ..kernels.backend import kernels_on
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from .facts import computed, made_once
from .features import AnyRows, SparseRows
from .place import OUTSIDE, Place
from .protocol import Operator
from .timing import GHOST, OWN, spmm_flops


class OtherNorms(Protocol):
    """Makes the other normalisations of a graph; see norms.Norms."""

    bad_weight: BadWeight | None

    def get(self, how: Norm) -> DistSpMM: ...


class DistSpMM(Operator):
    """Own rows of A in two blocks, A_oo (n, m) and A_og (n, g), and the stages that fetch the ghost rows A_og reads.

    A_oo H is computed while stages are in flight. Without stages and row_sum the product is local. A need not be symmetric.
    Args: blocks   own and ghost columns, and `base`, the plan that fetches all ghosts (None on one rank).
          stages   of make_stages; together they are the product with A_og.
          layout   communicators, scheme, buffers and operations, shared by all operators of a graph.
          name     differs between the operators of a graph.
    """

    def __init__(self, blocks: Blocks, base: ExchangePlan | None, stages: list[Stage], layout: Layout, name: str):
        self.name, self.plan, self.stages, self.layout = name, base, stages, layout
        self._ghost_plan: ExchangePlan | None = None
        self.comm, self.pool, self.dtype, self.threads = layout.comm, layout.pool, layout.dtype, layout.threads
        self.row_sum = layout.row_sum
        self.A_oo = LocalCSR(blocks.A_oo, self.dtype, self.threads)
        # Held for pruning and set-up, in the arrays of the products where these are the same.
        A_og = blocks.A_og.astype(self.A_oo.numpy_dtype, copy=False)
        self.blocks = replace(blocks, A_oo=self.A_oo.to_scipy(), A_og=A_og)
        self.norms: OtherNorms | None = None
        self.node_n = np.ascontiguousarray(blocks.index.own_n, dtype=np.int64)
        (self.n, self.m), self.g = self.A_oo.shape, self.blocks.A_og.shape[1]
        self.nnz = self.A_oo.nnz + self.blocks.A_og.nnz
        self.selected: np.ndarray | None = None  # rows of H that are rows of A H; None: all

    def __repr__(self) -> str:
        rank = f"rank {self.comm.rank} of {self.comm.size}" if self.comm.size > 1 else "one rank"
        return f"{type(self).__name__}({self.name}: {rank}, {self.n:,} rows, {self.nnz:,} nonzeros, {self.g:,} ghosts)"

    node_types = computed(lambda self: self.blocks.index.types)
    # What does the products and exchanges, and the order of chains: see Layout.
    ops, order, device = (computed(attrgetter(f"layout.{name}")) for name in ("ops", "order", "pool.device"))
    sent_so_far: int = computed(lambda self: int(self.comm.traffic.sent_bytes().sum()))

    @property
    def ghost_plan(self) -> ExchangePlan | None:
        """The plan that fetches the ghosts as they are, whatever the scheme; None on one rank. Collective at first."""
        if self._ghost_plan is None and self.layout.column.size > 1:
            if self.plan is None:  # pruned rows
                self.plan = ExchangePlan(self.layout.column, self.blocks.index, self.pool, self.threads)
            self._ghost_plan = self.plan.under(self.layout)
        return self._ghost_plan

    @made_once
    def column_blocks(self) -> tuple[ColumnBlock, ...]:
        """The own columns of A, and its ghost columns where it has any."""
        own = ColumnBlock(self.A_oo, self.node_n)
        if not self.g:
            return (own,)
        is_whole = len(self.stages) == 1 and self.layout.scheme not in SENDS_SUMS
        A = self.stages[0].A if is_whole else LocalCSR(self.blocks.A_og, self.dtype, self.threads)
        return own, ColumnBlock(A, np.ascontiguousarray(self.blocks.index.ghost_g), True, self.m)

    # Whether this rank multiplies with its own columns: in 1.5D one rank of a process row does.
    holds_own = computed(lambda self: self.row_sum is None or self.row_sum.comm.rank == self.row_sum.holder)
    # The original ids of the rows of A H, (n,).
    out_ids: np.ndarray = computed(lambda self: self.node_n if self.selected is None else self.node_n[self.selected])

    def with_norm(self, how: Norm | None) -> DistSpMM:
        """Return the operator of another normalisation of the same graph; None: this one. Collective at first."""
        if how is None or how == self.name:
            return self
        if self.norms is None:
            return super().with_norm(how)
        A = self.norms.get(how)
        A.fixed_input = self.fixed_input
        return A

    def prepare_adjoint(self) -> None:
        """Make the transposes that backward needs, and copy all to the device, before buffers fill the memory."""
        kernels = kernels_on(self.device)
        for A in (self.A_oo, *(stage.A for stage in self.stages)):
            kernels.prepare(A)
            kernels.prepare(A.transposed())

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H: all, unless rows are pruned."""
        if self.selected is None:
            return H
        return H.rows(self.selected) if H.is_sparse else H[self._selected]

    def set_selected(self, rows: np.ndarray) -> None:
        """Set which rows of H correspond to those of A H."""
        self.selected, self._selected = rows, torch.from_numpy(rows).to(self.device)

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None
    ) -> torch.Tensor | SparseRows:
        """Return relu(A_oo H + sum over stages of A_s pull_s(H) + add + bias), in A's dtype or another; see SpMM. Collective."""
        if ghosts_gF is not None:
            return self._apply_here(H_mF, ghosts_gF, bias_F, relu, dtype, place, add_nF)
        if H_mF.is_sparse:
            return self._apply_sparse(H_mF, place)
        check_rows(H_mF, self.m, self.comm.rank)
        dtype = dtype or self.dtype
        with self.layout.counted(place):
            end = {"bias_F": bias_F, "relu": relu} if self.row_sum is None else {}
            waiting, flying = deque(self.stages), deque()
            _start(waiting, flying, lambda stage: stage.plan.start_pull(H_mF))
            is_last = not flying
            Z_nF = self.pool.empty(self.n, H_mF.shape[1], dtype=dtype if is_last else sum_dtype(self.dtype))
            if add_nF is not None and (self.row_sum is None or self.row_sum.comm.rank == self.row_sum.holder):
                begin = {"add_nF": add_nF}  # of a process row one rank adds it
            else:
                begin = {}
            self._spmm(OWN, self.A_oo, H_mF, Z_nF, **begin, **(end if is_last else {}))
            while flying:
                stage, flight = flying.popleft()
                received = flight.finish()
                _start(waiting, flying, lambda stage: stage.plan.start_pull(H_mF))
                is_last = not flying and self.row_sum is None
                if is_last and Z_nF.dtype != dtype:  # own part and other stages are rounded with this one
                    sum_nF, Z_nF = Z_nF, self.pool.empty(*Z_nF.shape, dtype=dtype)
                    self._spmm(GHOST, stage.A, received, Z_nF, add_nF=sum_nF, **end)
                else:
                    self._spmm(GHOST, stage.A, received, Z_nF, accumulate=True, **(end if is_last else {}))
        if self.row_sum is None:
            return Z_nF
        with self.layout.counted(place, " sum"):
            return rounded(self.pool, self.row_sum.total(Z_nF, bias_F, relu), dtype)

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE, add_mF: torch.Tensor | None = None) -> torch.Tensor:
        """Return A' G + add on own rows: A_oo' G + add + sum over stages of push_add_s(A_s' G). Collective."""
        check_rows(G_nF, self.n, self.comm.rank)
        F = G_nF.shape[1]

        def push(stage: Stage):
            A = stage.A.transposed()
            rows = self._spmm(GHOST, A, G_nF, self.pool.empty(A.shape[0], F, dtype=self.dtype))
            return stage.plan.start_push(rows)

        with self.layout.counted(place):
            waiting, flying = deque(self.stages), deque()
            _start(waiting, flying, push)
            out_mF = self.pool.empty(self.m, F, dtype=sum_dtype(self.dtype) if flying else self.dtype)
            self._spmm(OWN, self.A_oo.transposed(), G_nF, out_mF, add_nF=add_mF)  # 1.5D: the holder's is shared
            while flying:
                stage, flight = flying.popleft()
                received = flight.finish()
                _start(waiting, flying, push)
                stage.plan.add(received, out_mF)
        out_mF = rounded(self.pool, out_mF, self.dtype)
        if self.row_sum is None:
            return out_mF
        with self.layout.counted(place, " sum"):
            return self.row_sum.share(out_mF)

    def _spmm(self, phase: str, A: LocalCSR, X_mF, out_nF, **options) -> torch.Tensor:
        with self.ops.span(phase, spmm_flops(A, X_mF)):
            return A.apply(X_mF, out_nF, **options)

    def _sparse_ghosts(self, plan: ExchangePlan, X: SparseRows) -> SparseRows:
        X_gF = plan.pull_csr(X.csr.to_scipy())
        X_gF.sort_indices()
        return SparseRows(X_gF, self.pool, X.dtype, self.threads)

    def over_columns(self, H_mF: AnyRows, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, Any]]:
        """Yield (block, rows of H) for the own columns, while the ghost rows travel, then for the ghost columns. Collective."""
        check_rows(H_mF, self.m, self.comm.rank)
        own, *ghosts = self.column_blocks
        with self.layout.counted(place):
            plan, flight, rows_gF = self.ghost_plan, None, None
            if isinstance(H_mF, SparseRows):
                rows_gF = None if plan is None else self._sparse_ghosts(plan, H_mF)
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
            if plan is not None and flight is not None:
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

    def _apply_sparse(self, X: SparseRows, place: Place) -> SparseRows:
        """Return A X as sparse rows; see stays_sparse. Collective."""
        X_oF = X.csr.to_scipy()
        AX = self.A_oo.to_scipy() @ X_oF
        if self.plan is not None:
            with self.layout.counted(place):
                X_gF = self.plan.pull_csr(X_oF)
            AX = AX + self.blocks.A_og.astype(AX.dtype) @ X_gF
        AX = sp.csr_array(AX)
        if self.row_sum is not None:
            AX = self.row_sum.total_csr(AX)
        AX.sort_indices()
        return SparseRows(AX, self.pool, X.dtype, self.threads)

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S has few enough nonzeros to be cached. Collective."""
        # nnz(A S) <= sum over j of (nonzeros of column j of A) nnz(X_j); ranks must decide alike.
        counts_m1 = np.bincount(self.blocks.A_oo.indices, minlength=self.m).astype(np.float64)[:, None]
        if self.plan is not None:
            counts_g1 = np.bincount(self.blocks.A_og.indices, minlength=self.g).astype(np.float64)[:, None]
            with self.layout.counted(place):
                counts_m1 = self.plan.push_add(torch.from_numpy(counts_g1), torch.from_numpy(counts_m1)).numpy()
        lengths_m = np.diff(S.csr.indptr)
        # Of a process row one rank counts S; each counts its blocks of A.
        copies = 1 if self.row_sum is None else self.row_sum.comm.size
        sizes = np.array([counts_m1.ravel() @ lengths_m, S.csr.nnz / copies, self.nnz])
        self.comm.all_reduce(sizes)
        return keeps_sparse(*sizes)


def _start(waiting: deque, flying: deque, start: Callable) -> None:
    """Start the exchanges of the next stages, up to the number that may be in flight."""
    while waiting and len(flying) < IN_FLIGHT:
        stage = waiting.popleft()
        flying.append((stage, start(stage)))


def make_operator(
    blocks: Blocks, layout: Layout, name: str, base: ExchangePlan | None = None, covers: Covers | None = None
) -> DistSpMM:
    """Return the operator of these blocks, with the stages of the layout's scheme. Collective.

    Args: covers  of the blocks, where they are known.
    """
    return DistSpMM(blocks, base, make_stages(blocks, layout, base, covers), layout, name)
