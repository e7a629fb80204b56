"""part_graph, and the partitioners by name: the built-in ones and those of users."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..errors import PartitionError, SpgnnError, UsageError, is_number, nearest
from ..graph import Graph, check_is_graph
from .checks import check_balance, check_k, check_scheme, check_seed
from .partition import Partition, partition_of


@dataclass(frozen=True, eq=False)
class Method:
    """A partitioner by its name: method(graph, k, seed=, balance=, **options) -> owner_N.

    Args:
        f            the function that does it.
        options      its options, name -> default; takes_any: it takes others too.
        is_built_in  it is spgnn's own, and cannot be replaced.
        by_scheme    options that make it minimise what a scheme sends, scheme -> options.
    """

    name: str
    f: Callable[..., Any]
    options: Mapping[str, Any]
    takes_any: bool = False
    is_built_in: bool = False
    by_scheme: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reads_streams: ClassVar[bool] = False

    def __call__(self, graph: Graph, k: int, *, seed: int, balance: float, **options) -> np.ndarray:
        return self.f(graph, k, seed=seed, balance=balance, **options)

    @classmethod
    def of(cls, name: str, f: Callable, options_of: Callable | None = None, **fields) -> Method:
        """Return the method of a function, its options read from the keywords of options_of, by default of f."""
        parameters = inspect.signature(options_of or f).parameters.values()
        keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        options = {key: default for key, default in keywords.items() if key not in ("seed", "balance")}
        return cls(name, f, options, any(p.kind is p.VAR_KEYWORD for p in parameters), **fields)

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Raise UsageError for an option that it does not have, or no finite number where its default is a number."""
        for option, value in given.items():
            if option not in self.options and not self.takes_any:
                hint = nearest(option, list(self.options)) if self.options else "; it has none"
                raise UsageError(f"partitioner {self.name!r} has no option {option!r}{hint}")
            default = self.options.get(option)
            if isinstance(default, (int, float)) and not isinstance(default, bool):
                if not is_number(value) or not math.isfinite(value):
                    raise UsageError(f"{self.name}: {option} = {value!r}; expected a number")


PARTITIONERS: dict[str, Method] = {}


def partitioner(name: str, by_scheme: Mapping[str, Mapping[str, Any]] | None = None) -> Callable:
    """Register f(graph, k, *, seed, balance, **options) -> owner_N under a name that part_graph knows.

        @partitioner("odd_even")
        def odd_even(graph, k, *, seed, balance):
            return np.arange(graph.n_nodes) % k

    Its result is checked like any other. A name can be registered again, except a built-in one.

    Args: by_scheme  options that f is given by part_graph(..., scheme=...), such as {"cover": {"objective": "cover"}}.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a partitioner's name must be a string, got {name!r}; write @partitioner('name')")

    def decorate(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        is_built_in = f.__module__.startswith(__package__)
        register(Method.of(name, f, is_built_in=is_built_in, by_scheme=by_scheme or {}))
        return f

    return decorate


def register(method: Method) -> None:
    """Add a method to PARTITIONERS; UsageError if its name is built in, or that of a user's streaming partitioner."""
    known = PARTITIONERS.get(method.name)
    if known and known.is_built_in:
        raise UsageError(f"partitioner {method.name!r} is built in; choose another name")
    if known and known.reads_streams and not method.reads_streams:
        raise UsageError(
            f"partitioner {method.name!r} is registered as a streaming one; choose another name, or register it with "
            f"streaming_partitioner"
        )
    PARTITIONERS[method.name] = method


def part_graph(
    graph: Graph, k: int, method: str = "metis", seed: int = 0, balance: float = 1.03, scheme: str | None = None,
    **options,
) -> Partition:  # fmt: skip
    """Choose who owns which node: a Partition of graph into k parts, checked and measured.

    Args:   graph    with its reverse edges, unless with_edges chose otherwise.
            method   metis, volume, entropy, block, random, a streaming one (spring, spring+, dbh, greedy, hdrf, 2psl),
                     or a registered one.
            balance  1 or more: of metis and volume the largest work of a part, sum of (nnz of the row + 1), over the mean;
                     of spring, spring+ and entropy its nodes; block, random and the vertex cuts ignore it.
            scheme   auto, cover, columns or broadcast: the exchange that the parts are for. volume then minimises the
                     rows of cover (cover and auto) or of columns, unless `objective` is given; others ignore it.
            options  of the method, such as objective="vol" of metis.
    Raises: UsageError for an unknown method or option, and if graph is no Graph; PartitionError if the result is invalid.
    """
    k = check_k(k)
    if method not in PARTITIONERS:
        raise UsageError(f"partitioner {method!r} is not known{nearest(method, PARTITIONERS)}")
    seed, balance = check_seed(seed), check_balance(balance)
    partition_by = PARTITIONERS[method]
    partition_by.check_options(options)
    if scheme is not None:
        options = dict(partition_by.by_scheme.get(check_scheme(scheme), {})) | options
    check_is_graph(graph)
    graph = graph.in_use()
    start = time.perf_counter()
    try:
        owner_N = partition_by(graph, k, seed=seed, balance=balance, **options)
    except (SpgnnError, MemoryError):
        raise
    except Exception as error:
        raise PartitionError(f"partitioner {method!r} failed with {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - start
    return partition_of(graph, owner_N, k, method=method, seed=seed, balance=balance, seconds=seconds)
