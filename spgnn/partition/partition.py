"""Partition: who owns which node, and the order in which each part's rows are contiguous.

Shapes: N nodes, k parts. "Old" is the graph's own order, "new" the order by part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from ..errors import PartitionError
from ..graph import Graph
from .checks import check_k, check_length, check_owner, count_parts
from .metrics import metrics_of_blocks, nnz_kk, rows_in_order, rows_PP

Table = TypeVar("Table")


@dataclass(frozen=True, eq=False)
class Partition:
    """owner_N[v] is the part of node v; made by part_graph, partition_of or load_partition.

    Args:
        owner_N:       (N,) int32, 0 to k-1, in the graph's own order.
        k:             number of parts.
        method, seed, balance, seconds:  how it was made, and the time that took.
        metrics:       of `metrics`, for the scheme columns; empty if made without a graph.
        graph_digest, graph_name, edges:  of the graph it was made for; "" if made without one.
    Raises: PartitionError naming the node that is wrong.
    """

    owner_N: np.ndarray
    k: int
    method: str = "given"
    seed: int = 0
    metrics: dict = field(default_factory=dict)
    graph_digest: str = ""
    balance: float = 1.03
    seconds: float = 0.0
    graph_name: str = ""
    edges: str = ""

    def __post_init__(self):
        owner_N = check_owner(self.owner_N, None, self.k, f"partition {self.method!r}")
        if owner_N.flags.writeable:  # whoever has the array may change it
            owner_N = owner_N.copy()
            owner_N.flags.writeable = False
        object.__setattr__(self, "owner_N", owner_N)
        object.__setattr__(self, "k", check_k(self.k))

    def __repr__(self) -> str:
        of = f" of {self.graph_name}" if self.graph_name else ""
        sent = f", {self.metrics['total_rows']:,} rows sent" if "total_rows" in self.metrics else ""
        return f"Partition({self.method}, k = {self.k}{of}: {self.n_nodes:,} nodes{sent})"

    @property
    def n_nodes(self) -> int:
        return len(self.owner_N)

    @cached_property
    def sizes_k(self) -> np.ndarray:
        """Nodes of each part, (k,) int64."""
        return np.bincount(self.owner_N, minlength=self.k).astype(np.int64)

    @cached_property
    def order_N(self) -> np.ndarray:
        """new -> old, (N,) int64: the nodes of part 0 by rising id, then those of part 1, ..."""
        return rows_in_order(self.owner_N)

    @cached_property
    def rank_N(self) -> np.ndarray:
        """old -> new, (N,) int64: the inverse of order_N."""
        rank_N = np.empty(self.n_nodes, np.int64)
        rank_N[self.order_N] = np.arange(self.n_nodes)
        return rank_N

    @cached_property
    def _tables(self) -> dict[Callable, tuple]:
        return {}

    def table(self, of: Callable[..., Table], A: sp.csr_array) -> Table:
        """Return of(A, owner_N, k), made once for a matrix: a plan asks for it in each of its lines."""
        matrix, found = self._tables.get(of, (None, None))
        if matrix is not A:
            found = of(A, self.owner_N, self.k)
            self._tables[of] = A, found
        return found

    def measured(self, A: sp.csr_array) -> dict:
        """Return the metrics of this partition of A, see `metrics_of_blocks`."""
        return metrics_of_blocks(self.table(rows_PP, A), self.table(nnz_kk, A), self.sizes_k)

    def own(self, rank: int) -> np.ndarray:
        """Return the nodes of a part, (n,) int64, rising."""
        end = int(self.sizes_k[: rank + 1].sum())
        return self.order_N[end - int(self.sizes_k[rank]) : end]

    def dealt(self, R: int) -> Partition:
        """Return the partition into R parts, part p being in part p mod R; metrics are computed when they are needed.

        Raises: PartitionError for more than k parts.
        """
        if R == self.k:
            return self
        if R > self.k:
            raise PartitionError(f"the partition has k = {self.k} parts; expected {R} or more to give each of {R} one")
        return replace(self, owner_N=self.owner_N % np.int32(R), k=R, metrics={}, seconds=0.0)

    def check_graph(self, graph: Graph) -> None:
        """Raise PartitionError unless this partition was made for graph, by size and digest."""
        self.check_length(graph)
        graph = graph.in_use()
        digest = graph.digest() if self.graph_digest else ""
        if digest != self.graph_digest:
            raise PartitionError(
                f"the partition was made for a graph with digest {self.graph_digest[:12]}, {graph.name} with "
                f"{graph.edges} edges has {digest[:12]}; was this partition made for another graph, or with other --edges?"
            )

    def describe(self, graph: Graph) -> dict:
        """Return what `spgnn partition` reports: k, n, nnz, method, the metrics, seconds."""
        graph = graph.in_use()
        head = {"k": self.k, "n": graph.n_nodes, "nnz": graph.nnz, "method": self.method}
        return head | (self.metrics or self.measured(graph.A)) | {"seconds": self.seconds}

    def check_length(self, graph: Graph) -> None:
        """Raise PartitionError unless graph has as many nodes as this partition."""
        if self.n_nodes != graph.n_nodes:
            raise PartitionError(
                f"owner has {self.n_nodes} entries, {graph.name} has {graph.n_nodes} nodes; "
                f"was this partition made for another graph?"
            )


def partition_of(
    graph: Graph, owner_N, k: int | None = None, method: str = "given", seed: int = 0,
    balance: float = 1.03, seconds: float = 0.0,
) -> Partition:  # fmt: skip
    """Return the Partition of an owner array, checked, with metrics computed from the graph.

    Args:   owner_N (N,) integers 0 to k-1; k, or 1 + the largest owner.
    Raises: PartitionError naming method, node, got and expected.
    """
    graph = graph.in_use()
    owner_N = check_length(owner_N, graph.n_nodes, f"partition {method!r}")
    k = count_parts(owner_N) if k is None else k
    part = Partition(owner_N, k, method, seed, {}, graph.digest(), balance, seconds)
    part.metrics.update(part.measured(graph.A))
    return part
