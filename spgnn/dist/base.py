"""BaseCommunicator: the checks, headers and counts that every backend shares, around its own transport."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ..errors import RankError, UsageError
from . import headers
from .communicator import Buffer, Counts, Op, Request
from .traffic import Traffic

REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class BaseCommunicator(ABC):
    """Communicator whose transport is six methods of the subclass.

    `_exchange` returns a Request, one that has ended if wait; the other five wait. `_gather` returns the rows of all ranks,
    and how many each has. Each first compares head, the call of this rank, with the other ranks' heads (headers.check_headers).
    """

    def __init__(self, rank: int, size: int, traffic: Traffic | None = None):
        self.rank = rank
        self.size = size
        self.traffic = Traffic(size) if traffic is None else traffic
        self.phase = "set-up"

    def all_reduce(self, x: Buffer, op: Op = "sum") -> Buffer:
        array = headers.as_target(x, "x", self.rank)
        headers.check_op(array, op, self.rank)
        self.traffic.count_collective("all_reduce", array.nbytes)
        self._reduce(headers.header("all_reduce", self.size, array, array.shape, headers.OPS.index(op)), array, op)
        return x

    def all_gather(self, x: Any) -> np.ndarray:
        array = headers.as_rows(x, "x", self.rank)
        self.traffic.count_collective("all_gather", array.nbytes)
        head = headers.header("all_gather", self.size, array, array.shape[1:], rows=len(array))
        return self._gather(head, array)[0]

    def all_gather_json(self, value: Any) -> list[Any]:
        array = np.frombuffer(json.dumps(value).encode(), np.uint8)
        self.traffic.count_collective("all_gather_json", array.nbytes)
        head = headers.header("all_gather_json", self.size, array, rows=len(array))
        joined, counts = self._gather(head, array)
        ends = np.cumsum(counts)
        return [json.loads(joined[end - n : end].tobytes()) for n, end in zip(counts, ends)]

    def all_to_all(self, send: Any, send_rows: Counts, recv: Buffer, recv_rows: Counts) -> Buffer:
        self.start_all_to_all(send, send_rows, recv, recv_rows, wait=True)
        return recv

    def start_all_to_all(
        self, send: Any, send_rows: Counts, recv: Any, recv_rows: Counts, wait: bool = False
    ) -> Request:
        out, sent, into, received = headers.check_exchange(send, send_rows, recv, recv_rows, self.rank, self.size)
        sent_bytes = sent * headers.row_bytes(out)
        sent_bytes[self.rank] = 0
        self.traffic.count_sent("all_to_all", sent_bytes)
        head = headers.header("all_to_all", self.size, out, out.shape[1:], rows=sent)
        return self._exchange(head, out, sent, into, received, wait)

    def broadcast(self, x: Buffer, root: int = 0) -> Buffer:
        if not 0 <= root < self.size:
            raise UsageError(f"rank {self.rank}: broadcast from root {root}; the ranks are 0 to {self.size - 1}")
        check = headers.as_array if root == self.rank else headers.as_target
        array = check(x, "x", self.rank)
        self.traffic.count_collective("broadcast", array.nbytes)
        self._broadcast(headers.header("broadcast", self.size, array, array.shape, root), array, root)
        return x

    def barrier(self) -> None:
        self._meet(headers.header("barrier", self.size))

    def split(self, color: int, key: int | None = None) -> Self:
        if color < 0:
            raise UsageError(f"rank {self.rank}: split color {color}; expected 0 or more")
        return self._split(headers.header("split", self.size), color, self.rank if key is None else key)

    def abort(self, exit_code: int, message: str) -> None:
        raise RankError(f"rank {self.rank} aborted (phase: {self.phase}): {message}", exit_code)

    def close(self) -> None:
        """Wait for the `close` of all ranks: a rank that calls something else learns who has left. Collective."""
        self._meet(headers.header("close", self.size))

    @abstractmethod
    def _reduce(self, head: np.ndarray, x: np.ndarray, op: Op) -> None: ...

    @abstractmethod
    def _exchange(
        self,
        head: np.ndarray,
        send: np.ndarray,
        send_rows: np.ndarray,
        recv: np.ndarray,
        recv_rows: np.ndarray,
        wait: bool,
    ) -> Request: ...

    @abstractmethod
    def _gather(self, head: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, Counts]: ...

    @abstractmethod
    def _broadcast(self, head: np.ndarray, x: np.ndarray, root: int) -> None: ...

    @abstractmethod
    def _split(self, head: np.ndarray, color: int, key: int) -> Self: ...

    @abstractmethod
    def _meet(self, head: np.ndarray) -> object: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"


class Done:
    """A request that has ended."""

    def __init__(self):
        self.ended_s = time.monotonic()

    def test(self) -> bool:
        return True

    def wait(self) -> None:
        return None


def members_of(choices: Sequence[Sequence[int]], color: int) -> list[int]:
    """Return the ranks whose (color, key) in choices has this color, ordered by (key, rank)."""
    return [rank for _, rank in sorted((key, rank) for rank, (theirs, key) in enumerate(choices) if theirs == color)]


def copy_own_rows(send: np.ndarray, send_rows: np.ndarray, recv: np.ndarray, recv_rows: np.ndarray, rank: int) -> None:
    """Copy the rows that rank sends to itself from send to recv."""
    start, to = int(send_rows[:rank].sum()), int(recv_rows[:rank].sum())
    recv[to : to + recv_rows[rank]] = send[start : start + send_rows[rank]]


class SelfCommunicator(BaseCommunicator):
    """One rank, alone, of a process that no launcher started; every collective is a copy or nothing."""

    def __init__(self):
        super().__init__(0, 1)

    def _reduce(self, head: np.ndarray, x: np.ndarray, op: Op) -> None:
        return None

    def _exchange(
        self, head: np.ndarray, send: np.ndarray, send_rows: np.ndarray, recv: np.ndarray, recv_rows: np.ndarray, wait:
        bool,
    ) -> Done:  # fmt: skip
        copy_own_rows(send, send_rows, recv, recv_rows, 0)
        return Done()

    def _gather(self, head: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, Counts]:
        return x.copy(), [len(x)]

    def _broadcast(self, head: np.ndarray, x: np.ndarray, root: int) -> None:
        return None

    def _meet(self, head: np.ndarray) -> None:
        return None

    def _split(self, head: np.ndarray, color: int, key: int) -> SelfCommunicator:
        part = SelfCommunicator()
        part.traffic = type(self.traffic)(1, parent=self.traffic, peers=[0])
        return part
