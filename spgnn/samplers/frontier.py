"""The frontier sampler: a walk of many dimensions, whose nodes move on in proportion to their degrees.

Shapes: N nodes, M nodes of the frontier, b popped and initial nodes.
"""

from __future__ import annotations

import numpy as np

from ..errors import UsageError, check_integer
from ..graph import Graph
from . import _samplers
from .graph_arrays import GraphArrays
from .induced import DRAWS, InducedSampler
from .registry import register


class Frontier(InducedSampler):
    """Starts from M distinct uniform nodes; budget - M times, one is popped with probability deg / sum of deg and
    replaced by a uniform neighbour. The subgraph is induced by the first M nodes and the popped ones.

    deg counts the nonzeros of a row, a self-loop too; weights have no influence on the draw. A node without neighbours
    that is in the first frontier stays in the subgraph and is never popped. A frontier whose nodes all have no
    neighbours ends the draw early.

    Args:   budget     b, nodes popped and of the first frontier; those that are drawn again count again.
            frontier   M.
    Raises: UsageError for a frontier above the nodes of the graph or the budget, and other values out of range.
    Source: GraphSAINT (Zeng et al. 2021), Algorithm 2. Algorithm 3 leaves out the first frontier and adds the new nodes
            instead of the popped ones, another distribution. Degree classes (classes.h) select the popped nodes instead
            of the Dashboard of section 4.2, which is in tests/samplers.
    """

    name = "frontier"

    def __init__(self, graph: Graph | GraphArrays, *, budget: int = 8000, frontier: int = 1000, clip: int = 0):
        super().__init__(graph, clip)
        check_integer("budget", budget, 1)
        check_integer("frontier", frontier, 1)
        if frontier > budget:
            raise UsageError(
                f"frontier = {frontier} with budget = {budget}; expected a budget of at least the frontier"
            )
        if frontier > self.graph.N:
            raise UsageError(f"frontier = {frontier}; {self.graph.name} has {self.graph.N} nodes; lower frontier")
        self._loop = _samplers.Frontier(self.graph.indptr, self.graph.indices, int(budget), int(frontier))

    def draw(self, seed: int, index: int) -> np.ndarray:
        """Return the first frontier and the popped nodes in their order, (at most budget,) int64."""
        return self._loop.draw(seed, DRAWS, index)

    def trace(self, seed: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return of draw number index the first frontier, (M,), and of each step the slot that it pops and its new node, (s,)."""
        return self._loop.trace(seed, DRAWS, index)


register(Frontier.name, Frontier)
