"""MixHop: several powers of A side by side, each with weights of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from ..errors import UsageError
from ..spmm.cached_ghosts import reads_fixed_input
from ..spmm.features import SparseRows
from .layer import Layer, add_bias, check_choice, check_widths, hops_of, of_hidden
from .sequence import make_stack
from .stack import Stack


class MixHop(Layer):
    """Z = act([A^j H W_j for j in powers] + b), side by side; combine = sum: act(sum over j of A^j H W_j + b).

    Args:   f_in, f_out  widths F and C; side by side, a power has C / len(powers) columns, the first ones one more.
            powers   exponents j, 0 for H W_0 without A, ascending.
            combine  cat or sum.
            act, bias, norm, residual  see Layer.end_with.
    A X ... A^J X are cached where X does not change. Else the exchanges of J products have min(J F, the sum over j of
    the columns of powers j and more) columns each way; of a sum, which Horner's scheme makes, min(J F, J C).
    Source: Abu-El-Haija et al. 2019, eq. (2); GraphSAINT (parallel), eq. (5).
    """

    hops = property(lambda self: self.powers[-1])
    is_random = property(lambda self: hops_of(self) is None)

    def __init__(
        self,
        f_in: int,
        f_out: int,
        powers: Sequence[int] = (0, 1, 2),
        combine: Literal["cat", "sum"] = "cat",
        act: str | None = None,
        bias: bool = True,
        norm: str | None = None,
        residual: bool = False,
    ):
        super().__init__(f_in, f_out)
        check_choice("combine", combine, ("cat", "sum"))
        powers = check_widths("powers", powers, 0)
        if not powers or list(powers) != sorted(set(powers)) or powers[-1] == 0:
            raise UsageError(f"powers = {powers}; expected different exponents, ascending, up to 1 or more")
        if combine == "cat" and f_out < len(powers):
            raise UsageError(f"f_out = {f_out} has no column for each of the {len(powers)} powers; use combine = sum")
        self.powers, self.combine, count = powers, combine, len(powers)
        widths = [f_out // count + (i < f_out % count) for i in range(count)] if combine == "cat" else [f_out] * count
        self.W = nn.ParameterList([self.weight(f_in, width) for width in widths])
        self.end_with(act, bias, norm, residual)

    def forward(self, A, H_mF):
        """Return the rows of own nodes, (n, C). Collective."""
        if all(A.is_cached(H_mF, j) for j in self.powers if j):
            parts = [A.chain(H_mF, W, power=j) if j else A.select(H_mF) @ W for j, W in zip(self.powers, self.W)]
        elif self._takes_powers_first(A, H_mF):
            P, reached, parts = H_mF, 0, []
            for j, W in zip(self.powers, self.W):
                P = A.power(P, j - reached) if j > reached else P
                parts.append((A.select(P) if j == 0 else P) @ W)
                reached = j
        else:
            Z_nC = self._weights_first(A, H_mF)
            return self.finish(A, H_mF, add_bias(Z_nC, self.b_C))
        Z_nC = torch.cat(parts, dim=1) if self.combine == "cat" else sum(parts[1:], parts[0])
        return self.finish(A, H_mF, add_bias(Z_nC, self.b_C))

    def _takes_powers_first(self, A, H_mF) -> bool:
        if isinstance(H_mF, SparseRows):
            return False
        steps = range(1, self.powers[-1] + 1)
        widths = [W.shape[1] for W in self.W]
        columns = [sum(w for j, w in zip(self.powers, widths) if j >= step) for step in steps]
        travel = sum(columns) if self.combine == "cat" else len(steps) * self.f_out
        return A.product_order(H_mF, travel, len(steps) * self.f_in) == "spmm_first"

    def _weights_first(self, A, H_mF) -> torch.Tensor:
        """Return the powers of A on H [W_0 .. W_J]: of all that are left, the first is given off and the rest goes on."""
        first = int(reads_fixed_input(A, H_mF))  # the chain has A H W from cached ghost rows of X
        if self.combine == "sum":
            weights, J = dict(zip(self.powers, self.W)), self.powers[-1]
            Z = A.chain(H_mF, weights[J]) if first else H_mF @ weights[J]
            for j in reversed(range(J)):  # Horner's scheme
                Z = Z if first and j == J - 1 else A @ Z
                if j in weights:
                    Z = Z + (A.select(H_mF) if j == 0 else H_mF) @ weights[j]
            return Z
        parts, weights = [], [*self.W]
        if first and self.powers[0] == 0:
            parts.append(A.select(H_mF) @ weights.pop(0))
        W = torch.cat(weights, dim=1)
        T = A.chain(H_mF, W) if first else H_mF @ W
        for j in range(first, self.powers[-1] + 1):
            T = A @ T if j > first else T
            if j in self.powers:
                width = self.W[len(parts)].shape[1]
                parts.append((T if j else A.select(T))[:, :width])
                T = T[:, width:].contiguous()
        return torch.cat(parts, dim=1)

    def extra_repr(self) -> str:
        return f"{self.f_in} -> {self.f_out}, powers={self.powers}, {self.combine}, {self.end}"


def mixhop_stack(f_in: int, n_classes: int, options) -> Stack:
    """Return F -> hidden ... -> C of powers 0 .. options.powers (0: 2), side by side; the last layer adds them."""
    powers = range((options.powers or 2) + 1)
    hidden = lambda f, c: MixHop(f, c, powers, **of_hidden(options))
    last = lambda f, c: MixHop(f, c, powers, "sum", bias=options.bias)
    return make_stack(f_in, n_classes, options, hidden, last)
