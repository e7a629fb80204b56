"""The protocol of operators: SpMM, all that layers, Stack, autograd and Trainer ask of A, and its Primitives.

Shapes: n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F in, C out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from ..config.names import Norm
from ..cost.schedule import Order
from .features import SparseRows
from .fixed_input import FixedInput
from .kernels.buffers import BufferPool
from .place import OUTSIDE, Place
from .timing import Operations

if TYPE_CHECKING:
    from .dropout import Key
    from .view import LayerView


class Primitives(Protocol):
    """Products and exchanges of A (N, N) with the rows of H spread over the ranks, outside of autograd.

    Every method is collective but `prepare_adjoint`.
    """

    name: str  # differs between the operators of a graph
    n: int  # rows of A H
    m: int  # own rows of H
    node_n: np.ndarray  # (m,) int64, original ids of the own rows of H
    dtype: torch.dtype  # of H and A H; weights and sums: sum_dtype(dtype)
    device: torch.device
    pool: BufferPool
    threads: int  # of the kernels, 0 for all
    ops: Operations  # makes the products and exchanges
    order: str  # of chains: auto or spmm_first
    fixed_input: FixedInput | None  # X, which does not change, with A X
    sent_so_far: int  # bytes, on this rank

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None
    ) -> torch.Tensor:
        """Return relu(A H + add + b), (n, F), in A's dtype or another; add is of sum_dtype(A.dtype)."""

    def apply_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> SparseRows:
        """Return A S as sparse rows."""

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S has few enough nonzeros to be cached, on all ranks the same."""

    def adjoint(self, G_nF, place: Place = OUTSIDE) -> torch.Tensor:
        """Return A' G, (m, F)."""

    def pull(self, H_mF, place: Place = OUTSIDE) -> torch.Tensor:
        """Return (m + g, F): own rows of H, then ghost rows."""

    def push_add(self, G_tF, place: Place = OUTSIDE) -> torch.Tensor:
        """Return (m, F), the adjoint of pull: own rows of G, with its ghost rows added at their owners."""

    def prepare_adjoint(self) -> None:
        """Make what backward needs before buffers fill the memory."""


class SpMM(Primitives, Protocol):
    """What layers call. H is a tensor (m, F); in the first layer it may be SparseRows.

    An operator has the primitives and inherits these calls from Operator, which makes them by LayerView. All are
    collective but `at`, `drop` and `select`.
    """

    def at(
        self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key: Key | None = None
    ) -> LayerView:
        """Return this operator as a layer sees it: exchanges are counted under its number and the current pass.

        Args: operator  another normalisation of the same graph; collective at its first use.
              key       of the layer's dropout in this pass, 0: nothing is dropped; see `drop`.
        """

    def with_norm(self, how: Norm | None) -> SpMM:
        """Return the operator of another normalisation of the same graph; None: this one. Collective at first."""

    def __matmul__(self, H):
        """Return A H on own rows, differentiable in H."""

    def chain(self, H, W_FC, bias_C=None, relu: bool = False, add=None, power: int = 1) -> torch.Tensor:
        """Return relu(A^power H W + add + b), (n, C), the cheaper product first; differentiable in H, W, b, add (n, C)."""

    def power(self, H, j: int):
        """Return A^j H, j >= 1, differentiable in H; A^j X is cached where X is the fixed input."""

    def is_cached(self, H, power: int = 1) -> bool:
        """Return whether A^power H is cached: it is made now where H is X and may be cached. Collective at first."""

    def product_order(self, H, f_out: int, f_in: int | None = None) -> Order:
        """Return which product of A H W a chain makes first, spmm_first or gemm_first. Collective at first.

        Args: f_in  width of what travels where A H comes first, f_out otherwise; None: that of H.
        """

    def columns(self, H_mF: torch.Tensor) -> torch.Tensor:
        """Return (m + g, F): own rows of H, then ghost rows, in the order of A's columns; differentiable in H.

        For layers that need rows and not sums. The ghosts are the rows that the rank's rows of A read (broadcast: all).
        In 1.5D they are those of its process column, and own columns are multiplied on the rank of the process row
        that holds them: on the others the gradient of own rows is not used.
        """

    def drop(self, H, rate: float, draw: int = 1):
        """Return H with entries zeroed with probability `rate`, the rest / (1 - rate), in the training passes of a Stack.

        The mask is a hash of seed, epoch, layer, draw, original node id and column: the same on any ranks.
        Args:   H     (m, F) tensor or SparseRows; differentiable.
                draw  tells several masks of one layer apart; 0 is the Stack's, on the input of the layer.
        Raises: UsageError outside of a Stack, which has the seed and the epoch.
        """

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H: all, unless rows are pruned."""
