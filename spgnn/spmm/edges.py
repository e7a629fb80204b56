"""EdgeValues: numbers for each nonzero of A and head, which a layer makes, changes and multiplies rows with.

Shapes: n rows out, m own rows in, t own and ghost columns, E nonzeros of this rank's columns, K heads of width D; heads
are innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import ShapeError, UsageError, check_integer
from .backward import first_order
from .column_rows import gradient_of, over_rows, over_table, refuse_weights, stored
from .kernels.backend import kernels_on
from .kernels.buffers import sum_dtype


@dataclass(frozen=True, slots=True, eq=False)
class EdgeValues:
    """Values (E, K) on the nonzeros of A: those of own columns, then those of ghost columns. E K numbers are stored.

    S.softmax() is taken over each row of A, S.map(f) of each number, and S @ V is a sum over each row: (n, K D) of
    V (t, K D), as A.columns returns it. All are differentiable, and exact on any ranks.
    """

    A: Any
    values: torch.Tensor

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> EdgeValues:
        """Return what a function without weights makes of each value."""
        values = function(self.values)
        if values.shape != self.values.shape:
            raise ShapeError(f"map returned shape {tuple(values.shape)}; expected {tuple(self.values.shape)}")
        return EdgeValues(self.A, values)

    def softmax(self) -> EdgeValues:
        """Return exp(S_ij) / sum_j exp(S_ij) over the nonzeros of each row. Collective in 1.5D."""
        refuse_weights(self.A, self.values)
        return EdgeValues(self.A, RowSoftmax.apply(self.A, self.values))

    def __matmul__(self, V_tKD: torch.Tensor) -> torch.Tensor:
        """Return sum_j S_ij V_j of each head, (n, K D). Collective in 1.5D."""
        _check_rows("V", V_tKD, _columns(self.A), self.values.shape[1])
        for T in (self.values, V_tKD):
            refuse_weights(self.A, T)
        return WeightedSum.apply(self.A, self.values, V_tKD)


def sddmm(A, U_mKD: torch.Tensor, V_tKD: torch.Tensor, heads: int, op: str) -> EdgeValues:
    """Return <U_i, V_j> of each head, or U_i + V_j, for the nonzeros of A."""
    if op not in ("dot", "add"):
        raise UsageError(f"op = {op!r}; expected dot or add")
    check_integer("heads", heads, 1)
    K = U_mKD.shape[1] if op == "add" else heads
    _check_rows("U", U_mKD, A.m, K)
    _check_rows("V", V_tKD, _columns(A), K)
    if U_mKD.shape[1] != V_tKD.shape[1]:
        raise ShapeError(f"U has {U_mKD.shape[1]} columns and V {V_tKD.shape[1]}; expected as many")
    refuse_weights(A, V_tKD)
    return EdgeValues(A, Sddmm.apply(A, A.select(U_mKD), V_tKD, K, op))


class OnEdges(torch.autograd.Function):
    """S_ij = U_i + V_j + add_ij; dU_i = sum_j dS_ij, dV_j = sum_i dS_ij, dadd = dS. What is None is left out.

    Args: V         (m, C), of which ghost rows are fetched unless they are given; is_table: (t, C), of all columns.
    """

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx, A, U_nC, V, ghosts_gC, is_table: bool, add_EC):
        T, kernels = sum_dtype(A.dtype), kernels_on(A.device)
        C = (V if U_nC is None else U_nC).shape[1]
        S_EC = A.pool.empty(A.n_edges, C, dtype=T)
        U_nC = _zeros(A, A.n, C) if U_nC is None else U_nC.detach().to(T).contiguous()
        for (block, V_cC), (_, S_bC) in zip(_over(A, V, ghosts_gC, is_table), _parts(A, S_EC)):
            V_cC = _zeros(A, block.A.shape[1], C) if V_cC is None else V_cC.to(T)
            kernels.edge_add(block.A, U_nC, V_cC, S_bC)
        if add_EC is not None:
            S_EC += add_EC.detach()
        ctx.A, ctx.is_table, ctx.add_dtype = A, is_table, None if add_EC is None else add_EC.dtype
        return S_EC

    @staticmethod
    @first_order
    def backward(ctx, dS_EC):
        A, blocks, kernels = ctx.A, ctx.A.column_blocks, kernels_on(ctx.A.device)
        _, needs_U, needs_V, _, _, needs_add = ctx.needs_input_grad
        dS_EC, C, dU, dV = dS_EC.contiguous(), dS_EC.shape[1], None, None
        parts = [dS_bC for _, dS_bC in _parts(A, dS_EC)]

        def rows_of(is_ghost: bool) -> torch.Tensor:
            if is_ghost and len(blocks) == 1:
                return A.pool.empty(0, C, dtype=dS_EC.dtype)
            dV_cC = A.pool.empty(blocks[is_ghost].A.shape[1], C, dtype=dS_EC.dtype)
            kernels.spmm_heads(blocks[is_ghost].A, parts[is_ghost], None, dV_cC, transpose=True)
            return dV_cC

        if needs_V:
            dV = gradient_of(A, rows_of, ctx.is_table)
        if needs_U:
            dU = _row_sums(A, dS_EC)
            A.combine(dU, place=A.backward)
        return None, dU, dV, None, None, dS_EC.to(ctx.add_dtype) if needs_add else None


class RowSums(torch.autograd.Function):
    """Z_i = sum_j M_ij, or their mean, 0 for an empty row; dM_ij = dZ_i, or dZ_i divided by the nonzeros of row i."""

    @staticmethod
    def forward(ctx, A, M_EF, is_mean: bool):
        Z_nF = _row_sums(A, M_EF.detach().to(sum_dtype(A.dtype)).contiguous())
        A.combine(Z_nF)
        ctx.A, ctx.count_n1, ctx.dtype = A, _lengths(A) if is_mean else None, M_EF.dtype
        if is_mean:
            Z_nF /= ctx.count_n1
        return Z_nF if Z_nF.dtype == A.out_dtype else A.pool.copy(Z_nF, A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx, G_nF):
        A, kernels, T = ctx.A, kernels_on(ctx.A.device), sum_dtype(ctx.A.dtype)
        G_nF = G_nF.to(T).contiguous() if ctx.count_n1 is None else G_nF.to(T) / ctx.count_n1
        dM_EF = A.pool.empty(A.n_edges, G_nF.shape[1], dtype=T)
        for block, dM_bF in _parts(A, dM_EF):
            kernels.edge_add(block.A, G_nF, _zeros(A, block.A.shape[1], G_nF.shape[1]), dM_bF)
        return None, dM_EF.to(ctx.dtype), None


class Sddmm(torch.autograd.Function):
    """S_ij = <U_i, V_j> or U_i + V_j; dU_i = sum_j dS_ij V_j, dV_j = sum_i dS_ij U_i, with ones for a sum."""

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx, A, U_nKD, V_tKD, K: int, op: str):
        T = sum_dtype(A.dtype)
        U_nKD, V_tKD = U_nKD.detach().to(T).contiguous(), V_tKD.detach().to(T).contiguous()
        kernels = kernels_on(A.device)
        make = kernels.sddmm if op == "dot" else kernels.edge_add
        S_EK = A.pool.empty(sum(b.A.nnz for b in A.column_blocks), K, dtype=T)
        for block, S_bK in _parts(A, S_EK):
            make(block.A, U_nKD, V_tKD[block.of_table], S_bK)
        ctx.A, ctx.op = A, op
        ctx.save_for_backward(U_nKD, V_tKD)
        return S_EK

    @staticmethod
    @first_order
    def backward(ctx, dS_EK):
        A, (U_nKD, V_tKD) = ctx.A, ctx.saved_tensors
        kernels, dS_EK, is_dot = kernels_on(A.device), dS_EK.contiguous(), ctx.op == "dot"
        dU, dV = A.pool.empty(*U_nKD.shape, dtype=U_nKD.dtype), A.pool.empty(*V_tKD.shape, dtype=V_tKD.dtype)
        for block, dS_bK in _parts(A, dS_EK):
            V_cKD, U = (V_tKD[block.of_table], U_nKD) if is_dot else (None, None)
            kernels.spmm_heads(block.A, dS_bK, V_cKD, dU, accumulate=block.is_ghost)
            kernels.spmm_heads(block.A, dS_bK, U, dV[block.of_table], transpose=True)
        A.combine(dU, place=A.backward)
        return None, dU, dV, None, None


class RowSoftmax(torch.autograd.Function):
    """alpha_ij = exp(e_ij - L_i); de_ij = alpha_ij (dalpha_ij - D_i), D_i = sum_j alpha_ij dalpha_ij."""

    @staticmethod
    def forward(ctx, A, e_EK):
        kernels, T = kernels_on(A.device), sum_dtype(A.dtype)
        e_EK = e_EK.detach().to(T).contiguous()
        K = e_EK.shape[1]
        top_nK, sum_nK = A.pool.empty(A.n, K, dtype=T), A.pool.empty(A.n, K, dtype=T)
        for block, e_bK in _parts(A, e_EK):
            kernels.softmax_sums(block.A, e_bK, top_nK, sum_nK, accumulate=block.is_ghost)
        if A.row_sum is not None:
            top_nK, sum_nK = _merged(A, top_nK, sum_nK)
        L_nK = torch.where(sum_nK == 0, 0.0, top_nK + torch.log(sum_nK))
        alpha_EK = A.pool.empty(*e_EK.shape, dtype=T)
        for (block, e_bK), (_, alpha_bK) in zip(_parts(A, e_EK), _parts(A, alpha_EK)):
            kernels.row_softmax(block.A, e_bK, L_nK, alpha_bK)
        ctx.A = A
        ctx.save_for_backward(alpha_EK)
        return alpha_EK

    @staticmethod
    @first_order
    def backward(ctx, dalpha_EK):
        A, (alpha_EK,) = ctx.A, ctx.saved_tensors
        kernels, dalpha_EK = kernels_on(A.device), dalpha_EK.contiguous()
        D_nK = A.pool.empty(A.n, alpha_EK.shape[1], dtype=alpha_EK.dtype)
        de_EK = A.pool.empty(*alpha_EK.shape, dtype=alpha_EK.dtype)
        parts = list(zip(_parts(A, alpha_EK), _parts(A, dalpha_EK), _parts(A, de_EK)))
        for (block, alpha_bK), (_, dalpha_bK), _ in parts:
            kernels.row_dots(block.A, alpha_bK, dalpha_bK, D_nK, accumulate=block.is_ghost)
        A.combine(D_nK, place=A.backward)
        for (block, alpha_bK), (_, dalpha_bK), (_, de_bK) in parts:
            kernels.row_softmax_adjoint(block.A, alpha_bK, dalpha_bK, D_nK, de_bK)
        return None, de_EK


class WeightedSum(torch.autograd.Function):
    """Z_i = sum_j S_ij V_j; dS_ij = <G_i, V_j>, dV_j = sum_i S_ij G_i."""

    @staticmethod
    def forward(ctx, A, S_EK, V_tKD):
        T, kernels = sum_dtype(A.dtype), kernels_on(A.device)
        S_EK, V_tKD = S_EK.detach().contiguous(), V_tKD.detach().to(T).contiguous()
        Z_nKD = A.pool.empty(A.n, V_tKD.shape[1], dtype=T)
        for block, S_bK in _parts(A, S_EK):
            kernels.spmm_heads(block.A, S_bK, V_tKD[block.of_table], Z_nKD, accumulate=block.is_ghost)
        A.combine(Z_nKD)
        ctx.A = A
        ctx.save_for_backward(S_EK, V_tKD)
        return Z_nKD.to(A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx, G_nKD):
        A, (S_EK, V_tKD) = ctx.A, ctx.saved_tensors
        kernels, G_nKD = kernels_on(A.device), G_nKD.to(V_tKD.dtype).contiguous()
        dS_EK = A.pool.empty(*S_EK.shape, dtype=S_EK.dtype)
        dV = A.pool.empty(*V_tKD.shape, dtype=V_tKD.dtype)
        for (block, S_bK), (_, dS_bK) in zip(_parts(A, S_EK), _parts(A, dS_EK)):
            kernels.sddmm(block.A, G_nKD, V_tKD[block.of_table], dS_bK)
            kernels.spmm_heads(block.A, S_bK, G_nKD, dV[block.of_table], transpose=True)
        return None, dS_EK, dV


def _row_sums(A, M_EF: torch.Tensor) -> torch.Tensor:
    """Return the sums over this rank's nonzeros of each row, (n, F)."""
    Z_nF = A.pool.empty(A.n, M_EF.shape[1], dtype=M_EF.dtype)
    for block, M_bF in _parts(A, M_EF):
        kernels_on(A.device).spmm_heads(block.A, M_bF, None, Z_nF, accumulate=block.is_ghost)
    return Z_nF


