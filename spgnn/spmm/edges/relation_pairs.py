"""RelationPairs: attention over edges of several relations, on packed rows: one for each pair of relation and column, or row.

A number for each nonzero and head is stored, and no row. The nonzeros of a row are in the order of relations, then of
columns; ghost rows are fetched once, by A.fetch.
Shapes: n rows out, m own rows in, t own and ghost columns, E nonzeros, R relations, M pairs of relation and column, L of
relation and row, F in, C out, K heads of width D, heads innermost; T types of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ...errors import UsageError
from ..chains.backward import first_order, own
from ..exchange.column_rows import ColumnRows, stored
from ..exchange.ghosts import ColumnBlock, rounded
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.facts import AtLayer
from ..operator.place import OUTSIDE
from .edges import Dots, OnEdges, RowSoftmax, WeightedSum
from .relations import Packed, relations, segments_of


class PackedRows(torch.autograd.Function):
    """Z = outward (inward H) W_r of packed rows; their gradients. Nothing is exchanged."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, packed: Packed, H_cF, W_RFC):
        T, (M, _) = sum_dtype(A.dtype), packed.inward.shape
        n = M if packed.outward is None else packed.outward.shape[0]
        Z_nC = A.pool.empty(n, W_RFC.shape[2], dtype=T).zero_()
        packed.add(A, stored(A, H_cF).to(T), W_RFC.detach().to(T).contiguous(), Z_nC)
        ctx.A, ctx.packed = A, packed
        ctx.save_for_backward(H_cF, W_RFC)
        return Z_nC

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nC):
        A, (H_cF, W_RFC), T = ctx.A, ctx.saved_tensors, sum_dtype(ctx.A.dtype)
        H, W = stored(A, H_cF).to(T), W_RFC.detach().to(T).contiguous()
        dH = A.pool.empty(*H.shape, dtype=T).zero_() if ctx.needs_input_grad[2] else None
        dW = torch.zeros_like(W) if ctx.needs_input_grad[3] else None
        ctx.packed.add_gradients(A, H, W, G_nC.to(T).contiguous(), dW, dH)
        return None, None, None if dH is None else own(dH.to(H_cF.dtype)), None if dW is None else dW.to(W_RFC.dtype)


class _Pattern:
    """Nonzeros at rows and pairs, all on this rank: what the functions of edges read of an operator."""

    row_sum, holds_own, forward, backward = None, True, OUTSIDE, OUTSIDE

    def __init__(self, A: AtLayer, M: LocalCSR):
        (self.n, self.m), self.n_edges, self.pool, self.device = M.shape, M.nnz, A.pool, A.device
        self.dtype = self.out_dtype = sum_dtype(A.dtype)
        self.column_blocks = (ColumnBlock(M, np.zeros(0, np.int64)),)

    def over_columns(self, V):
        """Yield (block, V)."""
        yield self.column_blocks[0], V

    def add_columns(self, rows_of, dtype: torch.dtype) -> torch.Tensor:
        """Return the adjoint of over_columns."""
        return rounded(self.pool, rows_of(False), dtype)

    def combine(self, Z_nF: torch.Tensor, *_, **__) -> torch.Tensor:
        """Return Z: no other rank has a part of it."""
        return Z_nF


