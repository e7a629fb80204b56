"""part_graph, and the partitioners by name: the built-in ones and those of users."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from ..config.fields import Registry, check_known, keyword_options
from ..config.names import PARTITIONERS as BUILT_IN
from ..errors import PartitionError, SpgnnError, UsageError, is_number
from ..graph import Graph, check_is_graph
from .checks import check_balance, check_k, check_scheme, check_seed
from .hosts import on_hosts
from .partition import Partition, partition_of


@dataclass(frozen=True, eq=False)
class Method:
    """A partitioner by its name: method(graph, k, seed=, balance=, **options) -> owner_N.

    Args:
        f            the function that does it.
        options      its options, name -> default; takes_any: it takes others too.
        by_scheme    {scheme: options with which it minimises the rows that the scheme sends}.
    """

    name: str
    f: Callable[..., Any]
    options: Mapping[str, Any]
    takes_any: bool = False
    by_scheme: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reads_streams: ClassVar[bool] = False

    def __call__(self, graph: Graph, k: int, *, seed: int, balance: float, **options) -> np.ndarray:
        return self.f(graph, k, seed=seed, balance=balance, **options)

    @classmethod
    def of(cls, name: str, f: Callable, options_of: Callable | None = None, **fields) -> Self:
        """Return the method of a function, its options read from the keywords of options_of, by default of f."""
        f_options = options_of or f
        options = {key: value for key, value in keyword_options(f_options).items() if key not in ("seed", "balance")}
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(f_options).parameters.values())
        return cls(name, f, options, takes_any, **fields)

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Raise UsageError for an option that it does not have, or no finite number where its default is a number."""
        if not self.takes_any:
            check_known(f"partitioner {self.name!r}", given, self.options)
        for option, value in given.items():
            default = self.options.get(option)
            if isinstance(default, (int, float)) and not isinstance(default, bool):
                if not is_number(value) or not math.isfinite(value):
                    raise UsageError(f"{self.name}: {option} = {value!r}; expected a number")


PARTITIONERS: Registry[Method] = Registry("partitioner", BUILT_IN, "@spgnn.partitioner('mine')")


def partitioner(
    name: str, by_scheme: Mapping[str, Mapping[str, Any]] | None = None, options_of: Callable | None = None
) -> Callable:
    """Register f(graph, k, *, seed, balance, **options) -> owner_N under a name that part_graph knows.

        @partitioner("odd_even")
        def odd_even(graph, k, *, seed, balance):
            return np.arange(graph.n_nodes) % k

    Its result is checked like any other. A name can be registered again, except a built-in one.

    Args: by_scheme   options that f is given by part_graph(..., scheme=...), such as {"cover": {"objective": "cover"}}.
          options_of  a record whose keywords are the options, if f takes them as **options.
    """
    PARTITIONERS.check_name(name)

    def decorate(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        register(Method.of(name, f, options_of, by_scheme=by_scheme or {}))
        return f

    return decorate


def register(method: Method) -> None:
    """Add a method to PARTITIONERS; UsageError if its name is built in, or names a user's streaming partitioner."""
    PARTITIONERS.check_name(method.name)
    known = PARTITIONERS.get(method.name)
    if known and known.reads_streams and not method.reads_streams:
        raise UsageError(
            f"partitioner {method.name!r} is registered as a streaming one; choose another name, or register it with "
            f"streaming_partitioner"
        )
    PARTITIONERS[method.name] = method


def part_graph(
    graph: Graph, k: int, method: str = "metis", seed: int = 0, balance: float = 1.03, scheme: str | None = None,
    hosts: int = 1, **options,
) -> Partition:  # fmt: skip
    """Choose who owns which node: a Partition of graph into k parts, checked and measured.

    Args:   graph    with its reverse edges, unless with_edges chose otherwise.
            method   metis, volume, entropy, block, random, a streaming one (spring, spring+, dbh, greedy, hdrf, 2psl),
                     or a registered one.
            balance  1 or more: of metis and volume the largest work of a part, sum of (nnz of the row + 1), over the mean;
                     of spring, spring+ and entropy its nodes; block, random and the vertex cuts ignore it.
            scheme   auto, cover, columns or broadcast: the exchange that the parts are for. volume then minimises the
                     rows of cover (cover and auto) or of columns, unless `objective` is given; others ignore it.
            hosts    H, a divisor of k: parts are cut for hosts first, then inside each; part p is on host p H // k.
            options  of the method, such as objective="vol" of metis.
    Raises: UsageError for an unknown method or option, and if graph is no Graph; PartitionError if the result is invalid.
    """
    k = check_k(k)
    partition_by = PARTITIONERS.find(method)
    seed, balance = check_seed(seed), check_balance(balance)
    partition_by.check_options(options)
    if scheme is not None:
        options = dict(partition_by.by_scheme.get(check_scheme(scheme), {})) | options
    check_is_graph(graph)
    graph = graph.in_use()
    start = time.perf_counter()
    try:
        cut = partial(on_hosts, partition_by, hosts=hosts) if hosts != 1 else partition_by
        owner_N = cut(graph.without_edge_attr(), k=k, seed=seed, balance=balance, **options)
    except (SpgnnError, MemoryError):
        raise
    except Exception as error:
        raise PartitionError(f"partitioner {method!r} failed with {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - start
    return partition_of(graph, owner_N, k, method=method, seed=seed, balance=balance, seconds=seconds)
