"""What layers see of A: LayerView has all calls of layers, made from the primitives of any operator; see protocol.SpMM.

Shapes: n rows out, m own rows in (n = m but for pruned layers), t = m + g own and ghost columns, F in, C out, K heads of
width D, E nonzeros. Column d K + h of a matrix (m, K D) is entry d of head h: heads are innermost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ...config.names import Norm
from ...cost.schedule import Way, chain_way
from ...errors import ShapeError, UsageError, check_integer
from ..chains import chains
from ..chains.autograd import Matmul
from ..chains.chains import check_bias
from ..chains.dropout import Key, check_rate, dropout, nth_key
from ..chains.end import NO_END, end
from ..edges import edge_words
from ..edges.attention import Attend, Attend2, attended, check_heads, scores_of
from ..edges.maximum import Maximum
from ..edges.relation_pairs import by_type, pairs, type_n
from ..edges.relations import typed_sum
from ..exchange.cached_ghosts import cached_ghosts, reads_fixed_input, times_fixed_input
from ..exchange.column_rows import ColumnRows, Linear, tensor_of
from ..kernels.buffers import sum_dtype
from .facts import cached_product, check_is_held, computed, fixed_rows
from .features import AnyRows, DenseRows, check_factors
from .place import Place

if TYPE_CHECKING:
    from .facts import AtLayer as Facts
else:
    Facts = object  # an attribute that is not found here is the operator's

# Where the primitives of an operator are counted, unless the caller names a place.
PLACES = {
    "apply": "forward",
    "over_columns": "forward",
    "combine": "forward",
    "adjoint": "backward",
    "adjoint_columns": "backward",
    "add_columns": "backward",
}


@dataclass(frozen=True, eq=False)
class LayerView(Facts):
    """An operator in one layer of a model. H is a tensor (m, F); in the first layer it may be SparseRows.

    Calls that return rows, or values of edges, are differentiable; those on edges are functions of edge_words. Collective:
    always        @, power, power_mean, powers, chain, own_chain, attend, attend2, maximum, fetch, local_graph, cols, on_edges, dot,
                  update_edges, typed_sum, sum of S and V. Cached products and ghost rows are not exchanged again.
    in 1.5D       sum of M, mean, max, min, std, softmax, and the gradient of rows.
    at first use  with_norm, at(operator=...), is_cached, way.
    at times      linear, where it returns ColumnRows, on all ranks alike.
    never         dense, drop, select, edges, map_edges, at without an operator.
    What is not found here is the operator's: n, m, dtype, pool, ..., and its primitives, counted in this layer and pass.
    layer      its number, from 1; None outside of layers: exchanges are not labelled.
    pass_name  forward, or evaluate where no gradient is recorded.
    is_last    the layer makes the logits: they are not rounded to bfloat16.
    root       the operator of the graph, which has those of other normalisations.
    key        of dropout in this pass, 0: nothing is dropped; None outside of a Stack.
    """

    operator: Any
    layer: int | None = None
    pass_name: str = "forward"
    is_last: bool = False
    root: Any = None
    key: Key | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "operator":  # not set yet, as in copy
            raise AttributeError(name)
        found = getattr(self.operator, name)
        return partial(found, place=getattr(self, PLACES[name])) if name in PLACES else found

    @property
    def forward(self) -> Place:
        """Where products of this pass are counted."""
        return Place(self.layer, self.pass_name)

    @property
    def backward(self) -> Place:
        """Where products of its gradients are counted."""
        return Place(self.layer, "backward")

    @property
    def out_dtype(self) -> torch.dtype:
        """The type of A H and A H W."""
        return sum_dtype(self.dtype) if self.is_last else self.dtype

    def at(
        self, layer: int | None = None, is_last: bool = False, operator: Norm | None = None, key: Key | None = None
    ) -> LayerView:
        """Return an operator of the same graph in another layer, such as one of a Stack within a layer.

        Args: operator  another normalisation of the same graph; collective at its first use.
              key       of the layer's dropout in this pass, 0: nothing is dropped; see `drop`.
        """
        return (self.root or self.operator).at(layer, is_last, operator, key)

    def with_norm(self, how: Norm | None) -> Any:
        """Return the operator of another normalisation of the same graph; None: this one. Collective at first."""
        return (self.root or self.operator).with_norm(how)

    def __matmul__(self, H: AnyRows) -> torch.Tensor:
        """Return A H on own rows."""
        return self.power(H, 1)

    def power(self, H: AnyRows, j: int) -> Any:
        """Return A^j H, j >= 1; A^j X is cached where X is the fixed input."""
        check_integer("j", j, 1)
        cached = cached_product(self, H, j)
        if cached is not None:
            return (
                self.pool.copy(cached.tensor) if isinstance(cached, DenseRows) else cached
            )  # the caller may write into it
        check_is_held(H)
        if torch.is_tensor(H) and self.out_dtype == self.dtype and reads_fixed_input(self, H):  # X under dropout
            H, j = times_fixed_input(self, H), j - 1
        for _ in range(j):
            H = self.apply(H) if H.is_sparse else Matmul.apply(self, H)
        return H

    def is_cached(self, H: AnyRows, power: int = 1) -> bool:
        """Return whether A^power H is cached: it is made now where H is X and may be cached. Collective at first."""
        return cached_product(self, H, power) is not None

    chain, dense, own_chain, powers = chains.chain, chains.dense, chains.own_chain, chains.powers
    power_mean = chains.power_mean

    def way(self, H: AnyRows, f_out: int, f_in: int | None = None, power: int = 1) -> Way:
        """Return how a chain A^power H W is made, and why: the one place where that is decided. Collective at first.

        Args: f_in  width of what travels where A H comes first, f_out otherwise; None: the width of H.
        """
        is_cached, rows = self.is_cached(H, power), fixed_rows(self, H)
        reads_ghosts = not is_cached and reads_fixed_input(self, H)
        is_other = self.layer == 1 and self.fixed_input is not None and rows is None
        has_gradient = torch.is_tensor(H) and H.requires_grad
        return chain_way(
            (f_in or H.shape[1], f_out),
            "product" if is_cached else "ghosts" if reads_ghosts else "other" if is_other else "",
            is_sparse=H.is_sparse,
            is_dropped=rows is not None and rows.is_dropped,
            is_hidden=has_gradient if self.layer is None and not H.is_sparse else self.layer != 1,
            has_gradient=has_gradient,
            work=self.work,
            is_asked=self.order == "spmm_first",
        )

    def linear(
        self, H: AnyRows, W_FC: torch.Tensor, bias_C: torch.Tensor | None = None, relu: bool = False
    ) -> torch.Tensor | ColumnRows:
        """Return relu(H W + b) for attend, attend2 and maximum.

        Own rows; or ColumnRows, of own and ghost columns, where H is narrower than H W and travels, or where its ghost
        rows are cached: rows of the fixed X, under dropout too, so that nothing is sent.
        """
        check_factors(H, W_FC)
        check_bias("linear", W_FC, bias_C)
        check_is_held(H)
        is_narrow = W_FC.shape[0] < W_FC.shape[1] and not H.is_sparse
        if is_narrow or reads_fixed_input(self, H):
            X_tC = ColumnRows(Linear.apply(self, H, cached_ghosts(self, H), W_FC, bias_C))
            return X_tC.map(lambda X_tC: end(self, X_tC, act="relu" if relu else "none"))
        return self.dense(H, W_FC, bias_C, relu)

    def attend(
        self, X: torch.Tensor | ColumnRows, left_DK: torch.Tensor, right_DK: torch.Tensor, slope: float = 0.2, rate: float = 0.0, draw: int = 1,
        end: tuple[torch.Tensor | None, str] = NO_END,
    ) -> torch.Tensor:  # fmt: skip
        """Return Z_i = sum_j alpha_ij x_j for each of K heads, (n, K D), alpha the softmax of e over the nonzeros of row i.

        e_ij = lrelu(left x_i + right x_j). Weights of A are not read. No number is stored for each nonzero. Ghost rows of
        X travel as they are, once each way, while own columns are multiplied; in 1.5D a process row merges its results.
        Args: X     (m, K D), or ColumnRows of linear; column d K + h is entry d of head h.
              rate  of alpha that is dropped in training, by a hash of seed, epoch, layer, draw, ids and head.
              end   (b (K D) or None, act one of ENDS): act(Z + b) is returned, in the memory of Z.
        """
        check_heads(X, left_DK, right_DK)
        rows = (tensor_of(self, X), left_DK, right_DK)
        return attended(self, Attend, rows, scores_of(self, X, slope, rate, draw), end)

    def attend2(
        self, left_mKD: torch.Tensor, right: torch.Tensor | ColumnRows, a_DK: torch.Tensor, slope: float = 0.2,
        rate: float = 0.0, draw: int = 1, end: tuple[torch.Tensor | None, str] = NO_END,
    ) -> torch.Tensor:  # fmt: skip
        """Return Z_i = sum_j alpha_ij right_j, as attend with e_ij = a lrelu(left_i + right_j); right as X of attend."""
        check_heads(right, a_DK)
        if left_mKD.shape != (self.m, right.shape[1]):
            raise ShapeError(
                f"left of attend2 has shape {tuple(left_mKD.shape)}; expected ({self.m}, {right.shape[1]})"
            )
        scores = scores_of(self, right, slope, rate, draw)
        return attended(self, Attend2, (left_mKD, tensor_of(self, right), a_DK), scores, end)

    def maximum(self, H: torch.Tensor | ColumnRows, relu: bool = False) -> torch.Tensor:
        """Return max_j H_j over the nonzeros of row i, for each column, (n, F); 0 for an empty row; H as X of attend.

        Of equal entries the one of the smallest original id gets the gradient. relu: of relu(H), which is not stored.
        """
        check_heads(H)
        return Maximum.apply(self, tensor_of(self, H), isinstance(H, ColumnRows), relu)

    edges = computed(edge_words.edges)
    fetch, local_graph = edge_words.fetch, edge_words.local_graph
    map_edges, update_edges = edge_words.map_edges, edge_words.update_edges
    rows, cols, on_edges, dot = edge_words.rows, edge_words.cols, edge_words.on_edges, edge_words.dot
    sum, mean, std, softmax = edge_words.sum_, edge_words.mean, edge_words.std, edge_words.softmax
    max, min = edge_words.max_, edge_words.min_
    typed_sum, by_type, pairs = typed_sum, by_type, computed(pairs)
    type_n = computed(type_n)

    def drop(self, H: AnyRows, rate: float, draw: int = 1) -> Any:
        """Return H with entries zeroed with probability `rate`, the rest / (1 - rate), in the training passes of a Stack.

        The mask is a hash of seed, epoch, layer, draw, original node id and column: the same on any ranks.
        Args:   draw  tells several masks of one layer apart; 0 is the Stack's, on the input of the layer.
        Raises: UsageError outside of a Stack, which has the seed and the epoch.
        """
        return H if check_rate(rate, "rate") == 0 else dropout(self, H, rate, self.drawn_key(draw))

    def drawn_key(self, draw: int) -> Key:
        """Return the key of one of the layer's masks, 0: nothing is dropped. Raises: UsageError outside of a Stack."""
        if self.key is None:
            raise UsageError(
                "dropout within a layer needs a Stack, which has the seed and the epoch: Stack(layer)(A, H)"
            )
        return nth_key(self.key, draw)

    def select(self, H: Any) -> Any:
        """Return the rows of H that correspond to the rows of A H: all, unless rows are pruned."""
        check_is_held(H)
        return self.operator.select(H)


def current_pass() -> str:
    """Return the pass that a product made now belongs to: training or evaluation."""
    return "forward" if torch.is_grad_enabled() else "evaluate"
