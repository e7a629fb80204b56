"""How often a sampler draws each node and each nonzero, and what losses and sums are divided by for it.

Shapes: N nodes, E nonzeros.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..errors import UsageError, check_choice, check_integer, is_number
from ..graph import Graph
from . import _samplers
from .graph_arrays import GraphArrays, graph_arrays
from .pool import in_order
from .sample import Sampler

Normalise = Literal["both", "loss", "aggregator", "none"]
PRESAMPLE = 0x70726573616D706C  # the stream of a seed from which the counted subgraphs are drawn


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """What the loss and the sums of a subgraph are divided by, so that both estimate the loss and sums of the whole graph.

    lambda_N       (N,) float64, N_train P(node is drawn); None: the loss is the mean over the targets.
    alpha_E        (E,) float32, P(nonzero is drawn | its row is drawn); None: sums are not normalised.
    subgraphs      R, those that were counted; 0: the coefficients were not counted.
    mean_nodes     of a subgraph; mean_targets, of them nodes whose loss counts.
    unseen_nodes   share of the nodes, and unseen_edges of the nonzeros, that were never drawn and count as drawn once.

    Source: GraphSAINT (Zeng et al. 2020), section 3.2; its published code divides the loss by N_train once more.
    """

    lambda_N: np.ndarray | None
    alpha_E: np.ndarray | None
    subgraphs: int = 0
    mean_nodes: float = 0.0
    mean_targets: float = 0.0
    unseen_nodes: float = 0.0
    unseen_edges: float = 0.0


def presample(
    sampler: Sampler, graph: Graph | GraphArrays, train_N: np.ndarray, seed: int, coverage: float = 50.0,
    threads: int = 1, normalise: Normalise = "both",
) -> Coefficients:  # fmt: skip
    """alpha_e = C_e / C_v of the row v of e, lambda_v = N_train C_v / R: count nodes and nonzeros in R subgraphs.

    R is the smallest number of subgraphs with sum |V_s| >= coverage * N; an empty one counts as one node. They are
    drawn from a stream of the seed that training does not use, and none is kept. The result does not depend on threads.

    Args:   train_N    (N,) bool, nodes whose loss counts.
            normalise  both, loss (lambda), aggregator (alpha), or none, which counts nothing but sizes.
    Raises: UsageError for numbers out of range, and for a sampler that does not rescale.
    """
    if not (is_number(coverage) and 0 < coverage < float("inf")):
        raise UsageError(f"coverage = {coverage!r}; expected a number above 0")
    check_integer("threads", threads, 1)
    check_integer("seed", seed, 0)
    check_choice("normalise", normalise, get_args(Normalise))
    if normalise != "none" and not sampler.rescales:
        raise UsageError(f"normalise = {normalise!r} with sampler {sampler.name!r}; it takes normalise = 'none' alone")
    arrays = graph_arrays(graph)
    count_N, count_E = np.zeros(arrays.N, np.uint32), np.zeros(arrays.E, np.uint32)
    counts_edges = normalise in ("both", "aggregator")
    seed = _samplers.hash3(seed, PRESAMPLE, 0)
    R = covered = nodes = targets = 0
    samples = in_order(lambda index: sampler.sample(seed, index), itertools.count(), threads)
    try:
        while covered < coverage * arrays.N:
            sample = next(samples)
            R, covered = R + 1, covered + max(len(sample.node_m), 1)
            nodes, targets = nodes + len(sample.node_m), targets + int(np.count_nonzero(train_N[sample.node_m]))
            if normalise != "none":
                np.add.at(count_N, sample.node_m, np.uint32(1))
            if counts_edges:
                np.add.at(count_E, sample.patterns[0].place_e, np.uint32(1))
    finally:
        samples.close()
    n_train = max(int(np.count_nonzero(train_N)), 1)
    has_loss = normalise in ("both", "loss")
    return Coefficients(
        n_train * np.maximum(count_N, 1) / max(R, 1) if has_loss else None,
        _samplers.alpha(arrays.indptr, count_N, count_E) if counts_edges else None,
        R,
        nodes / max(R, 1),
        targets / max(R, 1),
        _zeros(count_N) if normalise != "none" else 0.0,
        _zeros(count_E) if counts_edges else 0.0,
    )


def _zeros(counts: np.ndarray) -> float:
    """Return the share of counts that are 0."""
    return 1 - np.count_nonzero(counts) / len(counts) if len(counts) else 0.0
