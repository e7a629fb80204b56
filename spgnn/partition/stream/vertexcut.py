"""dbh, greedy, hdrf, 2psl: vertex cuts as training partitions, one replica of each node its target.

Each edge is assigned to a part, where its ends are replicated. One replica of each node, drawn by hash, is the target,
which owns it; full neighbour lists come from the graph, or from the passes of `halo`.
Source: CATGNN, section 3.2; the papers that vertexcut.h names. Memory per node: ceil(k / 64) words of 8 bytes, and 4 to 16 bytes.
"""

from __future__ import annotations

import numpy as np

from ...errors import UsageError
from . import _stream
from .edge_passes import StreamPasses
from .registry import builtin

CAPACITY = 1.05  # edges of a part of 2PS-L over |E| / k


@builtin("dbh")
def dbh(passes: StreamPasses, k: int, *, seed: int, balance: float) -> tuple[np.ndarray, dict]:
    """Put each edge where its end of lower degree hashes to; balance is ignored."""
    cut = _stream.DegreeHash(passes.degrees(), k, seed)
    passes.run("edges", cut.add)
    return _targets(cut, seed)


@builtin("greedy")
def greedy(passes: StreamPasses, k: int, *, seed: int, balance: float) -> tuple[np.ndarray, dict]:
    """Put each edge where its ends are, by PowerGraph's four rules; balance is ignored."""
    cut = _stream.Greedy(passes.degrees(), k)
    passes.run("edges", cut.add)
    return _targets(cut, seed)


@builtin("hdrf")
def hdrf(
    passes: StreamPasses, k: int, *, seed: int, balance: float, weight: float = 1.0, epsilon: float = 1.0
) -> tuple[np.ndarray, dict]:
    """Put each edge where g(u, p) + g(v, p) + weight (max - load) / (epsilon + max - min) is largest; balance is ignored.

    Args: weight  lambda of the paper.
    """
    if not (weight >= 0 and epsilon > 0):
        raise UsageError(f"weight = {weight!r}, epsilon = {epsilon!r}; expected 0 or more, and above 0")
    cut = _stream.Hdrf(passes.nodes(), k, weight, epsilon)
    passes.run("edges", cut.add)
    return _targets(cut, seed)


@builtin("2psl")
def two_phase(
    passes: StreamPasses, k: int, *, seed: int, balance: float, capacity: float = CAPACITY
) -> tuple[np.ndarray, dict]:
    """Cluster the stream, place clusters, then each edge in one of the two parts of its ends' clusters: 2PS-L.

    Args: capacity  edges of a part over |E| / k (alpha); balance, of nodes, is ignored.
    """
    if not capacity >= 1:
        raise UsageError(f"capacity = {capacity!r}; expected 1 or more")
    cut = _stream.TwoPhase(passes.degrees(), k, capacity, seed)
    passes.run("clusters", cut.cluster)
    cut.place_clusters()
    passes.run("inner edges", cut.add_inner)
    passes.run("other edges", cut.add_other)
    owner_N, details = _targets(cut, seed)
    return owner_N, details | {"clusters": cut.clusters}


def _targets(cut, seed: int) -> tuple[np.ndarray, dict]:
    return cut.owners(seed), {"cut_replicas": cut.replicas, "edges_k": cut.load}
