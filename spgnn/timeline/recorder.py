"""Recorder: the time of one rank, as spans on a monotonic clock and totals by stage and phase.

A span's own seconds exclude those of nested spans, so that the phases of a stage add up to it. Totals are of all
epochs; spans are stored of the set-up and of the first and last epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from ..dist import Communicator

SET_UP, TRAINING, EVALUATION, RESULTS = "set-up", "training", "evaluation", "results"
STAGES = (SET_UP, TRAINING, EVALUATION, RESULTS)
EXCHANGE = "exchange"  # in flight; it overlaps with the phases
OTHER = "other"
KEPT_EPOCHS = 4  # number of first and of last epochs whose spans are stored
KEPT_SPANS = 4096  # of one epoch, or of the set-up
SYNC_ROUNDS = 20
_PHASES = {"partition and load": "partition", "distribute": "plan"}  # name in comm.phase -> name in the table
_COLLECTIVES = {"all_reduce": "all-reduce", "broadcast": "broadcast", "barrier": "barrier"}
_COLLECTIVES |= dict.fromkeys(("all_gather", "all_gather_json"), "gather")


class Span(NamedTuple):
    """An interval of a clock, in seconds; bytes and messages are those that this rank sent."""

    phase: str
    label: str
    start: float
    end: float
    flops: int = 0
    bytes: int = 0
    messages: int = 0


@dataclass(slots=True)
class Total:
    """Sums of one phase of one stage; seconds exclude nested spans."""

    calls: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0
    messages: int = 0

    def add(self, span: Span, own_s: float) -> None:
        """Count a span, of which own_s seconds are in no nested one."""
        self.calls, self.seconds, self.flops = self.calls + 1, self.seconds + own_s, self.flops + span.flops
        self.bytes, self.messages = self.bytes + span.bytes, self.messages + span.messages


@dataclass(slots=True)
class _Open:
    span: Span
    total: Total
    outer_stage: str
    inner_s: float = 0.0


class Recorder:
    """The timeline of one rank; only the rank's own thread records.

    Also an observer of its communicator (dist/job/watchdog.py): `phase` opens stages and epochs, `enter` and `leave`
    time the collectives, except exchanges of rows, which are timed where they are started.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.stage = SET_UP
        self.epochs = 0
        self.totals: dict[tuple[str, str], Total] = {}
        self.dropped = 0  # spans beyond KEPT_SPANS
        self.syncs: list[tuple[float, float, float]] = []  # (time, seconds ahead of rank 0, error bound)
        self._ended: list[list[Span]] = []  # of the set-up, of the first and the last epochs
        self._spans: list[Span] = []  # since then
        self._stack: list[_Open] = []
        self.begin(OTHER)

    @property
    def spans(self) -> list[Span]:
        """The stored spans, in order of their end within an epoch."""
        return [span for spans in (*self._ended, self._spans) for span in spans]

    def begin(
        self, phase: str, label: str = "", stage: str = "", flops: int = 0, n_bytes: int = 0, messages: int = 0
    ) -> None:
        """Open a span nested in the open one; `stage` is the stage that it counts to."""
        outer_stage, self.stage = self.stage, stage or self.stage
        counted_as = _PHASES.get(phase, phase) if self._stack or self.stage != TRAINING else OTHER
        total = self.totals.setdefault((self.stage, counted_as), Total())
        self._stack.append(_Open(Span(phase, label, self.clock(), 0.0, flops, n_bytes, messages), total, outer_stage))

    def end(self) -> None:
        """Close the innermost open span."""
        closed = self._stack.pop()
        span = closed.span._replace(end=self.clock())
        closed.total.add(span, span.end - span.start - closed.inner_s)
        self._keep(span)
        self.stage = closed.outer_stage
        if self._stack:
            self._stack[-1].inner_s += span.end - span.start

    @contextmanager
    def span(
        self, phase: str, label: str = "", stage: str = "", flops: int = 0, n_bytes: int = 0, messages: int = 0
    ) -> Generator[None]:
        """Record the block, or as a decorator each call of a function, as one span; see `begin`."""
        self.begin(phase, label, stage, flops, n_bytes, messages)
        try:
            yield
        finally:
            self.end()

    def add_flight(self, label: str, start: float, end: float, n_bytes: int, messages: int) -> None:
        """Record an exchange from its start to its arrival."""
        span = Span(EXCHANGE, label, start, end, 0, n_bytes, messages)
        self.totals.setdefault((self.stage, EXCHANGE), Total()).add(span, end - start)
        self._keep(span)

    def phase(self, text: str) -> None:
        """Begin the phase that comm.phase was set to: "epoch 7", or a step of the set-up or of the results."""
        if len(self._stack) > 1:
            return  # nested in an open span, which it counts to
        self.end()
        word, _, number = text.partition(" ")
        if word == "epoch" and number.isdigit():
            self._ended.append(self._spans)
            self._spans = []
            if len(self._ended) > 1 + 2 * KEPT_EPOCHS:
                del self._ended[1 + KEPT_EPOCHS]
            self.stage, self.epochs = TRAINING, self.epochs + 1
        elif self.epochs:
            self.stage = RESULTS
        self.begin(text)

    def enter(self, kind: str, buffer: Any = None) -> None:
        """Open the span of a blocking collective."""
        if kind in _COLLECTIVES:
            self.begin(_COLLECTIVES[kind], n_bytes=getattr(buffer, "nbytes", 0))

    def leave(self, kind: str) -> None:
        """Close the span of a blocking collective."""
        if kind in _COLLECTIVES:
            self.end()

    def close(self) -> None:
        """Close all spans, so that the totals are complete."""
        while self._stack:
            self.end()
        self.begin(OTHER)

    def synchronise(self, comm: Communicator) -> None:
        """Measure this clock's offset from rank 0's; repeated calls let `aligned` follow its drift. Collective."""
        ahead_s, error_s = clock_offset(comm, self.clock)
        self.syncs.append((self.clock(), ahead_s, error_s))

    def aligned(self, times: ArrayLike) -> np.ndarray:
        """Convert times of this clock to rank 0's clock."""
        of_here = np.asarray(times, np.float64)
        if not self.syncs:
            return of_here
        at, ahead_s, _ = np.array(self.syncs).T
        return of_here - np.interp(of_here, at, ahead_s)

    def _keep(self, span: Span) -> None:
        if len(self._spans) < KEPT_SPANS:
            self._spans.append(span)
        else:
            self.dropped += 1


def clock_offset(comm: Communicator, clock: Callable[[], float], rounds: int = SYNC_ROUNDS) -> tuple[float, float]:
    """Return (seconds that this rank's clock is ahead of rank 0's, bound on their error).

    A barrier ends on no rank before it has begun on every rank. With its begin b and end e on both clocks,
    b_r - e_0 <= ahead <= e_r - b_0. The tightest bounds of `rounds` barriers are used. Collective.
    Source: Cristian 1989, with a barrier instead of a ping per pair.
    """
    times = np.empty((2, rounds))
    for i in range(rounds):
        times[0, i] = clock()
        comm.barrier()
        times[1, i] = clock()
    root = comm.broadcast(times.copy())
    low, high = (times[0] - root[1]).max(), (times[1] - root[0]).min()
    return ((low + high) / 2, (high - low) / 2) if comm.rank else (0.0, 0.0)
