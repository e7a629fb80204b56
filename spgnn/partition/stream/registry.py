"""Streaming partitioners by name: built in, or a user's class with three methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import numpy as np

from ...errors import PartitionError, UsageError, is_integer
from ..checks import fill_empty_parts
from ..registry import PARTITIONERS, partitioner
from .edge_passes import Passes
from .sources import edge_stream

METHODS = ("start", "add", "finish")

# f(passes, k, *, seed, balance, **options) -> owner_N, what else is known of the result
STREAMING: dict[str, Callable[..., tuple[np.ndarray, dict]]] = {}


def builtin(name: str) -> Callable:
    """Register f(passes, k, *, seed, balance, **options) -> (owner_N, details) for streams, and for part_graph."""

    def register(f: Callable) -> Callable:
        @functools.wraps(f)  # its options are those of f
        def of_graph(graph, k, **options) -> np.ndarray:
            return own_parts(f, Passes(edge_stream(graph)), k, **options)[0]

        of_graph.of_stream = f
        partitioner(name)(of_graph)
        STREAMING[name] = f
        return f

    return register


def own_parts(f: Callable, passes: Passes, k: int, **options) -> tuple[np.ndarray, dict]:
    """Return what f gives, with a node in each part unless k > N."""
    owner_N, details = f(passes, k, **options)
    if 0 < k <= len(owner_N) and owner_N.ndim == 1 and owner_N.dtype.kind in "iu" and _is_in_range(owner_N, k):
        owner_N = fill_empty_parts(owner_N, np.broadcast_to(np.int64(1), len(owner_N)), k)
    return owner_N, details


def streaming_partitioner(name: str) -> Callable:
    """Register a class of one's own under a name that part_stream and part_graph know.

        @streaming_partitioner("first_seen")
        class FirstSeen:
            passes = 1                                    # over the stream; 1 where left out

            def start(self, n_nodes, k, *, seed, balance):
                self.owner_N, self.k, self.next = np.full(n_nodes, -1), k, 0

            def add(self, edges, number):                 # (m, 2) integers of pass `number`, from 0
                ...

            def finish(self):                             # (N,) integers 0 to k - 1
                return self.owner_N

    start takes options of one's own as further keywords. N is known when it is called: a pass goes before. What finish
    returns goes through the gate like any other; the part of a vertex cut's edge is not asked for, its target replica is.
    """

    def register(cls: type) -> type:
        missing = [method for method in METHODS if not callable(getattr(cls, method, None))]
        if not inspect.isclass(cls) or missing:
            raise UsageError(
                f"streaming partitioner {name!r} lacks {', '.join(missing) or 'a class'}; it needs {', '.join(METHODS)}"
            )
        number_of_passes = getattr(cls, "passes", 1)
        if not is_integer(number_of_passes) or number_of_passes < 1:
            raise UsageError(
                f"streaming partitioner {name!r}: passes = {number_of_passes!r}; expected an integer of 1 or more"
            )
        if name in PARTITIONERS and PARTITIONERS[name].__module__.startswith("spgnn."):
            raise UsageError(f"partitioner {name!r} is built in; choose another name")

        def f(passes: Passes, k: int, **options) -> tuple[np.ndarray, dict]:
            passes.learn_nodes(len(passes.degrees()))
            return _run_own(name, cls, number_of_passes, passes, k, options), {}

        parameters = list(inspect.signature(cls.start).parameters.values())
        f.__signature__ = inspect.Signature([p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)])
        f.__module__, f.__name__, f.__doc__ = cls.__module__, cls.__name__, cls.__doc__
        builtin(name)(f)
        return cls

    return register


def _run_own(name: str, cls: type, number_of_passes: int, passes: Passes, k: int, options: dict) -> np.ndarray:
    own = cls()
    own.start(passes.n_nodes, k, **options)
    for number in range(number_of_passes):
        # A plug-in gets a copy: the chunk is the stream's buffer.
        passes.run(f"{name} {number}", lambda chunk: _add(name, own, chunk.copy(), number))
    owner_N = own.finish()
    if not isinstance(owner_N, (np.ndarray, list, tuple)):
        raise PartitionError(
            f"partitioner {name!r}: finish() returned {type(owner_N).__name__}; expected (N,) integers from 0 to {k - 1}"
        )
    return np.asarray(owner_N)


def _add(name: str, own, chunk: np.ndarray, number: int) -> None:
    try:
        own.add(chunk, number)
    except ValueError as error:  # not one of the stream
        raise PartitionError(f"partitioner {name!r} failed in add() with {type(error).__name__}: {error}") from error


def _is_in_range(owner_N: np.ndarray, k: int) -> bool:
    return len(owner_N) == 0 or (owner_N.min() >= 0 and owner_N.max() < k)
