"""The multi-layer perceptron: dense layers on the rows of each node, which exchange nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import nn

from ..errors import check_integers
from ..spmm.chains.dropout import check_rate
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending, activation, dense_act


class MLP(BuiltIn):
    """Z = act(... act(H W_1 + b_1) ... W_k + b_k): nothing between its products but `inner`, and act after the last.

    Args:   f_in, f_out  widths F and C.
            hidden   widths between the products, () for one product.
            inner    activation between the products.
            dropout  rate on what `inner` gives, in training.
            act, bias, norm, residual  of the last product; bias of all; see Layer.end_with.
    No row of another node is read. As a classifier behind other layers it is the one of GraphSAINT, whose eq. (2) has a
    ReLU on the logits; its code has none, and neither has this.
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
        end.setdefault("bias", True)
        self.inner, self.dropout = activation(inner), check_rate(dropout)
        hidden = check_integers("hidden", hidden)
        widths = [f_in, *hidden, f_out]
        self.W = nn.ParameterList([self.weight(f, c) for f, c in zip(widths, widths[1:])])
        self.b = nn.ParameterList([self.weight(c) for c in hidden] if end["bias"] else [])
        self.end_with(**end)

    def forward(self, A: LayerView, H_nF: AnyRows) -> torch.Tensor:
        """Return the rows of own nodes, (n, C)."""
        Z = H_nF
        for number, W in enumerate(self.W[:-1]):
            Z = dense_act(A, Z, W, self.b[number] if len(self.b) else None, self.inner)
            Z = A.drop(Z, self.dropout, draw=number + 1)
        return self.dense(A, H_nF, Z, self.W[-1])