class RelationPairs:
    """The pairs of an operator, made once.

    relation_E  (E,) the relation of each nonzero, in the order of pairs; R of the graph.
    kind_2K     (2, K) relation and type of the columns of the kinds of pairs that this rank has; a relation may join several types.
    """

    def __init__(self, A: AtLayer):
        of = relations(A)
        self.R, lengths = of.R, [np.diff(block.A.indptr) for block in A.column_blocks]
        row_E = np.concatenate([np.repeat(np.arange(A.n), length_n) for length_n in lengths])
        column_E = np.concatenate([block.A.indices.astype(np.int64) + block.start for block in A.column_blocks])
        t, self.n_types = len(A.column_ids), max(1, len(A.node_types.names))
        kind_E = of.relation_E * self.n_types + A.node_types.of(A.column_ids)[column_E]
        pairs, pair_E = np.unique(kind_E * t + column_E, return_inverse=True)
        kind_M, column_M = np.divmod(pairs, max(t, 1))
        kinds, self.kind_M = np.unique(kind_M, return_inverse=True)
        self.kind_2K = np.stack(np.divmod(kinds, self.n_types))
        order = np.lexsort((pair_E, row_E))
        self.relation_E, row_E, pair_E = of.relation_E[order], row_E[order], pair_E[order]
        at_rows, counts_L = np.unique(row_E * self.R + self.relation_E, return_counts=True)
        row_L, relation_L = np.divmod(at_rows, self.R)
        pattern = lambda counts: _Pattern(A, _multi(counts, pair_E, len(pairs), A))
        self.at_rows, self.at_pairs = pattern(np.bincount(row_E, minlength=A.n)), pattern(counts_L)
        picked = _picked(column_M, t, A)
        self._columns, self._kinds = (
            Packed(picked, None, segments_of(of_M)) for of_M in (kind_M // self.n_types, self.kind_M)
        )
        by_relation, own_n = np.argsort(relation_L, kind="stable"), np.arange(A.m) if A.selected is None else A.selected
        segments = segments_of(relation_L[by_relation])
        self._rows = Packed(
            _picked(own_n[row_L[by_relation]], A.m, A), _picked(np.argsort(by_relation), len(by_relation), A), segments
        )

    def check(self, R: int, types: int | None = None) -> None:
        """Raise UsageError for more relations, or types of nodes, than a layer was made for."""
        if self.R > R:
            raise UsageError(f"edges have {self.R} relations, and the layer was made with relations={R}")
        if types is not None and self.n_types > types:
            raise UsageError(f"nodes have {self.n_types} types, and the layer was made with types={types}")

    def columns(self, A: AtLayer, H_tF: ColumnRows, W_RFC: torch.Tensor) -> torch.Tensor:
        """Return H_j W_r of each relation and its columns j, (M, C)."""
        return PackedRows.apply(A, self._columns, H_tF.tensor, W_RFC)

    def of_kinds(self, A: AtLayer, H_tF: ColumnRows, W_KFC: torch.Tensor, bias_KC: torch.Tensor) -> torch.Tensor:
        """Return H_j W_k + b_k of each kind of pairs and its columns j, (M, C)."""
        kind_M = torch.from_numpy(self.kind_M).to(A.device)
        return PackedRows.apply(A, self._kinds, H_tF.tensor, W_KFC) + bias_KC[kind_M]

    def rows(self, A: AtLayer, H_mF: torch.Tensor, W_RFC: torch.Tensor) -> torch.Tensor:
        """Return H_i W_r of each row i and its relations r, (L, C)."""
        return PackedRows.apply(A, self._rows, H_mF, W_RFC)

    def added(self, U_LK: torch.Tensor, V_MK: torch.Tensor) -> torch.Tensor:
        """Return U_ir + V_rj for each nonzero, (E, K)."""
        return OnEdges.apply(self.at_pairs, U_LK, V_MK, None, False, None)

    def dot(self, U_nKD: torch.Tensor, V_MKD: torch.Tensor, heads: int) -> torch.Tensor:
        """Return <U_i, V_rj> of each head for each nonzero, (E, K)."""
        return Dots.apply(self.at_rows, U_nKD, V_MKD, None, False, heads)

    def softmax(self, S_EK: torch.Tensor) -> torch.Tensor:
        """Return the softmax over all nonzeros of each row, (E, K)."""
        return RowSoftmax.apply(self.at_rows, S_EK)

    def sum(self, alpha_EK: torch.Tensor, V_MKD: torch.Tensor) -> torch.Tensor:
        """Return sum over the nonzeros of row i of alpha_ij V_rj, (n, K D)."""
        return WeightedSum.apply(self.at_rows, alpha_EK, V_MKD, None, False)


def pairs(A: AtLayer) -> RelationPairs:
    """Pairs of relations and nodes of the edges of A. Raises: UsageError where edges have no relation, and in 1.5D."""
    return A.once(RelationPairs, lambda: RelationPairs(A))


def by_type(A: AtLayer, H_nF: torch.Tensor, W_TFC: torch.Tensor, bias_TC: torch.Tensor) -> torch.Tensor:
    """Return H_i W_t + b_t, t the type of node i, of the rows of A H, (n, C). Nothing is exchanged."""
    types = _types(A)
    return PackedRows.apply(A, types.packed, H_nF, W_TFC) + bias_TC[types.type_n]


def type_n(A: AtLayer) -> torch.Tensor:
    """The types of the rows of A H, (n,) int64."""
    return _types(A).type_n


def _types(A: AtLayer) -> _Types:
    return A.once(_Types, lambda: _Types(A))


class _Types:
    """The types of the rows of A H, and these rows by type."""

    def __init__(self, A: AtLayer):
        type_n = A.node_types.of(A.out_ids)
        order = np.argsort(type_n, kind="stable")
        self.type_n = torch.from_numpy(type_n).to(A.device)
        self.packed = Packed(_picked(order, A.n, A), _picked(np.argsort(order), A.n, A), segments_of(type_n[order]))


def _picked(column_M: np.ndarray, c: int, A: AtLayer) -> LocalCSR:
    """Return the matrix that picks a row for each of its rows, (M, c)."""
    indptr, T = np.arange(len(column_M) + 1), sum_dtype(A.dtype)
    return LocalCSR(
        sp.csr_array((np.ones(len(column_M), np.float32), column_M, indptr), (len(column_M), c)), T, A.threads
    )


def _multi(counts_n: np.ndarray, pair_E: np.ndarray, M: int, A: AtLayer) -> LocalCSR:
    """Return the pattern with so many nonzeros in each row, at these pairs, (n, M)."""
    indptr = np.concatenate([[0], np.cumsum(counts_n)])
    made = sp.csr_array((np.ones(len(pair_E), np.float32), pair_E, indptr), (len(counts_n), M))
    return LocalCSR(made, sum_dtype(A.dtype), A.threads)
