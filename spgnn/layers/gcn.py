"""The graph convolution of Kipf & Welling 2017."""

from __future__ import annotations

import torch
from torch import nn

from ..config.names import LAYER_NORMS
from ..errors import UsageError, check_integer, nearest
from .layer import Layer, activation, hops_of
from .stack import Stack

NORMS = (None, *(name for name in LAYER_NORMS if name != "none"))


class GCN(Layer):
    """Z = act(A H W + b), then layer norm and + H where asked.

    Args:   f_in, f_out  widths F and C.
            act          relu, elu, gelu, tanh, sigmoid, or None.
            bias         add b.
            norm         None, or "layer": normalise each row before the activation.
            residual     add H; needs f_in = f_out, else it is left out.
    Source: Kipf & Welling 2017, eq. (2), with A = D^-1/2 (A + I) D^-1/2.
    """

    hops = 1

    def __init__(
        self,
        f_in: int,
        f_out: int,
        act: str | None = None,
        bias: bool = True,
        norm: str | None = None,
        residual: bool = False,
    ):
        for name, width in (("f_in", f_in), ("f_out", f_out)):
            check_integer(name, width, 1)
        super().__init__(f_in, f_out)
        if norm not in NORMS:
            raise UsageError(f"norm {norm!r} is not known{nearest(str(norm), [name for name in NORMS if name])}")
        self.act_name = act or "none"
        self.act = activation(act)
        self.W_FC = self.weight(f_in, f_out)
        self.b_C = self.weight(f_out) if bias else None
        self.norm = nn.LayerNorm(f_out) if norm == "layer" else None
        self.residual = self.reads_input = residual and f_in == f_out

    @property
    def is_chain(self) -> bool:
        """One A.chain and no other product with A. False if forward, norm or activation was replaced."""
        return hops_of(self) is not None

    @property
    def is_random(self) -> bool:
        """Whether a training pass may differ from an evaluation: not unless the equation was replaced."""
        return not self.is_chain

    def forward(self, A, H_nF):
        """Return act(A H W + b), (n, C), of the own nodes. Collective."""
        fuse_relu = self.act_name == "relu" and self.norm is None and not self.residual
        Z_nC = A.chain(H_nF, self.W_FC, self.b_C, relu=fuse_relu)  # eq. (2)
        if fuse_relu:
            return Z_nC
        if self.norm is not None:
            Z_nC = self.norm(Z_nC)
        Z_nC = self.act(Z_nC)
        return Z_nC + _dense(A.select(H_nF)) if self.residual else Z_nC

    def extra_repr(self) -> str:
        own = super().extra_repr()
        return f"{self.f_in} -> {self.f_out}, act={self.act_name}, residual={self.residual}" + (own and f", {own}")


def gcn_stack(f_in: int, n_classes: int, options) -> Stack:
    """Return F -> hidden ... -> C with an activation between the layers; norm and residual act on hidden layers alone."""
    widths = [f_in] + [options.hidden] * (options.layers - 1) + [n_classes]
    norm = None if options.norm == "none" else options.norm
    layers = [
        GCN(f, c, act=options.act, bias=options.bias, norm=norm, residual=options.residual)
        for f, c in zip(widths[:-2], widths[1:-1])
    ]
    last = GCN(widths[-2], widths[-1], bias=options.bias)
    return Stack(*layers, last, dropout=options.dropout, input_dropout=options.input_dropout)


def _dense(H_nF) -> torch.Tensor:
    """Return sparse rows as a tensor: no larger than Z, as F = C where they are added to it."""
    return H_nF if torch.is_tensor(H_nF) else H_nF.dense()
