"""Gradients of the words on edges: what is made of rows at the nonzeros of A, and sums over the nonzeros of a row.

Shapes: n rows out, m own rows in, t own and ghost columns, E nonzeros of this rank, K heads of width D; heads are
innermost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ..chains.backward import first_order
from ..exchange.column_rows import gradient_of, over_rows, over_table, stored
from ..kernels.backend import kernels_on
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.facts import AtLayer
from .maximum import merged


class OnEdges(torch.autograd.Function):
    """S_ij = U_i + V_j + add_ij; dU_i = sum_j dS_ij, dV_j = sum_i dS_ij, dadd = dS. What is None is left out.

    Args: V         (m, C), of which ghost rows are fetched unless they are given; is_table: (t, C), of all columns.
    """

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx: Any, A: AtLayer, U_nC, V, ghosts_gC, is_table: bool, add_EC):
        T, kernels = sum_dtype(A.dtype), kernels_on(A.device)
        C = (V if U_nC is None else U_nC).shape[1]
        S_EC = A.pool.empty(A.n_edges, C, dtype=T)
        U_nC, add_EC = (None if of is None else of.detach().to(T).contiguous() for of in (U_nC, add_EC))
        parts = zip(_over(A, V, ghosts_gC, is_table), _parts(A, S_EC), _parts(A, add_EC))
        for (block, V_cC), (_, S_bC), (_, add_bC) in parts:
            kernels.edge_add(block.A, U_nC, None if V_cC is None else V_cC.to(T), S_bC, add_bC)
        ctx.A, ctx.is_table = A, is_table
        return S_EC

    @staticmethod
    @first_order
    def backward(ctx: Any, dS_EC):
        A, (_, needs_U, needs_V, _, _, needs_add) = ctx.A, ctx.needs_input_grad
        dS_EC, dU, dV = dS_EC.contiguous(), None, None
        if needs_V:
            dV = to_columns(A, dS_EC, None, ctx.is_table)
        if needs_U:
            dU = A.combine(weighted(A, dS_EC), place=A.backward)
        return None, dU, dV, None, None, dS_EC if needs_add else None


class RowSums(torch.autograd.Function):
    """Z_i = sum_j M_ij, or their mean, 0 for an empty row; dM_ij = dZ_i, or dZ_i divided by the nonzeros of row i."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, M_EF, is_mean: bool):
        Z_nF = A.combine(weighted(A, M_EF.detach().to(sum_dtype(A.dtype)).contiguous()))
        ctx.A, ctx.count_n1 = A, None
        if is_mean:
            ctx.count_n1 = count_n1 = _lengths(A)
            Z_nF /= count_n1
        return Z_nF.to(A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        A, G_nF = ctx.A, G_nF.to(sum_dtype(ctx.A.dtype))
        return None, _at_rows(A, G_nF if ctx.count_n1 is None else G_nF / ctx.count_n1), None


class Largest(torch.autograd.Function):
    """Z_i = max_j M_ij, or the smallest, 0 for an empty row; dM_ij = dZ_i where M_ij is the one that counts.

    Of equal ones it is the nonzero whose column has the smallest original id, and of equal columns the first.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, M_EF, sign: int):
        T, kernels = sum_dtype(A.dtype), kernels_on(A.device)
        M_EF = M_EF.detach().to(T).contiguous()
        M_EF = M_EF if sign > 0 else -M_EF
        Z_nF, arg_nF = (A.pool.empty(A.n, M_EF.shape[1], dtype=dtype) for dtype in (T, torch.int32))
        start, ids_E = 0, A.edge_ids
        for block, M_bF in _parts(A, M_EF):
            kernels.maximum(_by_place(block.A), M_bF, ids_E, Z_nF, arg_nF, start, accumulate=block.is_ghost)
            start += len(M_bF)
        if A.row_sum is not None:
            Z_nF, arg_nF = merged(A, Z_nF, arg_nF, ids_E)
        ctx.A, ctx.arg_nF = A, arg_nF
        return (Z_nF if sign > 0 else Z_nF.neg_()).to(A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        A, T = ctx.A, sum_dtype(ctx.A.dtype)
        G_nF, start = G_nF.to(T).contiguous(), 0
        dM_EF = A.pool.empty(A.n_edges, G_nF.shape[1], dtype=T)
        for block, dM_bF in _parts(A, dM_EF):
            kernels_on(A.device).maximum_adjoint(_by_place(block.A), G_nF, ctx.arg_nF, dM_bF, start)
            start += len(dM_bF)
        return None, dM_EF, None


class Deviation(torch.autograd.Function):
    """Z_i^2 = mean_j (M_ij - mean_i)^2; dM_ij = (M_ij - mean_i) dZ_i / (Z_i nonzeros of row i).

    A Z_i within the rounding of mean_i is 0, and has no gradient.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, M_EF):
        M_EF = M_EF.detach().to(sum_dtype(A.dtype)).contiguous()
        count_n1 = _lengths(A)
        mean_nF = A.combine(weighted(A, M_EF)).div_(count_n1)
        from_mean_EF = _at_rows(A, -mean_nF, M_EF)
        Z_nF = A.combine(_row_dots(A, from_mean_EF, from_mean_EF)).div_(count_n1).sqrt_()
        rounding_nF = 4 * torch.finfo(Z_nF.dtype).eps * count_n1 * mean_nF.abs()
        Z_nF.masked_fill_(Z_nF <= rounding_nF, 0.0)
        ctx.A = A
        ctx.save_for_backward(M_EF, mean_nF, Z_nF, count_n1)
        return Z_nF.to(A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        A, (M_EF, mean_nF, Z_nF, count_n1) = ctx.A, ctx.saved_tensors
        share_nF = torch.where(Z_nF == 0, 0.0, G_nF.to(Z_nF.dtype) / (Z_nF * count_n1))
        return None, _at_rows(A, -mean_nF, M_EF).mul_(_at_rows(A, share_nF))


class Dots(torch.autograd.Function):
    """S_ij = <U_i, V_j> of each head; dU_i = sum_j dS_ij V_j, dV_j = sum_i dS_ij U_i. V as in OnEdges."""

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx: Any, A: AtLayer, U_nKD, V, ghosts_gKD, is_table: bool, K: int):
        U_nKD = U_nKD.detach().to(sum_dtype(A.dtype)).contiguous()
        S_EK, parts = A.pool.empty(A.n_edges, K, dtype=U_nKD.dtype), []
        for (block, V_cKD), (_, S_bK) in zip(_over(A, V, ghosts_gKD, is_table), _parts(A, S_EK)):
            kernels_on(A.device).sddmm(block.A, U_nKD, V_cKD, S_bK)
            parts.append(V_cKD)
        ctx.A, ctx.is_table = A, is_table
        ctx.save_for_backward(U_nKD, *parts)
        return S_EK

    @staticmethod
    @first_order
    def backward(ctx: Any, dS_EK):
        A, (U_nKD, *V) = ctx.A, ctx.saved_tensors
        dS_EK, dU, dV = dS_EK.contiguous(), None, None
        if ctx.needs_input_grad[2]:
            dV = to_columns(A, dS_EK, U_nKD, ctx.is_table)
        if ctx.needs_input_grad[1]:
            dU = A.combine(weighted(A, dS_EK, V), place=A.backward)
        return None, dU, dV, None, None, None


