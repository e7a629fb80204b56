"""What is known of A and of X, from which LayerView makes the calls of layers.

SpMM is an operator, AtLayer one in a layer, and FixedInput the X of a graph, with A X and A^j X computed once.

Shapes: n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F columns, C columns of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from ...cost.schedule import Way
from ...errors import UsageError
from ...graph import NodeTypes
from ..exchange.ghosts import ColumnBlock
from ..exchange.row_sum import RowSum
from ..kernels.buffers import Pool
from .features import AnyRows, DenseRows, SparseRows
from .place import OUTSIDE, Place
from .timing import Operations

Value = TypeVar("Value")
Key = int | torch.Tensor  # of dropout; on a device maybe a tensor there


def made_once(make: Callable[[Any], Value]) -> Value:
    """Return a cached property, to a type checker an attribute: a subclass may have a value in its place."""
    return cast("Value", cached_property(make))


def computed(read: Callable[[Any], Value]) -> Value:
    """Return a property, to a type checker an attribute."""
    return cast("Value", property(read))


class SpMM(Protocol):
    """A (N, N) with the rows of H spread over the ranks, outside of autograd.

    An operator that has these facts and primitives, and inherits from Operator, runs every layer. Operator has those of
    one process with all rows, square A and dense H, but n, m, node_n, column_blocks, dtype, apply and adjoint.
    All primitives are collective, except `select`. `place` is the layer and pass for which sent bytes are counted.
    """

    name: str  # differs between the operators of a graph
    n: int  # rows of A H
    m: int  # own rows of H
    node_n: np.ndarray  # (m,) int64, original ids of the own rows of H
    node_types: NodeTypes  # of the nodes of the whole graph
    node_type_n: np.ndarray  # (m,) int64, the type of each of these, 0 in a graph without types; subgraphs refuse
    out_ids: np.ndarray  # (n,) int64, original ids of the rows of A H
    column_ids: np.ndarray  # (m + g,) int64, original ids of own and ghost columns
    column_blocks: tuple[ColumnBlock, ...]  # the own columns of A, and its ghost columns where it has any
    n_edges: int  # nonzeros of this rank's rows, in the order of column_blocks
    edge_index: torch.Tensor  # (2, E) int64, the place of column and row of each nonzero among own and ghost columns
    edge_ids: np.ndarray  # (E,) int64, the original id of the column of each nonzero
    edge_attr: torch.Tensor | None  # (E, F_e) of the type of sums, attributes of edges; subgraphs refuse
    relations: tuple[np.ndarray, int]  # (E,) the relation of each nonzero, and R of the whole graph; refused without
    dtype: torch.dtype  # of H and A H; weights and sums: sum_dtype(dtype)
    device: torch.device
    pool: Pool
    threads: int  # of the kernels, 0 for all
    ops: Operations  # makes the products and exchanges
    order: str  # of chains: auto or spmm_first
    work: tuple[tuple[int, int], int] | None  # (n, m) and nonzeros where nothing is exchanged: chains are ordered by it
    fixed_input: FixedInput | None  # X, which does not change, with A X
    sent_so_far: int  # bytes, on this rank
    selected: np.ndarray | None  # rows of H that are rows of A H; None: all
    row_sum: RowSum | None  # adds up partial results of a process row; None in 1D
    selects_first: bool  # `select` gives the first rows of H, where it does not give all
    holds_own: bool  # this rank multiplies with its own columns: in 1.5D one rank of a process row does

    def apply(
        self,
        H_mF: AnyRows,
        bias_F: torch.Tensor | None = None,
        relu: bool = False,
        dtype: torch.dtype | None = None,
        place: Place = OUTSIDE,
        add_nF: torch.Tensor | None = None,
        ghosts_gF: AnyRows | None = None,
    ) -> Any:
        """Return relu(A H + add + b), (n, F), in A's dtype or another; add is of sum_dtype(A.dtype).

        Of SparseRows: A H as SparseRows. With the ghost rows of H nothing is exchanged, but in 1.5D the sums.
        """
        raise NotImplementedError

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A S has few enough nonzeros to be cached, on all ranks the same."""
        raise NotImplementedError

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE, add_mF: torch.Tensor | None = None) -> torch.Tensor:
        """Return A' G + add, (m, F); add is of sum_dtype(A.dtype)."""
        raise NotImplementedError

    def over_columns(self, H_mF: AnyRows, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, Any]]:
        """Yield (block, rows of H) for own columns, while ghost rows travel, then for ghost columns."""
        raise NotImplementedError

    def add_columns(
        self, rows_of: Callable[[bool], torch.Tensor], dtype: torch.dtype, place: Place = OUTSIDE
    ) -> torch.Tensor:
        """Return (m, F) in a dtype, the adjoint of over_columns.

        Args: rows_of  (is_ghost) -> gradients of a block's rows: (g, F), or (m, F) of the type of sums, which is added to.
        """
        raise NotImplementedError

    def combine(self, Z_nF: torch.Tensor, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return the partial results of a process row as one, in place: their sum, or what `add` makes of them."""
        raise NotImplementedError

    def select(self, H: Any) -> Any:
        """Return the rows of H that correspond to the rows of A H, of the type of H."""
        raise NotImplementedError


class AtLayer(SpMM, Protocol):
    """An operator in one layer, as the functions of chains, edges and exchanges take it: LayerView, which says more."""

    @property
    def layer(self) -> int | None: ...
    @property
    def out_dtype(self) -> torch.dtype: ...  # of A H and A H W
    @property
    def forward(self) -> Place: ...
    @property
    def backward(self) -> Place: ...

    def adjoint_columns(self, G_nF: torch.Tensor, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, A_c' G) for the columns with which this rank multiplies. Nothing is exchanged."""
        raise NotImplementedError

    def once(self, kind: type[Value], make: Callable[[], Value]) -> Value:
        """Return what is made of the operator once, and kept with it."""
        raise NotImplementedError

    def __matmul__(self, H: AnyRows) -> Any:
        """Return A H."""
        raise NotImplementedError

    def power(self, H: AnyRows, j: int) -> Any:
        """Return A^j H."""
        raise NotImplementedError

    def is_cached(self, H: AnyRows, power: int = 1) -> bool:
        """Return whether A^power H is cached. Collective at first."""
        raise NotImplementedError

    def way(self, H: AnyRows, f_out: int, f_in: int | None = None, power: int = 1) -> Way:
        """Return how a chain A^power H W is made, and why. Collective at first."""
        raise NotImplementedError

    def chain(
        self,
        H: AnyRows,
        W_FC: torch.Tensor,
        bias_C: torch.Tensor | None = None,
        relu: bool = False,
        add: torch.Tensor | None = None,
        power: int = 1,
        V_FC: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return relu(A^power H W + H V + add + b)."""
        raise NotImplementedError

    def drawn_key(self, draw: int) -> Key:
        """Return the key of one of the layer's masks."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class FixedRows:
    """The fixed input X, as it is, or under dropout of a rate by a key: then ghost rows of X give ghost rows of these."""

    X: AnyRows
    rate: float = 0.0
    key: Key = 0

    @property
    def is_dropped(self) -> bool:
        return self.rate > 0


class FixedInput:
    """X and its products A^j X with the operators of one graph, each computed when it is first needed.

    X            tensor or SparseRows (n, F); it must not change.
    products     A^j X by `product_key`, a tensor or SparseRows; None where that of a sparse X has too many nonzeros to
                 be cached.
    setup_bytes  that this rank sent to make them, and to fetch ghost rows of X.

    Args: has_products  False: ghost rows of X alone are cached.
    X, and what A.drop(X) returned, are known by the objects: of a copy, or of H + 0, cached products are not used.
    """

    def __init__(self, X: AnyRows, has_products: bool = True):
        if torch.is_tensor(X) and X.is_inference():
            raise UsageError("X was made in torch.inference_mode(); distribute the graph outside of it")
        self.X, self.has_products, self.is_freed = X, has_products, False
        self.products: dict[str, AnyRows | None] = {}
        self.setup_bytes = 0
        self._ghosts_gF: AnyRows | None = None
        self._version = _version(X)
        self._dropped = WeakIdKeyDictionary()  # rows -> (FixedRows, version)

    def note_dropped(self, H: AnyRows, rate: float, key: Key) -> None:
        """Remember that H is X under dropout, while there is such an object and it is not written."""
        self._dropped[H] = FixedRows(self.X, rate, key), _version(H)

    def rows(self, H: AnyRows) -> FixedRows | None:
        """Return what H is of X, None where it is something else."""
        if H is self.X:
            return FixedRows(self.X)
        rows, version = self._dropped.get(H, (None, 0))
        return rows if rows is not None and _version(H) == version else None

    def make(self, A: SpMM, power: int = 1) -> None:
        """Compute A^power X, unless it is cached: it is used wherever A meets X, and backward needs no exchange.

        Lower powers are taken where they are cached; those that are not are not cached either. Collective.
        """
        if product_key(A, power) in self.products:
            return
        place, sent = Place(1, "setup"), A.sent_so_far
        lower = [j for j in range(1, power) if product_key(A, j) in self.products]
        H = self.products[product_key(A, lower[-1])] if lower else self.X
        with torch.inference_mode(False), torch.no_grad():  # later steps differentiate products with it
            for _ in range(lower[-1] if lower else 0, power):
                if H is not None:
                    H = A.apply(H, place=place) if torch.is_tensor(H) or A.stays_sparse(H, place) else None
        self.products[product_key(A, power)] = H
        self.setup_bytes += A.sent_so_far - sent
        A.pool.trim()  # of buffers as wide as X, which no epoch may need

    def ghosts(self, A: SpMM) -> AnyRows:
        """Return the ghost rows of X, (g, F), fetched at the first call. Collective."""
        if self._ghosts_gF is None:
            check_is_held(self.X)
            sent = A.sent_so_far
            with torch.inference_mode(False), torch.no_grad():
                self._ghosts_gF = _ghost_rows(A, self.X)
            self.setup_bytes += A.sent_so_far - sent
            A.pool.trim()
        return self._ghosts_gF

    def product(self, A: SpMM, H: AnyRows, power: int = 1) -> DenseRows | SparseRows | None:
        """Return A^power H, cached, where H is X; else None. Collective where it is not cached yet.

        Raises: UsageError where X changed in place or requires a gradient: A X does not reflect that.
        """
        if H is not self.X or not self.has_products:
            return None
        if torch.is_tensor(H) and not self.is_freed and (H.requires_grad or H._version != self._version):
            what = "requires a gradient" if H.requires_grad else "was changed in place"
            raise UsageError(f"X {what}, but A X is cached: distribute the graph with keep=False")
        if product_key(A, power) not in self.products:
            check_is_held(H)
            self.make(A, power)
        AX = self.products[product_key(A, power)]
        return DenseRows(AX, A) if torch.is_tensor(AX) else AX

    def release(self, pool: Pool) -> None:
        """Free the memory of a dense X once A X is cached. Later reads through A raise; direct reads see NaN."""
        self.is_freed = True  # a captured step cannot ask the device whether X is a NaN
        assert torch.is_tensor(self.X)
        self.X.data = self.X.new_full((), float("nan")).expand(self.X.shape)
        pool.trim()


def _ghost_rows(A: SpMM, X: AnyRows) -> AnyRows:
    found = [rows for block, rows in A.over_columns(X, place=Place(1, "setup")) if block.is_ghost]
    if found:
        return found[0]
    return A.pool.empty(0, X.shape[1], dtype=X.dtype) if torch.is_tensor(X) else X.rows(np.zeros(0, np.int64))


def _version(H: AnyRows) -> int:
    return H._version if torch.is_tensor(H) else 0  # sparse rows do not change


def fixed_rows(A: SpMM, H: AnyRows) -> FixedRows | None:
    """Return what H is of the fixed input of A, None where it is something else."""
    return None if A.fixed_input is None else A.fixed_input.rows(H)


def product_key(A: SpMM, power: int = 1) -> str:
    """Return the key of A^power X among the products of a FixedInput."""
    return A.name if power == 1 else f"{A.name}^{power}"


def of_key(key: str) -> tuple[str, int]:
    """Return the operator's name and the power of a product_key."""
    name, _, power = key.partition("^")
    return name, int(power or 1)


def cached_product(A: SpMM, H: AnyRows, power: int = 1) -> DenseRows | SparseRows | None:
    """Return the cached A^power H where H is the fixed input of A, else None."""
    return None if A.fixed_input is None else A.fixed_input.product(A, H, power)


def is_released(H: AnyRows) -> bool:
    """Return whether H is an X whose memory was freed: one stored NaN, whatever its shape."""
    if not torch.is_tensor(H) or any(H.stride()) or H.untyped_storage().nbytes() != H.element_size():
        return False
    return H.ndim > 0 and bool(H.as_strided((), ()).isnan())


def check_is_held(H: AnyRows) -> None:
    """Raise UsageError where H is an X that was released, or a sparse tensor of torch."""
    if torch.is_tensor(H) and H.layout != torch.strided:
        raise UsageError(f"H is a tensor of layout {H.layout}; expected dense rows: H.to_dense()")
    if is_released(H):
        raise UsageError(
            "X was released after A X was cached, but is used again: distribute the graph again, "
            "or do not call Trainer.release_input"
        )
