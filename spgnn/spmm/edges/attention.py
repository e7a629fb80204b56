"""Attention on the pattern of A, without a number for each edge: Z_i = sum_j alpha_ij x_j, alpha a softmax over a row.

Forward stores top_i, the largest e_ij, and scale_i = 1 / sum_j exp(e_ij - top_i) of each head; backward computes alpha_ij =
exp(e_ij - top_i) scale_i again. Own columns are gone through while ghost rows travel; the softmax continues with ghost
columns. In 1.5D a process row merges its partial softmaxes. Shapes: n rows out, m own rows in, c columns of a block, K
heads of width D; heads are innermost.
Source: Velickovic et al. 2018, eqs. (1) to (4); Brody et al. 2022, eq. (7); merge of softmaxes: Rabe & Staats 2021.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ...errors import ShapeError, check_number
from ..chains.backward import first_order, is_own, keeps_graph, own
from ..chains.dropout import Key, check_rate, is_nothing
from ..chains.end import ENDS
from ..chains.end import end as ended
from ..exchange.column_rows import ColumnRows, gradient_of, over_table, share_gradient, stored
from ..exchange.ghosts import ColumnBlock
from ..kernels.attention_kernels import AttentionSums, EdgeDrop
from ..kernels.backend import kernels_on
from ..kernels.buffers import sum_dtype
from ..operator.facts import AtLayer


class Scores(NamedTuple):
    """How scores become weights: the slope of the leaky ReLU, and dropout on the weights after the softmax.

    is_table  X has the rows of own and ghost columns: nothing is sent.
    act       of what follows, act(Z + b), the place in ENDS.
    """

    slope: float
    rate: float
    key: Key
    is_table: bool
    act: int = 0

    def drop(self, A: AtLayer, block: ColumnBlock) -> EdgeDrop | None:
        """Return the dropout of a block of columns."""
        if self.rate == 0 or is_nothing(self.key):
            return None
        return EdgeDrop(self.key, self.rate, A.out_ids, block.ids_c)


def scores_of(A: AtLayer, X, slope: float, rate: float, draw: int) -> Scores:
    """Return the Scores of an attention in a layer. Raises: UsageError for a slope or rate out of range."""
    check_number("slope", slope, 0)
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


def attended(A: AtLayer, kind, rows: tuple, how: Scores, end: tuple[torch.Tensor | None, str]) -> torch.Tensor:
    """Return act(Z + b), Z = kind(*rows), end = (b, act): written over Z but where a rank has a part of its sums."""
    bias, act = end
    if A.row_sum is not None:
        return ended(A, kind.apply(A, *rows, None, how), bias, act)
    return kind.apply(A, *rows, bias, how._replace(act=ENDS.index(act)))


class Attend(torch.autograd.Function):
    """e_ij = lrelu(u_ij), u_ij = s_i + t_j, s_i = left x_i, t_j = right x_j. Gradients, D_i = <G_i, Z_i> of each head:

    du_ij = alpha_ij (<G_i, x_j> - D_i) lrelu'(u_ij), dx_j = sum_i alpha_ij G_i + right dt_j + left ds_j.
    What it returns is act(Z + b), in the memory of Z: backward has Z from that, wherever act' is not 0.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, X, left_DK, right_DK, bias_KD, how: Scores):
        X, kernels, T = stored(A, X), kernels_on(A.device), sum_dtype(A.dtype)
        D, K = left_DK.shape
        fixed = torch.empty(2, D * K, dtype=T, device=A.device)
        fixed[0], fixed[1] = left_DK.detach().reshape(-1), right_DK.detach().reshape(-1)
        sums = sums_of(A, D, K, any(ctx.needs_input_grad), bias_KD, how)
        parts, last, s_nK = [], A.column_blocks[-1], None
        for block, X_cKD in over_table(A, X, how.is_table):
            t_cK = A.pool.empty(len(X_cKD), K, dtype=T)
            s_mK = None if block.is_ghost else A.pool.empty(A.m, K, dtype=T)
            with A.ops.span("attention"):
                kernels.fixed_dots(X_cKD, fixed, s_mK, t_cK, A.threads)
            s_nK = A.select(s_mK).contiguous() if s_nK is None else s_nK
            at = {"accumulate": bool(parts), "finish": block is last and A.row_sum is None}
            with A.ops.span("attention"):
                kernels.attend(block.A, X_cKD, s_nK, t_cK, sums, how.slope, how.drop(A, block), **at)
            parts.append((X_cKD, t_cK))
        Z_nKD = sums.Z_nKD if A.row_sum is None else merged(A, sums)
        ctx.A, ctx.how, ctx.s_nK, ctx.t, ctx.fixed = A, how, s_nK, [t_cK for _, t_cK in parts], fixed
        ctx.sums, ctx.bias = (*sums.tensors()[1:], sums.share_nK), bias_KD
        ctx.save_for_backward(left_DK, Z_nKD, sums.Z_nKD, *(X_cKD for X_cKD, _ in parts))
        return _out(A, Z_nKD)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nKD):
        is_ours = is_own(G_nKD)
        A, how, (left_DK, Z_nKD, Z_own, *X) = ctx.A, ctx.how, ctx.saved_tensors
        kernels, pool, blocks = kernels_on(A.device), A.pool, A.column_blocks
        G_nKD, T, (D, K) = stored(A, G_nKD), sum_dtype(A.dtype), left_DK.shape
        D_nK = None
        if A.row_sum is not None:  # <G, Z> of all columns, and below the sums over those of this rank
            of_all = pool.empty(A.n, 3 * K, dtype=T)
            _recorded(ctx, G_nKD, is_ours, None, AttentionSums(Z_nKD, *ctx.sums[:2]), (of_all, None))
            D_nK = pool.copy(of_all[:, 2 * K :])
        record, ds_nK = pool.empty(A.n, 4 * K, dtype=T), pool.empty(A.n, K, dtype=T)
        sums = AttentionSums(Z_own, *ctx.sums, D_nK=D_nK)
        G_nKD, dbias = _recorded(ctx, G_nKD, is_ours, ctx.s_nK, sums, (record, ds_nK))
        if not keeps_graph():  # the next buffers take their memory
            ctx.sums = ctx.s_nK = sums = Z_own = Z_nKD = None
        A.combine(ds_nK, place=A.backward)
        ds_mK, fixed, dfixed = _at_own(A, ds_nK), ctx.fixed, torch.zeros_like(ctx.fixed)
        if not A.holds_own:  # another rank of the process row adds left ds
            fixed = fixed.clone()
            fixed[0] = 0

        def rows_of(is_ghost: bool) -> torch.Tensor:
            if is_ghost and len(blocks) == 1:
                return pool.empty(0, G_nKD.shape[1], dtype=T)
            block, X_cKD, t_cK = blocks[is_ghost], X[is_ghost], ctx.t[is_ghost]
            dX, ds_cK = pool.empty(*X_cKD.shape, dtype=T), None if is_ghost else ds_mK
            given = (X_cKD, G_nKD, record, t_cK, fixed, ds_cK, dX)
            with A.ops.span("attention"):
                dfixed.add_(kernels.attend_adjoint(block.A, *given, how.slope, how.drop(A, block)))
            return dX

        dX = own(gradient_of(A, rows_of, how.is_table))
        dleft, dright = dfixed.to(left_DK.dtype).view(2, D, K)
        return None, dX, dleft, share_gradient(A, dright), dbias, None


