"""ThreadCommunicator: ranks as threads of one process, for tests and notebooks; run_threads starts them.

Ranks meet: each deposits a header and a copy of its buffer under the number of its collective, and
continues when all have. A rank that raises, returns or stays away releases those that wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..errors import CollectiveError, RankError, check_integer, exit_code_of
from . import headers
from .base import REDUCE, BaseCommunicator, members_of
from .communicator import Op
from .traffic import Traffic

Result = TypeVar("Result")


def run_threads(size: int, body: Callable[..., Result], *args: Any, timeout: float = 60) -> list[Result]:
    """Return [body(comm, *args) of each rank], the ranks being threads of this process.

    Args:   timeout  seconds that a rank waits for the others in one collective, and that the last
                     ranks get once the first has ended.
    Raises: UsageError for a size that is no integer of 1 or more; the first error that a rank raised, with a
            note that names the rank; RankError for a rank that did not end in time.
    """
    check_integer("run_threads: ranks", size, 1)
    world = _World(size, timeout)
    group = _Group(world, list(range(size)))
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = body(ThreadCommunicator(group, rank), *args)
        except BaseException as error:  # a rank's SystemExit is its failure too; raised again by the caller
            world.fail(rank, error)
        else:
            world.finish(rank)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    late = world.wait_all()
    for rank in set(range(size)) - set(late):
        threads[rank].join()  # one that is still at its last lines when Python ends takes the process with it
    if world.first_error is not None:
        rank, error = world.first_error
        error.add_note(f"raised on rank {rank} of {size}, phase: {world.phases[rank]}")
        try:
            raise error
        finally:  # its traceback has all that the ranks held: a communicator that is kept must not keep that
            world.first_error = world.first_error if late else None
            del error
    if late:
        where = ", ".join(f"rank {r} (phase: {world.phases[r]})" for r in late)
        raise RankError(f"{where} did not end within {timeout:g} s of the other ranks")
    return results


class _World:
    """What all threads of a job share: one lock, who has failed or returned, and the phases."""

    def __init__(self, size: int, timeout: float):
        self.timeout = timeout
        self.changed = threading.Condition()
        self.phases = ["set-up"] * size
        self.ended: set[int] = set()
        self.first_error: tuple[int, BaseException] | None = None

    def fail(self, rank: int, error: BaseException) -> None:
        """Record that rank ended with error; release all that wait."""
        with self.changed:
            # RankError on a rank that was released comes second, whoever is scheduled first.
            is_second = self.first_error is not None and isinstance(self.first_error[1], RankError)
            if self.first_error is None or (is_second and not isinstance(error, RankError)):
                self.first_error = (rank, error)
            self.ended.add(rank)
            self.changed.notify_all()

    def finish(self, rank: int) -> None:
        """Record that rank returned."""
        with self.changed:
            self.ended.add(rank)
            self.changed.notify_all()

    def wait_all(self) -> list[int]:
        """Wait until all ranks have ended, or timeout after the first has; return the late ones."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended)
            self.changed.wait_for(lambda: len(self.ended) == len(self.phases), self.timeout)
            return sorted(set(range(len(self.phases))) - self.ended)


class _Group:
    """The meetings of one communicator; ranks (size,) are its members as ranks of the world."""

    def __init__(self, world: _World, ranks: list[int]):
        self.world = world
        self.ranks = ranks
        self.meetings: dict[int, dict[int, tuple]] = {}  # number of the collective -> rank -> (head, payload, time)
        self.taken: dict[int, int] = {}
        self.parts: dict[tuple[int, int], _Group] = {}

    def deposit(self, number: int, rank: int, head: np.ndarray, payload: Any) -> None:
        with self.world.changed:
            self.meetings.setdefault(number, {})[rank] = (head, payload, time.monotonic())
            if self.is_complete(number):  # the last one alone wakes the others
                self.world.changed.notify_all()

    def is_complete(self, number: int) -> bool:
        return len(self.meetings[number]) == len(self.ranks)

    def collect(self, number: int, rank: int) -> list[tuple]:
        """Wait for all members; return their (head, payload, time of arrival) in rank order.

        Raises: RankError if a rank failed; CollectiveError if a member has returned or stays away.
        """
        world = self.world
        with world.changed:
            world.changed.wait_for(lambda: self.is_complete(number) or self._gone(number), world.timeout)
            meeting = self.meetings[number]
            if not self.is_complete(number):
                self._raise_incomplete(number, rank)
            entries = [meeting[q] for q in range(len(self.ranks))]
            self.taken[number] = self.taken.get(number, 0) + 1
            if self.taken[number] == len(self.ranks):
                del self.meetings[number], self.taken[number]
        return entries

    def _missing(self, number: int) -> list[int]:
        return [r for q, r in enumerate(self.ranks) if q not in self.meetings[number]]

    def _gone(self, number: int) -> bool:
        return self.world.first_error is not None or any(r in self.world.ended for r in self._missing(number))

    def _raise_incomplete(self, number: int, rank: int) -> NoReturn:
        world, missing = self.world, self._missing(number)
        if world.first_error is not None:
            failed, error = world.first_error
            raise RankError(f"rank {failed} failed: {type(error).__name__}: {error}", exit_code_of(error))
        call = headers.describe(self.meetings[number][rank][0][rank])
        returned = [r for r in missing if r in world.ended]
        if returned:
            raise CollectiveError(
                f"rank {self.ranks[rank]} waits in {call} for rank {returned[0]}, which has returned; "
                f"is a collective inside a branch that not all ranks take?"
            )
        where = ", ".join(f"rank {r} (phase: {world.phases[r]})" for r in missing)
        raise CollectiveError(f"rank {self.ranks[rank]} waited {world.timeout:g} s in {call} for {where}")


