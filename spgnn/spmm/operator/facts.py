"""What is known of A, from which LayerView makes the calls of layers: SpMM, an operator, and AtLayer, one in a layer.

Shapes: n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F columns, C columns of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch

from ...cost.schedule import Way
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


class Fixed(Protocol):
    """X, which does not change, as an operator has it; see FixedInput."""

    X: AnyRows
    products: dict[str, AnyRows | None]  # A^j X, by operator and j

    def note_dropped(self, H: AnyRows, rate: float, key: Key) -> None:
        """Remember that H is X under dropout."""
        raise NotImplementedError

    def rows(self, H: AnyRows) -> Any:
        """Return what H is of X, see FixedRows; None where it is something else."""
        raise NotImplementedError

    def make(self, A: SpMM, power: int = 1) -> None:
        """Compute A^power X, unless it is cached. Collective."""
        raise NotImplementedError

    def ghosts(self, A: SpMM) -> AnyRows:
        """Return the ghost rows of X, (g, F), fetched at the first call. Collective."""
        raise NotImplementedError

    def product(self, A: SpMM, H: AnyRows, power: int = 1) -> DenseRows | SparseRows | None:
        """Return A^power H, cached, where H is X; else None. Collective where it is not cached yet."""
        raise NotImplementedError


class SpMM(Protocol):
    """A (N, N) with the rows of H spread over the ranks, outside of autograd.

    An operator that has these facts and primitives, and inherits from Operator, runs every layer. Operator has those of
    one process with all rows, square A and dense H, but n, m, node_n, column_blocks, dtype, apply and adjoint.
    Each primitive is collective but `select`; `place` says where what it sends is counted.
    """

    name: str  # differs between the operators of a graph
    n: int  # rows of A H
    m: int  # own rows of H
    node_n: np.ndarray  # (m,) int64, original ids of the own rows of H
    out_ids: np.ndarray  # (n,) int64, original ids of the rows of A H
    column_ids: np.ndarray  # (m + g,) int64, original ids of own and ghost columns
    column_blocks: tuple[ColumnBlock, ...]  # the own columns of A, and its ghost columns where it has any
    n_edges: int  # nonzeros of this rank's rows, in the order of column_blocks
    edge_index: torch.Tensor  # (2, E) int64, the place of column and row of each nonzero among own and ghost columns
    edge_ids: np.ndarray  # (E,) int64, the original id of the column of each nonzero
    edge_attr: torch.Tensor | None  # (E, F_e) of the type of sums, attributes of edges; subgraphs refuse
    dtype: torch.dtype  # of H and A H; weights and sums: sum_dtype(dtype)
    device: torch.device
    pool: Pool
    threads: int  # of the kernels, 0 for all
    ops: Operations  # makes the products and exchanges
    order: str  # of chains: auto or spmm_first
    work: tuple[tuple[int, int], int] | None  # (n, m) and nonzeros where nothing is exchanged: chains are ordered by it
    fixed_input: Fixed | None  # X, which does not change, with A X
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

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE) -> torch.Tensor:
        """Return A' G, (m, F)."""
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
