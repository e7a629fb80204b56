"""Dense layers on the rows of each node: alone (MLP), or after a layer of another family (NGNN).

Shapes: n own rows, F in, C out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import nn

from ..errors import UsageError, check_integer, check_integers
from ..spmm.chains.dropout import check_rate
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import Activation, BuiltIn, Ending, Layer, activation, apply_act, derived, hops_of


class MLP(BuiltIn):
    """Z = act(inner(... inner(H W_1 + b_1) ...) W_k + b_k): dense layers, which exchange nothing.

    Args:   f_in, f_out  widths F and C.
            hidden   widths between the products, () for one product.
            inner    activation between the products.
            dropout  rate on the results of `inner`, in training.
            act, bias (True), norm, residual  see Layer.end_with; bias: of all products.
    As a classifier behind other layers it is GraphSAINT's. Eq. (2) there has a ReLU on the logits; its code has none,
    nor does this.

    >>> MLP(16, 4, hidden=(32, 8))(A, H).shape
    torch.Size([60, 4])
    """

    hops = 0

    def __init__(
        self,
        f_in: int,
        f_out: int,
        hidden: Sequence[int] = (),
        inner: str = "relu",
        dropout: float = 0.0,
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        bias = end.setdefault("bias", True)
        self.inner, self.dropout = activation(inner), check_rate(dropout)
        hidden = check_integers("hidden", hidden)
        widths = [f_in, *hidden, f_out]
        self.W = nn.ParameterList([self.weight(f, c) for f, c in zip(widths, widths[1:])])
        self.b = nn.ParameterList([self.weight(c) for c in hidden] if bias else [])
        self.end_with(**end)

    def forward(self, A: LayerView, H_nF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C)."""
        Z = H_nF
        for number, W in enumerate(self.W[:-1]):
            Z = dense_act(A, Z, W, self.b[number] if len(self.b) else None, self.inner)
            Z = A.drop(Z, self.dropout, draw=number + 1)
        return self.dense(A, H_nF, Z, self.W[-1])


class NGNN(Layer):
    """Z_0 = layer(A, H); Z_k = act(Z_(k-1) W_k + b_k); Z = Z_depth.

    Args:   layer  a Layer, whose normalisation, exchange and width are those of NGNN.
            depth  number of dense layers, each f_out wide.
            act    of the dense layers; `layer` has its own.
    Source: Song et al. 2021, eq. (2) and (3), with the activation after the last dense layer too.

    >>> NGNN(GCN(16, 8, act="relu"), depth=2)(A, H).shape
    torch.Size([60, 8])
    """

    hops = derived(lambda self: hops_of(self.layer))
    is_random = derived(lambda self: self.layer.is_random or hops_of(self) is None)
    drops_input = derived(lambda self: self.layer.drops_input)
    reads_input = derived(lambda self: self.layer.reads_input)
    operator = derived(lambda self: self.layer.operator)

    def __init__(self, layer: Layer, depth: int = 1, act: str | None = "relu", bias: bool = True):
        if not isinstance(layer, Layer):
            raise UsageError(f"layer is a {type(layer).__name__}; expected a Layer, such as GCN(16, 8)")
        check_integer("depth", depth, 1)
        super().__init__(layer.f_in, layer.f_out)
        self.layer, f = layer, layer.f_out
        self.W = nn.ParameterList([self.weight(f, f) for _ in range(depth)])
        self.b = nn.ParameterList([self.weight(f) for _ in range(depth)] if bias else [])
        self.end_with(act)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective if `layer` is."""
        Z_nC = self.layer(A, H_mF)
        for number, W_CC in enumerate(self.W):
            Z_nC = dense_act(A, Z_nC, W_CC, self.b[number] if len(self.b) else None, self.act)
        return Z_nC


def dense_act(
    A: LayerView, X_nF: AnyRows, W_FC: torch.Tensor, b_C: torch.Tensor | None, act: Activation
) -> torch.Tensor:
    """Return act(X W + b); a ReLU is part of the product."""
    Z_nC = A.dense(X_nF, W_FC, b_C, relu=act is torch.relu)
    return Z_nC if act is torch.relu else apply_act(A, Z_nC, act)
