"""Hosts: which ranks share one, where no launcher says so, and parts that are cut for hosts first.

Shapes: P ranks, N nodes, k parts, H hosts of r = k / H parts each; part h r + i is on host h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from ..errors import UsageError
from ..graph import Graph
from .checks import check_owner
from .metrics import row_work


def host_of(ranks: int, hosts: int) -> np.ndarray:
    """Return the host of each of P ranks, (P,) int64: blocks of ceil(P / H) ranks, the last host with what is left.

    Raises: UsageError for fewer than one host.
    """
    if hosts < 1:
        raise UsageError(f"hosts = {hosts}; expected 1 or more")
    return np.arange(ranks) // max(-(-ranks // hosts), 1)


def equal_hosts(host_P: np.ndarray, k: int) -> int:
    """Return H if the ranks are in blocks of P / H on H hosts and H divides k; else 1: parts are cut as on one host."""
    hosts = int(host_P.max()) + 1
    is_equal = k % hosts == 0 and len(host_P) % hosts == 0 and np.array_equal(host_P, host_of(len(host_P), hosts))
    return hosts if is_equal else 1


def on_hosts(
    partition_by: Callable, graph: Graph, k: int, hosts: int, *, seed: int, balance: float, **options
) -> np.ndarray:
    """Return owner_N of parts cut for hosts first, then inside each host, by any partitioner.

    The work of a host and of a part is at most balance times their means where the partitioner holds its bound: it is
    given sqrt(balance) twice, and inside a host a row keeps its work in the whole graph.

    Raises: UsageError unless H divides k.
    """
    if hosts < 1 or k % hosts:
        raise UsageError(f"hosts = {hosts}; expected a divisor of k = {k}: each host has as many parts")
    owner_N = np.zeros(graph.n_nodes, np.int64)
    level = {"seed": seed, "balance": math.sqrt(balance)} | options
    host_N = check_owner(partition_by(graph, hosts, **level), graph.n_nodes, hosts, "hosts", fill_by=row_work(graph.A))
    for host in range(hosts):
        node_n = np.flatnonzero(host_N == host)
        if len(node_n):
            owner_N[node_n] = host * (k // hosts) + np.asarray(partition_by(within(graph, node_n), k // hosts, **level))
    return owner_N


def within(graph: Graph, node_n: np.ndarray) -> Graph:
    """Return the graph of some nodes, rising ids, in which each nonzero that leaves them is one of the diagonal.

    So rows keep their work, nnz + 1, and what they read of others costs nothing, wherever it is.
    """
    rows = sp.csr_array(graph.A[node_n])
    place_N = np.full(graph.n_nodes, -1, np.int64)
    place_N[node_n] = np.arange(len(node_n))
    columns = place_N[rows.indices]
    leaves = columns < 0
    columns[leaves] = np.repeat(np.arange(len(node_n)), np.diff(rows.indptr))[leaves]
    A = sp.csr_array((rows.data, columns.astype(rows.indices.dtype), rows.indptr), shape=(len(node_n),) * 2)
    A.sort_indices()
    X, y = None if graph.X is None else graph.X[node_n], None if graph.y is None else graph.y[node_n]
    attr_EF = np.empty((A.nnz, 0), np.float32)  # so a graph may have an edge twice
    graph = replace(graph, edge_y=None, edge_split=None, edge_classes=None)
    return replace(graph, A=A, X=X, y=y, split=None, ids=None, meta={}, edge_attr=attr_EF, edge_ids=None)
