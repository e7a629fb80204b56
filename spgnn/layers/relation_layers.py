"""Layers that read the relations of edges: RGCN.

Shapes: n own rows, F in, C out, R relations. No self-loops are added. In the examples edges have 4 relations, and H 60
rows and 16 columns.
"""

from __future__ import annotations

from typing import Unpack

import torch

from ..errors import UsageError, check_choice, check_integer
from ..spmm.edges.typed import MEANS
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending, dense_rows


class RGCN(BuiltIn):
    """Z = act(H W_0 + sum_r A_r H W_r + b); A_r has 1 / |N_i^r| at the edges of relation r.

    Args:   f_in, f_out  widths F and C; relations: R.
            bases   B: W_r = sum_b a_rb V_b, with B matrices V for all relations. 0: W_r are free.
            blocks  B: W_r has B blocks on its diagonal, and 0 elsewhere; F and C are multiples of it. 0: it is full.
            mean    relation; all: A_r has 1 / |N_i| instead, of all edges of row i; none: 1.
            act, bias (True), norm, residual  see Layer.end_with.
    F columns are exchanged each way, once for all relations.
    Source: Schlichtkrull et al. 2018, eqs. (2), (3), (4).

    >>> RGCN(16, 8, relations=4, bases=2)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops = "none", 1

    def __init__(
        self,
        f_in: int,
        f_out: int,
        relations: int,
        bases: int = 0,
        blocks: int = 0,
        mean: str = "relation",
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        R = check_integer("relations", relations, 1)
        bases, blocks = check_integer("bases", bases, 0), check_integer("blocks", blocks, 0)
        if bases and blocks:
            raise UsageError(f"bases = {bases} and blocks = {blocks} are two forms of W_r; give one")
        if blocks and (f_in % blocks or f_out % blocks):
            raise UsageError(f"blocks = {blocks} do not divide f_in = {f_in} and f_out = {f_out}; choose others")
        check_choice("mean", mean, MEANS)
        self.mean = mean
        shape = (blocks, f_in // blocks, f_out // blocks) if blocks else (f_in, f_out)
        self.W, self.a_RB = self.weight(bases or R, *shape), self.weight(R, bases) if bases else None
        self.W_FC = self.weight(f_in, f_out)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: torch.Tensor) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        H_mF = dense_rows(self, H_mF)
        W = self.W if self.a_RB is None else torch.tensordot(self.a_RB, self.W, 1)  # eq. (3)
        S_nC = A.typed_sum(H_mF, W, self.mean)
        return self.dense(A, H_mF, A.select(H_mF), self.W_FC, S_nC)  # eq. (2)
