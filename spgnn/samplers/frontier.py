"""The frontier sampler: a walk of many dimensions, whose nodes move on in proportion to their degrees.

Shapes: N nodes, M nodes of the frontier, b popped and initial nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..errors import UsageError, check_integer, is_number, nearest
from ..graph import Graph
from . import _samplers
from .graph_arrays import GraphArrays
from .induced import DRAWS, InducedSampler
from .registry import register

Structure = Literal["auto", "classes", "dashboard"]
STRUCTURES = get_args(Structure)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What a frontier draw did.

    start_M   (M,) the first frontier, a node for each slot.
    slot_s    (s,) the slot that each step popped; node_s the node that it put there.
    cleanups  of the Dashboard; capacity, its pins at the end. 0 with classes.
    """

    start_M: np.ndarray
    slot_s: np.ndarray
    node_s: np.ndarray
    cleanups: int
    capacity: int


class Frontier(InducedSampler):
    """Starts from M distinct uniform nodes; budget - M times, one is popped with probability deg / sum of deg and
    replaced by a uniform neighbour. The subgraph is induced by the first M nodes and the popped ones.

    deg counts the nonzeros of a row, a self-loop too; weights have no influence on the draw. A node without neighbours
    that is in the first frontier stays in the subgraph and is never popped. A frontier whose nodes all have no
    neighbours ends the draw early.

    Args:   budget     b, nodes popped and of the first frontier; those that are drawn again count again.
            frontier   M.
            eta        the Dashboard has eta times the pins of the first frontier.
            structure  that selects the popped nodes: "dashboard", of the paper, made exact for skewed degrees;
                       "classes", of degrees, with rejection. Both have the same distribution, but another sequence of
                       draws. "auto": classes, the faster one on every graph that was tried (runs/bench/sampling), and
                       not what is faster at the moment, so that a seed gives the same draws everywhere.
    Raises: UsageError for a frontier above the nodes of the graph or the budget, and other values out of range.
    Source: GraphSAINT (Zeng et al. 2021), Algorithm 2; Dashboard: section 4.2. Algorithm 3 leaves out the first
            frontier and adds the new nodes instead of the popped ones, another distribution.
    """

    name = "frontier"

    def __init__(
        self, graph: Graph | GraphArrays, *, budget: int = 8000, frontier: int = 1000, eta: float = 3.0,
        structure: Structure = "auto", clip: int = 0,
    ):  # fmt: skip
        super().__init__(graph, clip)
        check_integer("budget", budget, 1)
        check_integer("frontier", frontier, 1)
        if frontier > budget:
            raise UsageError(
                f"frontier = {frontier} with budget = {budget}; expected a budget of at least the frontier"
            )
        if frontier > self.graph.N:
            raise UsageError(f"frontier = {frontier}; {self.graph.name} has {self.graph.N} nodes; lower frontier")
        if not is_number(eta) or not 1 < eta <= 1000:
            raise UsageError(f"eta = {eta!r}; expected a number above 1, at most 1000")
        if structure not in STRUCTURES:
            raise UsageError(f"structure = {structure!r} is not known{nearest(str(structure), STRUCTURES)}")
        self.structure = "classes" if structure == "auto" else structure
        self._options = int(budget), int(frontier), float(eta), self.structure == "dashboard"
        self._loop = self._compiled(-1)

    def draw(self, seed: int, index: int) -> np.ndarray:
        """Return the first frontier and the popped nodes in their order, (at most budget,) int64."""
        return self._loop.draw(seed, DRAWS, index)

    def trace(self, seed: int, index: int, isa: int = -1) -> Trace:
        """Return the steps of draw number index.

        Args: isa  instruction set of the Dashboard's probes: 0 baseline, 1 AVX2, 2 AVX-512; -1: the best.
        """
        loop = self._loop if isa < 0 else self._compiled(isa)
        found = loop.trace(seed, DRAWS, index)
        return Trace(*(found[key] for key in ("start", "slot", "node", "cleanups", "capacity")))

    def _compiled(self, isa: int) -> _samplers.Frontier:
        indices = self.graph.indices.astype(np.int32, copy=False)
        return _samplers.Frontier(self.graph.indptr, indices, *self._options, isa)


register(Frontier.name, Frontier)
