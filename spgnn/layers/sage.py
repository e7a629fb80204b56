"""GraphSAGE: a node's own row and an aggregate of its neighbours' rows have weights of their own."""

from __future__ import annotations

from typing import Literal, Unpack

import torch

from ..config.names import Norm
from ..errors import UsageError, check_choice, check_integer
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending

OPERATORS: dict[str, Norm] = {"mean": "row", "sum": "none", "gcn": "row_loops", "max": "none"}
COMBINE = ("add", "cat")


class SAGE(BuiltIn):
    """Z = act(H W_s + M(H) W_n + b); with combine = cat, act([H W_s | M(H) W_n] + b), halves of f_out.

    Args:   f_in, f_out  widths F and C.
            aggregator  mean: M(H) = D^-1 A H; sum: A H; gcn: D^-1 (A + I) H, without H W_s;
                        max: the largest entry of relu(H W_p + b_p) over the neighbours, 0 without any.
            combine     add or cat.
            pool        of max: the width of H W_p, None: f_out; 0: the entries of H itself, which must be dense.
            end        act, bias (True), norm and residual, see Layer.end_with.
    The weights of edges count in mean, sum and gcn. One exchange of min(F, C) columns each way; with max, rows of
    min(F, pool) columns; none in the first layer, whose A X, or ghost rows of X, are cached.
    Source: Hamilton et al. 2017, Algorithm 1 and eq. (2), (3); cat: GraphSAINT (parallel), eq. (1).
    """

    hops = 1

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
        end.setdefault("bias", True)
        check_choice("aggregator", aggregator, tuple(OPERATORS))
        check_choice("combine", combine, COMBINE)
        if combine == "cat" and (f_out < 2 or aggregator == "gcn"):
            problem = "gcn has no product of its own rows" if aggregator == "gcn" else f"f_out = {f_out} has no halves"
            raise UsageError(f"combine = cat: {problem}; use combine = add")
        if pool is not None and aggregator != "max":
            raise UsageError(f"pool = {pool} is an option of aggregator = max; {aggregator} has none")
        if pool is not None:
            check_integer("pool", pool, 0)
        self.aggregator, self.combine, self.operator = aggregator, combine, OPERATORS[aggregator]
        f_s = f_out - f_out // 2 if combine == "cat" else f_out
        f_n = f_out - f_s if combine == "cat" else f_out
        pooled = (f_out if pool is None else pool) if aggregator == "max" else 0
        self.W_FP = self.weight(f_in, pooled) if pooled else None
        self.b_P = self.weight(pooled) if pooled and end["bias"] else None
        self.W_n = self.weight(pooled or f_in, f_n)
        self.W_s = None if aggregator == "gcn" else self.weight(f_in, f_s)
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return the rows of own nodes, (n, C). Collective."""
        if self.aggregator != "max" and self.combine == "add":
            return self.chained(A, H_mF, self.W_n, self.W_s)
        if self.aggregator == "max":
            pooled = H_mF if self.W_FP is None else A.linear(H_mF, self.W_FP, self.b_P)
            neighbours = A.maximum(pooled, relu=self.W_FP is not None)
            del pooled  # backward does not read it
            own = A.dense(A.select(H_mF), self.W_s)
            if self.combine == "add":
                return self.dense(A, H_mF, neighbours, self.W_n, own)
            neighbours = A.dense(neighbours, self.W_n)
        else:
            own, neighbours = A.dense(A.select(H_mF), self.W_s), A.chain(H_mF, self.W_n)
        return self.finish(A, H_mF, torch.cat([own, neighbours], dim=1))
