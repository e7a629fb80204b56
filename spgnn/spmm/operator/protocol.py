"""Operator: the base of operators, with what one process with all rows has; see SpMM in facts.py.

Shapes: n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ...config.names import Norm
from ...errors import UsageError
from ...graph import NodeTypes
from ..edges.edge_table import EdgeTable, NoEdgeTable, relations_of
from ..exchange.ghosts import ColumnBlock, rounded
from ..kernels.buffers import BufferPool, Pool
from .facts import Key, SpMM, Value, made_once
from .features import AnyRows, SparseRows
from .place import OUTSIDE, Place
from .timing import GHOST, OWN, Operations, spmm_flops
from .view import LayerView, current_pass


class Operator(SpMM):
    """Base of operators. The calls of layers on the operator itself are those of `at()`, outside of layers."""

    name, order, threads, sent_so_far, holds_own = "A", "auto", 0, 0, True
    selects_first = False  # where `select` gives a copy of some rows, not the first ones
    row_sum = selected = work = fixed_input = None
    device: torch.device = torch.device("cpu")
    ops: Operations = Operations()
    edge_table: EdgeTable | NoEdgeTable | None = None  # of the rank, where the graph has attributes of edges
    # Attributes of the nonzeros of all column blocks, (E, F), of the type of sums; None: the graph has none.
    edge_attr = made_once(lambda self: None if self.edge_table is None else self.edge_table.attr_of(self))
    relations = made_once(lambda self: relations_of(self.edge_table, self))
    pool: Pool = made_once(lambda self: BufferPool())
    node_types = NodeTypes()
    node_type_n: np.ndarray = made_once(lambda self: self.node_types.of(self.node_n))
    out_ids: np.ndarray = made_once(lambda self: self.node_n[: self.n])
    column_ids: np.ndarray = made_once(lambda self: np.concatenate([block.ids_c for block in self.column_blocks]))
    n_edges: int = made_once(lambda self: sum(block.A.nnz for block in self.column_blocks))
    edge_index: torch.Tensor = made_once(lambda self: edge_index_of(self))
    edge_ids: np.ndarray = made_once(lambda self: edge_ids_of(self))

    def at(
        self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key: Key | None = None
    ) -> LayerView:
        """Return this operator, or another normalisation, as a layer sees it; see LayerView.at."""
        return LayerView(self.with_norm(operator), layer, current_pass(), is_last, self, key)

    def with_norm(self, how: Norm | None) -> Any:
        """Return the operator of another normalisation of the same graph; None: this one."""
        if how is None:
            return self
        raise UsageError(f"operator {how!r} is not known here: {type(self).__name__} has one normalisation")

    def once(self, kind: type[Value], make: Callable[[], Value]) -> Value:
        """Return what layers make of the operator once, such as its edges in another order; it is kept with the operator."""
        if kind.__name__ not in vars(self):
            vars(self)[kind.__name__] = make()
        return vars(self)[kind.__name__]

    @property
    def kept(self) -> AnyRows | None:
        """A X where it is cached."""
        return None if self.fixed_input is None else self.fixed_input.products.get(self.name)

    def __matmul__(self, H: AnyRows) -> Any:
        return self.at() @ H

    def __getattr__(self, name: str) -> Any:
        if hasattr(LayerView, name):
            return getattr(self.at(), name)
        return object.__getattribute__(self, name)  # raises what a property raised, too

    def select(self, H: Any) -> Any:
        """Return the rows of H that correspond to the rows of A H."""
        return H

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S is cached: it is not."""
        return False

    def over_columns(self, H_mF: AnyRows, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, Any]]:
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


def edge_index_of(A: SpMM) -> torch.Tensor:
    """Return the places of column j and row i of each nonzero in a table of own and ghost columns, (2, E) int64."""
    if A.device.type == "meta":
        return torch.empty(2, A.n_edges, dtype=torch.int64, device=A.device)
    row_n = np.arange(A.n) if A.selected is None else np.asarray(A.selected)
    lengths = [np.diff(block.A.indptr) for block in A.column_blocks]
    columns_E = np.concatenate([block.A.indices.astype(np.int64) + block.start for block in A.column_blocks])
    rows_E = np.concatenate([np.repeat(row_n, lengths_n) for lengths_n in lengths])
    return torch.from_numpy(np.stack([columns_E, rows_E])).to(A.device)


def edge_ids_of(A: SpMM) -> np.ndarray:
    """Return the original id of the column of each nonzero, (E,) int64."""
    parts = [block.ids_c[block.A.indices] for block in A.column_blocks]
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.int64)
