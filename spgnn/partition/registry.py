"""part_graph and the partitioners by name; a user's own stands beside the built-in ones."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ..errors import PartitionError, SpgnnError, UsageError, nearest
from ..graph import Graph, check_is_graph
from .checks import check_balance, check_k, check_keywords, check_seed
from .partition import Partition, partition_of

PARTITIONERS: dict[str, Callable[..., np.ndarray]] = {}
_OWN = __name__.rpartition(".")[0]


def partitioner(name: str) -> Callable:
    """Register f(graph, k, *, seed, balance, **options) -> owner_N under a name that part_graph knows.

        @partitioner("odd_even")
        def odd_even(graph, k, *, seed, balance):
            return np.arange(graph.n_nodes) % k

    What it returns goes through the gate like any other. A name can be registered again, except a
    built-in one.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a partitioner's name must be a string, got {name!r}; write @partitioner('name')")

    def register(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        if name in PARTITIONERS and PARTITIONERS[name].__module__.startswith(_OWN):
            raise UsageError(f"partitioner {name!r} is built in; choose another name")
        if is_streaming(PARTITIONERS.get(name)) and not is_streaming(f):
            raise UsageError(
                f"partitioner {name!r} is a streaming one of your own; choose another name, or register it by streaming_partitioner again"
            )
        PARTITIONERS[name] = f
        return f

    return register


def is_streaming(f: Callable | None) -> bool:
    """Whether a partitioner is one of streams too, which part_stream knows by the same name."""
    return hasattr(f, "of_stream")


def part_graph(
    graph: Graph, k: int, method: str = "metis", seed: int = 0, balance: float = 1.03, **options
) -> Partition:
    """Choose who owns which node: a Partition of graph into k parts, checked and measured.

    Args:   graph    with its reverse edges, unless with_edges chose otherwise.
            method   metis, volume, entropy, block, random, a streaming one (spring, spring+, dbh, greedy, hdrf, 2psl), or one of your own.
            balance  1 or more: of metis and volume the largest work of a part, sum of (nnz of the row + 1), over the mean;
                     of spring, spring+ and entropy its nodes; block, random and the vertex cuts ignore it.
            options  of the method, such as objective="vol" of metis.
    Raises: UsageError for an unknown method or option, and for what is no Graph; PartitionError where the result does not fit.
    """
    k = check_k(k)
    if method not in PARTITIONERS:
        raise UsageError(f"partitioner {method!r} is not known{nearest(method, PARTITIONERS)}")
    seed, balance = check_seed(seed), check_balance(balance)
    f = PARTITIONERS[method]
    check_keywords(method, f, options)
    check_is_graph(graph)
    graph = graph.in_use()
    start = time.perf_counter()
    try:
        owner_N = f(graph, k, seed=seed, balance=balance, **options)
    except (SpgnnError, MemoryError):
        raise
    except Exception as error:
        raise PartitionError(f"partitioner {method!r} failed with {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - start
    return partition_of(graph, owner_N, k, method=method, seed=seed, balance=balance, seconds=seconds)