class Attend2(torch.autograd.Function):
    """e_ij = a lrelu(l_i + r_j), Z_i = sum_j alpha_ij r_j; backward goes over rows for dl and da, and over columns for dr.

    What it returns is act(Z + b), as of Attend.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, left_mKD, right, a_DK, bias_KD, how: Scores):
        left_nKD, right, kernels = A.select(stored(A, left_mKD)), stored(A, right), kernels_on(A.device)
        (D, K), T = a_DK.shape, sum_dtype(A.dtype)
        a_KD = a_DK.detach().to(T).reshape(-1)
        sums = sums_of(A, D, K, False, bias_KD, how)
        parts, last = [], A.column_blocks[-1]
        for block, right_cKD in over_table(A, right, how.is_table):
            at = {"accumulate": bool(parts), "finish": block is last and A.row_sum is None}
            with A.ops.span("attention"):
                kernels.attend2(block.A, right_cKD, left_nKD, a_KD, sums, how.slope, how.drop(A, block), **at)
            parts.append(right_cKD)
        Z_nKD = sums.Z_nKD if A.row_sum is None else merged(A, sums)
        ctx.A, ctx.how, ctx.sums, ctx.bias = A, how, (sums.top_nK, sums.sum_nK), bias_KD
        ctx.save_for_backward(left_nKD, a_DK, Z_nKD, *parts)
        return _out(A, Z_nKD)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nKD):
        is_ours = is_own(G_nKD)
        A, how, (left_nKD, a_DK, Z_nKD, *right) = ctx.A, ctx.how, ctx.saved_tensors
        kernels, pool, blocks = kernels_on(A.device), A.pool, A.column_blocks
        G_nKD, T, K = stored(A, G_nKD), sum_dtype(A.dtype), a_DK.shape[1]
        a_KD, record = a_DK.to(T).reshape(-1), pool.empty(A.n, 3 * K, dtype=T)
        G_nKD, dbias = _recorded(ctx, G_nKD, is_ours, None, AttentionSums(Z_nKD, *ctx.sums), (record, None))
        dleft_nKD, da_KD = pool.empty(*G_nKD.shape, dtype=T), torch.empty_like(a_KD)

        def rows_of(is_ghost: bool) -> torch.Tensor:
            if is_ghost and len(blocks) == 1:
                return pool.empty(0, G_nKD.shape[1], dtype=T)
            block, right_cKD = blocks[is_ghost], right[is_ghost]
            dright = pool.empty(*right_cKD.shape, dtype=T)
            with A.ops.span("attention"):
                kernels.attend2_columns(
                    block.A, right_cKD, left_nKD, a_KD, G_nKD, record, dright, how.slope, how.drop(A, block)
                )
            return dright

        dright = own(gradient_of(A, rows_of, how.is_table))
        for block, right_cKD in zip(blocks, right):
            with A.ops.span("attention"):
                kernels.attend2_rows(
                    block.A, right_cKD, left_nKD, a_KD, G_nKD, record, dleft_nKD, da_KD, how.slope, how.drop(A, block),
                    accumulate=block.is_ghost,
                )  # fmt: skip
        A.combine(dleft_nKD, place=A.backward)
        share_gradient(A, da_KD)
        dleft_mKD = _at_own(A, dleft_nKD).to(A.dtype)
        return None, dleft_mKD, dright, da_KD.view_as(a_DK).to(a_DK.dtype), dbias, None


def sums_of(A: AtLayer, D: int, K: int, plus: bool, bias_KD: torch.Tensor | None, how: Scores) -> AttentionSums:
    """Return uninitialised sums of all rows of A, which the last kernel ends with act and bias."""
    T = sum_dtype(A.dtype)
    sums = AttentionSums.empty(A.pool, A.n, K, D, T, plus)
    sums.bias_KD, sums.act = None if bias_KD is None else bias_KD.detach().to(T), how.act
    return sums


def _recorded(ctx: Any, G_nKD, is_ours: bool, left_nK, sums: AttentionSums, out: tuple):
    """Return dZ from the gradient G of act(Z + b), and db, None without b; write records, see attend_record.

    Args: sums  finished; b and act are set here. out: record and dleft.
    """
    A, bias_KD, act = ctx.A, ctx.bias, ctx.how.act
    (record, dleft_nK), T = out, sum_dtype(ctx.A.dtype)
    sums.bias_KD, sums.act = None if bias_KD is None else bias_KD.detach().to(T), act
    is_ended = act or bias_KD is not None
    dZ_nKD = None if not is_ended else G_nKD if is_ours or not act else A.pool.empty(*G_nKD.shape, dtype=G_nKD.dtype)
    with A.ops.span("attention"):
        given = (G_nKD, left_nK, sums, ctx.how.slope, record, dleft_nK, dZ_nKD, A.threads)
        dbias_KD = kernels_on(A.device).attend_record(*given)
    return G_nKD if dZ_nKD is None else dZ_nKD, None if bias_KD is None else dbias_KD.to(bias_KD.dtype)


def merged(A: AtLayer, sums: AttentionSums) -> torch.Tensor:
    """Return Z (n, K D) of all columns, from the partial sums of the process row, which are finished too. Collective."""
    n, KD = sums.Z_nKD.shape
    K = sums.top_nK.shape[1]
    packed = A.pool.empty(n, KD + 2 * K, dtype=sums.Z_nKD.dtype)
    torch.cat([sums.Z_nKD, sums.top_nK, sums.sum_nK], 1, out=packed)

    def add(parts) -> None:
        total = _unpacked(parts[0], KD, K)
        for part in parts[1:]:
            total.merge(_unpacked(part, KD, K))

    whole = _unpacked(A.combine(packed, add), KD, K)
    whole.finish()
    sums.finish(whole)
    return A.pool.copy(whole.Z_nKD)


def _unpacked(rows, KD: int, K: int) -> AttentionSums:
    return AttentionSums(rows[:, :KD], rows[:, KD : KD + K], rows[:, KD + K :])


def _at_own(A: AtLayer, rows_nF: torch.Tensor) -> torch.Tensor:
    """Return gradients of selected rows at all own rows, (m, F); zeros at the others."""
    if A.selected is None:
        return rows_nF
    rows_mF = torch.zeros(A.m, rows_nF.shape[1], dtype=rows_nF.dtype, device=rows_nF.device)
    rows_mF[torch.from_numpy(A.selected).to(rows_mF.device)] = rows_nF
    return rows_mF


def _out(A: AtLayer, Z_nKD: torch.Tensor) -> torch.Tensor:
    return Z_nKD if Z_nKD.dtype == A.out_dtype else A.pool.copy(Z_nKD, A.out_dtype)
