"""Samplers of nodes, whose subgraph is the one that they induce: node, edge, walk, frontier, cluster, the whole graph;
and those that start from a batch of training nodes: neighbour, labor.

Shapes: N nodes, E nonzeros; M nodes of a frontier, b popped and initial nodes; L layers, n_l output rows of layer l: n_L
targets, n_0 input rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import GraphError, UsageError, check_integer, is_integer
from ..graph import Graph
from ..partition import part_graph
from . import _samplers
from .graph_arrays import DRAWS, ORDER, GraphArrays, InducedSampler, graph_arrays
from .registry import register
from .sample import Pattern, Sample
from .targets import Targets

BUDGET = 8000  # draws of node and edge, nodes of walk and frontier
CLUSTER_NODES = 400  # mean nodes of a cluster where their number is not given


class Node(InducedSampler):
    """Draws nodes with replacement, P(v) proportional to the squared norm of column v of the gcn operator.

    Args:   budget  number of draws.
    Raises: UsageError for a budget below 1; GraphError for a graph whose operator is zero.
    Source: GraphSAINT (Zeng et al. 2020), section 3.4, random node sampler.

    >>> Node(graph, budget=100).draw(seed=0, index=0).shape
    (100,)
    """

    name = "node"

    def __init__(self, graph: Graph | GraphArrays, *, budget: int = BUDGET):
        super().__init__(graph)
        self.budget = check_integer("budget", budget, 1)
        norm_N = self.graph.column_norms()
        if not norm_N.sum() > 0:
            raise GraphError(f"{self.graph.name}: its gcn operator is zero; sampler node has nothing to draw by")
        self._table = _samplers.Alias(norm_N)

    def draw(self, seed: int, index: int) -> np.ndarray:
        return self._table.draw(seed, DRAWS, index, self.budget)


class Edge(InducedSampler):
    """Draws edges with replacement, P(u, v) proportional to 1 / deg u + 1 / deg v, and takes both ends.

    deg counts the nonzeros of a row, and of its column too if A is not symmetric. A draw takes a uniform node among
    those that are not isolated, then one of its nonzeros uniformly, so no table of the edges is needed.

    Args:   budget  number of draws.
    Raises: UsageError for a budget below 1; GraphError for a graph without edges.
    Source: GraphSAINT (Zeng et al. 2021), Algorithm 5, EDGE.

    >>> Edge(graph, budget=100).ends(seed=0, index=0).shape
    (2, 100)
    """

    name = "edge"

    def __init__(self, graph: Graph | GraphArrays, *, budget: int = BUDGET):
        super().__init__(graph)
        self.budget = check_integer("budget", budget, 1)
        arrays, degree_N = self.graph, np.diff(self.graph.indptr)
        if not arrays.E:
            raise GraphError(f"{arrays.name} has no edges; sampler edge has nothing to draw")
        self._columns = np.zeros(0, np.int64), np.zeros(0, np.int32)
        if not arrays.is_symmetric:
            self._columns = _samplers.transpose(arrays.indptr, arrays.indices, arrays.N, False)[:2]
            degree_N = degree_N + np.diff(self._columns[0])
        self._nodes = np.flatnonzero(degree_N)

    def ends(self, seed: int, index: int) -> np.ndarray:
        """Return the ends of the edges of draw number index, (2, budget) int64: row and column if A is not symmetric."""
        arrays = self.graph
        return _samplers.edges(
            arrays.indptr, arrays.indices, *self._columns, self._nodes, self.budget, seed, DRAWS, index
        )

    def draw(self, seed: int, index: int) -> np.ndarray:
        return self.ends(seed, index).reshape(-1)


class Walk(InducedSampler):
    """Draws budget / (walk + 1) roots uniformly, and walks a number of steps from each to uniform neighbours.

    A node without neighbours stays where it is.

    Args:   budget  nodes of all walks, duplicates counted.
            walk    steps of a walk.
    Raises: UsageError for a budget below walk + 1, or a negative walk; GraphError for a graph without nodes.
    Source: GraphSAINT (Zeng et al. 2021), Algorithm 5, RW.

    >>> Walk(graph, budget=90, walk=2).draw(seed=0, index=0).shape  # 30 walks of 3 nodes
    (3, 30)
    """

    name = "walk"

    def __init__(self, graph: Graph | GraphArrays, *, budget: int = BUDGET, walk: int = 2):
        super().__init__(graph)
        self.steps = check_integer("walk", walk, 0)
        budget = check_integer("budget", budget, 1)
        if budget <= self.steps:
            raise UsageError(f"budget = {budget}; walks of {walk} steps need {self.steps + 1} or more")
        if not self.graph.N:
            raise GraphError(f"{self.graph.name} has no nodes; sampler walk needs some")
        self.roots = budget // (self.steps + 1)

    def draw(self, seed: int, index: int) -> np.ndarray:
        """Return the nodes of walks, (steps + 1, roots) int64; row 0 has the roots."""
        return _samplers.walk(self.graph.indptr, self.graph.indices, self.roots, self.steps, seed, DRAWS, index)


class Frontier(InducedSampler):
    """Starts from M distinct uniform nodes; budget - M times, one is popped with probability deg / sum of deg and
    replaced by a uniform neighbour. The subgraph is induced by the first M nodes and the popped ones.

    deg counts the nonzeros of a row, a self-loop too; weights have no influence on the draw. A node without neighbours
    that is in the first frontier stays in the subgraph and is never popped. A frontier whose nodes all have no
    neighbours ends the draw early.

    Args:   budget     b, nodes popped and of the first frontier; those that are drawn again count again.
            frontier   M; None: an eighth of the budget, as in the paper, and at most all nodes.
    Raises: UsageError for a frontier above the nodes of the graph or the budget, and other values out of range.
    Source: GraphSAINT (Zeng et al. 2021), Algorithm 2. Algorithm 3 leaves out the first frontier and adds the new nodes
            instead of the popped ones, another distribution. Degree classes (frontier.cpp) select the popped nodes instead
            of the Dashboard of section 4.2.

    >>> Frontier(graph, budget=100, frontier=10).draw(seed=0, index=0).shape
    (100,)
    """

    name = "frontier"

    def __init__(self, graph: Graph | GraphArrays, *, budget: int = BUDGET, frontier: int | None = None):
        super().__init__(graph)
        budget = check_integer("budget", budget, 1)
        frontier = (
            min(max(1, budget // 8), self.graph.N) if frontier is None else check_integer("frontier", frontier, 1)
        )
        if frontier > budget:
            raise UsageError(
                f"frontier = {frontier} with budget = {budget}; expected a budget of at least the frontier"
            )
        if frontier > self.graph.N:
            raise UsageError(f"frontier = {frontier}; {self.graph.name} has {self.graph.N} nodes; lower frontier")
        self._loop = _samplers.Frontier(self.graph.indptr, self.graph.indices, budget, frontier)

    def draw(self, seed: int, index: int) -> np.ndarray:
        """Return the first frontier and the popped nodes in their order, (at most budget,) int64."""
        return self._loop.draw(seed, DRAWS, index)

    def trace(self, seed: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return of draw number index the first frontier, (M,), and of each step the slot that it pops and its new node, (s,)."""
        return self._loop.trace(seed, DRAWS, index)


