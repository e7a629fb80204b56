"""SamplerPool: subgraphs in the order of their indices, drawn ahead by threads."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from ..errors import SamplerError, SpgnnError, UsageError, check_integer
from .sample import Subgraph

T = TypeVar("T")


class Draws(Protocol):
    """What a pool calls from its threads, such as a Maker."""

    def draw(self, seed: int, index: int) -> Subgraph:
        """Return subgraph number index."""


class SamplerPool:
    """Draws subgraphs start, start + stride, ... on threads while a caller computes; the same ones for any threads.

        with SamplerPool(maker, seed=0, threads=2) as pool:
            for step in range(steps):
                subgraph = pool.get(step)

    Args:   seed    of the draws, 0 or more.
            threads that draw.
            ahead   subgraphs that are drawn in advance; None: 2 threads + 2.
            start   index of the first one; rank r of P has start r and stride P.
    Raises: UsageError for numbers out of range.

    sample_s is the CPU time of the draws that were returned, sample_wait_s the time that `get` waited, in seconds.
    """

    def __init__(
        self, maker: Draws, seed: int, threads: int = 1, ahead: int | None = None, start: int = 0, stride: int = 1
    ):  # fmt: skip
        for name, value, least in (
            ("seed", seed, 0),
            ("threads", threads, 1),
            ("start", start, 0),
            ("stride", stride, 1),
        ):
            check_integer(name, value, least)
        if ahead is not None:
            check_integer("ahead", ahead, 0)
        self.next_index, self.stride, self.is_closed = start, stride, False
        self.sample_s = self.sample_wait_s = 0.0
        self._drawn = in_order(lambda index: maker.draw(seed, index), itertools.count(start, stride), threads, ahead)

    def get(self, index: int) -> Subgraph:
        """Return subgraph number index: start at first, then each time the one `stride` after the last.

        Raises: UsageError for another index, or after `close`; what drawing it raised, and SamplerError naming the index
                for errors that are none of the package's own. The pool is closed then.
        """
        if self.is_closed:
            raise UsageError(f"subgraph {index} is asked of a pool that is closed; make a new one that starts there")
        if index != self.next_index:
            raise UsageError(f"subgraph {index} is asked of a pool whose next one is {self.next_index}")
        start = time.perf_counter()
        try:
            subgraph = next(self._drawn)
        except BaseException as error:
            self.close()
            if isinstance(error, SpgnnError) or not isinstance(error, Exception):
                raise
            raise SamplerError(f"subgraph {index}: {type(error).__name__}: {error}") from error
        self.sample_wait_s += time.perf_counter() - start
        self.sample_s += subgraph.seconds
        self.next_index += self.stride
        return subgraph

    def close(self) -> None:
        """Let the draws that have begun end, drop the others, and join the threads; closing twice is allowed."""
        self.is_closed = True
        self._drawn.close()

    def __enter__(self) -> SamplerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def in_order(
    f: Callable[[int], T], indices: Iterable[int], threads: int = 1, ahead: int | None = None
) -> Generator[T]:  # fmt: skip
    """Yield f(index) of each index in their order, computed by threads up to `ahead` (2 threads + 2) before it is due.

    An error is raised where its result is due. Closing the iterator drops what has not begun and joins the threads.
    """
    ahead = 2 * threads + 2 if ahead is None else ahead
    executor = ThreadPoolExecutor(threads, thread_name_prefix="spgnn-sampler")
    due: deque[Future[T]] = deque()
    try:
        for index in indices:
            due.append(executor.submit(f, index))
            if len(due) > ahead:
                yield due.popleft().result()
        while due:
            yield due.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
