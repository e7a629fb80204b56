"""Subgraphs: the draws of a sampler on which a rank trains, ahead of their use; NodeRows: features and labels of their nodes.

Shapes: N nodes, n own rows, m input rows of a subgraph, t targets, F features, C classes.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from ...config import TrainConfig
from ...config.names import Norm
from ...dist.consistency import check_same
from ...distgraph import DistGraph
from ...distgraph.assemble import features
from ...errors import GraphError, UsageError, together
from ...graph import Graph, induced_graph, labelled
from ...layers.stack import block_hops, norms_of
from ...samplers import (
    Coefficients,
    GraphArrays,
    Maker,
    Sampler,
    SamplerPool,
    Subgraph,
    make_sampler,
    options_of,
    presample,
)
from ...spmm.kernels.buffers import Pool, sum_dtype
from ...spmm.operator.features import FeatureRows


class NodeRows:
    """Features and labels of all nodes of a graph, of which a subgraph reads some.

    Args: graph  the graph of dgraph; its features may be mapped from a file.
          y_N    labels in original order.
    node_N  original ids of the nodes from which subgraphs are drawn; None: all, by id.
    """

    def __init__(self, dgraph: DistGraph, graph: Graph, y_N: np.ndarray, node_N: np.ndarray | None):
        assert graph.X is not None  # a training needs features
        self.dgraph, self.X, self.y_N, self.node_N = dgraph, graph.X, y_N, node_N
        is_plain = graph.X.dtype.kind == "f" and dgraph.feature_norm == "none"
        self._rows = FeatureRows(graph.X, dgraph.A.dtype, dgraph.A.threads) if is_plain else None

    def original(self, node_m: np.ndarray) -> np.ndarray:
        """Return original ids of nodes of the graph that subgraphs are drawn from."""
        return node_m if self.node_N is None else self.node_N[node_m]

    def features(self, node_m: np.ndarray, pool: Pool):
        """Return the features of nodes, (m, F), as a layer reads them, in memory of a pool."""
        A, ids_m = self.dgraph.A, self.original(node_m)
        with A.ops.span("features"):
            if self._rows is not None:
                return self._rows.take(ids_m, pool)
            return features(self.X[ids_m], self.dgraph.feature_norm, pool, A.dtype, A.threads)

    def targets(self, subgraph: Subgraph) -> tuple[torch.Tensor, torch.Tensor]:
        """Return labels (n,), -1 but for targets, or (n, C), and the loss weights (n,) of the output rows."""
        n, rows_t = subgraph.shapes[-1][0], subgraph.target_t
        ids_n = self.original(subgraph.node_m[:n])
        dtype = sum_dtype(self.dgraph.A.dtype)
        weight_n = torch.zeros(n, dtype=dtype)
        weight_n[rows_t] = torch.from_numpy(subgraph.weight_t).to(dtype)
        if self.dgraph.task != "classes":
            return torch.from_numpy(self.y_N[ids_n]).to(dtype), weight_n
        y_n = np.full(n, -1, np.int64)
        y_n[rows_t] = self.y_N[ids_n[rows_t]]
        return torch.from_numpy(y_n), weight_n


TRIAL = 8  # draws that tell how many targets a subgraph has


class Subgraphs:
    """The subgraphs of one sampler, of which this rank draws those j = rank modulo P, ahead of `get`.

    Args:   split_n  (n,) of the own nodes of dgraph: 0 train, 1 val, 2 test, -1 none.
            graph    the graph of dgraph, as it is used, on every rank.
            sampler  None: the one that the options describe.
    nodes      features and labels; hops: of each layer, None for samplers without blocks.
    per_epoch  subgraphs that together have as many targets as there are training nodes.
    Raises: UsageError for options that do not fit; GraphError without a labelled training node. Collective.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        dgraph: DistGraph,
        config: TrainConfig,
        split_n: np.ndarray,
        graph: Graph,
        sampler: Sampler | None = None,
    ):
        self.dgraph, self.config, comm = dgraph, config, dgraph.comm
        comm.phase = "set up subgraphs"
        together(comm, _check_fits, graph, dgraph)
        check_same(comm, {"graph.structure": graph.digest()[:16]})
        assert dgraph.y_n is not None  # a training needs labels
        split_N, y_N = dgraph.collect(split_n), dgraph.collect(dgraph.y_n.numpy())
        self.nodes = NodeRows(dgraph, graph, y_N, np.flatnonzero(split_N == 0) if config.inductive else None)
        train_N = (split_N == 0) & labelled(y_N)
        if not train_N.any():
            raise GraphError(f"{dgraph.name}: no training node has a label; choose a --split that puts some into train")
        if config.inductive:
            graph, train_N = together(comm, induced_graph, graph, self.nodes.node_N), train_N[self.nodes.node_N]
        sampler = together(comm, self._sampler, graph, train_N, sampler)
        self.hops = together(comm, block_hops, model, sampler.n_blocks) if sampler.n_blocks else None
        self.norm = cast(Norm, dgraph.A.name)  # the operator of all rows has the name of its normalisation
        norms = list(dict.fromkeys(self.norm if how is None else how for how in norms_of(model)))
        coefficients = together(comm, self._presample, sampler, graph, train_N)
        self.maker = Maker(sampler, graph, train_N, norms, dgraph.A.A_oo.numpy_dtype, coefficients)
        self.per_epoch = together(comm, self._per_epoch, int(train_N.sum()))
        counted = coefficients and [coefficients.subgraphs, coefficients.mean_nodes]
        check_same(comm, {"option.sampler": f"{sampler.name}, {self.per_epoch} subgraphs per epoch, {counted}"})
        self._pool: SamplerPool | None = None
        self._next, self._taken_s = -1, (0.0, 0.0)

    @property
    def sampler(self) -> Sampler:
        """What draws the subgraphs."""
        return self.maker.sampler

    @property
    def coefficients(self) -> Coefficients | None:
        """How often nodes and nonzeros are drawn, None where nothing is normalised by it."""
        return self.maker.coefficients

    def begin(self, first: int, stop: int) -> None:
        """Have the threads draw from subgraph `first` on, unless they are there already; an epoch ends before `stop`."""
        P, rank = self.dgraph.comm.size, self.dgraph.comm.rank
        if self._pool is None or self._next != first:
            self.close()
            own = first + (rank - first) % P
            self._pool = SamplerPool(self.maker, self.config.seed, start=own, stride=P)
            self._taken_s = (0.0, 0.0)
        self._next = stop

    def get(self, index: int) -> Subgraph:
        """Return a subgraph of this rank; they are taken in order."""
        with self.dgraph.A.ops.span("wait for subgraph"):
            assert self._pool is not None  # begin comes first
            return self._pool.get(index)

    def end(self) -> tuple[float, float]:
        """Return seconds that draws took and that training waited for them, since the last call."""
        assert self._pool is not None
        before, self._taken_s = self._taken_s, (self._pool.sample_s, self._pool.sample_wait_s)
        return self._taken_s[0] - before[0], self._taken_s[1] - before[1]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @property
    def is_mean(self) -> bool:
        """Whether the loss of a subgraph is the mean over its targets."""
        return self.coefficients is None or self.coefficients.lambda_N is None

    def weight(self, subgraph: Subgraph) -> int:
        """Return the weight of a subgraph's loss: its targets where that is a mean over them, else 1."""
        return len(subgraph.target_t) if self.is_mean else 1

    def _sampler(self, graph: Graph, train_N: np.ndarray, sampler: Sampler | None) -> Sampler:
        config = self.config
        if sampler is None:
            return make_sampler(config.sampler, graph, options_of(config), train_N)
        if config.inductive:
            raise UsageError("inductive = True needs the name of a sampler, sampler='walk': it is made for other nodes")
        _check_own(sampler, graph, train_N)
        return sampler

    def _presample(self, sampler: Sampler, graph: Graph, train_N: np.ndarray) -> Coefficients | None:
        """Return how often nodes and nonzeros are drawn, None where nothing is normalised by it."""
        how = self.config.normalise
        if how == "auto":
            # Dividing sums too makes gradients of more variance, see docs/papers.md.
            how = "loss" if sampler.rescales else "none"
        if how == "none":
            return None
        if not sampler.rescales:
            raise UsageError(f"--normalise {how}: the draws of --sampler {sampler.name} need none; omit it")
        return presample(sampler, graph, train_N, self.config.seed, normalise=how)

    def _per_epoch(self, n_train: int) -> int:
        given = getattr(self.sampler, "steps_per_epoch", None)
        if given is not None:
            return given
        if self.coefficients is not None:
            targets = self.coefficients.mean_targets
        else:
            drawn = [self.maker.draw(self.config.seed, index) for index in range(TRIAL)]
            targets = np.mean([len(subgraph.target_t) for subgraph in drawn])
        if not targets:
            raise GraphError(f"subgraphs of {self.sampler.name} have no training node; raise --budget")
        return max(1, round(n_train / targets))


