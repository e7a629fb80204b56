"""Streaming partitioners by name: built in, or a user's class with three methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np

from ...errors import PartitionError, UsageError, is_integer
from ...graph import Graph
from ..checks import check_owner
from ..registry import Method, register
from .edge_passes import StreamPasses
from .sources import edge_stream

METHODS = ("start", "add", "finish")


class StreamPlugin(Protocol):
    """A class that `streaming_partitioner` registers."""

    def start(self, n_nodes: int, k: int, *, seed: int, balance: float) -> object: ...

    def add(self, edges: np.ndarray, number: int) -> object: ...

    def finish(self) -> np.ndarray: ...


class StreamMethod(Method):
    """A partitioner of edge streams: f(passes, k, seed=, balance=, **options) -> owner_N, details.

    `of_stream` returns what f returns, checked, with a node in each part unless k > N; called on a graph it goes over
    the graph's edges.
    """

    reads_streams: ClassVar[bool] = True

    def of_stream(
        self, passes: StreamPasses, k: int, *, seed: int, balance: float, **options
    ) -> tuple[np.ndarray, dict]:
        owner_N, details = self.f(passes, k, seed=seed, balance=balance, **options)
        one_N = np.broadcast_to(np.int64(1), passes.nodes())
        return check_owner(owner_N, len(one_N), k, f"partition {self.name!r}", fill_by=one_N), details

    def __call__(self, graph: Graph, k: int, *, seed: int, balance: float, **options) -> np.ndarray:
        return self.of_stream(StreamPasses(edge_stream(graph)), k, seed=seed, balance=balance, **options)[0]


STREAMING: dict[str, StreamMethod] = {}


def builtin(name: str) -> Callable:
    """Register f(passes, k, *, seed, balance, **options) -> (owner_N, details) for streams, and for part_graph."""

    def decorate(f: Callable) -> Callable:
        _register(StreamMethod.of(name, f))
        return f

    return decorate


def streaming_partitioner(name: str) -> Callable:
    """Register a class under a name that part_stream and part_graph know.

        @streaming_partitioner("first_seen")
        class FirstSeen:
            passes = 1                                    # over the stream; 1 by default

            def start(self, n_nodes, k, *, seed, balance):
                self.owner_N, self.k, self.next = np.full(n_nodes, -1), k, 0

            def add(self, edges, number):                 # (m, 2) integers of pass `number`, from 0
                ...

            def finish(self):                             # (N,) integers 0 to k - 1
                return self.owner_N

    Further keywords of start are its options. N is known when it is called: a pass goes before. The result of finish
    is checked like any other; of a vertex cut return the target replica of each node, not the parts of the edges.
    """

    def decorate(cls: type[StreamPlugin]) -> type[StreamPlugin]:
        missing = [method for method in METHODS if not callable(getattr(cls, method, None))]
        if not inspect.isclass(cls) or missing:
            raise UsageError(
                f"streaming partitioner {name!r} lacks {', '.join(missing) or 'a class'} of {', '.join(METHODS)}"
            )
        number_of_passes = getattr(cls, "passes", 1)
        if not is_integer(number_of_passes) or number_of_passes < 1:
            raise UsageError(f"streaming partitioner {name!r}: passes = {number_of_passes!r}; expected 1, 2, ...")
        run = functools.partial(_run_class, name, cls, number_of_passes)
        _register(StreamMethod.of(name, run, options_of=cls.start))
        return cls

    return decorate


def _register(method: StreamMethod) -> None:
    register(method)
    STREAMING[method.name] = method


def _run_class(
    name: str, cls: type[StreamPlugin], number_of_passes: int, passes: StreamPasses, k: int, **options
) -> tuple[np.ndarray, dict]:
    n_nodes = len(passes.degrees())
    passes.learn_nodes(n_nodes)
    made = cls()
    made.start(n_nodes, k, **options)
    for number in range(number_of_passes):
        # A plug-in gets a copy: the chunk is the stream's buffer.
        passes.run(f"{name} {number}", lambda chunk: _add(name, made, chunk.copy(), number))
    owner_N = made.finish()
    if not isinstance(owner_N, (np.ndarray, list, tuple)):
        raise PartitionError(
            f"partitioner {name!r}: finish() returned {type(owner_N).__name__}; expected (N,) of 0 to {k - 1}"
        )
    return np.asarray(owner_N), {}


def _add(name: str, made: StreamPlugin, chunk: np.ndarray, number: int) -> None:
    try:
        made.add(chunk, number)
    except ValueError as error:  # not one of the stream
        raise PartitionError(f"partitioner {name!r} failed in add() with {type(error).__name__}: {error}") from error
