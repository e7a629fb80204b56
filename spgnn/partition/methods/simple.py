"""Partitioners that need no search: contiguous blocks and a random permutation."""

from __future__ import annotations

import numpy as np

from ...graph import Graph
from ..metrics import row_work
from ..registry import partitioner


@partitioner("block")
def block(graph: Graph, k: int, *, seed: int, balance: float) -> np.ndarray:
    """Cut the rows into k contiguous blocks of equal work, sum of (nnz + 1); seed and balance are ignored.

    A block ends at the row where the work so far is nearest to its share; each has a row unless k > N.
    """
    n_nodes = graph.n_nodes
    if k >= n_nodes:
        return np.arange(n_nodes)
    work_so_far = np.concatenate([[0], np.cumsum(row_work(graph.A))])
    share = work_so_far[-1] * (np.arange(1, k) / k)
    cut = np.searchsorted(work_so_far, share)
    cut -= share - work_so_far[cut - 1] < work_so_far[cut] - share
    # At least one row per block: strictly rising cuts, with rows left for the later blocks.
    number = np.arange(1, k)
    cut = np.maximum.accumulate(np.maximum(cut, 1) - number) + number
    cut = np.minimum(cut, n_nodes - k + number)
    sizes_k = np.diff(np.concatenate([[0], cut, [n_nodes]]))
    return np.repeat(np.arange(k), sizes_k)


@partitioner("random")
def random(graph: Graph, k: int, *, seed: int, balance: float) -> np.ndarray:
    """Distribute the nodes in a seeded random order: part sizes differ by at most one."""
    owner_N = np.empty(graph.n_nodes, np.int64)
    owner_N[np.random.default_rng(seed).permutation(graph.n_nodes)] = np.arange(graph.n_nodes) % k
    return owner_N