class RowSoftmax(torch.autograd.Function):
    """alpha_ij = exp(e_ij - top_i) / sum_i; de_ij = alpha_ij (dalpha_ij - D_i), D_i = sum_j alpha_ij dalpha_ij."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, e_EK):
        kernels, T = kernels_on(A.device), sum_dtype(A.dtype)
        e_EK = e_EK.detach().to(T).contiguous()
        K = e_EK.shape[1]
        top_nK, sum_nK = A.pool.empty(A.n, K, dtype=T), A.pool.empty(A.n, K, dtype=T)
        for block, e_bK in _parts(A, e_EK):
            kernels.softmax_sums(block.A, e_bK, top_nK, sum_nK, accumulate=block.is_ghost)
        if A.row_sum is not None:
            top_nK, sum_nK = _merged(A, top_nK, sum_nK)
        scale_nK = sum_nK.reciprocal_()
        alpha_EK = A.pool.empty(*e_EK.shape, dtype=T)
        for (block, e_bK), (_, alpha_bK) in zip(_parts(A, e_EK), _parts(A, alpha_EK)):
            kernels.row_softmax(block.A, e_bK, top_nK, scale_nK, alpha_bK)
        ctx.A = A
        ctx.save_for_backward(alpha_EK)
        return alpha_EK

    @staticmethod
    @first_order
    def backward(ctx: Any, dalpha_EK):
        A, (alpha_EK,) = ctx.A, ctx.saved_tensors
        dalpha_EK, de_EK = dalpha_EK.contiguous(), A.pool.empty(*alpha_EK.shape, dtype=alpha_EK.dtype)
        D_nK = A.combine(_row_dots(A, alpha_EK, dalpha_EK), place=A.backward)
        for (block, alpha_bK), (_, dalpha_bK), (_, de_bK) in zip(
            *(_parts(A, of) for of in (alpha_EK, dalpha_EK, de_EK))
        ):
            kernels_on(A.device).row_softmax_adjoint(block.A, alpha_bK, dalpha_bK, D_nK, de_bK)
        return None, de_EK


class WeightedSum(torch.autograd.Function):
    """Z_i = sum_j S_ij V_j; dS_ij = <G_i, V_j>, dV_j = sum_i S_ij G_i. V as in OnEdges."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, S_EK, V, ghosts_gKD, is_table: bool):
        S_EK = S_EK.detach().to(sum_dtype(A.dtype)).contiguous()
        Z_nKD, parts = A.pool.empty(A.n, V.shape[1], dtype=S_EK.dtype), []
        for (block, V_cKD), (_, S_bK) in zip(_over(A, V, ghosts_gKD, is_table), _parts(A, S_EK)):
            kernels_on(A.device).spmm_heads(block.A, S_bK, V_cKD, Z_nKD, accumulate=block.is_ghost)
            parts.append(V_cKD)
        ctx.A, ctx.is_table = A, is_table
        ctx.save_for_backward(S_EK, *parts)
        return A.combine(Z_nKD).to(A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nKD):
        A, (S_EK, *V) = ctx.A, ctx.saved_tensors
        G_nKD, dS_EK, dV = G_nKD.to(S_EK.dtype).contiguous(), None, None
        if ctx.needs_input_grad[2]:
            dV = to_columns(A, S_EK, G_nKD, ctx.is_table)
        if ctx.needs_input_grad[1]:
            dS_EK = A.pool.empty(*S_EK.shape, dtype=S_EK.dtype)
            for (block, dS_bK), V_cKD in zip(_parts(A, dS_EK), V):
                kernels_on(A.device).sddmm(block.A, G_nKD, V_cKD, dS_bK)
        return None, dS_EK, dV, None, None


