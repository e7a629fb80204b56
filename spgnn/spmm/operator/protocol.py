"""The protocol of operators: SpMM, the facts and primitives of A from which LayerView makes the calls of layers.

Shapes: n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from ...config.names import Norm
from ...errors import UsageError
from ..edges.edge_table import EdgeTable, NoEdgeTable
from ..exchange.ghosts import ColumnBlock, edge_ids_of, edge_index_of, rounded
from ..kernels.buffers import BufferPool
from .features import SparseRows
from .fixed_input import FixedInput
from .place import OUTSIDE, Place
from .timing import GHOST, OWN, Operations, spmm_flops
from .view import LayerView, current_pass


class SpMM(Protocol):
    """A (N, N) with the rows of H spread over the ranks, outside of autograd.

    An operator that has these facts and primitives, and inherits from Operator, runs every layer. Operator has those of
    one process with all rows, square A and dense H, but n, m, node_n, column_blocks, dtype, apply and adjoint.
    Each primitive is collective but `select`; `place` says where what it sends is counted.
    """

    name: str  # differs between the operators of a graph
    n: int  # rows of A H
    m: int  # own rows of H
    node_n: np.ndarray  # (m,) int64, original ids of the own rows of H
    out_ids: np.ndarray  # (n,) int64, original ids of the rows of A H
    column_ids: np.ndarray  # (m + g,) int64, original ids of own and ghost columns
    column_blocks: tuple[ColumnBlock, ...]  # the own columns of A, and its ghost columns where it has any
    n_edges: int  # nonzeros of this rank's rows, in the order of column_blocks
    edge_index: torch.Tensor  # (2, E) int64, the place of column and row of each nonzero among own and ghost columns
    edge_ids: np.ndarray  # (E,) int64, the original id of the column of each nonzero
    edge_attr: torch.Tensor | None  # (E, F_e) of the type of sums, attributes of edges; subgraphs refuse
    dtype: torch.dtype  # of H and A H; weights and sums: sum_dtype(dtype)
    device: torch.device
    pool: BufferPool
    threads: int  # of the kernels, 0 for all
    ops: Operations  # makes the products and exchanges
    order: str  # of chains: auto or spmm_first
    work: tuple[tuple[int, int], int] | None  # (n, m) and nonzeros where nothing is exchanged: chains are ordered by it
    fixed_input: FixedInput | None  # X, which does not change, with A X
    sent_so_far: int  # bytes, on this rank
    selected: np.ndarray | None  # rows of H that are rows of A H; None: all
    row_sum: Any  # RowSum that adds up partial results of a process row; None in 1D
    selects_first: bool  # `select` gives the first rows of H, where it does not give all
    holds_own: bool  # this rank multiplies with its own columns: in 1.5D one rank of a process row does

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None
    ) -> torch.Tensor | SparseRows:
        """Return relu(A H + add + b), (n, F), in A's dtype or another; add is of sum_dtype(A.dtype).

        Of SparseRows: A H as SparseRows. With the ghost rows of H nothing is exchanged, but in 1.5D the sums.
        """

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S has few enough nonzeros to be cached, on all ranks the same."""

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE) -> torch.Tensor:
        """Return A' G, (m, F)."""

    def over_columns(self, H_mF, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, rows of H) for own columns, while ghost rows travel, then for ghost columns."""

    def add_columns(
        self, rows_of: Callable[[bool], torch.Tensor], dtype: torch.dtype, place: Place = OUTSIDE
    ) -> torch.Tensor:
        """Return (m, F) in a dtype, the adjoint of over_columns.

        Args: rows_of  (is_ghost) -> gradients of a block's rows: (g, F), or (m, F) of the type of sums, which is added to.
        """

    def combine(self, Z_nF: torch.Tensor, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return the partial results of a process row as one, in place: their sum, or what `add` makes of them."""

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H."""


class Operator:
    """Base of operators. The calls of layers on the operator itself are those of `at()`, outside of layers."""

    name, order, threads, sent_so_far, holds_own = "A", "auto", 0, 0, True
    selects_first = False  # where `select` gives a copy of some rows, not the first ones
    row_sum = selected = None
    device, ops = torch.device("cpu"), Operations()
    fixed_input: FixedInput | None = None
    edge_table: EdgeTable | NoEdgeTable | None = None  # of the rank, where the graph has attributes of edges
    # Attributes of the nonzeros of all column blocks, (E, F), of the type of sums; None: the graph has none.
    edge_attr = cached_property(lambda self: None if self.edge_table is None else self.edge_table.attr_of(self))
    work: tuple[tuple[int, int], int] | None = None
    pool = cached_property(lambda self: BufferPool())
    out_ids = cached_property(lambda self: self.node_n[: self.n])
    column_ids = cached_property(lambda self: self.node_n)
    n_edges = cached_property(lambda self: sum(block.A.nnz for block in self.column_blocks))
    edge_index = cached_property(lambda self: edge_index_of(self))
    edge_ids = cached_property(lambda self: edge_ids_of(self))

    def at(self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key=None) -> LayerView:
        """Return this operator, or another normalisation, as a layer sees it; see LayerView.at."""
        return LayerView(self.with_norm(operator), layer, current_pass(), is_last, self, key)

    def with_norm(self, how: Norm | None):
        """Return the operator of another normalisation of the same graph; None: this one."""
        if how is None:
            return self
        raise UsageError(f"operator {how!r} is not known here: {type(self).__name__} has one normalisation")

    @property
    def kept(self) -> torch.Tensor | SparseRows | None:
        """A X where it is cached."""
        return None if self.fixed_input is None else self.fixed_input.products.get(self.name)

    def __matmul__(self, H):
        return self.at() @ H

    def __getattr__(self, name: str):
        if hasattr(LayerView, name):
            return getattr(self.at(), name)
        return object.__getattribute__(self, name)  # raises what a property raised, too

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H."""
        return H

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S is cached: it is not."""
        return False

    def over_columns(self, H_mF, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, H)."""
        yield self.column_blocks[0], H_mF

    def add_columns(
        self, rows_of: Callable[[bool], torch.Tensor], dtype: torch.dtype, place: Place = OUTSIDE
    ) -> torch.Tensor:
        """Return (m, F), the adjoint of over_columns."""
        return rounded(self.pool, rows_of(False), dtype)

    def combine(self, Z_nF: torch.Tensor, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return Z: no other process has a part of it."""
        return Z_nF

    def prepare_adjoint(self) -> None:
        """Make what backward needs before buffers fill the memory."""

    def adjoint_columns(self, G_nF: torch.Tensor, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, A_c' G) for own and ghost columns: gradients of rows that stay here. Nothing is exchanged.

        1.5D: of a process row one rank yields the own columns, with which it alone multiplies.
        """
        for block in self.column_blocks:
            if block.is_ghost or self.holds_own:
                A = block.A.transposed()
                with self.ops.span(GHOST if block.is_ghost else OWN, spmm_flops(A, G_nF)):
                    yield block, A.apply(G_nF, self.pool.empty(A.shape[0], G_nF.shape[1], dtype=self.dtype))
