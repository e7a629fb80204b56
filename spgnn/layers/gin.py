"""The graph isomorphism network: the sum of a node's row and its neighbours' rows, through two dense layers."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn

from ..errors import check_integer, check_number
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending


class GIN(BuiltIn):
    """Z = act(relu(((1 + eps) H + A H) W_1 + b_1) W_2 + b), A the edges as they are.

    Args:   f_in, f_out  widths F and C.
            hidden     width of the inner layer, None: f_out.
            eps        weight of the node's own row, less 1; train_eps: it is trained, from this value on.
            end        act, bias (True), norm and residual, see Layer.end_with.
    W_1 commutes with A: min(F, hidden) columns are exchanged each way. There is no batch normalisation, which would
    see the rows of one rank.
    Source: Xu et al. 2019, eq. (4.1).
    """

    operator = "none"
    hops = 1

    def __init__(
        self,
        f_in: int,
        f_out: int,
        hidden: int | None = None,
        eps: float = 0.0,
        train_eps: bool = False,
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        end.setdefault("bias", True)
        hidden = check_integer("hidden", f_out if hidden is None else hidden, 1)
        self.W_1, self.b_1 = self.weight(f_in, hidden), self.weight(hidden) if end["bias"] else None
        self.W_2 = self.weight(hidden, f_out)
        self.start = check_number("eps", eps)
        self.eps = nn.Parameter(torch.tensor(float(eps))) if train_eps else float(eps)
        self.end_with(**end)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights; eps starts from its value again."""
        super().initialise(generator)
        if isinstance(self.eps, nn.Parameter):
            nn.init.constant_(self.eps, self.start)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return the rows of own nodes, (n, C). Collective."""
        U = A.own_chain(H_mF, self.W_1, 1 + self.eps, self.b_1, relu=True)
        return self.dense(A, H_mF, U, self.W_2)
