"""S = A H of a pass, which the layers write and their gradients read: backward needs no rows of the halo.

Of Z = f(S, H), of own rows alone, autograd gives dS and dH. A' dS, of own rows and of the halo, is added to dH. Where A is
its transpose, the owners of rows make it: they read dS of their halo.
Shapes: n own nodes of a part, m with its halo, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...config.names import Norm
from ...spmm.operator.facts import computed
from ...spmm.operator.features import AnyRows
from ...spmm.operator.place import OUTSIDE, Place
from ...spmm.operator.subgraph import Block, SubgraphSpMM


@dataclass(slots=True, eq=False)
class Expected:
    """The rows H that a pass reads, by place in memory and shape, until A has multiplied them; take: called with A H."""

    take: Callable[[AnyRows], None]
    place: tuple[int, torch.Size] | None = None

    def expect(self, H_mF: torch.Tensor) -> None:
        """Wait for these rows."""
        self.place = H_mF.data_ptr(), H_mF.shape


class ProductTaker(SubgraphSpMM):
    """The operator (n, m) of a part in a pass that computes: it hands out A H of the rows that the pass reads."""

    order = "spmm_first"

    def __init__(self, block: Block, expected: Expected, how: Norm | None = None):
        super().__init__(block, how)
        self.expected = expected

    def with_norm(self, how: Norm | None) -> SubgraphSpMM:
        """Return the operator of another normalisation of the same block."""
        return self if how in (None, self.name) else ProductTaker(self.block, self.expected, how)

    def apply(self, H_mF, bias_F=None, relu=False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None):
        """Return relu(A H + add + b), (n, F)."""
        Z_nF = super().apply(H_mF, bias_F, relu, dtype, place, add_nF, ghosts_gF)
        is_product = bias_F is None and add_nF is None and not relu and Z_nF.dtype == self.dtype
        if is_product and self.expected.place == (H_mF.data_ptr(), H_mF.shape):
            self.expected.take(Z_nF)
        self.expected.place = None
        return Z_nF


class KeptProduct(SubgraphSpMM):
    """The operator of a part on own rows alone, A H being known: `apply` returns it, `adjoint` the own rows of A' G.

    Args: S_nF  A H. halo_gF: the other rows of A' G, once backward has made them.
          give  called with G, and `adjoint` returns zeros: A' G is made later. None: it is made at once.
    """

    order = "spmm_first"

    def __init__(self, block: Block, S_nF: torch.Tensor, give: Callable[[torch.Tensor], None] | None = None):
        super().__init__(block)
        self.m, self.S_nF, self.give = self.n, S_nF, give
        self.halo_gF: torch.Tensor | None = None

    node_n = computed(lambda self: self.block.node_m[: self.n])
    selected = work = computed(lambda self: None)

    def with_norm(self, how: Norm | None) -> SubgraphSpMM:
        """Return this operator, which takes the normalisation of the layer that reads the halo."""
        self.name = how or self.name
        return self

    def apply(self, H_mF, bias_F=None, relu=False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None):
        """Return A H, as it was kept."""
        assert bias_F is None and add_nF is None and not relu  # as it was taken
        return self.S_nF

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE, add_mF: torch.Tensor | None = None) -> torch.Tensor:
        """Return the own rows of A' G, (n, F)."""
        if self.give is not None:
            self.give(G_nF)
            return self.pool.empty(*G_nF.shape, dtype=G_nF.dtype).zero_() if add_mF is None else add_mF
        out_mF = self.A.adjoint(G_nF, self.pool.empty(self.block.shape[1], G_nF.shape[1], dtype=self.dtype))
        self.halo_gF = out_mF[self.n :]
        return out_mF[: self.n] if add_mF is None else out_mF[: self.n].add_(add_mF)
