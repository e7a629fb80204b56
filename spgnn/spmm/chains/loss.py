"""Losses over the labelled nodes of all ranks: a sum over own rows, divided by the global count.

Shapes: n own rows, C classes or columns of numbers.
"""

from __future__ import annotations

import torch

from ...config.names import NumberLoss
from ...errors import ShapeError
from ..kernels.backend import kernels_of
from ..kernels.buffers import sum_dtype
from .autograd import may_be_overwritten
from .backward import first_order

TINY = 1e-300  # no division by 0 where nothing counts


class SoftmaxCrossEntropy(torch.autograd.Function):
    """loss = -1/M sum over labelled i of log softmax(Z_i)[y_i]; dZ = (softmax(Z) - onehot(y)) / M.

    M is the number of labelled nodes on all ranks; the value is this rank's part of the sum.
    Value and gradient are made in one pass over Z; with in_place the gradient is written over Z.
    """

    @staticmethod
    def forward(ctx, Z_nC, y_n, count: int, pool, threads: int, in_place: bool):
        if in_place:
            torch.autograd.graph.increment_version(Z_nC)  # a backward that saved Z raises
            G_nC = Z_nC = Z_nC.detach()
        else:
            Z_nC = Z_nC.contiguous()
            G_nC = pool.empty(*Z_nC.shape, dtype=Z_nC.dtype)
        total = kernels_of(Z_nC).softmax_xent(Z_nC, y_n, 1.0 / max(count, 1), G_nC, threads)
        ctx.save_for_backward(G_nC)
        return total / max(count, 1)

    @staticmethod
    @first_order
    def backward(ctx, G):
        (G_nC,) = ctx.saved_tensors
        # On a device looking at G would wait for all of the forward pass; on meta it has no value.
        is_one = G.is_meta or (not G.is_cuda and float(G) == 1.0)
        return (G_nC if is_one else G_nC * G.to(G_nC.dtype)), None, None, None, None, None


def cross_entropy(
    Z_nC, y_n, count: int, pool, threads: int = 0, overwrite: bool = True, weight_n: torch.Tensor | None = None
) -> torch.Tensor:
    """Return this rank's part of the mean softmax cross-entropy; rows with y = -1 do not count.

    With overwrite its gradient is written over Z if no backward reads Z.
    Args: weight_n  (n,), a factor of the loss of each row: the sum of weight_i loss_i, divided by count. None: 1.
    """
    if weight_n is not None:
        _check_weights(weight_n, len(Z_nC))
        rows_t = torch.nonzero(y_n >= 0).ravel()
        Z_tC, y_t = Z_nC.index_select(0, rows_t).to(sum_dtype(Z_nC.dtype)), y_n.index_select(0, rows_t)
        loss_t = torch.nn.functional.cross_entropy(Z_tC, y_t, reduction="none")
        return (loss_t.double() * weight_n.index_select(0, rows_t)).sum() / max(count, 1)
    in_place = overwrite and may_be_overwritten(Z_nC) and Z_nC.dtype == sum_dtype(Z_nC.dtype) and Z_nC.is_contiguous()
    return SoftmaxCrossEntropy.apply(Z_nC.to(sum_dtype(Z_nC.dtype)), y_n, count, pool, threads, in_place)


def binary_cross_entropy(Z_nC, Y_nC, rows_m, count: int, weight_m: torch.Tensor | None = None) -> torch.Tensor:
    """Return this rank's part of the mean over count rows and C classes of the logistic loss; rows by index, each once.

    Args: weight_m  (m,), a factor of the loss of each row of rows_m; None: 1.
    """
    Z, Y = Z_nC.index_select(0, rows_m).to(sum_dtype(Z_nC.dtype)), Y_nC.index_select(0, rows_m)
    if weight_m is not None:
        _check_weights(weight_m, len(rows_m))
        loss_mC = torch.nn.functional.binary_cross_entropy_with_logits(Z, Y.to(Z.dtype), reduction="none")
        return (loss_mC.double().sum(1) * weight_m).sum() / max(count * Z_nC.shape[1], 1)
    total = torch.nn.functional.binary_cross_entropy_with_logits(Z, Y, reduction="sum")
    return total.double() / max(count * Z_nC.shape[1], 1)


def number_loss(
    Z_nC: torch.Tensor, Y_nC, rows_t, how: NumberLoss, deviation_C, total: float, weight_t: torch.Tensor | None = None
) -> torch.Tensor:
    """Return this rank's part of 1/total sum_tc w_t l((Z_tc - Y_tc) / s_c), t of rows_t; entries where Y is NaN are left out.

    l(e) is e^2 (mse), |e| (mae), or e^2 / 2 up to |e| = 1 and |e| - 1/2 beyond (huber).
    Args: deviation_C  s, (C,); total: the sum of w over what counts, all ranks; weight_t: w, (t,); None: 1.
    """
    Z_tC, Y_tC = Z_nC.index_select(0, rows_t).to(sum_dtype(Z_nC.dtype)), Y_nC.index_select(0, rows_t)
    is_known_tC = ~torch.isnan(Y_tC)
    E_tC = (Z_tC - torch.where(is_known_tC, Y_tC, Z_tC.detach()).to(Z_tC.dtype)) / deviation_C
    loss_tC = {"mse": torch.square, "mae": torch.abs, "huber": _huber}[how](E_tC).double() * is_known_tC
    if weight_t is not None:
        _check_weights(weight_t, len(rows_t))
        return (loss_tC.sum(1) * weight_t).sum() / max(total, TINY)
    return loss_tC.sum() / max(total, TINY)


def _huber(E: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.huber_loss(E, torch.zeros_like(E), reduction="none")


def _check_weights(weight_n: torch.Tensor, rows: int) -> None:
    """Raise ShapeError unless there is a weight for each row."""
    if tuple(weight_n.shape) != (rows,):
        raise ShapeError(
            f"the weights of a loss have shape {tuple(weight_n.shape)}; expected one for each row, ({rows},)"
        )