def _check_fits(graph: Graph, dgraph: DistGraph) -> None:
    """Raise unless graph may be the graph of dgraph."""
    if not isinstance(graph, Graph):
        raise UsageError(f"sampler: got a {type(graph).__name__} as graph; give the Graph that was distributed")
    sizes = (graph.n_nodes, graph.n_features), (dgraph.n_nodes, dgraph.n_features)
    if sizes[0] != sizes[1]:
        raise UsageError(
            f"the sampler's graph has {sizes[0][0]} nodes and {sizes[0][1]} features, the distributed one {sizes[1][0]} "
            f"and {sizes[1][1]}; give the same graph to both"
        )
    if graph.edges == "stored":
        raise UsageError("the sampler's graph has no choice of edges yet; make it of graph.in_use()")


def _check_own(sampler: Sampler, graph: Graph, train_N: np.ndarray) -> None:
    """Raise UsageError for a sampler that was made for another graph, or for other training nodes."""
    arrays, targets = getattr(sampler, "graph", None), getattr(sampler, "targets", None)
    if isinstance(arrays, GraphArrays) and arrays.origin is not graph and arrays.origin.digest() != graph.digest():
        raise UsageError(f"sampler {sampler.name!r} was made for another graph than the one that is trained on")
    if targets is not None and not np.array_equal(targets.node_T, np.flatnonzero(train_N)):
        raise UsageError(
            f"sampler {sampler.name!r} draws {len(targets.node_T):,} training nodes, the split that is trained on has "
            f"{train_N.sum():,}; give the sampler train_N, or name it: sampler={sampler.name!r}"
        )