class _ThreadRequest:
    """One started collective of one rank; finish(entries) moves the data when all have met."""

    def __init__(self, group: _Group, number: int, rank: int, finish: Callable[[list[tuple]], None]):
        self._group, self._number, self._rank, self._finish = group, number, rank, finish
        self._is_done = False
        self.ended_s: float | None = None

    def test(self) -> bool:
        if not self._is_done:
            with self._group.world.changed:
                ready = self._group.is_complete(self._number) or self._group.world.first_error is not None
            if ready:
                self.wait()
        return self._is_done

    def wait(self) -> None:
        if not self._is_done:
            entries = self._group.collect(self._number, self._rank)
            self.ended_s = max(arrived_s for _, _, arrived_s in entries)  # of the last rank
            self._finish(entries)
            self._is_done = True


class ThreadCommunicator(BaseCommunicator):
    """One rank of run_threads."""

    def __init__(self, group: _Group, rank: int, traffic: Traffic | None = None):
        self._group = group
        self._number = 0
        super().__init__(rank, len(group.ranks), traffic)

    @property
    def phase(self) -> str:
        return self._group.world.phases[self._group.ranks[self.rank]]

    @phase.setter
    def phase(self, text: str) -> None:
        self._group.world.phases[self._group.ranks[self.rank]] = text

    def _start(
        self, head: np.ndarray, payload: Any, finish: Callable[[list[Any]], None], recv_rows: np.ndarray | None = None,
        wait: bool = True,
    ) -> _ThreadRequest:  # fmt: skip
        number, self._number = self._number, self._number + 1
        self._group.deposit(number, self.rank, head, payload)

        def checked(entries: list[tuple]) -> None:
            headers.check_headers(np.stack([other[self.rank] for other, _, _ in entries]), self.rank, recv_rows)
            finish([theirs for _, theirs, _ in entries])

        request = _ThreadRequest(self._group, number, self.rank, checked)
        if wait:
            request.wait()
        return request

    def _meet(self, head: np.ndarray, payload: Any = None) -> list[Any]:
        payloads: list = []
        self._start(head, payload, payloads.extend)
        return payloads

    def _reduce(self, head: np.ndarray, x: np.ndarray, op: Op) -> None:
        payloads = self._meet(head, x.copy())
        total = payloads[0].copy()
        for theirs in payloads[1:]:  # in rank order: bitwise equal on all ranks
            REDUCE[op](total, theirs, out=total)
        x[...] = total

    def _exchange(
        self, head: np.ndarray, send: np.ndarray, send_rows: np.ndarray, recv: np.ndarray, recv_rows: np.ndarray, wait:
        bool,
    ) -> _ThreadRequest:  # fmt: skip
        mine, starts = send.copy(), np.concatenate([[0], np.cumsum(send_rows)])
        recv_starts = np.concatenate([[0], np.cumsum(recv_rows)])
        if recv.dtype.kind == "f":
            recv.fill(np.nan)  # reading before the request has ended gives NaN

        def finish(payloads: list[Any]) -> None:
            if not np.array_equal(send.reshape(-1).view(np.uint8), mine.reshape(-1).view(np.uint8)):
                raise CollectiveError(f"rank {self.rank}: send was changed before its request had ended; wait first")
            for q, (theirs, their_starts) in enumerate(payloads):
                start, stop = their_starts[self.rank : self.rank + 2]
                recv[recv_starts[q] : recv_starts[q + 1]] = theirs[start:stop]

        return self._start(head, (mine, starts), finish, recv_rows, wait)

    def _gather(self, head: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, list[int]]:
        rows = self._meet(head, x.copy())
        return np.concatenate(rows), [len(r) for r in rows]

    def _broadcast(self, head: np.ndarray, x: np.ndarray, root: int) -> None:
        payloads = self._meet(head, x.copy() if self.rank == root else None)
        if self.rank != root:
            x[...] = payloads[root]

    def _split(self, head: np.ndarray, color: int, key: int) -> ThreadCommunicator:
        number = self._number
        choices = self._meet(head, (color, key))
        peers = members_of(choices, color)
        with self._group.world.changed:
            group = _Group(self._group.world, [self._group.ranks[q] for q in peers])
            group = self._group.parts.setdefault((number, color), group)
        phase = self.phase
        comm = ThreadCommunicator(group, peers.index(self.rank), Traffic(len(peers), self.traffic, peers))
        comm.phase = phase
        return comm
