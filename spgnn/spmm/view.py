"""What layers see of A: the protocol SpMM, and LayerView, which makes its calls of the primitives of any operator.

Shapes: n rows out, m own rows in (n = m but for pruned layers), F in, C out.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

import numpy as np
import torch

from ..config.names import Norm
from ..errors import UsageError
from .autograd import Columns, Matmul, apply_chain
from .dropout import Key, dropout, nth_key
from .features import SparseRows
from .fixed_input import FixedInput, cached_product, check_is_held
from .kernels.buffers import BufferPool, sum_dtype
from .place import OUTSIDE, Place
from .timing import Operations


class SpMM(Protocol):
    """A (N, N) with the rows of H spread over the ranks: all that layers, Stack, autograd and Trainer ask of it.

    An operator has the primitives and inherits the calls of layers from Operator, which makes them by LayerView.
    Every method is collective but `at`, `select` and `prepare_adjoint`.
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

    # Calls of layers. H is a tensor (m, F); in the first layer it may be SparseRows.

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

    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A H W + b), (n, C), the cheaper product first; differentiable in H, W and b."""

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

    # Primitives, outside of autograd.

    def apply(self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return relu(A H + b), (n, F), in A's dtype or another."""

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


class Operator:
    """The calls of layers on an operator that has the primitives of SpMM."""

    fixed_input: FixedInput | None = None

    @property
    def kept(self) -> torch.Tensor | SparseRows | None:
        """A X where it is cached."""
        return None if self.fixed_input is None else self.fixed_input.products.get(self.name)

    def at(
        self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key: Key | None = None
    ) -> LayerView:
        """Return this operator, or another normalisation, as a layer sees it; see SpMM."""
        return LayerView(self.with_norm(operator), layer, current_pass(), is_last, self, key)

    def with_norm(self, how: Norm | None) -> SpMM:
        """Return the operator of another normalisation."""
        if how is None:
            return self
        raise UsageError(f"operator {how!r} is not known here: {type(self).__name__} has one normalisation")

    def __matmul__(self, H):
        """Return A H on own rows, differentiable in H."""
        return self.at() @ H

    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A H W + b); see LayerView.chain."""
        return self.at().chain(H, W_FC, bias_C, relu)

    def columns(self, H_mF: torch.Tensor) -> torch.Tensor:
        """Return own rows of H, then ghost rows; see SpMM."""
        return self.at().columns(H_mF)

    def drop(self, H, rate: float, draw: int = 1):
        """Return H with entries zeroed; see SpMM."""
        return self.at().drop(H, rate, draw)

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H."""
        return H

    def prepare_adjoint(self) -> None:
        """Nothing has to be made."""


@dataclass(frozen=True, eq=False)
class LayerView:
    """An operator in one layer of a model.

    layer      its number, from 1; None outside of layers: exchanges are not labelled.
    pass_name  forward, or evaluate where no gradient is recorded.
    is_last    the layer makes the logits: they are not rounded to bfloat16.
    root       the operator of the graph, which has those of other normalisations.
    key        of dropout in this pass, 0: nothing is dropped; None outside of a Stack.
    """

    operator: SpMM
    layer: int | None = None
    pass_name: str = "forward"
    is_last: bool = False
    root: SpMM | None = None
    key: Key | None = None

    name, n, m = (property(attrgetter(f"operator.{name}")) for name in ("name", "n", "m"))
    node_n, dtype, device = (property(attrgetter(f"operator.{name}")) for name in ("node_n", "dtype", "device"))
    pool, threads, ops = (property(attrgetter(f"operator.{name}")) for name in ("pool", "threads", "ops"))
    order, fixed_input, sent_so_far = (
        property(attrgetter(f"operator.{name}")) for name in ("order", "fixed_input", "sent_so_far")
    )

    @property
    def out_dtype(self) -> torch.dtype:
        """The type of A H and A H W."""
        return sum_dtype(self.dtype) if self.is_last else self.dtype

    def at(
        self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key: Key | None = None
    ) -> LayerView:
        """Return an operator of the same graph in another layer, such as one of a Stack within a layer."""
        return (self.root or self.operator).at(layer, is_last, operator, key)

    def with_norm(self, how: Norm | None) -> SpMM:
        """Return the operator of another normalisation of the same graph."""
        return (self.root or self.operator).with_norm(how)

    def __matmul__(self, H):
        """Return A H on own rows, differentiable in H."""
        cached = cached_product(self, H)
        if cached is not None:
            return cached if cached.is_sparse else self.pool.copy(cached.tensor)  # the caller may write into it
        check_is_held(H)
        return self.apply_sparse(H) if isinstance(H, SparseRows) else Matmul.apply(self, H)

    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A H W + bias), the order of the product chosen by the schedule.

        H (m, F) tensor or SparseRows; W (F, C); differentiable in H, W and bias. Collective.
        """
        return apply_chain(self, H, W_FC, bias_C, relu)

    def columns(self, H_mF: torch.Tensor) -> torch.Tensor:
        """Return (m + g, F): own rows of H, then ghost rows; see SpMM. Collective."""
        check_is_held(H_mF)
        return Columns.apply(self, H_mF)

    def drop(self, H, rate: float, draw: int = 1):
        """Return H with entries zeroed with probability `rate`; see SpMM."""
        return H if rate == 0 else dropout(self, H, rate, self.drawn_key(draw))

    def drawn_key(self, draw: int) -> Key:
        """Return the key of one of the layer's masks, 0: nothing is dropped. Raises: UsageError outside of a Stack."""
        if self.key is None:
            raise UsageError(
                "dropout within a layer needs a Stack, which has the seed and the epoch: Stack(layer)(A, H)"
            )
        return nth_key(self.key, draw)

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H: all, unless rows are pruned."""
        check_is_held(H)
        return self.operator.select(H)

    def apply(self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place | None = None) -> torch.Tensor:
        """Return relu(A H + b), (n, F), outside of autograd."""
        return self.operator.apply(H_mF, bias_F, relu, dtype, place or Place(self.layer, self.pass_name))

    def apply_sparse(self, S: SparseRows, place: Place | None = None) -> SparseRows:
        """Return A S as sparse rows."""
        return self.operator.apply_sparse(S, place or Place(self.layer, "setup"))

    def stays_sparse(self, S: SparseRows, place: Place | None = None) -> bool:
        """Return whether A S has few enough nonzeros to be cached."""
        return self.operator.stays_sparse(S, place or Place(self.layer, "setup"))

    def adjoint(self, G_nF, place: Place | None = None) -> torch.Tensor:
        """Return A' G, (m, F), outside of autograd."""
        return self.operator.adjoint(G_nF, place or Place(self.layer, "backward"))

    def pull(self, H_mF, place: Place | None = None) -> torch.Tensor:
        """Return (m + g, F): own rows of H, then ghost rows, outside of autograd."""
        return self.operator.pull(H_mF, place or Place(self.layer, self.pass_name))

    def push_add(self, G_tF, place: Place | None = None) -> torch.Tensor:
        """Return (m, F), the adjoint of pull, outside of autograd."""
        return self.operator.push_add(G_tF, place or Place(self.layer, "backward"))

    def prepare_adjoint(self) -> None:
        """Make what backward needs before buffers fill the memory."""
        self.operator.prepare_adjoint()


def current_pass() -> str:
    """Return the pass that a product made now belongs to: training or evaluation."""
    return "forward" if torch.is_grad_enabled() else "evaluate"
