"""Layers that multiply with A several times: SGC, APPNP, LightGCN, GCNII, MixHop.

Shapes: n own rows, F in, C out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Unpack

import torch
from torch import nn

from ..errors import UsageError, check_choice, check_integer, check_integers, check_number, is_number
from ..spmm.chains.dropout import check_rate
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending, dense_rows, derived


class SGC(BuiltIn):
    """Z = act(A^J H W + b).

    Args:   f_in, f_out  widths F and C; powers: J.
            act, bias (True), norm, residual  see Layer.end_with.
    If H is X, which does not change, A^J X is cached and nothing is sent. Else J exchanges of min(F, C) columns each way.
    Source: Wu et al. 2019, eq. (8).

    >>> SGC(16, 4, powers=3)(A, H).shape
    torch.Size([60, 4])
    """

    hops = derived(lambda self: self.powers)
    reads_input = derived(lambda self: bool(self.residual))

    def __init__(self, f_in: int, f_out: int, powers: int = 2, **end: Unpack[Ending]):
        super().__init__(f_in, f_out)
        check_integer("powers", powers, 1)
        self.powers, self.W_FC = powers, self.weight(f_in, f_out)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        Z_nC = A.chain(H_mF, self.W_FC, self.b_C, power=self.powers)
        return self._end(A, H_mF, Z_nC)


class APPNP(BuiltIn):
    """Z_0 = H; Z_j = (1 - t) A Z_(j-1) + t H; Z = Z_J: personalised PageRank of the rows of H, without weights.

    Args:   f         width of H and Z.
            powers    J; teleport: t, in [0, 1].
            dropout   rate on each Z_j that A multiplies, in training. The paper drops entries of A.
    J exchanges of f columns each way. H is usually from an MLP; the dropout of a Stack does not act on it.
    Source: Gasteiger et al. 2019, eq. (5).

    >>> APPNP(16, powers=10, teleport=0.1)(A, H).shape
    torch.Size([60, 16])
    """

    drops_input, hops = False, derived(lambda self: self.powers)

    def __init__(self, f: int, powers: int = 10, teleport: float = 0.1, dropout: float = 0.0):
        super().__init__(f, f)
        check_integer("powers", powers, 1)
        self.powers, self.teleport, self.dropout = powers, check_share("teleport", teleport), check_rate(dropout)

    def forward(self, A: LayerView, H_nF: AnyRows) -> torch.Tensor:
        """Return Z, (n, f). Collective."""
        Z_nF = dense_rows(self, H_nF)
        start_nF = self.teleport * A.select(Z_nF)
        for draw in range(1, self.powers + 1):
            Z_nF = torch.add(start_nF, A @ A.drop(Z_nF, self.dropout, draw), alpha=1 - self.teleport)  # eq. (5)
        return Z_nF


class LightGCN(BuiltIn):
    """Z = (H + A H + ... + A^J H) / (J + 1): the mean of the powers of A, without weights.

    Args: f  width of H and Z; powers: J.
    A is D^-1/2 A D^-1/2, without self-loops. J exchanges of f columns each way; if H is X, which does not change, A^j X
    are cached and nothing is sent. H is usually learned rows of the nodes.
    Source: He et al. 2020, eq. (7), (8), alpha_k = 1 / (J + 1), by Horner's scheme: Z_j = H + A Z_(j-1).

    >>> LightGCN(16, powers=3)(A, H).shape
    torch.Size([60, 16])
    """

    operator, hops = "sym", derived(lambda self: self.powers)

    def __init__(self, f: int, powers: int = 3):
        super().__init__(f, f)
        check_integer("powers", powers, 1)
        self.powers = powers

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, f). Collective."""
        return A.power_mean(dense_rows(self, H_mF), self.powers)


