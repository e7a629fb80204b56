"""Maker: from a sampler's draws to subgraphs that a model computes on.

Shapes: N nodes and E nonzeros of the graph; m nodes of a subgraph, t targets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from ..config.names import Norm
from ..errors import ShapeError, UsageError
from ..graph import Graph
from .graph_arrays import GraphArrays, graph_arrays
from .normalise import Coefficients
from .operators import check_norms, operators
from .sample import NormedBlock, Sample, Sampler, Subgraph


class Maker:
    """Makes subgraphs: draws a sample, and computes operators, targets and their weights in the loss.

    Args:   train_N       (N,) bool, nodes whose loss counts: training nodes with a label.
            norms         normalisations that the model's layers name.
            dtype         float32 or float64, of the operators.
            coefficients  how often nodes and nonzeros are drawn, see `presample`; None: the mean over the targets and
                          sums over what was drawn.
    Raises: ShapeError if train_N is no mask of the nodes; UsageError for names that are not known, and for coefficients
            of a sampler that does not rescale.

    Operators of blocks, and those whose aggregation is normalised by alpha, divide by sums of the whole graph; others
    by sums of the subgraph. Thread-safe: several threads may draw at once.
    """

    def __init__(
        self, sampler: Sampler, graph: Graph | GraphArrays, train_N: np.ndarray, norms: Iterable[Norm],
        dtype: DTypeLike = np.float32, coefficients: Coefficients | None = None,
    ):  # fmt: skip
        self.sampler, self.graph = sampler, graph_arrays(graph)
        self.train_N = np.asarray(train_N)
        if self.train_N.dtype != bool or self.train_N.shape != (self.graph.N,):
            raise ShapeError(
                f"train_N is {self.train_N.dtype} of shape {self.train_N.shape}; expected bool ({self.graph.N},)"
            )
        self.norms, self.dtype = tuple(norms), np.dtype(dtype)
        check_norms(self.norms, self.dtype)
        if coefficients is not None and not sampler.rescales:
            raise UsageError(
                f"sampler {sampler.name!r} is not normalised by how often it draws; use coefficients = None"
            )
        self.coefficients = coefficients
        self.alpha_E = None if coefficients is None else coefficients.alpha_E
        self.is_full = sampler.n_blocks > 0 or self.alpha_E is not None
        self.graph.prepare(self.norms if self.is_full else ())  # not by each thread
        if not self.is_full:
            self.graph.check_weights(self.norms)
        self._last: tuple[tuple, tuple] = ((), ())  # blocks of a sampler that returns the same patterns again

    def draw(self, seed: int, index: int) -> Subgraph:
        """Return subgraph number index, a function of the sampler, the graph, seed and index alone."""
        start = time.thread_time()
        sample = self.sampler.sample(seed, index)
        blocks = self._blocks(sample)
        target_t, weight_t = self._targets(sample)
        shapes = tuple(pattern.shape for pattern in sample.patterns)
        return Subgraph(index, sample.node_m, shapes, blocks, target_t, weight_t, time.thread_time() - start)

    def _blocks(self, sample: Sample) -> tuple[Mapping[Norm, NormedBlock], ...]:
        patterns, blocks = self._last
        if patterns is sample.patterns:
            return blocks
        of_pattern = lambda pattern: operators(
            self.graph, sample.node_m[: pattern.shape[1]], pattern, self.norms, self.dtype, self.alpha_E, self.is_full
        )
        blocks = tuple(map(of_pattern, sample.patterns))
        self._last = (sample.patterns, blocks)
        return blocks

    def _targets(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the last output whose loss counts, and their weights, which estimate the mean loss."""
        n = sample.patterns[-1].shape[0]
        target_t = np.flatnonzero(self.train_N[sample.node_m[:n]])
        if self.coefficients is not None and self.coefficients.lambda_N is not None:
            weight_t = 1 / self.coefficients.lambda_N[sample.node_m[target_t]]
        else:
            weight_t = np.full(len(target_t), 1 / max(len(target_t), 1))
        return target_t, weight_t
