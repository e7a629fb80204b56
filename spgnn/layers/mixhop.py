"""MixHop: several powers of A side by side, each with weights of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

import torch
from torch import nn

from ..errors import UsageError, check_choice, check_integers
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import BuiltIn, Ending


class MixHop(BuiltIn):
    """Z = act([A^j H W_j for j in powers] + b), side by side; combine = sum: act(sum over j of A^j H W_j + b).

    Args:   f_in, f_out  widths F and C; side by side, a power has C / len(powers) columns, the first ones one more.
            powers   exponents j, 0 for H W_0 without A, ascending.
            combine  cat or sum.
            end        act, bias (True), norm and residual, see Layer.end_with.
    A X ... A^J X are cached where X does not change. Else the exchanges of J products have min(J F, the sum over j of
    the columns of powers j and more) columns each way; of a sum, which Horner's scheme makes, min(J F, J C).
    Source: Abu-El-Haija et al. 2019, eq. (2); GraphSAINT (parallel), eq. (5).
    """

    hops = property(lambda self: self.powers[-1])

    def __init__(
        self,
        f_in: int,
        f_out: int,
        powers: Sequence[int] = (0, 1, 2),
        combine: Literal["cat", "sum"] = "cat",
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        end.setdefault("bias", True)
        check_choice("combine", combine, ("cat", "sum"))
        powers = check_integers("powers", powers, 0)
        if not powers or list(powers) != sorted(set(powers)) or powers[-1] == 0:
            raise UsageError(f"powers = {powers}; expected different exponents, ascending, up to 1 or more")
        if combine == "cat" and f_out < len(powers):
            raise UsageError(f"f_out = {f_out} has no column for each of the {len(powers)} powers; use combine = sum")
        self.powers, self.combine, count = powers, combine, len(powers)
        widths = [f_out // count + (i < f_out % count) for i in range(count)] if combine == "cat" else [f_out] * count
        self.W = nn.ParameterList([self.weight(f_in, width) for width in widths])
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return the rows of own nodes, (n, C). Collective."""
        Z_nC = A.powers(H_mF, list(self.W), self.powers, self.combine)
        return self.finish(A, H_mF, Z_nC)
