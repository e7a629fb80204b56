"""GraphArrays: the structure of a graph as the loops of this package read it; the subgraph that nodes induce.

Shapes: N nodes, E nonzeros of the graph; m drawn nodes, e nonzeros between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ..config.names import Norm
from ..errors import GraphError
from ..graph import DIVIDES, WITH_LOOPS, BadWeight, Graph, bad_weight, check_is_graph, factors, lacks_loop
from . import _samplers
from .sample import Pattern, Sample


class GraphArrays:
    """indptr int64, indices and weights of A, with its reverse edges unless with_edges chose otherwise.

    origin        the Graph, as it is used; name: what messages call it.
    indptr        (N + 1,) int64.
    indices       (E,) int32, not copied if the graph has int32.
    weights       (E,) float32 or float64; None: all 1.

    Raises: GraphError for 2^31 nodes or more.
    """

    def __init__(self, graph: Graph):
        check_is_graph(graph)
        graph = graph.in_use()
        A = graph.A
        if graph.n_nodes >= 2**31 - 1:
            raise GraphError(f"{graph.name} has {graph.n_nodes:,} nodes; samplers take less than 2^31 - 1")
        self.origin, self.name, self.N, self.E = graph, graph.name, graph.n_nodes, graph.nnz
        self.indptr = np.ascontiguousarray(A.indptr, np.int64)
        self.indices = np.ascontiguousarray(A.indices, np.int32)
        self.weights = None if self.E == 0 or _are_ones(A.data) else _as_weights(A.data)
        self._factors: dict[Norm, tuple[np.ndarray | None, np.ndarray | None]] = {}

    @cached_property
    def is_symmetric(self) -> bool:
        """The pattern of A equals its transpose, whatever the weights are."""
        return _samplers.is_symmetric(self.indptr, self.indices)

    @cached_property
    def stores_loop_N(self) -> np.ndarray | None:
        """Which rows of A have a diagonal entry, (N,) bool; None: no row has."""
        stores_N = ~lacks_loop(self.origin.A)
        return stores_N if stores_N.any() else None

    def factors(self, how: Norm) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return left and right with operator = diag(left) A diag(right), see spgnn.graph.factors.

        Raises: GraphError where it divides by sums of weights of which one is negative.
        """
        if how not in DIVIDES:
            return None, None
        if how not in self._factors:
            self.check_weights([how])
            sums = _samplers.graph_sums(self.indptr, self.indices, weights=self.weights, has_loops=how in WITH_LOOPS)
            self._factors[how] = factors(how, *sums)
        return self._factors[how]

    @cached_property
    def _bad_weight(self) -> BadWeight | None:
        return None if self.weights is None else bad_weight(self.origin.A)

    def check_weights(self, norms: Iterable[Norm]) -> None:
        """Raise GraphError where operators divide by sums of weights of which one is negative."""
        divides = [how for how in norms if how in DIVIDES]
        if divides and self._bad_weight is not None:
            raise self._bad_weight.error(f"operator {divides[0]}")

    def prepare(self, norms: Iterable[Norm]) -> None:
        """Compute now what operators of these normalisations read."""
        _ = self.is_symmetric, self.stores_loop_N, [self.factors(how) for how in norms]

    def column_norms(self) -> np.ndarray:
        """Return the squared norms of the columns of the gcn operator, (N,) float64."""
        if self._bad_weight is not None:
            raise self._bad_weight.error("sampler node", "Use another sampler, or give absolute values of the weights")
        return _samplers.column_norms(self.indptr, self.indices, self.weights, *self.factors("gcn"))


def graph_arrays(graph: Graph | GraphArrays) -> GraphArrays:
    """Return the arrays of a graph; those that are given as such are returned."""
    return graph if isinstance(graph, GraphArrays) else GraphArrays(graph)


def _are_ones(data: np.ndarray) -> bool:
    return data.strides == (0,) and bool(data[0] == 1) or bool((data == 1).all())


def _as_weights(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data, np.float64 if data.dtype == np.float64 else np.float32)


DRAWS, ORDER = 0, 1  # streams of a seed: what is drawn, the order of an epoch


def int64_of(nodes: np.ndarray) -> np.ndarray:
    """Return integers of any type and layout as loops take them."""
    return np.ascontiguousarray(nodes).astype(np.int64, casting="safe", copy=False)


def induce(graph: GraphArrays, node_m: np.ndarray) -> Sample:
    """A[V][:, V]: return the nonzeros between nodes, with local ids in the order of the nodes.

    Args:   node_m  (m,) int64, sorted and distinct.
    Raises: ValueError if they are not, or not of the graph.
    One pass over the rows of the nodes; the indices of each row ascend without being sorted.
    """
    node_m = int64_of(node_m)
    indptr, indices, place_e = _samplers.induce(graph.indptr, graph.indices, node_m)
    return Sample(node_m, (Pattern((len(node_m), len(node_m)), indptr, indices, place_e),))


class InducedSampler(ABC):
    """Draws nodes; the subgraph is the one that they induce."""

    name: str
    n_blocks = 0
    rescales = True

    def __init__(self, graph: Graph | GraphArrays):
        self.graph = graph_arrays(graph)

    @abstractmethod
    def draw(self, seed: int, index: int) -> np.ndarray:
        """Return the nodes of draw number index, int64 of any shape, duplicates included."""

    def nodes(self, seed: int, index: int) -> np.ndarray:
        """Return the nodes of subgraph number index, (m,) int64, sorted and distinct."""
        return _samplers.distinct(int64_of(self.draw(seed, index)), self.graph.N)

    def sample(self, seed: int, index: int) -> Sample:
        """Return subgraph number index."""
        return induce(self.graph, self.nodes(seed, index))
