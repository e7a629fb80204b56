"""The subgraph that nodes induce, and the samplers that draw nodes.

Shapes: N nodes of the graph, m drawn ones, e nonzeros between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..graph import Graph
from . import _samplers
from .graph_arrays import GraphArrays, graph_arrays
from .sample import Pattern, Sample

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
