"""What layers see of A: LayerView, which makes the calls of layers from the primitives of any operator.

Shapes: n rows out, m own rows in (n = m but for pruned layers), F in, C out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import torch

from ..config.names import Norm
from ..cost.schedule import Way, chain_way
from ..errors import UsageError, check_integer
from .autograd import Matmul
from .cached_ghosts import reads_fixed_input, times_fixed_input
from .chains import apply_chain, own_chain, powers
from .dropout import Key, check_rate, dropout, dropped_of, nth_key
from .features import SparseRows
from .fixed_input import FixedInput, cached_product, check_is_held
from .ghosts import ColumnBlock
from .kernels.buffers import sum_dtype
from .place import Place
from .protocol import SpMM
from .row_words import RowWords


class Operator(RowWords):
    """The calls of layers on an operator that has the primitives of SpMM."""

    fixed_input: FixedInput | None = None
    work: tuple[tuple[int, int], int] | None = None

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

    def chain(self, H, W_FC, bias_C=None, relu: bool = False, add=None, power: int = 1) -> torch.Tensor:
        """Return relu(A^power H W + add + b); see SpMM."""
        return self.at().chain(H, W_FC, bias_C, relu, add, power)

    def power(self, H, j: int):
        """Return A^j H; see SpMM."""
        return self.at().power(H, j)

    def is_cached(self, H, power: int = 1) -> bool:
        """Return whether A^power H is cached; see SpMM."""
        return self.at().is_cached(H, power)

    def own_chain(self, H, W_FC, own, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu((own I + A) H W + b); see SpMM."""
        return self.at().own_chain(H, W_FC, own, bias_C, relu)

    def powers(self, H, W, exponents, combine: str = "cat") -> torch.Tensor:
        """Return A^j H W_j for each exponent j; see SpMM."""
        return self.at().powers(H, W, exponents, combine)

    def way(self, H, f_out: int, f_in: int | None = None, power: int = 1) -> Way:
        """Return how a chain A^power H W is made; see SpMM."""
        return self.at().way(H, f_out, f_in, power)

    @property
    def view(self) -> LayerView:
        """This operator outside of layers."""
        return self.at()

    def drop(self, H, rate: float, draw: int = 1):
        """Return H with entries zeroed; see SpMM."""
        return self.at().drop(H, rate, draw)

    def select(self, H):
        """Return the rows of H that correspond to the rows of A H."""
        return H

    def prepare_adjoint(self) -> None:
        """Nothing has to be made."""


@dataclass(frozen=True, eq=False)
class InLayer:
    """The primitives of an operator in one layer: what they exchange is counted under its number and pass.

    layer      its number, from 1; None outside of layers: exchanges are not labelled.
    pass_name  forward, or evaluate where no gradient is recorded.
    """

    operator: SpMM
    layer: int | None = None
    pass_name: str = "forward"

    name, n, m = (property(attrgetter(f"operator.{name}")) for name in ("name", "n", "m"))
    node_n, dtype, device = (property(attrgetter(f"operator.{name}")) for name in ("node_n", "dtype", "device"))
    pool, threads, ops = (property(attrgetter(f"operator.{name}")) for name in ("pool", "threads", "ops"))
    order, work, fixed_input, sent_so_far = (
        property(attrgetter(f"operator.{name}")) for name in ("order", "work", "fixed_input", "sent_so_far")
    )
    column_blocks, column_ids, out_ids, selected = (
        property(attrgetter(f"operator.{name}")) for name in ("column_blocks", "column_ids", "out_ids", "selected")
    )
    row_sum, holds_own = (property(attrgetter(f"operator.{name}")) for name in ("row_sum", "holds_own"))

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place | None = None, add_nF=None
    ) -> torch.Tensor:
        """Return relu(A H + add + b), (n, F), outside of autograd."""
        joined = {} if add_nF is None else {"add_nF": add_nF}
        return self.operator.apply(H_mF, bias_F, relu, dtype, place or Place(self.layer, self.pass_name), **joined)

    def apply_sparse(self, S: SparseRows, place: Place | None = None) -> SparseRows:
        """Return A S as sparse rows."""
        return self.operator.apply_sparse(S, place or Place(self.layer, self.pass_name))

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

    def pull_ghosts(self, H_mF, place: Place | None = None) -> torch.Tensor:
        """Return the ghost rows of H, (g, F), outside of autograd."""
        return self.operator.pull_ghosts(H_mF, place or Place(self.layer, self.pass_name))

    def over_columns(self, H_mF, place: Place | None = None) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, rows of H) for own columns, then for ghost columns."""
        return self.operator.over_columns(H_mF, place or Place(self.layer, self.pass_name))

    def add_columns(self, rows_of: Callable, dtype: torch.dtype, place: Place | None = None) -> torch.Tensor:
        """Return (m, F), the adjoint of over_columns."""
        return self.operator.add_columns(rows_of, dtype, place or Place(self.layer, "backward"))

    def combine(self, Z_nF, add: Callable | None = None, place: Place | None = None) -> torch.Tensor:
        """Return the partial results of a process row as one, in place."""
        return self.operator.combine(Z_nF, add, place or Place(self.layer, self.pass_name))

    def share_gradient(self, dW: torch.Tensor) -> torch.Tensor:
        """Return the sum over the process row of gradients of weights."""
        return self.operator.share_gradient(dW)

    def apply_cached(
        self, H_mF, ghosts_gF, bias_F=None, relu: bool = False, dtype=None, place: Place | None = None, add_nF=None
    ) -> torch.Tensor:
        """Return relu(A H + add + b) from own and ghost rows of H, outside of autograd."""
        place = place or Place(self.layer, self.pass_name)
        return self.operator.apply_cached(H_mF, ghosts_gF, bias_F, relu, dtype, place, add_nF)

    def adjoint_cached(self, G_nF, place: Place | None = None) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, A_c' G) for own and ghost columns, outside of autograd."""
        return self.operator.adjoint_cached(G_nF, place or Place(self.layer, "backward"))

    def prepare_adjoint(self) -> None:
        """Make what backward needs before buffers fill the memory."""
        self.operator.prepare_adjoint()


