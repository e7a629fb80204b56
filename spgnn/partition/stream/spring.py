"""spring and spring+: clusters of an edge stream, merged by richest neighbour, then moves by passes over the stream.

Shapes: N nodes, E edges, k parts. Memory: while clustering 20 bytes per node and 8 per founded
cluster; afterwards 12 per node and 4 per nonempty cluster; while refining 32 per node.
Source: SDT-GNN, Algorithm 1; Hollocou et al. 2017. The balance is of nodes, as in the paper.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import PartitionError, UsageError, check_integer, is_number
from . import _stream
from .edge_passes import StreamPasses
from .registry import builtin

THRESHOLD = 0.1  # of the volume over k: from the published code, as the paper does not give it
FRACTION_SOFT, FRACTION_NOISE = 0.7, 0.8
SOFT_CAP = 1.6  # of N/k
NOISE, PRICE = 512, 205  # at first, and of a part of 2 N/k nodes, in 1/1024 of a node's edges


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
    owner_N, details, _ = _spring(passes, k, balance, threshold, degrees)
    return owner_N, details


@builtin("spring+")
def spring_plus(
    passes: StreamPasses, k: int, *, seed: int, balance: float, threshold: float = THRESHOLD, rounds: int = 12,
) -> tuple[np.ndarray, dict]:  # fmt: skip
    """Start from spring's parts, then pass over the stream `rounds` times; a node moves when its last edge was seen.

    It moves where most of its neighbours are, by a sketch of their parts. Full parts block more moves than local minima do:
    parts may have SOFT_CAP N/k nodes at first and balance N/k at last, fuller parts cost more, and choices are noisy at first.
    """
    check_integer("rounds", rounds, 0)
    owner_N, details, degrees_N = _spring(passes, k, balance, threshold, "exact", keep_degrees=True)
    refine = _stream.Refine(degrees_N, owner_N, k, seed)
    del degrees_N, owner_N
    moved = []
    for number in range(rounds):
        refine.begin(*round_limits(number, rounds, passes.n_nodes, k, balance))
        passes.run("refine", refine.add)
        moved.append(refine.moved)
    return refine.owners(node_cap(passes.n_nodes, k, balance)), details | {"moved": moved}


def node_cap(n_nodes: int, k: int, balance: float) -> int:
    """Return how many nodes a part may have: balance N/k, or ceil(N / k) if that is more."""
    return max(int(balance * n_nodes / k), -(-n_nodes // k))


def round_limits(number: int, rounds: int, n_nodes: int, k: int, balance: float) -> tuple[int, int, int]:
    """Return cap, noise and price of a round: cap and noise reach their final values before the last rounds."""
    done = number / (rounds - 1) if rounds > 1 else 1.0
    soft = balance + max(SOFT_CAP - balance, 0.0) * max(0.0, 1 - done / FRACTION_SOFT)
    return node_cap(n_nodes, k, soft), int(NOISE * max(0.0, 1 - done / FRACTION_NOISE)), PRICE


def _spring(passes: StreamPasses, k: int, balance: float, threshold: float, degrees, keep_degrees: bool = False):
    if not is_number(threshold) or not threshold > 0:
        raise UsageError(f"threshold = {threshold!r}; expected a number above 0")
    threshold = float(threshold)
    if isinstance(degrees, str) and degrees == "online":
        if passes.stream.head is not None:
            passes.degrees()  # N, as the header may declare more nodes
        elif passes.n_edges is None:
            passes.run("count")
        n_known = -1 if passes.n_nodes is None else passes.n_nodes
        # Self-loops are included: excluding them would take another pass.
        clusters = _stream.Spring(None, threshold * 2 * passes.n_edges / k, n_known, passes.most_nodes)
        degrees_N = None
    else:
        degrees_N = _degrees(passes, degrees)
        volume = int(degrees_N.sum(dtype=np.int64))
        clusters = _stream.Spring(degrees_N, threshold * volume / k)
        degrees_N = degrees_N if keep_degrees else None
    passes.run("clusters", clusters.add)
    owner_N = clusters.partition(k, balance)
    passes.learn_nodes(len(owner_N))
    before, after = clusters.sizes()
    return owner_N, {"clusters": before, "merged_clusters": after}, degrees_N


def _degrees(passes: StreamPasses, degrees) -> np.ndarray:
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
