"""Graph attention: the weight of an edge is a softmax, over the row, of a score of both its ends."""

from __future__ import annotations

from typing import Literal, Unpack

import torch

from ..errors import UsageError, check_choice, check_integer, check_number
from ..spmm.chains.dropout import check_rate
from ..spmm.chains.end import NO_END
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending

HEADS = 8
ATTENTION, MERGE = ("v1", "v2"), ("cat", "mean")


class GAT(BuiltIn):
    """x = H W, Z_i = act(sum_j alpha_ij x_j + b), alpha the softmax of e over row i of A + I, for each head.

    v1: e_ij = lrelu(left x_i + right x_j). v2: e_ij = a lrelu(l_i + r_j), l = H W_l + b_l, r = H W, and Z_i of r_j.
    Args:   f_in, f_out  widths F and C.
            heads      K heads of width D; heads innermost: column d K + h of x is entry d of head h. None: 8 if they
                       divide C, else 1, as in a last layer of 7 classes.
            attention  v1 or v2.
            merge      cat: the K D columns of all heads, C = K D; mean: their average, C = D.
            slope      of the leaky ReLU, 0 or more.
            dropout    rate at which weights of edges are dropped in training, after the softmax.
            end        act, bias (True), norm and residual, see Layer.end_with.
    The weights of edges are not read: self-loops and edges count as they are. One exchange of min(F, K D) columns of
    ghost rows each way; in the first layer none, as the ghost rows of X are cached.
    Source: Velickovic et al. 2018, eqs. (1) to (6); Brody et al. 2022, eq. (7).
    """

    operator = "loops"
    hops = 1

    def __init__(
        self,
        f_in: int,
        f_out: int,
        heads: int | None = None,
        attention: Literal["v1", "v2"] = "v1",
        merge: Literal["cat", "mean"] = "cat",
        slope: float = 0.2,
        dropout: float = 0.0,
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        end.setdefault("bias", True)
        if heads is None:
            heads = 1 if merge == "cat" and f_out % HEADS else HEADS
        check_integer("heads", heads, 1)
        check_choice("attention", attention, ATTENTION)
        check_choice("merge", merge, MERGE)
        if merge == "cat" and f_out % heads:
            raise UsageError(f"heads = {heads} do not divide f_out = {f_out}; choose others, or merge = mean")
        self.heads, self.attention, self.merge = heads, attention, merge
        self.slope, self.dropout = check_number("slope", slope, 0), check_rate(dropout)
        D = f_out // heads if merge == "cat" else f_out
        self.W_FC = self.weight(f_in, D * heads)
        if attention == "v1":
            self.left_DK, self.right_DK = self.weight(D, heads), self.weight(D, heads)
        else:
            self.W_l, self.a_DK = self.weight(f_in, D * heads), self.weight(D, heads)
            self.b_l = self.weight(D * heads) if end["bias"] else None
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return the rows of own nodes, (n, C). Collective."""
        X = A.linear(H_mF, self.W_FC)
        is_fused = (self.merge == "cat" or self.heads == 1) and self.norm is None and self.has_pass
        end = (self.b_C, self.act_name) if is_fused else NO_END
        if self.attention == "v1":
            Z = A.attend(X, self.left_DK, self.right_DK, self.slope, self.dropout, end=end)
        else:
            left = A.dense(H_mF, self.W_l, self.b_l)
            Z = A.attend2(left, X, self.a_DK, self.slope, self.dropout, end=end)
        if is_fused:
            return self.add_input(A, H_mF, Z)
        if self.merge == "mean" and self.heads > 1:
            Z = Z.view(len(Z), self.f_out, self.heads).sum(2) / self.heads
        return self.finish(A, H_mF, Z)
