"""Layers that read their neighbours once: GCN, SAGE, GIN, GAT.

Shapes: n own rows of Z, m own rows of H (n = m unless rows are pruned), F in, C out, K heads of width D.
"""

from __future__ import annotations

from typing import Literal, Unpack

import torch

from ..config.names import Norm
from ..errors import UsageError, check_choice, check_integer, check_number
from ..spmm.chains.dropout import check_rate
from ..spmm.chains.end import ENDS, NO_END
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending, dense_rows, derived

OPERATORS: dict[str, Norm] = {"mean": "row", "sum": "none", "gcn": "row_loops", "max": "none"}
HEADS = 8


class GCN(BuiltIn):
    """Z = act(A H W + b), then layer norm and + H if chosen.

    Args:   f_in, f_out  widths F and C.
            act, bias (True), norm, residual  see Layer.end_with.
    Source: Kipf & Welling 2017, eq. (2), with A = D^-1/2 (A + I) D^-1/2.

    >>> GCN(16, 8, act="relu", norm="layer")(A, H).shape
    torch.Size([60, 8])
    """

    hops = 1
    reads_input = derived(lambda self: bool(self.residual))

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

    def forward(self, A: LayerView, H_nF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        return self.chained(A, H_nF, self.W_FC)  # eq. (2)


class SAGE(BuiltIn):
    """Z = act(H W_s + M(H) W_n + b); with combine = cat, act([H W_s | M(H) W_n] + b), halves of f_out.

    Args:   f_in, f_out  widths F and C.
            aggregator  mean: M(H) = D^-1 A H; sum: A H; gcn: D^-1 (A + I) H, without H W_s;
                        max: the largest entry of relu(H W_p + b_p) over the neighbours, 0 without any.
            combine     add or cat.
            pool        of max: width of H W_p, None: f_out; 0: the maximum is over H itself, which must be dense.
            act, bias (True), norm, residual  see Layer.end_with.
    Weights of edges count in mean, sum and gcn. One exchange of min(F, C) columns each way, with max of min(F, pool).
    None in the first layer: A X, or the ghost rows of X, are cached.
    Source: Hamilton et al. 2017, Algorithm 1 and eq. (2), (3); cat: GraphSAINT (parallel), eq. (1).

    >>> SAGE(16, 8, aggregator="max", combine="cat")(A, H).shape
    torch.Size([60, 8])
    """

    hops = 1
    operator = derived(lambda self: OPERATORS[self.aggregator])

    def __init__(
        self,
        f_in: int,
        f_out: int,
        aggregator: Literal["mean", "sum", "gcn", "max"] = "mean",
        combine: Literal["add", "cat"] = "add",
        pool: int | None = None,
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        bias = end.setdefault("bias", True)
        check_choice("aggregator", aggregator, OPERATORS)
        check_choice("combine", combine, ("add", "cat"))
        if combine == "cat" and (f_out < 2 or aggregator == "gcn"):
            problem = "gcn has no product of its own rows" if aggregator == "gcn" else f"f_out = {f_out} has no halves"
            raise UsageError(f"combine = cat: {problem}; use combine = add")
        if pool is not None and aggregator != "max":
            raise UsageError(f"pool = {pool} is an option of aggregator = max; {aggregator} has none")
        if pool is not None:
            check_integer("pool", pool, 0)
        self.aggregator, self.combine = aggregator, combine
        f_s = f_out - f_out // 2 if combine == "cat" else f_out
        f_n = f_out - f_s if combine == "cat" else f_out
        pooled = (f_out if pool is None else pool) if aggregator == "max" else 0
        self.W_FP = self.weight(f_in, pooled) if pooled else None
        self.b_P = self.weight(pooled) if pooled and bias else None
        self.W_n = self.weight(pooled or f_in, f_n)
        self.W_s = None if aggregator == "gcn" else self.weight(f_in, f_s)
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        if self.W_s is None or (self.aggregator != "max" and self.combine == "add"):
            return self.chained(A, H_mF, self.W_n, self.W_s)
        if self.aggregator == "max":
            pooled = dense_rows(self, H_mF) if self.W_FP is None else A.linear(H_mF, self.W_FP, self.b_P)
            neighbours = A.maximum(pooled, relu=self.W_FP is not None)
            del pooled  # backward does not read it
            own = A.dense(A.select(H_mF), self.W_s)
            if self.combine == "add":
                return self.dense(A, H_mF, neighbours, self.W_n, own)
            neighbours = A.dense(neighbours, self.W_n)
        else:
            own, neighbours = A.dense(A.select(H_mF), self.W_s), A.chain(H_mF, self.W_n)
        return self.finish(A, H_mF, torch.cat([own, neighbours], dim=1))


class GIN(BuiltIn):
    """Z = act(relu(((1 + eps) H + A H) W_1 + b_1) W_2 + b), A without normalisation.

    Args:   f_in, f_out  widths F and C.
            hidden     width of the inner layer, None: f_out.
            eps        weight of the node's own row, less 1.
            train_eps  eps is a parameter that starts from `eps`.
            act, bias (True), norm, residual  see Layer.end_with; bias: of b_1 too.
    W_1 may come before A: min(F, hidden) columns are exchanged each way. There is no batch normalisation, which would
    use the rows of one rank.
    Source: Xu et al. 2019, eq. (4.1).

    >>> GIN(16, 8, hidden=32, train_eps=True)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops = "none", 1

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
        bias = end.setdefault("bias", True)
        hidden = check_integer("hidden", f_out if hidden is None else hidden, 1)
        self.W_1, self.b_1 = self.weight(f_in, hidden), self.weight(hidden) if bias else None
        self.W_2 = self.weight(hidden, f_out)
        check_number("eps", eps)
        self.eps = self.weight(start=eps) if train_eps else float(eps)
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        U = A.own_chain(H_mF, self.W_1, 1 + self.eps, self.b_1, relu=True)
        return self.dense(A, H_mF, U, self.W_2)


class GAT(BuiltIn):
    """Z_i = act(sum_j alpha_ij x_j + b), x = H W, alpha_ij = softmax_j(e_ij) over row i of A + I, for each head.

    v1: e_ij = lrelu(left x_i + right x_j). v2: e_ij = a lrelu(l_i + x_j), l = H W_l + b_l.
    Args:   f_in, f_out  widths F and C.
            heads      K heads of width D; column d K + h of x is entry d of head h. None: 8 if they divide C, else 1.
            attention  v1 or v2.
            merge      cat: the K D columns of all heads, C = K D; mean: their average, C = D.
            slope      of the leaky ReLU, 0 or more.
            dropout    rate at which alpha_ij are dropped in training.
            act, bias (True), norm, residual  see Layer.end_with; bias: of b_l too.
    Weights of edges are not read. One exchange of min(F, K D) columns of ghost rows each way. None in the first layer:
    the ghost rows of X are cached.
    Source: Velickovic et al. 2018, eqs. (1) to (6); Brody et al. 2022, eq. (7).

    >>> GAT(16, 8, heads=4, attention="v2")(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops = "loops", 1

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
        bias = end.setdefault("bias", True)
        if heads is None:
            heads = 1 if merge == "cat" and f_out % HEADS else HEADS
        check_integer("heads", heads, 1)
        check_choice("attention", attention, ("v1", "v2"))
        check_choice("merge", merge, ("cat", "mean"))
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
            self.b_l = self.weight(D * heads) if bias else None
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        X = A.linear(H_mF, self.W_FC)
        act = self.act_name
        is_fused = (self.merge == "cat" or self.heads == 1) and self.norm is None and act in ENDS
        end = (self.b_C, str(act)) if is_fused else NO_END
        if self.attention == "v1":
            Z = A.attend(X, self.left_DK, self.right_DK, self.slope, self.dropout, end=end)
        else:
            Z = A.attend2(A.dense(H_mF, self.W_l, self.b_l), X, self.a_DK, self.slope, self.dropout, end=end)
        if is_fused:
            return self.add_input(A, H_mF, Z)
        if self.merge == "mean" and self.heads > 1:
            Z = Z.view(len(Z), self.f_out, self.heads).sum(2) / self.heads
        return self.finish(A, H_mF, Z)
