"""What ends a product: H = act(Z + b), a pass over rows in buffers of A.

Shapes: n own rows, C columns.
"""

from __future__ import annotations

from typing import Any

import torch

from ..kernels.backend import kernels_of
from ..kernels.buffers import sum_dtype
from ..operator.facts import AtLayer
from .backward import first_order, is_own, own

ENDS = ("none", "relu", "elu")  # the activations that kernels have, by their numbers there
NO_END = (None, "none")  # neither bias nor activation


class End(torch.autograd.Function):
    """H = act(Z + b); dZ = dH act'(Z + b), db = the sum of its rows, in one pass. H alone is stored: act' is known from it."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, Z_nC, bias_C, act: int):
        Z_nC = Z_nC.detach().contiguous()
        bias = None if bias_C is None else bias_C.detach().to(sum_dtype(Z_nC.dtype))
        H_nC = A.pool.empty(*Z_nC.shape, dtype=Z_nC.dtype)
        with A.ops.span("activation"):
            kernels_of(Z_nC).finish(Z_nC, H_nC, bias, act, A.threads)
        ctx.A, ctx.act, ctx.dtype = A, act, None if bias is None else bias_C.dtype
        ctx.save_for_backward(H_nC if act else None)
        if any(ctx.needs_input_grad) and not act:
            ctx.unread = H_nC._version  # see autograd.may_be_overwritten
        return H_nC

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nC):
        is_ours = is_own(G_nC)
        G_nC, sums_C = through_end(ctx.A, G_nC, ctx.saved_tensors[0], ctx.act, is_ours)
        return None, own(G_nC), None if ctx.dtype is None else sums_C.to(ctx.dtype), None


def through_end(A: AtLayer, G_nC, H_nC, act: int, is_ours: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return G act'(Z + b) from H = act(Z + b) (None: G) and its column sums, in one pass; over G if this backward owns it."""
    G_nC = G_nC.contiguous()
    out = None if H_nC is None else G_nC if is_ours else A.pool.empty(*G_nC.shape, dtype=G_nC.dtype)
    with A.ops.span("activation"):
        sums_C = kernels_of(G_nC).mask_sum(G_nC, H_nC, out, A.threads, act)
    return (G_nC if out is None else out), sums_C


def end(A: AtLayer, Z_nC: torch.Tensor, bias_C: torch.Tensor | None = None, act: str = "none") -> torch.Tensor:
    """Return act(Z + b) in the type of Z, act one of ENDS; Z itself where there is nothing to do."""
    if bias_C is None and act == "none":
        return Z_nC
    return End.apply(A, Z_nC, bias_C, ENDS.index(act))
