"""ObservedCommunicator: a communicator that notifies observers of phases and waits; the backends know none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..communicator import Communicator, Op, Request


class Observer(Protocol):
    """Notified of phases and of collectives that block, `wait` of a started one included. Must not raise."""

    def phase(self, text: str) -> None:
        """comm.phase was set."""

    def enter(self, kind: str, buffer=None) -> None:
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

    def all_reduce(self, x, op: Op = "sum"):
        return self._within("all_reduce", x, self._comm.all_reduce, x, op)

    def all_gather(self, x) -> np.ndarray:
        return self._within("all_gather", x, self._comm.all_gather, x)

    def all_gather_json(self, value: Any) -> list[Any]:
        return self._within("all_gather_json", None, self._comm.all_gather_json, value)

    def all_to_all(self, send, send_rows: Sequence[int], recv, recv_rows: Sequence[int]):
        return self._within("all_to_all", recv, self._comm.all_to_all, send, send_rows, recv, recv_rows)

    def broadcast(self, x, root: int = 0):
        return self._within("broadcast", x, self._comm.broadcast, x, root)

    def barrier(self) -> None:
        self._within("barrier", None, self._comm.barrier)

    def split(self, color: int | None, key: int | None = None) -> ObservedCommunicator | None:
        part = self._within("split", None, self._comm.split, color, key)
        return None if part is None else ObservedCommunicator(part, *self._observers)

    def start_all_to_all(self, send, send_rows: Sequence[int], recv, recv_rows: Sequence[int]) -> Request:
        return _ObservedRequest(self, recv, self._comm.start_all_to_all(send, send_rows, recv, recv_rows))

    def start_all_reduce(self, x, op: Op = "sum") -> Request:
        return _ObservedRequest(self, x, self._comm.start_all_reduce(x, op))

    def abort(self, exit_code: int, message: str) -> None:
        self._comm.abort(exit_code, message)

    def _within(self, kind: str, buffer, function: Callable, *args):
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

    def __init__(self, comm: ObservedCommunicator, buffer, request: Request):
        self._comm, self._buffer, self._request = comm, buffer, request

    @property
    def ended_s(self) -> float | None:
        return self._request.ended_s

    def test(self) -> bool:
        return self._request.test()

    def wait(self) -> None:
        self._comm._within("wait", self._buffer, self._request.wait)