class Cluster(InducedSampler):
    """Takes clusters of a METIS partition in a random order per epoch, each cluster once per epoch.

    Args:   clusters  number of parts; 0: one per 400 nodes. Parts without nodes are omitted.
            batch     parts in a subgraph; the last one of an epoch may have fewer.
            seed      of the partition.
    Raises: UsageError for numbers out of range; PartitionError if METIS fails.
    Source: Cluster-GCN (Chiang et al. 2019), Algorithm 1.

    >>> sampler = Cluster(graph, clusters=20, batch=4)
    >>> sampler.chosen(seed=0, index=0).shape, sampler.steps_per_epoch
    ((4,), 5)
    """

    name = "cluster"
    rescales = False

    def __init__(self, graph: Graph, *, clusters: int = 0, batch: int = 20, seed: int = 0):
        if not isinstance(graph, Graph):
            raise UsageError(f"sampler 'cluster' is given a {type(graph).__name__}; expected a Graph")
        super().__init__(graph)
        k = check_integer("clusters", clusters, 0) or max(1, round(graph.n_nodes / CLUSTER_NODES))
        self.batch = check_integer("batch", batch, 1)
        if not 0 < k <= max(1, graph.n_nodes):
            raise UsageError(f"clusters = {clusters}; the graph has {graph.n_nodes} nodes, expected at most as many")
        owner_N = part_graph(graph, k, "metis", seed=seed).owner_N if graph.n_nodes else np.zeros(0, np.int32)
        self._order_N = np.argsort(owner_N, kind="stable")
        sizes = np.bincount(owner_N, minlength=k)
        self._ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[sizes > 0])])
        self.clusters = len(self._ends) - 1
        self.steps_per_epoch = max(1, -(-self.clusters // self.batch))

    def chosen(self, seed: int, index: int) -> np.ndarray:
        """Return the numbers of the clusters of subgraph number index."""
        epoch, step = divmod(index, self.steps_per_epoch)
        return _samplers.permutation(seed, ORDER, epoch, self.clusters)[step * self.batch : (step + 1) * self.batch]

    def draw(self, seed: int, index: int) -> np.ndarray:
        parts = [self._order_N[self._ends[c] : self._ends[c + 1]] for c in self.chosen(seed, index)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class Whole:
    """The whole graph, the same at every index."""

    name, n_blocks, rescales = "none", 0, False

    def __init__(self, graph: Graph | GraphArrays):
        self.graph = graph_arrays(graph)
        N, E = self.graph.N, self.graph.E
        self._sample = Sample(np.arange(N), (Pattern((N, N), self.graph.indptr, self.graph.indices, np.arange(E)),))

    def sample(self, seed: int, index: int) -> Sample:
        return self._sample


for _kind in (Frontier, Node, Edge, Walk, Cluster, Whole):
    register(_kind.name, _kind)


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