def weighted(A: AtLayer, S_EK: torch.Tensor, V: Sequence[torch.Tensor] = ()) -> torch.Tensor:
    """Return sum_j S_ij V_j over this rank's nonzeros, (n, K D), or sum_j S_ij without V, the rows of each block."""
    Z_nKD = A.pool.empty(A.n, V[0].shape[1] if V else S_EK.shape[1], dtype=S_EK.dtype)
    for (block, S_bK), V_cKD in zip_longest(_parts(A, S_EK), V):
        kernels_on(A.device).spmm_heads(block.A, S_bK, V_cKD, Z_nKD, accumulate=block.is_ghost)
    return Z_nKD


def to_columns(A: AtLayer, S_EK: torch.Tensor, U_nKD: torch.Tensor | None, is_table: bool) -> torch.Tensor:
    """Return sum_i S_ij U_i of each column, or sum_i S_ij, at the owners of the columns; is_table: (t, K D). Collective."""
    parts, width = list(_parts(A, S_EK)), (S_EK if U_nKD is None else U_nKD).shape[1]

    def rows_of(is_ghost: bool) -> torch.Tensor:
        if is_ghost and len(parts) == 1:
            return A.pool.empty(0, width, dtype=S_EK.dtype)
        block, S_bK = parts[is_ghost]
        dV_cKD = A.pool.empty(block.A.shape[1], width, dtype=S_EK.dtype)
        kernels_on(A.device).spmm_heads(block.A, S_bK, U_nKD, dV_cKD, transpose=True)
        return dV_cKD

    return gradient_of(A, rows_of, is_table)


