"""The watchdog: ends a job in which nothing moves, and names the ranks that hold it up.

One thread a rank looks on about once a second. A rank moves when it goes into a collective, comes out
of one, or comes to a new phase. One that has not for the whole limit asks all others: those that moved
since are waited for; those that wait too confirm it; those that compute say where; those that are
stopped cannot answer. Time is counted in looks, so a job that was stopped as a whole goes on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ...errors import WatchdogError
from ..alone import SelfCommunicator
from ..communicator import Communicator
from .observed import ObservedCommunicator, Observer
from .protect import this_job

LOOKS, LOOK_S = 20, 1.0  # looks in a limit, and the longest time between two
GRACE_S = 3.0  # how long the answers may take
TOLD = 4  # of its state in a limit, each rank tells the next one: what is known of one that is stopped


class Line(Protocol):
    """Short messages from watchdog to watchdog, beside all collectives; never waits."""

    def send(self, rank: int, message: bytes) -> None: ...
    def receive(self) -> list[bytes]: ...
    def close(self) -> None: ...


@contextmanager
def watched(comm: Communicator, limit_s: float, *observers: Observer) -> Iterator[Communicator]:
    """Yield comm under observers and, where limit_s > 0, under a watchdog; ranks that are threads have their own limit.

    A job in which nothing moves for limit_s seconds ends with exit code 70. Collective.
    """
    line = _open_line(comm) if limit_s > 0 else None
    ranks = [comm.rank] if isinstance(line, _NoLine) else range(comm.size)
    dog = None if line is None else Watchdog(comm.rank, ranks, line, limit_s)
    if dog is None:
        yield ObservedCommunicator(comm, *observers) if observers else comm
        return
    dog.phase(comm.phase)
    dog.start()
    try:
        yield ObservedCommunicator(comm, dog, *observers)
    finally:
        dog.stop()
    comm.barrier()  # no rank sends any more; where one has failed, the job ends without this
    line.close()


class Watchdog:
    """The thread of one rank, and the observer of its communicator that tells it whether the rank moves.

    Args: ranks    that the line reaches, this one included.
          limit_s  seconds without a move after which the job is ended.
          end      called once with the WatchdogError; ends all ranks.
    """

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        line: Line,
        limit_s: float,
        end: Callable[[WatchdogError], None] | None = None,
    ):
        self.rank, self.ranks, self.line, self.limit_s = rank, list(ranks), line, limit_s
        self._next = self.ranks[(self.ranks.index(rank) + 1) % len(self.ranks)]
        self.end = end or _end_job
        self.look_s = min(LOOK_S, limit_s / LOOKS)
        self._grace_s = max(GRACE_S, 2 * self.look_s)
        self._moves = self._seen_moves = 0
        self._phase = ""
        self._call: tuple[str, object] | None = None  # the collective that the rank is in
        self._idle_s = self._asked_s = self._told_s = 0.0
        self._ask_at_s = limit_s
        self._answers: dict[int, dict] | None = None
        self._before: dict = {}  # what the rank before this one told last
        self._since_told_s = 0.0
        self._watched = threading.get_ident()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spgnn watchdog", daemon=True)

    def phase(self, text: str) -> None:
        self._phase = text
        self._moves += 1

    def enter(self, kind: str, buffer=None) -> None:
        self._call = (kind, buffer)
        self._moves += 1

    def leave(self, kind: str) -> None:
        self._call = None
        self._moves += 1

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._leave.set()
        self._thread.join()

    def state(self) -> dict:
        """Return where this rank is, as it tells others."""
        call, place = self._call, ""
        if call is None:
            place = _place(sys._current_frames().get(self._watched))
        return {"phase": self._phase[:200], "call": _described(call), "place": place, "idle_s": self._idle_s}

    def look(self, seconds: float) -> None:
        """Take in what has come and, after `seconds` more, see whether the rank has moved."""
        self._receive()
        if self._moves != self._seen_moves:
            self._seen_moves, self._idle_s, self._ask_at_s, self._answers = self._moves, 0.0, self.limit_s, None
        else:
            self._idle_s += seconds
        self._tell(seconds)
        if self._answers is None and self._idle_s >= self._ask_at_s:
            self._ask()
        elif self._answers is not None and self._idle_s >= self._asked_s + self._grace_s:
            self._judge()

    def _run(self) -> None:
        while not self._leave.wait(self.look_s):
            self.look(self.look_s)

    def _receive(self) -> None:
        for message in self.line.receive():
            told = json.loads(message)
            if told["kind"] == "ask":
                self._send(
                    told["rank"], "answer", self.state() | {"before": self._before, "before_s": self._since_told_s}
                )
            elif told["kind"] == "answer" and self._answers is not None:
                self._answers[told["rank"]] = told
            elif told["kind"] == "news":
                self._before, self._since_told_s = told, 0.0

    def _tell(self, seconds: float) -> None:
        self._told_s += seconds
        self._since_told_s += seconds
        if self._next != self.rank and self._told_s >= self.limit_s / TOLD:
            self._told_s = 0.0
            self._send(self._next, "news", self.state())

    def _ask(self) -> None:
        self._answers, self._asked_s = {}, self._idle_s
        for rank in self.ranks:
            if rank != self.rank:
                self._send(rank, "ask", {})

    def _judge(self) -> None:
        answers = self._answers | {self.rank: self.state() | {"before": self._before, "before_s": self._since_told_s}}
        newest_s = min(answer["idle_s"] for answer in answers.values())
        if newest_s < self.limit_s:  # one has moved: it gets its own limit
            self._answers, self._ask_at_s = None, self._idle_s + self.limit_s - newest_s
        elif self.rank == min(answers) or self._idle_s >= self._asked_s + 3 * self._grace_s:
            self.end(WatchdogError(verdict(answers, self.ranks, self.limit_s)))

    def _send(self, rank: int, kind: str, state: dict) -> None:
        self.line.send(rank, json.dumps({"kind": kind, "rank": self.rank} | state).encode())


def verdict(answers: dict[int, dict], ranks: Sequence[int], limit_s: float) -> str:
    """Return who holds the job up and who waits, from the answers of the ranks that gave one."""
    told = []
    for rank in sorted(set(ranks) - set(answers)):
        after = answers.get(ranks[(ranks.index(rank) + 1) % len(ranks)], {})
        seen = f"; {after['before_s']:.0f} s ago it was {_where(after['before'])}" if after.get("before") else ""
        told.append(f"rank {rank} gives no sign of life (stopped, swapped out or out of reach){seen}")
    states: dict[tuple[bool, str], list[int]] = {}
    for rank in sorted(answers):
        states.setdefault((bool(answers[rank]["call"]), _where(answers[rank])), []).append(rank)
    for (waits, where), ranks in sorted(states.items()):
        names = (
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}{' ...' if len(ranks) > 8 else ''}"
        )
        told.append(f"{names} {'waits' if len(ranks) == 1 else 'wait'} {where}" if waits else f"{names} is {where}")
    return f"watchdog: nothing has moved for {limit_s:g} s: {'; '.join(told)}. --watchdog SECONDS sets the limit, 0 turns it off"


def _where(state: dict) -> str:
    phase = f"phase {state['phase'] or 'set-up'}"
    if state["call"]:
        return f"in {state['call']}, {phase}"
    return f"computing or reading{' at ' + state['place'] if state['place'] else ''}, {phase}"


def _described(call: tuple[str, object] | None) -> str:
    if call is None:
        return ""
    kind, buffer = call
    what = (
        ""
        if buffer is None
        else f"({str(buffer.dtype).removeprefix('torch.')}, shape {'x'.join(map(str, buffer.shape)) or 'scalar'})"
    )
    return ("wait of a started exchange" if kind == "wait" else kind) + what


def _place(frame) -> str:
    """Return file:line and function of the newest frame."""
    return (
        ""
        if frame is None
        else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} ({frame.f_code.co_name})"
    )


class _NoLine:
    """Of a rank that has nobody to ask."""

    def send(self, rank: int, message: bytes) -> None:
        return None

    def receive(self) -> list[bytes]:
        return []

    def close(self) -> None:
        return None


def _open_line(comm: Communicator) -> Line | None:
    """Return the line of a backend that has one; of one rank, or without threads in MPI, a line to nobody."""
    if hasattr(comm, "open_line"):
        return comm.open_line() or _NoLine()
    return _NoLine() if isinstance(comm, SelfCommunicator) else None


def _end_job(error: WatchdogError) -> None:
    os._exit(this_job().fail(error))
