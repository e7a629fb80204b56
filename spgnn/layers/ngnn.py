"""Network in graph neural network: dense layers after a layer of another family."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import UsageError, check_integer
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import Layer, dense_act, hops_of


class NGNN(Layer):
    """Z_0 = layer(A, H); Z_k = act(Z_(k-1) W_k + b_k); Z = Z_depth.

    Args:   layer  a Layer; its normalisation, exchange and width are the whole layer's.
            depth  number of dense layers, each f_out wide.
            act    of the dense layers; that of `layer` is its own.
    Source: Song et al. 2021, eq. (2) and (3), which have the activation after the last dense layer too.
    """

    hops = property(lambda self: hops_of(self.layer))
    is_random = property(lambda self: self.layer.is_random or hops_of(self) is None)
    drops_input = property(lambda self: self.layer.drops_input)

    def __init__(self, layer: Layer, depth: int = 1, act: str | None = "relu", bias: bool = True):
        if not isinstance(layer, Layer):
            raise UsageError(f"layer is a {type(layer).__name__}; expected a Layer, such as GCN(16, 8)")
        check_integer("depth", depth, 1)
        super().__init__(layer.f_in, layer.f_out)
        self.layer, self.operator, self.reads_input = layer, layer.operator, layer.reads_input
        f = layer.f_out
        self.W = nn.ParameterList([self.weight(f, f) for _ in range(depth)])
        self.b = nn.ParameterList([self.weight(f) for _ in range(depth)] if bias else [])
        self.end_with(act)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return the rows of own nodes, (n, C). Collective where the inner layer is."""
        Z_nC = self.layer(A, H_mF)
        for number, W_CC in enumerate(self.W):
            Z_nC = dense_act(A, Z_nC, W_CC, self.b[number] if len(self.b) else None, self.act)
        return Z_nC
