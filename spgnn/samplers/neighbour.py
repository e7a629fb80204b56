"""Samplers that start from a batch of training nodes: their neighbours, layer after layer.

Shapes: N nodes, L layers, n_l output rows of layer l: n_L targets, n_0 input rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UsageError, is_integer
from ..graph import Graph
from . import _samplers
from .graph_arrays import GraphArrays, graph_arrays
from .induced import DRAWS
from .registry import register
from .sample import Pattern, Sample
from .targets import Targets


class Neighbour:
    """Draws min(deg, fanout) neighbours without replacement of each row, layer after layer, from a batch of targets.

    Block l has shape (n_l, n_(l-1)); its rows are the first of its columns. Each layer draws for all of its rows again.
    scale_e = deg / drawn: a scaled sum over drawn neighbours estimates the sum over all. Draws ignore the weights of A;
    deg counts the nonzeros of a row, self-loops too.

    Args:   train_N        (N,) bool, the nodes that train; None: the labelled training nodes of the first split.
            fanout         of each layer, the first layer (input side) first, as DGL's NeighborSampler takes them; PyG's
                           NeighborLoader takes them the other way round. "25,10" or (25, 10): 10 neighbours of each
                           target, 25 of each of those. -1: all neighbours.
            batch          targets of a draw, each once per epoch, see `Targets`.
            class_balance  of an epoch's targets, see `Targets`.
    Raises: UsageError for values out of range; GraphError without training nodes.
    Source: GraphSAGE (Hamilton et al. 2017), Algorithm 2, without replacement.

    Takes 4 N bytes for each thread that draws.

    >>> sample = Neighbour(graph, train_N, fanout=(10, 5), batch=32).sample(seed=0, index=0)
    >>> len(sample.patterns), sample.patterns[-1].shape[0]  # a block per layer; the last one has the targets as rows
    (2, 32)
    """

    name, rescales = "neighbour", False
    _is_poisson = False

    def __init__(
        self,
        graph: Graph | GraphArrays,
        train_N: np.ndarray | None = None,
        *,
        fanout: str | Sequence[int] = (25, 10),
        batch: int = 512,
        class_balance: float = 0.0,
    ):
        self.graph, self.fanout = graph_arrays(graph), fanouts_of(fanout)
        self.n_blocks = len(self.fanout)
        self.targets = Targets(graph, train_N, batch, class_balance, self.graph)
        self.steps_per_epoch = self.targets.steps_per_epoch
        self._loop = _samplers.Blocks(self.graph.indptr, self.graph.indices, list(self.fanout), self._is_poisson)

    def sample(self, seed: int, index: int) -> Sample:
        """Return the blocks of batch number index."""
        node_m, blocks = self._loop.draw(self.targets.draw(seed, index), seed, DRAWS, index)
        return Sample(node_m, tuple(Pattern((n, m), *arrays) for n, m, *arrays in blocks))


class Labor(Neighbour):
    """Draws each neighbour t of a row s with r_t < fanout / deg(s); r_t is one uniform number per node and step.

    Rows with common neighbours so draw the same ones, and a batch has fewer input rows. A row has `fanout` neighbours in
    the mean; scale_e is 1 / P(e is drawn), so sums have the same expectation. Shapes and options are those of
    `Neighbour`.

    r_t is the same in all layers of a step, as in DGL's LaborSampler with layer_dependency=True. The sums of each layer
    are unbiased. A product of several layers is unbiased if no node occurs twice on a path between them.

    Source: LABOR-0 (Balin & Catalyurek, Layer-neighbor sampling, 2023), section 3.2.

    >>> Labor(graph, train_N, fanout=(10, 5), batch=32).sample(seed=0, index=0).patterns[-1].shape[0]
    32
    """

    name = "labor"
    _is_poisson = True


def fanouts_of(fanout: str | Sequence[int]) -> tuple[int, ...]:
    """Return fan-outs as integers.

    Raises: UsageError unless each is -1, for all neighbours, or 1 to 2^31 - 1.
    """
    expected = "expected neighbours of each layer, the first layer first, such as 25,10 (-1: all neighbours)"
    try:
        given = [int(part) for part in fanout.split(",")] if isinstance(fanout, str) else list(fanout)
    except (TypeError, ValueError):
        raise UsageError(f"fanout = {fanout!r}; {expected}") from None
    if not given or not all(is_integer(f) and (f == -1 or 0 < f < 2**31) for f in given):
        raise UsageError(f"fanout = {fanout!r}; {expected}")
    return tuple(int(f) for f in given)


for _kind in (Neighbour, Labor):
    register(_kind.name, _kind)
