"""Observers of a communicator; the watchdog, which ends a job in which nothing moves, and names the ranks that hold it up.

One thread per rank looks about once a second. A rank moves when it enters a collective, leaves one, or
sets a new phase. A rank that has not moved for the whole limit asks all others: those that moved since
then are waited for; those that wait too confirm it; those that compute report where; those that are
stopped cannot answer. Time is counted in looks, so a job that was stopped as a whole continues.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np

from ...errors import WatchdogError
from ..base import SelfCommunicator
from ..communicator import Buffer, Communicator, Counts, Op, Request
from ..launch import this_job
from .background import BackgroundThread

Result = TypeVar("Result")
LOOKS, LOOK_S = 20, 1.0  # looks per limit, and the longest time between two
GRACE_S = 3.0  # how long the answers may take, or two looks
REPORTS = 4  # per limit: how often each rank reports its state to the next one, for the case that it is stopped


class Channel(Protocol):
    """Short messages from watchdog to watchdog, next to all collectives; never waits."""

    def send(self, rank: int, message: bytes) -> None: ...
    def receive(self) -> list[bytes]: ...
    def close(self) -> None: ...


class Observer(Protocol):
    """Notified of phases and of collectives that block, `wait` of a started one included. Must not raise."""

    def phase(self, text: str) -> None:
        """comm.phase was set."""

    def enter(self, kind: str, buffer: Any = None) -> None:
        """The rank enters a collective."""

    def leave(self, kind: str) -> None:
        """The rank has left it."""


class ObservedCommunicator:
    """The same ranks, collectives and traffic as `comm`; splits are observed too."""

    def __init__(self, comm: Communicator, *observers: Observer):
        self._comm = self.unobserved = comm
        self._observers = observers
        self.rank, self.size, self.traffic = comm.rank, comm.size, comm.traffic

    @property
    def phase(self) -> str:
        return self._comm.phase

    @phase.setter
    def phase(self, text: str) -> None:
        for observer in self._observers:
            observer.phase(text)
        self._comm.phase = text

    def all_reduce(self, x: Buffer, op: Op = "sum") -> Buffer:
        return self._within("all_reduce", x, self._comm.all_reduce, x, op)

    def all_gather(self, x: Any) -> np.ndarray:
        return self._within("all_gather", x, self._comm.all_gather, x)

    def all_gather_json(self, value: Any) -> list[Any]:
        return self._within("all_gather_json", None, self._comm.all_gather_json, value)

    def all_to_all(self, send: Any, send_rows: Counts, recv: Buffer, recv_rows: Counts) -> Buffer:
        return self._within("all_to_all", recv, self._comm.all_to_all, send, send_rows, recv, recv_rows)

    def broadcast(self, x: Buffer, root: int = 0) -> Buffer:
        return self._within("broadcast", x, self._comm.broadcast, x, root)

    def barrier(self) -> None:
        self._within("barrier", None, self._comm.barrier)

    def split(self, color: int, key: int | None = None) -> ObservedCommunicator:
        return ObservedCommunicator(self._within("split", None, self._comm.split, color, key), *self._observers)

    def start_all_to_all(self, send: Any, send_rows: Counts, recv: Any, recv_rows: Counts) -> Request:
        return _ObservedRequest(self, recv, self._comm.start_all_to_all(send, send_rows, recv, recv_rows))

    def abort(self, exit_code: int, message: str) -> None:
        self._comm.abort(exit_code, message)

    def _within(self, kind: str, buffer: Any, function: Callable[..., Result], *args) -> Result:
        for observer in self._observers:
            observer.enter(kind, buffer)
        try:
            return function(*args)
        finally:
            for observer in self._observers:
                observer.leave(kind)

    def __repr__(self) -> str:
        return repr(self._comm)


class _ObservedRequest:
    """A started collective whose `wait` is observed."""

    def __init__(self, comm: ObservedCommunicator, buffer: Any, request: Request):
        self._comm, self._buffer, self._request = comm, buffer, request

    @property
    def ended_s(self) -> float | None:
        return self._request.ended_s

    def test(self) -> bool:
        return self._request.test()

    def wait(self) -> None:
        self._comm._within("wait", self._buffer, self._request.wait)


@contextmanager
def watched(comm: Communicator, limit_s: float, *observers: Observer) -> Iterator[Communicator]:
    """Yield comm under observers and, if limit_s > 0, under a watchdog; ranks that are threads have their own limit.

    A job in which nothing moves for limit_s seconds ends with exit code 70. Collective.
    """
    open_channel: Callable[[], Channel | None] | None = getattr(comm, "open_channel", None)
    if not limit_s > 0 or not (open_channel or isinstance(comm, SelfCommunicator)):
        yield ObservedCommunicator(comm, *observers) if observers else comm
        return
    channel = open_channel() if open_channel else None
    dog = Watchdog(comm.rank, [comm.rank] if channel is None else range(comm.size), channel, limit_s)
    dog.moves.phase(comm.phase)
    leaves, seconds = threading.Event(), min(LOOK_S, limit_s / LOOKS)

    def run() -> None:
        while not leaves.wait(seconds):
            if error := dog.look(seconds):
                os._exit(this_job().fail(error))

    thread = BackgroundThread(run, "spgnn watchdog")
    thread.start()
    try:
        yield ObservedCommunicator(comm, dog.moves, *observers)
    finally:
        leaves.set()
        thread.join()
    if channel is not None:
        comm.barrier()  # no rank sends any more; if one has failed, the job ends without this
        channel.close()


class Moves:
    """What a rank does, observed at its communicator; made in the thread of the rank."""

    def __init__(self):
        self._thread = threading.get_ident()
        self._phase = ""
        self._call: tuple[str, Any] | None = None  # the collective that the rank is in
        self.has_moved = False  # since a watchdog has set it back

    def phase(self, text: str) -> None:
        self._phase, self.has_moved = text, True

    def enter(self, kind: str, buffer: Any = None) -> None:
        self._call, self.has_moved = (kind, buffer), True

    def leave(self, kind: str) -> None:
        self._call, self.has_moved = None, True

    def state(self) -> dict:
        """Return where the rank is, as it is reported to others."""
        call, place = self._call, ""
        if call is None and (frame := sys._current_frames().get(self._thread)) is not None:
            place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} ({frame.f_code.co_name})"
        return {"phase": self._phase[:200], "call": _described(call), "place": place}


class Watchdog:
    """Looks whether the rank moves that makes it.

    Args: ranks    that the channel reaches, this one included; channel: None without others.
          limit_s  seconds without a move after which `look` returns the error that ends the job.
    """

    def __init__(self, rank: int, ranks: Sequence[int], channel: Channel | None, limit_s: float):
        self.rank, self.ranks, self.channel, self.limit_s = rank, list(ranks), channel, limit_s
        self.moves = Moves()
        self._now_s = self._idle_s = 0.0  # sums of looks
        self._due_s = limit_s  # idle seconds at which the others are asked, then: at which their answers are judged
        self._answers: dict[int, dict] | None = None  # None: nobody was asked
        self._before: tuple[dict, float] = {}, 0.0  # the last report of the rank before this one, and when it came

    def look(self, seconds: float) -> WatchdogError | None:
        """Read the messages and, `seconds` after the last look, see whether the rank has moved."""
        self._receive()
        self._idle_s += seconds
        if self.moves.has_moved:
            self.moves.has_moved = False
            self._idle_s, self._due_s, self._answers = 0.0, self.limit_s, None
        self._report(seconds)
        if self._idle_s < self._due_s:
            return None
        grace_s = max(GRACE_S, 2 * seconds)
        if self._answers is not None:
            return self._judge(is_late=self._idle_s >= self._due_s + 2 * grace_s)
        self._answers, self._due_s = {}, self._idle_s + grace_s
        for rank in self.ranks:
            if rank != self.rank:
                self._send(rank, "ask", {})
        return None

    def _receive(self) -> None:
        for text in () if self.channel is None else self.channel.receive():
            message = json.loads(text)
            if message["kind"] == "ask":
                self._send(message["rank"], "answer", self._answer())
            elif message["kind"] == "answer" and self._answers is not None:
                self._answers[message["rank"]] = message
            elif message["kind"] == "report":
                self._before = message, self._now_s

    def _report(self, seconds: float) -> None:
        """Send the state of this rank to the next one, REPORTS times per limit."""
        every_s, before_s = self.limit_s / REPORTS, self._now_s
        self._now_s += seconds
        next_rank = self.ranks[(self.ranks.index(self.rank) + 1) % len(self.ranks)]
        if next_rank != self.rank and self._now_s // every_s > before_s // every_s:
            self._send(next_rank, "report", self.moves.state())

    def _answer(self) -> dict:
        before, came_s = self._before
        return self.moves.state() | {"idle_s": self._idle_s, "before": before, "before_s": self._now_s - came_s}

    def _judge(self, is_late: bool) -> WatchdogError | None:
        """Return the error if no rank has moved: on the first rank that answers, or where that one says nothing."""
        answers = (self._answers or {}) | {self.rank: self._answer()}
        newest_s = min(answer["idle_s"] for answer in answers.values())
        if newest_s < self.limit_s:  # a rank has moved: it gets a limit of its own
            self._answers, self._due_s = None, self._idle_s + self.limit_s - newest_s
        elif self.rank == min(answers) or is_late:
            return WatchdogError(verdict(answers, self.ranks, self.limit_s))
        return None

    def _send(self, rank: int, kind: str, state: dict) -> None:
        if self.channel is not None:
            self.channel.send(rank, json.dumps({"kind": kind, "rank": self.rank} | state).encode())


def verdict(answers: dict[int, dict], ranks: Sequence[int], limit_s: float) -> str:
    """Return which ranks hold the job up and which wait, from the answers of the ranks that gave one."""
    found = []
    for rank in sorted(set(ranks) - set(answers)):
        after = answers.get(ranks[(ranks.index(rank) + 1) % len(ranks)], {})
        seen = f"; {after['before_s']:.0f} s ago it was {_where(after['before'])}" if after.get("before") else ""
        found.append(f"rank {rank} gives no sign of life (stopped, swapped out or out of reach){seen}")
    states: dict[tuple[bool, str], list[int]] = {}
    for rank in sorted(answers):
        states.setdefault((bool(answers[rank]["call"]), _where(answers[rank])), []).append(rank)
    for (waits, where), alike in sorted(states.items()):
        is_one = len(alike) == 1
        verb = ("waits" if is_one else "wait") if waits else ("is" if is_one else "are")
        names = ", ".join(map(str, alike[:8])) + (" ..." if len(alike) > 8 else "")
        found.append(f"rank{'' if is_one else 's'} {names} {verb} {where}")
    return f"watchdog: nothing has moved for {limit_s:g} s: {'; '.join(found)}. --watchdog SECONDS sets the limit, 0 turns it off"


def _where(state: dict) -> str:
    phase = f"phase {state['phase'] or 'set-up'}"
    if state["call"]:
        return f"in {state['call']}, {phase}"
    return f"computing or reading{' at ' + state['place'] if state['place'] else ''}, {phase}"


def _described(call: tuple[str, Any] | None) -> str:
    if call is None:
        return ""
    kind, buffer = call
    name = "wait of a started exchange" if kind == "wait" else kind
    if buffer is None:
        return name
    shape = "x".join(map(str, buffer.shape)) or "scalar"
    return f"{name}({str(buffer.dtype).removeprefix('torch.')}, shape {shape})"
