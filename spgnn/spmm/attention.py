"""Attention on the pattern of A, without a number for each edge: Z_i = sum_j alpha_ij x_j, alpha a softmax over a row.

Forward stores L_i = ln sum_j exp(e_ij) of each head; backward computes alpha_ij = exp(e_ij - L_i) again. Own columns are
gone through while ghost rows travel; the softmax goes on with ghost columns. In 1.5D a process row merges its partial
softmaxes. Shapes: n rows out, m own rows in, c columns of a block, K heads of width D; heads are innermost.
Source: Velickovic et al. 2018, eqs. (1) to (4); Brody et al. 2022, eq. (7); log-sum-exp merge: Rabe & Staats 2021.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ..errors import ShapeError, UsageError, is_number
from .backward import first_order
from .column_rows import ColumnRows, gradient_of, over_table, share_gradient, stored
from .dropout import Key, check_rate, is_nothing
from .features import gemm
from .kernels.attention_sums import AttentionSums, EdgeDrop
from .kernels.backend import kernels_on
from .kernels.buffers import sum_dtype


class Scores(NamedTuple):
    """How scores become weights: the slope of the leaky ReLU, and dropout on the weights after the softmax.

    is_table  X has the rows of own and ghost columns: nothing is sent.
    """

    slope: float
    rate: float
    key: Key
    is_table: bool

    def drop(self, A, block) -> EdgeDrop | None:
        """Return the dropout of a block of columns."""
        if self.rate == 0 or is_nothing(self.key):
            return None
        return EdgeDrop(self.key, self.rate, A.out_ids, block.ids_c)


def scores_of(A, X, slope: float, rate: float, draw: int) -> Scores:
    """Return the Scores of an attention in a layer. Raises: UsageError for a slope or rate out of range."""
    if not is_number(slope) or not 0 <= slope < math.inf:
        raise UsageError(f"slope = {slope!r}; expected a finite number of 0 or more")
    key = 0 if check_rate(rate, "rate") == 0 else A.drawn_key(draw)
    return Scores(slope, 0.0 if is_nothing(key) else rate, key, isinstance(X, ColumnRows))


def check_heads(X, *of_heads: torch.Tensor) -> None:
    """Raise ShapeError unless X is a matrix, and weights (D, K) fit its columns."""
    if len(X.shape) != 2:
        raise ShapeError(f"H has shape {tuple(X.shape)}; expected (m, F), one row per own node")
    for a_DK in of_heads:
        if a_DK.ndim != 2 or a_DK.numel() != X.shape[1] or a_DK.shape != of_heads[0].shape:
            raise ShapeError(
                f"the weights of an attention have shape {tuple(a_DK.shape)}; expected (D, K) with D K = {X.shape[1]}, "
                "the columns of X"
            )


class Attend(torch.autograd.Function):
    """e_ij = lrelu(u_ij), u_ij = s_i + t_j, s_i = left x_i, t_j = right x_j. Gradients, D_i = <G_i, Z_i> of each head:

    du_ij = alpha_ij (<G_i, x_j> - D_i) lrelu'(u_ij), dx_j = sum_i alpha_ij G_i + right dt_j + left ds_j.
    """

    @staticmethod
    def forward(ctx, A, X, left_DK, right_DK, how: Scores):
        X, kernels, T = stored(A, X), kernels_on(A.device), sum_dtype(A.dtype)
        D, K = left_DK.shape
        s_nK = dots_with(A, A.select(X[: A.m]), left_DK, T)
        sums = AttentionSums.empty(A.pool, A.n, K, D, T, plus=any(ctx.needs_input_grad))
        parts, last = [], A.column_blocks[-1]
        for block, X_cKD in over_table(A, X, how.is_table):
            t_cK = dots_with(A, X_cKD, right_DK, T)
            at = {"accumulate": bool(parts), "finish": block is last and A.row_sum is None}
            with A.ops.span("attention"):
                kernels.attend(block.A, X_cKD, s_nK, t_cK, sums, how.slope, how.drop(A, block), **at)
            parts.append((X_cKD, t_cK))
        Z_nKD = sums.Z_nKD if A.row_sum is None else merged(A, sums)
        ctx.A, ctx.how, ctx.s_nK, ctx.t = A, how, s_nK, [t_cK for _, t_cK in parts]
        ctx.top_nK, ctx.sums = sums.top_nK, (sums.sum_nK, sums.plus_nKD, sums.plus_sum_nK)
        ctx.save_for_backward(left_DK, right_DK, Z_nKD, sums.Z_nKD, *(X_cKD for X_cKD, _ in parts))
        return _out(A, Z_nKD)

    @staticmethod
    @first_order
    def backward(ctx, G_nKD):
        A, how, (left_DK, right_DK, Z_nKD, Z_own, *X) = ctx.A, ctx.how, ctx.saved_tensors
        kernels, pool, blocks = kernels_on(A.device), A.pool, A.column_blocks
        G_nKD, T, K = stored(A, G_nKD), sum_dtype(A.dtype), left_DK.shape[1]
        total, plus, plus_total = ctx.sums
        sums = AttentionSums(Z_own, ctx.top_nK, total, plus, plus_total)
        D_nK = None if A.row_sum is None else _dots(A, G_nKD, Z_nKD, K)
        record, ds_nK = pool.empty(A.n, 3 * K, dtype=T), pool.empty(A.n, K, dtype=T)
        kernels.attend_record(G_nKD, ctx.s_nK, sums, how.slope, record, ds_nK, D_nK, A.threads)
        A.combine(ds_nK, place=A.backward)
        ds_mK = _at_own(A, ds_nK)
        dright = torch.zeros_like(right_DK)

        def rows_of(is_ghost: bool) -> torch.Tensor:
            if is_ghost and len(blocks) == 1:
                return pool.empty(0, G_nKD.shape[1], dtype=T)
            block, X_cKD, t_cK = blocks[is_ghost], X[is_ghost], ctx.t[is_ghost]
            dX, dt_cK = pool.empty(*X_cKD.shape, dtype=T), pool.empty(*t_cK.shape, dtype=T)
            with A.ops.span("attention"):
                kernels.attend_adjoint(block.A, X_cKD, G_nKD, record, t_cK, dX, dt_cK, how.slope, how.drop(A, block))
            dright.add_(_of_heads(X_cKD, dt_cK, right_DK))
            dX.addmm_(dt_cK, _heads(right_DK, T).t())
            if not is_ghost and A.holds_own:
                dX.addmm_(ds_mK, _heads(left_DK, T).t())
            return dX

        dX = gradient_of(A, rows_of, how.is_table)
        share_gradient(A, dright)
        dleft = _of_heads(X[0], ds_mK, left_DK)
        return None, dX, dleft, dright, None


class Attend2(torch.autograd.Function):
    """e_ij = a lrelu(l_i + r_j), Z_i = sum_j alpha_ij r_j; backward goes over rows for dl and da, and over columns for dr."""

    @staticmethod
    def forward(ctx, A, left_mKD, right, a_DK, how: Scores):
        left_nKD, right, kernels = A.select(stored(A, left_mKD)), stored(A, right), kernels_on(A.device)
        (D, K), T = a_DK.shape, sum_dtype(A.dtype)
        a_KD = a_DK.detach().to(T).reshape(-1)
        sums = AttentionSums.empty(A.pool, A.n, K, D, T, plus=False)
        parts, last = [], A.column_blocks[-1]
        for block, right_cKD in over_table(A, right, how.is_table):
            at = {"accumulate": bool(parts), "finish": block is last and A.row_sum is None}
            with A.ops.span("attention"):
                kernels.attend2(block.A, right_cKD, left_nKD, a_KD, sums, how.slope, how.drop(A, block), **at)
            parts.append(right_cKD)
        Z_nKD = sums.Z_nKD if A.row_sum is None else merged(A, sums)
        ctx.A, ctx.how, ctx.L_nK = A, how, sums.top_nK
        ctx.save_for_backward(left_nKD, a_DK, Z_nKD, *parts)
        return _out(A, Z_nKD)

    @staticmethod
    @first_order
    def backward(ctx, G_nKD):
        A, how, (left_nKD, a_DK, Z_nKD, *right) = ctx.A, ctx.how, ctx.saved_tensors
        kernels, pool, blocks = kernels_on(A.device), A.pool, A.column_blocks
        G_nKD, T, K = stored(A, G_nKD), sum_dtype(A.dtype), a_DK.shape[1]
        a_KD, D_nK = a_DK.to(T).reshape(-1), _dots(A, G_nKD, Z_nKD, K)
        dleft_nKD, da_KD = pool.empty(*G_nKD.shape, dtype=T), torch.empty_like(a_KD)
        of_rows = (G_nKD, ctx.L_nK, D_nK)

        def rows_of(is_ghost: bool) -> torch.Tensor:
            if is_ghost and len(blocks) == 1:
                return pool.empty(0, G_nKD.shape[1], dtype=T)
            block, right_cKD = blocks[is_ghost], right[is_ghost]
            dright = pool.empty(*right_cKD.shape, dtype=T)
            with A.ops.span("attention"):
                kernels.attend2_columns(
                    block.A, right_cKD, left_nKD, a_KD, *of_rows, dright, how.slope, how.drop(A, block)
                )
            return dright

        dright = gradient_of(A, rows_of, how.is_table)
        for block, right_cKD in zip(blocks, right):
            with A.ops.span("attention"):
                kernels.attend2_rows(
                    block.A, right_cKD, left_nKD, a_KD, *of_rows, dleft_nKD, da_KD, how.slope, how.drop(A, block),
                    accumulate=block.is_ghost,
                )  # fmt: skip
        A.combine(dleft_nKD, place=A.backward)
        share_gradient(A, da_KD)
        dleft_mKD = _at_own(A, dleft_nKD).to(A.dtype)
        return None, dleft_mKD, dright, da_KD.view_as(a_DK).to(a_DK.dtype), None


def merged(A, sums: AttentionSums) -> torch.Tensor:
    """Return Z (n, K D) of all columns, from the partial sums of the process row; these are finished with its L. Collective."""
    n, KD = sums.Z_nKD.shape
    K = sums.top_nK.shape[1]
    packed = A.pool.empty(n, KD + 2 * K, dtype=sums.Z_nKD.dtype)
    torch.cat([sums.Z_nKD, sums.top_nK, sums.sum_nK], 1, out=packed)

    def add(parts) -> None:
        total = _unpacked(parts[0], KD, K)
        for part in parts[1:]:
            total.merge(_unpacked(part, KD, K))

    whole = _unpacked(A.combine(packed, add), KD, K)
    L_nK = whole.finish()
    sums.finish(L_nK)
    return A.pool.copy(whole.Z_nKD)


def _unpacked(rows, KD: int, K: int) -> AttentionSums:
    return AttentionSums(rows[:, :KD], rows[:, KD : KD + K], rows[:, KD + K :])


def dots_with(A, X_cKD: torch.Tensor, a_DK: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return <a, x> of each head, (c, K), in a dtype."""
    out = A.pool.empty(len(X_cKD), a_DK.shape[1], dtype=dtype)  # autocast would round what has no out
    return gemm(A, X_cKD.to(dtype), _heads(a_DK, dtype), out)