def _at_rows(A: AtLayer, U_nF: torch.Tensor, add_EF: torch.Tensor | None = None) -> torch.Tensor:
    """Return U_i + add_ij for each nonzero, (E, F)."""
    S_EF, U_nF = A.pool.empty(A.n_edges, U_nF.shape[1], dtype=U_nF.dtype), U_nF.contiguous()
    for (block, S_bF), (_, add_bF) in zip(_parts(A, S_EF), _parts(A, add_EF)):
        kernels_on(A.device).edge_add(block.A, U_nF, None, S_bF, add_bF)
    return S_EF


def _row_dots(A: AtLayer, S_EF: torch.Tensor, T_EF: torch.Tensor) -> torch.Tensor:
    """Return sum_j S_ij T_ij over this rank's nonzeros, (n, F)."""
    out_nF = A.pool.empty(A.n, S_EF.shape[1], dtype=S_EF.dtype)
    for (block, S_bF), (_, T_bF) in zip(_parts(A, S_EF), _parts(A, T_EF)):
        kernels_on(A.device).row_dots(block.A, S_bF, T_bF, out_nF, accumulate=block.is_ghost)
    return out_nF


def _by_place(A: LocalCSR) -> SimpleNamespace:
    """Return the pattern (n, E) that has row i at the nonzeros of row i of A, with its transpose."""

    def transposed() -> SimpleNamespace:
        rows_E = np.repeat(np.arange(A.shape[0], dtype=np.int32), np.diff(A.indptr))
        return SimpleNamespace(indptr=np.arange(A.nnz + 1), indices=rows_E)

    places_E = np.arange(A.nnz, dtype=np.int32)
    return SimpleNamespace(indptr=A.indptr, indices=places_E, threads=A.threads, transposed=transposed)


def _lengths(A: AtLayer) -> torch.Tensor:
    """Return the number of nonzeros of each row, 1 for an empty row, (n, 1). Collective in 1.5D."""
    count_n = np.sum([np.diff(block.A.indptr) for block in A.column_blocks], axis=0)
    count_n1 = torch.as_tensor(count_n[:, None], device=A.device).to(sum_dtype(A.dtype))
    return A.combine(count_n1).clamp_(min=1)


def _over(A: AtLayer, V, ghosts_gC, is_table: bool) -> Iterator:
    """Yield (block, rows of V), None where V is None. Collective where ghost rows are fetched."""
    if V is None:
        yield from ((block, None) for block in A.column_blocks)
    elif is_table:
        yield from over_table(A, stored(A, V), True)
    else:
        yield from over_rows(A, stored(A, V), ghosts_gC)


def _parts(A: AtLayer, values_EK: torch.Tensor | None) -> Iterator:
    """Yield (block, values of its nonzeros), None where they are None."""
    start = 0
    for block in A.column_blocks:
        yield block, None if values_EK is None else values_EK[start : start + block.A.nnz]
        start += block.A.nnz


def _merged(A: AtLayer, top_nK, sum_nK) -> tuple[torch.Tensor, torch.Tensor]:
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
