"""Communicator and Request: the protocols that every backend implements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from .traffic import Traffic

Op = Literal["sum", "max", "min"]
Counts = Sequence[int] | np.ndarray  # of rows, one per rank
Buffer = TypeVar("Buffer")  # a numpy array or a CPU tensor; the result is the one that was given


@runtime_checkable
class Request(Protocol):
    """An exchange that was started; the buffers belong to it until it has ended."""

    @property
    def ended_s(self) -> float | None:
        """time.monotonic() at which it was seen to have ended."""

    def test(self) -> bool:
        """Advance the exchange and return whether it has ended; never waits."""

    def wait(self) -> None:
        """Wait until the exchange has ended; the receive buffer is then filled.

        Raises: CollectiveError if the ranks did not call the same collective with fitting buffers.
        """


@runtime_checkable
class Communicator(Protocol):
    """Ranks 0 to size - 1 that call the same collectives in the same order.

    A buffer is a C-contiguous numpy array or CPU torch tensor (its memory is used, detached) of a
    dtype of `headers.DTYPES`. Rows are entries along axis 0; counts may be zero. Every method but
    `abort` is collective. Ranks that differ in the collective, dtype, row shape, op, root or counts
    raise CollectiveError, in `wait` for the started ones.
    """

    rank: int
    size: int
    traffic: Traffic

    @property
    def phase(self) -> str:
        """The step of the program; reported when this rank fails."""

    @phase.setter
    def phase(self, text: str) -> None: ...

    def all_reduce(self, x: Buffer, op: Op = "sum") -> Buffer:
        """x = op over the ranks of x, in place; return x. bool takes max (any) and min (all)."""

    def all_gather(self, x: Any) -> np.ndarray:
        """Return the rows of all ranks, in rank order; the counts may differ."""

    def all_gather_json(self, value: Any) -> list[Any]:
        """Return the JSON value of each rank, in rank order."""

    def all_to_all(self, send: Any, send_rows: Counts, recv: Buffer, recv_rows: Counts) -> Buffer:
        """Send the next send_rows[q] rows of send to rank q, for each q; fill recv likewise; return recv.

        Args: send (sum(send_rows), ...), recv (sum(recv_rows), ...), of one dtype and row shape.
        Sends send_rows[q] * row bytes to each q; rows to oneself are copied and not counted. The buffers share no
        memory, but an empty one may be a view of the other.
        """

    def broadcast(self, x: Buffer, root: int = 0) -> Buffer:
        """x = x of root, in place; return x."""

    def barrier(self) -> None:
        """Return when every rank has called it."""

    def split(self, color: int, key: int | None = None) -> Communicator:
        """Return the communicator of the ranks with this color, ordered by (key, rank).

        Its traffic is its own, and is counted in this communicator's too, under this one's ranks.
        """

    def start_all_to_all(self, send: Any, send_rows: Counts, recv: Any, recv_rows: Counts) -> Request:
        """Start all_to_all; both buffers stay untouched until the request has ended."""

    def abort(self, exit_code: int, message: str) -> None:
        """End every rank of the job with exit_code, naming this rank, its phase and the message. Not collective."""
