"""The protocol of operators: SpMM, all that layers, Stack, autograd and Trainer ask of A, and its Primitives.

Shapes: n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F in, C out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from ..config.names import Norm
from ..cost.schedule import Way
from .features import SparseRows
from .fixed_input import FixedInput
from .kernels.buffers import BufferPool
from .place import OUTSIDE, Place
from .timing import Operations

if TYPE_CHECKING:
    from .column_rows import ColumnRows
    from .dropout import Key
    from .edges import EdgeValues
    from .exchange.row_sum import RowSum
    from .ghosts import ColumnBlock
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
    work: (
        tuple[tuple[int, int], int] | None
    )  # (n, m) and nonzeros where nothing is exchanged, by which chains are ordered
    fixed_input: FixedInput | None  # X, which does not change, with A X
    sent_so_far: int  # bytes, on this rank
    selected: np.ndarray | None  # rows of H that are rows of A H; None: all
    out_ids: np.ndarray  # (n,) int64, original ids of the rows of A H
    column_ids: np.ndarray  # (m + g,) int64, original ids of own and ghost columns
    column_blocks: tuple[ColumnBlock, ...]  # the own columns of A, and its ghost columns where it has any
    row_sum: RowSum | None  # adds up partial results of a process row; None in 1D
    holds_own: bool  # this rank multiplies with its own columns: in 1.5D one rank of a process row does

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

    def pull_ghosts(self, H_mF, place: Place = OUTSIDE) -> torch.Tensor:
        """Return the ghost rows of H, (g, F)."""

    def over_columns(self, H_mF, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, rows of H) for own columns, while ghost rows travel, then for ghost columns."""

    def add_columns(
        self, rows_of: Callable[[bool], torch.Tensor], dtype: torch.dtype, place: Place = OUTSIDE
    ) -> torch.Tensor:
        """Return (m, F), the adjoint of over_columns; rows_of(is_ghost) are the gradients of a block's rows."""

    def combine(self, Z_nF, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return the partial results of a process row as one, in place: their sum, or what `add` makes of them."""

    def share_gradient(self, dW: torch.Tensor) -> torch.Tensor:
        """Return the sum over the process row of gradients of weights that multiply rows of columns, in place."""

    def apply_cached(
        self, H_mF, ghosts_gF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None
    ) -> torch.Tensor:
        """Return relu(A H + add + b) from own and ghost rows of H; nothing is exchanged in 1D."""

    def adjoint_cached(self, G_nF, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield (block, A_c' G) for own and ghost columns; nothing is exchanged."""

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

    def own_chain(self, H, W_FC, own, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu((own I + A) H W + b), (n, C), the cheaper product first; own is a number or a parameter."""

    def powers(self, H, W, exponents, combine: str = "cat") -> torch.Tensor:
        """Return A^j H W_j for each exponent j, ascending: side by side, or their sum (combine = sum)."""

    def way(self, H, f_out: int, f_in: int | None = None, power: int = 1) -> Way:
        """Return how a chain A^power H W is made, and why. Collective at first.

        Args: f_in  width of what travels where A H comes first, f_out otherwise; None: that of H.
        """

    def columns(self, H_mF: torch.Tensor) -> torch.Tensor:
        """Return (m + g, F): own rows of H, then ghost rows, in the order of A's columns; differentiable in H.

        For layers that need rows and not sums. The ghosts are the rows that the rank's rows of A read (broadcast: all).
        In 1.5D they are those of its process column, and own columns are multiplied on the rank of the process row
        that holds them: on the others the gradient of own rows is not used.
        """

    def linear(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor | ColumnRows:
        """Return relu(H W + b) for attend, attend2 and maximum, differentiable in H, W and b.

        Own rows; or ColumnRows, of own and ghost columns, where H is narrower than H W and travels, or where its ghost
        rows are cached: those of the fixed X, under dropout too, so that nothing is sent.
        Args: H  (m, F) tensor or SparseRows.
        """

    def attend(
        self, X, left_DK: torch.Tensor, right_DK: torch.Tensor, slope: float = 0.2, rate: float = 0.0, draw: int = 1
    ) -> torch.Tensor:
        """Return Z_i = sum_j alpha_ij x_j for each of K heads, (n, K D), alpha the softmax of e over the nonzeros of row i.

        e_ij = lrelu(left x_i + right x_j). Weights of A are not read. No number is stored for each nonzero. Ghost rows of
        X travel as they are, once each way, while own columns are multiplied; in 1.5D a process row merges its results.
        Args: X     (m, K D), or ColumnRows of linear; column d K + h is entry d of head h.
              rate  of alpha that is dropped in training, by a hash of seed, epoch, layer, draw, ids and head.
        """

    def attend2(
        self, left_mKD: torch.Tensor, right, a_DK: torch.Tensor, slope: float = 0.2, rate: float = 0.0, draw: int = 1
    ) -> torch.Tensor:
        """Return Z_i = sum_j alpha_ij right_j, as attend with e_ij = a lrelu(left_i + right_j); right as X of attend."""

    def maximum(self, H) -> torch.Tensor:
        """Return max_j H_j over the nonzeros of row i, for each column, (n, F); 0 for an empty row; H as X of attend.

        Of equal entries the one of the smallest original id gets the gradient.
        """

    def sddmm(self, U_mKD: torch.Tensor, V_tKD: torch.Tensor, heads: int = 1, op: str = "dot") -> EdgeValues:
        """Return <U_i, V_j> of each head, or U_i + V_j (op = add), for each nonzero; V as A.columns returns it.

        EdgeValues have map, softmax and S @ V. In 1.5D, gradients of weights that multiply rows of columns are those of a
        rank's columns: use linear, or make V of A.columns(H @ W).
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