@dataclass(frozen=True, eq=False)
class LayerView(RowWords, InLayer):
    """An operator in one layer of a model.

    is_last    the layer makes the logits: they are not rounded to bfloat16.
    root       the operator of the graph, which has those of other normalisations.
    key        of dropout in this pass, 0: nothing is dropped; None outside of a Stack.
    """

    is_last: bool = False
    root: SpMM | None = None
    key: Key | None = None

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
        return self.power(H, 1)

    def power(self, H, j: int):
        """Return A^j H, differentiable in H; see SpMM. Collective."""
        check_integer("j", j, 1)
        cached = cached_product(self, H, j)
        if cached is not None:
            return cached if cached.is_sparse else self.pool.copy(cached.tensor)  # the caller may write into it
        check_is_held(H)
        if torch.is_tensor(H) and self.out_dtype == self.dtype and reads_fixed_input(self, H):  # X under dropout
            H, j = times_fixed_input(self, H), j - 1
        for _ in range(j):
            H = self.apply_sparse(H) if H.is_sparse else Matmul.apply(self, H)
        return H

    def is_cached(self, H, power: int = 1) -> bool:
        """Return whether A^power H is cached, or is from now on; see SpMM."""
        return cached_product(self, H, power) is not None

    def chain(self, H, W_FC, bias_C=None, relu: bool = False, add=None, power: int = 1) -> torch.Tensor:
        """Return relu(A^power H W + add + bias), the cheaper product first; see SpMM. Collective."""
        return apply_chain(self, H, W_FC, bias_C, relu, add, power)

    def own_chain(self, H, W_FC, own, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu((own I + A) H W + b); see SpMM. Collective."""
        return own_chain(self, H, W_FC, own, bias_C, relu)

    def powers(self, H, W, exponents, combine: str = "cat") -> torch.Tensor:
        """Return A^j H W_j for each exponent j; see SpMM. Collective."""
        return powers(self, H, W, exponents, combine)

    def way(self, H, f_out: int, f_in: int | None = None, power: int = 1) -> Way:
        """Return how a chain A^power H W is made: the one place where that is decided; see SpMM."""
        is_cached = self.is_cached(H, power)
        reads_ghosts = not is_cached and reads_fixed_input(self, H)
        has_gradient = not H.is_sparse and H.requires_grad
        return chain_way(
            (f_in or H.shape[1], f_out),
            "product" if is_cached else "ghosts" if reads_ghosts else "",
            is_sparse=H.is_sparse,
            is_dropped=dropped_of(H) is not None,
            is_hidden=has_gradient if self.layer is None and not H.is_sparse else self.layer != 1,
            has_gradient=has_gradient,
            work=self.work,
            is_asked=self.order == "spmm_first",
        )

    @property
    def view(self) -> LayerView:
        """This view."""
        return self

    def drop(self, H, rate: float, draw: int = 1):
        """Return H with entries zeroed with probability `rate`; see SpMM."""
        return H if check_rate(rate, "rate") == 0 else dropout(self, H, rate, self.drawn_key(draw))

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


def current_pass() -> str:
    """Return the pass that a product made now belongs to: training or evaluation."""
    return "forward" if torch.is_grad_enabled() else "evaluate"