class GCNII(BuiltIn):
    """H_l = act(((1 - alpha) A H_(l-1) + alpha H_0) ((1 - b_l) I + b_l W_l)), b_l = ln(theta / l + 1), H_0 = H.

    Args:   f        width of H and all H_l.
            depth    number of products with A and of weights W_l.
            alpha    weight of H_0 in each product; theta: the larger, the more W_l counts.
            act      see Layer.end_with.
            dropout  rate on each H_l that A multiplies, in training; not on H_0.
    `depth` exchanges of f columns each way. H_0 is the input of the layer, usually from an MLP.
    Source: Chen et al. 2020, eq. (5), (6).

    >>> GCNII(16, depth=4)(A, H).shape
    torch.Size([60, 16])
    """

    drops_input, hops = False, derived(lambda self: len(self.W))

    def __init__(
        self,
        f: int,
        depth: int = 8,
        alpha: float = 0.1,
        theta: float = 0.5,
        act: str | None = "relu",
        dropout: float = 0.0,
    ):
        super().__init__(f, f)
        check_integer("depth", depth, 1)
        self.alpha, self.theta = check_share("alpha", alpha), check_number("theta", theta, 0)
        self.dropout = check_rate(dropout)
        self.W = nn.ParameterList([self.weight(f, f) for _ in range(depth)])
        self.end_with(act)

    def forward(self, A: LayerView, H_nF: AnyRows) -> torch.Tensor:
        """Return Z, (n, f). Collective."""
        H_nF = dense_rows(self, H_nF)
        start_nF = self.alpha * A.select(H_nF)
        I_FF = torch.eye(self.f_in, dtype=self.W[0].dtype, device=self.W[0].device)
        for l, W_FF in enumerate(self.W, start=1):
            S_nF = torch.add(start_nF, A @ A.drop(H_nF, self.dropout, draw=l), alpha=1 - self.alpha)
            b_l = math.log(self.theta / l + 1)
            H_nF = self.dense(A, H_nF, S_nF, (1 - b_l) * I_FF + b_l * W_FF)  # eq. (5)
        return H_nF


class MixHop(BuiltIn):
    """Z = act([A^j H W_j for j in powers] + b), side by side; combine = sum: act(sum over j of A^j H W_j + b).

    Args:   f_in, f_out  widths F and C; side by side, a power has C / len(powers) columns, the first ones one more.
            powers   exponents j, 0 for H W_0 without A, ascending.
            combine  cat or sum.
            act, bias (True), norm, residual  see Layer.end_with.
    If H is X, which does not change, A X ... A^J X are cached. Else there are J exchanges each way. With cat, exchange
    j = 1 ... J has the columns of the powers j and above, or F; with sum (Horner's scheme) C or F, whichever is less
    in total.
    Source: Abu-El-Haija et al. 2019, eq. (2); GraphSAINT (parallel), eq. (5).

    >>> MixHop(16, 9, powers=(0, 1, 3))(A, H).shape
    torch.Size([60, 9])
    """

    hops = derived(lambda self: self.powers[-1])

    def __init__(
        self,
        f_in: int,
        f_out: int,
        powers: Sequence[int] = (0, 1, 2),
        combine: Literal["cat", "sum"] = "cat",
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        check_choice("combine", combine, ("cat", "sum"))
        powers = check_integers("powers", powers, 0)
        if not powers or list(powers) != sorted(set(powers)) or powers[-1] == 0:
            raise UsageError(f"powers = {powers}; expected different exponents, ascending, up to 1 or more")
        if combine == "cat" and f_out < len(powers):
            raise UsageError(f"f_out = {f_out} has no column for each of the {len(powers)} powers; use combine = sum")
        self.powers, self.combine, count = powers, combine, len(powers)
        widths = [f_out // count + (i < f_out % count) for i in range(count)] if combine == "cat" else [f_out] * count
        self.W = nn.ParameterList([self.weight(f_in, width) for width in widths])
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        Z_nC = A.powers(H_mF, list(self.W), self.powers, self.combine)
        return self.finish(A, H_mF, Z_nC)


def check_share(name: str, value: float) -> float:
    """Return a number in [0, 1]. Raises: UsageError for anything else."""
    if not is_number(value) or not 0 <= value <= 1:
        raise UsageError(f"{name} = {value!r}; expected a number from 0 to 1")
    return value
