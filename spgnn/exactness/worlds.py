"""Partitions and changed graphs on which a model is compared with itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import GraphError, UsageError
from ..graph import Graph
from .watched import World


def random_world(n_nodes: int, ranks: int, replication: int, seed: int) -> World:
    """Return ranks with random parts of unequal sizes. Raises: UsageError for more ranks than nodes."""
    parts = ranks // replication
    if parts > n_nodes:
        raise UsageError(f"ranks = {ranks}: the graph has {n_nodes} nodes; take fewer ranks")
    rng = np.random.default_rng((seed, ranks, replication))
    owner_N = rng.choice(parts, n_nodes, p=np.arange(1, parts + 1) / (parts * (parts + 1) / 2)).astype(np.int32)
    owner_N[rng.permutation(n_nodes)[:parts]] = np.arange(parts)
    return World(ranks, owner_N, replication)


def halves(n_nodes: int, is_swapped: bool) -> World:
    """Return two ranks: the first third of the nodes and the rest; swapped: the rest and the first third."""
    first = np.arange(n_nodes) < max(n_nodes // 3, 1)
    return World(2, np.where(first, int(is_swapped), int(not is_swapped)).astype(np.int32))


def without(graph: Graph, dropped_E: np.ndarray, **changes: Any) -> Graph:
    """Return the graph without some of its nonzeros."""
    kept_E = ~dropped_E
    A = sp.csr_array(graph.A)
    indptr = np.concatenate([[0], np.cumsum(kept_E)])[A.indptr].astype(A.indptr.dtype)
    A = sp.csr_array((A.data[kept_E], A.indices[kept_E], indptr), shape=A.shape)
    rows = {name: getattr(graph, name, None) for name in ("edge_attr", "edge_ids")}
    return replace(graph, A=A, **{name: of[kept_E] for name, of in rows.items() if of is not None}, **changes)


def rows_of(graph: Graph) -> np.ndarray:
    """Return the row of each nonzero."""
    return np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))


def apart(graph: Graph, owner_N: np.ndarray) -> Graph:
    """Return the graph without edges between parts."""
    return without(graph, owner_N[rows_of(graph)] != owner_N[graph.A.indices])


def both_ways(graph: Graph) -> Graph | None:
    """Return the graph whose edges all have both directions; None where they have, or the two have different weights."""
    try:
        return None if graph.is_symmetric else replace(graph, edges="stored").with_edges("both")
    except GraphError:
        return None


def one_way(graph: Graph, seed: int) -> Graph:
    """Return a symmetric graph in which a third of the edges have each of the two directions, and a third both."""
    rows, columns = rows_of(graph).astype(np.int64), graph.A.indices.astype(np.int64)
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    draws_N = np.random.default_rng(seed).integers(0, 3, graph.n_nodes)
    kind_E = (draws_N[low] + draws_N[high]) % 3  # the same for both directions
    dropped_E = ((kind_E == 0) & (rows < columns)) | ((kind_E == 1) & (rows > columns))
    return without(graph, dropped_E, edges="directed")