def _lengths(A) -> torch.Tensor:
    """Return the number of nonzeros of each row, 1 for an empty row, (n, 1). Collective in 1.5D."""
    count_n = sum(np.diff(block.A.indptr) for block in A.column_blocks)
    count_n1 = torch.as_tensor(count_n[:, None], device=A.device).to(sum_dtype(A.dtype))
    return A.combine(count_n1).clamp_(min=1)


def _over(A, V, ghosts_gC, is_table: bool) -> Iterator:
    """Yield (block, rows of V), None where V is None. Collective where ghost rows are fetched."""
    if V is None:
        yield from ((block, None) for block in A.column_blocks)
    elif is_table:
        yield from over_table(A, stored(A, V), True)
    else:
        yield from over_rows(A, stored(A, V), ghosts_gC)


def _zeros(A, rows: int, C: int) -> torch.Tensor:
    return torch.zeros(rows, C, dtype=sum_dtype(A.dtype), device=A.device)


def _parts(A, values_EK: torch.Tensor):
    """Yield (block, values of its nonzeros)."""
    start = 0
    for block in A.column_blocks:
        yield block, values_EK[start : start + block.A.nnz]
        start += block.A.nnz


def _merged(A, top_nK, sum_nK) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest score and the sum of exp(score - largest) over the process row. Collective."""
    K = top_nK.shape[1]
    packed = A.pool.empty(A.n, 2 * K, dtype=top_nK.dtype)
    torch.cat([top_nK, sum_nK], 1, out=packed)

    def add(parts) -> None:
        top, total = parts[0][:, :K], parts[0][:, K:]
        for part in parts[1:]:
            new = torch.maximum(top, part[:, :K])
            scales = [torch.where(of == new, 1.0, torch.exp(of - new)) for of in (top, part[:, :K])]
            total.copy_(total * scales[0] + part[:, K:] * scales[1])
            top.copy_(new)

    A.combine(packed, add)
    return packed[:, :K].contiguous(), packed[:, K:].contiguous()


def _columns(A) -> int:
    return sum(block.A.shape[1] for block in A.column_blocks)


def _check_rows(name: str, X: torch.Tensor, rows: int, K: int) -> None:
    """Raise ShapeError unless X has so many rows, and columns for K heads."""
    if X.ndim != 2 or len(X) != rows or K < 1 or X.shape[1] % K:
        raise ShapeError(
            f"{name} has shape {tuple(X.shape)}; expected ({rows}, K D), {'own and ghost' if name == 'V' else 'own'} rows, "
            f"of K = {K} heads"
        )
