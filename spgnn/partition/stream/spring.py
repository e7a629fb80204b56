"""spring: clusters of an edge stream, merged by richest neighbour. spring+: levels of what can be held, block by block.

Shapes: N nodes, E edges, k parts. Memory of spring: while clustering 20 bytes per node and 8 per founded cluster;
afterwards 12 per node and 4 per nonempty cluster. Memory of spring+: held_bytes.
Sources: SDT-GNN, Algorithm 1; Hollocou et al. 2017; Meyerhenke, Sanders & Schulz 2014. The balance is of nodes, as in
SDT-GNN.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import PartitionError, UsageError, check_integer, is_number
from . import _stream
from .edge_passes import StreamPasses
from .registry import builtin

THRESHOLD = 0.1  # of the volume over k: from the published code, as the paper does not give it
HELD, NODE_BYTES = 40 << 20, 40  # bytes that spring+ may use, in all or per node
VERTEX_BYTES, ENTRY_BYTES, PAIR_BYTES, LEAST_PAIRS = 28, 12, 32, 1 << 16  # of a graph that is held and its levels
MOST_ENTRIES = 2**32 - 2  # their places have 32 bits
BLOCKS, BLOCK_BYTES, LEAST_ENTRIES = 8, 22, 1 << 16  # blocks of a round; bytes per node beside a block's neighbours
JOIN = (0.02, 0.07)  # of N/k: nodes of a cluster, round by round
SWEEPS, NOISE, MORE = 3, 90, 0.05  # of a block; 1/1024 of a node's edges and share of cap, both in the first round


@builtin("spring")
def spring(
    passes: StreamPasses,
    k: int,
    *,
    seed: int,
    balance: float,
    threshold: float = THRESHOLD,
    degrees: Literal["exact", "online"] | np.ndarray = "exact",
) -> tuple[np.ndarray, dict]:
    """Cluster the stream, merge clusters by richest neighbour, place the largest first: Algorithm 1; seed is ignored.

    Args: threshold  volume that a cluster may have, over the stream's total volume / k (tau_vol).
          degrees    exact: counted by a pass before; online: counted during clustering, as Hollocou et al. do, with d(n_v)
                     as it was when n_v became the richest neighbour; or (N,) integers.
    """
    threshold = _checked(threshold)
    if isinstance(degrees, str) and degrees == "online":
        clusters = _clusters_online(passes, k, threshold)
    else:
        clusters = _clusters(passes, _degrees(passes, degrees), k, threshold)
    owner_N = clusters.partition(k, balance)
    passes.learn_nodes(len(owner_N))
    before, after = clusters.sizes()
    return owner_N, {"clusters": before, "merged_clusters": after}


@builtin("spring+")
def spring_plus(passes: StreamPasses, k: int, *, seed: int, balance: float, rounds: int = 2) -> tuple[np.ndarray, dict]:
    """Hold the graph and part it in levels; a larger one in blocks of nodes, held with their neighbours in turn.

    A graph of few edges is held as it is, whatever the order of its stream, and needs no rounds. Of another each block
    takes a pass, in which its nodes join clusters. The clusters are held as a graph, with the pairs of most edges, and
    parted; then `rounds` times the nodes of each block move to most of their neighbours. A round has about BLOCKS
    blocks: if that is too few for all neighbours, nodes of many hold a sample. HELD bytes are used, or NODE_BYTES per
    node if that is more, whatever the number of edges is.
    """
    check_integer("rounds", rounds, 0)
    degrees_N = passes.degrees()
    n_nodes, entries = len(degrees_N), int(degrees_N.sum(dtype=np.int64))
    cap = node_cap(n_nodes, k, balance)
    held = _held(passes, degrees_N, entries)
    if held is not None:
        return held.partition(k, cap, seed, entries), {}
    room = (held_bytes(n_nodes) - BLOCK_BYTES * n_nodes) // 4
    blocks = _stream.Blocks(degrees_N, min(max(room, LEAST_ENTRIES), MOST_ENTRIES), BLOCKS, k, cap, seed)
    del degrees_N
    for share in JOIN:
        while blocks.next():
            passes.run("join", blocks.add)
            blocks.join(max(2, int(share * n_nodes / k)))
    number_N, count = blocks.clusters()
    clusters = _cluster_graph(passes, number_N, count)
    blocks.start(clusters.partition(k, cap, seed, entries), k)
    del clusters, number_N
    for left in range(rounds - 1, -1, -1):
        left /= max(rounds - 1, 1)
        while blocks.next():
            passes.run("move", blocks.add)
            blocks.move(SWEEPS, int(cap * (1 + MORE * left)), int(NOISE * left))
    return blocks.owners(), {"clusters": count}


def _cluster_graph(passes: StreamPasses, number_N: np.ndarray, count: int) -> _stream.ClusterGraph:
    """Return the graph of `count` clusters, with as many pairs of them as fit."""
    room = held_bytes(len(number_N)) - 8 * len(number_N) - VERTEX_BYTES * count
    graph = _stream.ClusterGraph(number_N, count, min(max(room // PAIR_BYTES, LEAST_PAIRS), MOST_ENTRIES // 2))
    passes.run("contract", graph.add)
    return graph


def _held(passes: StreamPasses, degrees_N: np.ndarray, entries: int) -> _stream.Held | None:
    """Return the graph of the stream, or None if it does not fit; copies of an edge take room until all are seen."""
    n_nodes = len(degrees_N)
    room = held_bytes(n_nodes)
    if 8 * n_nodes + 4 * entries > room or entries > MOST_ENTRIES:
        return None
    held = _stream.Held(degrees_N)
    passes.run("hold", held.add)
    return held if VERTEX_BYTES * n_nodes + ENTRY_BYTES * held.finish() <= room else None


def node_cap(n_nodes: int, k: int, balance: float) -> int:
    """Return how many nodes a part may have: balance N/k, or ceil(N / k) if that is more."""
    return max(int(balance * n_nodes / k), -(-n_nodes // k))


def held_bytes(n_nodes: int) -> int:
    """Return the bytes that spring+ may use."""
    return max(HELD, NODE_BYTES * n_nodes)


def _clusters(passes: StreamPasses, degrees_N: np.ndarray, k: int, threshold: float) -> _stream.Spring:
    clusters = _stream.Spring(degrees_N, threshold * int(degrees_N.sum(dtype=np.int64)) / k)
    passes.run("clusters", clusters.add)
    return clusters


def _clusters_online(passes: StreamPasses, k: int, threshold: float) -> _stream.Spring:
    if passes.stream.head is not None:
        passes.degrees()  # N, as the header may declare more nodes
    n_edges = passes.edges()
    n_known = -1 if passes.n_nodes is None else passes.n_nodes
    # Self-loops are included: excluding them would take another pass.
    clusters = _stream.Spring(None, threshold * 2 * n_edges / k, n_known, passes.most_nodes)
    passes.run("clusters", clusters.add)
    return clusters


def _checked(threshold: float) -> float:
    if not is_number(threshold) or not threshold > 0:
        raise UsageError(f"threshold = {threshold!r}; expected a number above 0")
    return float(threshold)


def _degrees(passes: StreamPasses, degrees: str | np.ndarray) -> np.ndarray:
    if isinstance(degrees, str):
        if degrees != "exact":
            raise UsageError(f"degrees = {degrees!r}; expected 'exact', 'online' or (N,) integers")
        return passes.degrees()
    given = np.asarray(degrees)
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given.size and (given.min() < 0 or given.max() >= 2**32)):
        raise PartitionError(f"degrees are {given.dtype} of shape {given.shape}; expected (N,) integers, 0 to 2^32 - 1")
    if passes.n_nodes is not None and len(given) != passes.n_nodes:
        raise PartitionError(f"degrees has {len(given)} entries, the stream has {passes.n_nodes} nodes")
    passes.learn_nodes(len(given))
    return np.ascontiguousarray(given, np.uint32)
