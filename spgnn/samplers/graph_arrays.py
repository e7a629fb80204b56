"""GraphArrays: the structure of a graph as the loops of this package read it.

Shapes: N nodes, E nonzeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial

import numpy as np

from ..config.names import Norm
from ..errors import GraphError
from ..graph import DIVIDES, INSTEAD, WITH_LOOPS, Graph, check_is_graph, check_sums, factors, lacks_loop, signs_of
from . import _samplers


class GraphArrays:
    """indptr int64, indices and weights of A, with its reverse edges unless with_edges chose otherwise.

    origin        the Graph, as it is used; name: what messages call it.
    indptr        (N + 1,) int64.
    indices       (E,) int32, not copied if the graph has int32.
    weights       (E,) float32 or float64; None: all 1. signs: how many are negative.

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
        self.signs = signs_of(A.data[:0] if self.weights is None else self.weights)
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

        Raises: GraphError where negative weights make a sum 0 or less by which the operator divides.
        """
        if how not in DIVIDES:
            return None, None
        if how not in self._factors:
            sums_of = partial(_samplers.graph_sums, self.indptr, self.indices, has_loops=how in WITH_LOOPS)
            sums = sums_of(weights=self.weights)
            if self.signs:
                check_sums(self.signs, how, self.weights.dtype, *zip(sums, sums_of(weights=np.abs(self.weights))))
            self._factors[how] = factors(how, *sums)
        return self._factors[how]

    def check_own_sums(self, norms: Iterable[Norm]) -> None:
        """Raise GraphError where operators divide by sums of a subgraph, which negative weights may make 0 or less."""
        if self.signs and (divides := [how for how in norms if how in DIVIDES]):
            self.signs.check_size()
            raise GraphError(
                f"{self.name}: {self.signs}, and the operator {divides[0]} of a subgraph divides by sums that may be 0 or "
                f"less. Divide by sums of the whole graph, with --normalise both or --sampler neighbour. {INSTEAD}"
            )

    def prepare(self, norms: Iterable[Norm]) -> None:
        """Compute now what operators of these normalisations read."""
        _ = self.is_symmetric, self.stores_loop_N, [self.factors(how) for how in norms]

    def column_norms(self) -> np.ndarray:
        """Return the squared norms of the columns of the gcn operator, (N,) float64."""
        return _samplers.column_norms(self.indptr, self.indices, self.weights, *self.factors("gcn"))


def graph_arrays(graph: Graph | GraphArrays) -> GraphArrays:
    """Return the arrays of a graph; those that are given as such are returned."""
    return graph if isinstance(graph, GraphArrays) else GraphArrays(graph)


def _are_ones(data: np.ndarray) -> bool:
    return data.strides == (0,) and bool(data[0] == 1) or bool((data == 1).all())


def _as_weights(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data, np.float64 if data.dtype == np.float64 else np.float32)
