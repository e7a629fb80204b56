"""The graph convolution of Kipf & Welling 2017."""

from __future__ import annotations

import torch

from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn


class GCN(BuiltIn):
    """Z = act(A H W + b), then layer norm and + H where asked.

    Args:   f_in, f_out  widths F and C.
            act, bias, norm, residual  see Layer.end_with.
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
        super().__init__(f_in, f_out)
        self.W_FC = self.weight(f_in, f_out)
        self.end_with(act, bias, norm, residual)
        self.reads_input = self.residual

    def forward(self, A: LayerView, H_nF: AnyRows) -> torch.Tensor:
        """Return act(A H W + b), (n, C), of the own nodes. Collective."""
        return self.chained(A, H_nF, self.W_FC)  # eq. (2)
