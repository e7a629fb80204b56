"""part_stream: from an edge stream to who owns which node, and which copies each part needs.

Shapes: N nodes, E edges of the stream, k parts; q owns and sends, p reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import PartitionError, SpgnnError, UsageError, nearest
from ..checks import check_balance, check_hops, check_k, check_seed
from ..metrics import exchange_metrics
from . import _stream
from .edge_passes import Progress, StreamPasses
from .registry import STREAMING
from .sources import edge_stream

BALANCE = 1.05  # the paper's beta


@dataclass(frozen=True, slots=True, eq=False)
class StreamPartition:
    """Who owns which node of a stream, and how it was computed.

    Args:
        owner_N:    (N,) int32, 0 to k - 1; node v is id v, or ids_N[v] if the stream was relabelled.
        rows_PP:    (k, k) int64: nodes of q that p holds copies of, after `hops`; None if hops = 0.
        seconds:    of each pass by name; total_s: of everything.
        details:    from the method: sizes of clusters, replicas of the vertex cut, nodes moved in each round.
    """

    owner_N: np.ndarray
    k: int
    method: str
    n_edges: int
    seed: int = 0
    balance: float = BALANCE
    hops: int = 0
    rows_PP: np.ndarray | None = None
    ids_N: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    details: dict = field(default_factory=dict)

    def __repr__(self) -> str:
        copies = (
            f", hops = {self.hops}: replication factor {self.replication_factor:.3f}"
            if self.rows_PP is not None
            else ""
        )
        return f"StreamPartition({self.method}, k = {self.k}: {self.n_nodes:,} nodes, {self.n_edges:,} edges{copies})"

    @property
    def n_nodes(self) -> int:
        return len(self.owner_N)

    @property
    def sizes_k(self) -> np.ndarray:
        """Nodes of each part, (k,) int64."""
        return np.bincount(self.owner_N, minlength=self.k).astype(np.int64)

    @property
    def replication_factor(self) -> float:
        """(N + copies) / N: sum |V_i| / |V| of the papers, V_i with all neighbours of its own nodes."""
        if self.rows_PP is None:
            raise UsageError("the halo was not measured; use part_stream(..., hops=1)")
        return 1 + float(self.rows_PP.sum()) / self.n_nodes if self.n_nodes else 1.0

    def describe(self) -> dict:
        """Return the report: sizes, method, metrics, seconds."""
        sizes_k = self.sizes_k
        mean = sizes_k.mean()
        report: dict[str, Any] = {"k": self.k, "n": self.n_nodes, "edges": self.n_edges, "method": self.method}
        report["node_imbalance"] = float(sizes_k.max() / mean) if mean else 1.0
        if self.rows_PP is not None:
            report |= exchange_metrics(self.rows_PP)
            report |= {"replication_factor": self.replication_factor, "hops": self.hops}
        for key in ("clusters", "merged_clusters"):
            if key in self.details:
                report[key] = int(np.size(self.details[key])) if np.ndim(self.details[key]) else int(self.details[key])
        return report | {"seconds": self.total_s}


def part_stream(
    source, k: int, method: str = "spring", seed: int = 0, balance: float = BALANCE, *, hops: int = 0,
    progress: Progress = None, **options,
) -> StreamPartition:  # fmt: skip
    """Choose who owns which node of an edge stream in O(N) memory, whatever E is.

    Args:   source   see edge_stream; each edge once or in both directions, in any order. Duplicates count, self-loops do
                     not; a node without an edge gets a part too.
            method   a name in STREAMING: spring, spring+, dbh, greedy, hdrf, 2psl, or a registered one.
            balance  largest number of nodes of a part over N/k, for methods that bound it.
            hops     h: h more passes that count the copies needed by full neighbour lists within h hops.
            options  of the stream: n_nodes and format, see edge_stream; relabel=True: ids are any integers from 0, with
                     gaps, and the distinct ones are numbered, see StreamPartition.ids_N. Others are the method's.
    Raises: UsageError for an unknown method or option; InputError for a bad id; PartitionError if the stream changes
            between passes, or the result of a plug-in is invalid.
    """
    k = check_k(k)
    n_nodes, format, relabel = (options.pop(name, None) for name in ("n_nodes", "format", "relabel"))
    check_options(method, seed, balance, hops, options)
    passes = StreamPasses(edge_stream(source, n_nodes, format), bool(relabel), progress)
    start = time.perf_counter()
    owner_N, details = choose_owners(passes, k, method, seed, balance, options)
    rows_PP = halo(passes, owner_N, k, hops) if hops else None
    total_s = time.perf_counter() - start
    return StreamPartition(
        owner_N, k, method, passes.edges(), int(seed), float(balance), hops, rows_PP, passes.ids_N, passes.seconds,
        total_s, details,
    )  # fmt: skip


def choose_owners(
    passes: StreamPasses, k: int, method: str, seed: int, balance: float, options: Mapping[str, Any]
) -> tuple[np.ndarray, dict]:
    """Return the checked owner_N of a method, and its details."""
    try:
        return STREAMING[method].of_stream(passes, k, seed=int(seed), balance=float(balance), **options)
    except (SpgnnError, MemoryError):
        raise
    except Exception as error:
        raise PartitionError(f"partitioner {method!r} failed with {type(error).__name__}: {error}") from error


def halo(passes: StreamPasses, owner_N: np.ndarray, k: int, hops: int = 1) -> np.ndarray:
    """Count the copies that full neighbour lists need: [q, p] nodes of q within hops edges of a node of p; (k, k) int64.

    hops = 1 is rows_PP of the graph with its reverse edges. Memory per node: ceil(k / 64) words of 8 bytes, twice that
    for more hops.
    """
    parts = _stream.Halo(owner_N, k)
    for hop in range(hops):
        parts.next_hop()
        passes.run(f"halo {hop + 1}", parts.add)
    return parts.rows()


def check_options(method: str, seed: int, balance: float, hops: int, options: Mapping[str, Any]) -> None:
    """Raise UsageError for a method, number or option that part_stream does not know."""
    if method not in STREAMING:
        raise UsageError(f"streaming partitioner {method!r} is not known{nearest(method, STREAMING)}")
    check_seed(seed)
    check_balance(balance)
    check_hops(hops)
    STREAMING[method].check_options(options)