def _heads(a_DK: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrix (K D, K) that sums the columns of each head with weights a."""
    D, K = a_DK.shape
    eye = torch.eye(K, dtype=dtype, device=a_DK.device)
    return (a_DK.detach().to(dtype)[:, :, None] * eye).view(D * K, K)


def _of_heads(X_cKD: torch.Tensor, dt_cK: torch.Tensor, like_DK: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a (D, K) in t = dots_with(X, a)."""
    D, K = like_DK.shape
    both = X_cKD.to(dt_cK.dtype).t() @ dt_cK  # (K D, K): the heads of one with those of the other
    return both.view(D, K, K).diagonal(dim1=1, dim2=2).to(like_DK.dtype)


def _dots(A, G_nKD: torch.Tensor, Z_nKD: torch.Tensor, K: int) -> torch.Tensor:
    """Return D_i = <G_i, Z_i> of each head, (n, K)."""
    D_nK = A.pool.empty(A.n, K, dtype=Z_nKD.dtype)
    kernels_on(A.device).head_dots(G_nKD, Z_nKD, D_nK, A.threads)
    return D_nK


def _at_own(A, rows_nF: torch.Tensor) -> torch.Tensor:
    """Return gradients of selected rows at all own rows, (m, F); zeros at the others."""
    if A.selected is None:
        return rows_nF
    rows_mF = torch.zeros(A.m, rows_nF.shape[1], dtype=rows_nF.dtype, device=rows_nF.device)
    rows_mF[torch.from_numpy(A.selected)] = rows_nF
    return rows_mF


def _out(A, Z_nKD: torch.Tensor) -> torch.Tensor:
    return Z_nKD if Z_nKD.dtype == A.out_dtype else A.pool.copy(Z_nKD, A.out_dtype)
