"""Operations: the exchanges of an operator, and a span around whatever else takes time; TimedOperations record them.

Shapes: F columns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from ...dist import Communicator, Request, Traffic
from ...timeline.recorder import Recorder

OWN, GHOST, GEMM, PACK, UNPACK = "own SpMM", "ghost SpMM", "GEMM", "pack", "unpack"
UNTIMED = nullcontext()
START, WAIT, SUM = "exchange start", "exchange wait", "sum over process row"


class Operations:
    """Spans that time nothing, and exchanges as they are; Layout.use takes others."""

    def span(self, phase: str, flops: int = 0) -> AbstractContextManager:
        """Return the context of one product, copy or pass over rows: 2 nnz F flops with A, 2 n F C with weights."""
        return UNTIMED

    def start(self, comm: Communicator, send, send_rows, recv, recv_rows) -> Request:
        """Start an exchange of rows and return its Request."""
        return comm.start_all_to_all(send, send_rows, recv, recv_rows)

    def wait(self, request) -> None:
        """Wait until an exchange has ended."""
        request.wait()

    def sum_rows(self, comm: Communicator, send, send_rows, recv, recv_rows) -> None:
        """Exchange the rows that a process row adds up."""
        comm.all_to_all(send, send_rows, recv, recv_rows)


class TimedOperations(Operations):
    """The same, recorded: seconds, flops, and bytes and messages to other ranks.

    Args: traffic  of all ranks; its open label says which layer and direction a span is of.
          settle   waits for what was launched, so that a span on a device is its work; nothing overlaps then.
    """

    def __init__(self, recorder: Recorder, traffic: Traffic, settle: Callable[[], None] | None = None):
        self.recorder, self.traffic, self.settle = recorder, traffic, settle

    @contextmanager
    def span(self, phase: str, flops: int = 0) -> Generator[None]:
        with self.recorder.span(phase, self.traffic.open_label(), flops=flops):
            yield
            if self.settle is not None:
                self.settle()

    def start(self, comm: Communicator, send, send_rows, recv, recv_rows):
        flight = _Flight(self.traffic.open_label(), self.recorder.clock(), *sent(comm, send, send_rows))
        with self.span(START):
            flight.request = super().start(comm, send, send_rows, recv, recv_rows)
        return flight

    def wait(self, request):
        with self.span(WAIT):
            super().wait(request)
        self.recorder.add_flight(request.label, request.start_s, request.ended_s, request.bytes, request.messages)

    def sum_rows(self, comm: Communicator, send, send_rows, recv, recv_rows):
        n_bytes, messages = sent(comm, send, send_rows)
        with self.recorder.span(SUM, self.traffic.open_label(), n_bytes=n_bytes, messages=messages):
            super().sum_rows(comm, send, send_rows, recv, recv_rows)


class _Flight:
    """A started exchange, and what it carries."""

    request: Request

    def __init__(self, label: str, start_s: float, n_bytes: int, messages: int):
        self.label, self.start_s, self.bytes, self.messages = label, start_s, n_bytes, messages

    @property
    def ended_s(self) -> float | None:
        return self.request.ended_s

    def test(self) -> bool:
        return self.request.test()

    def wait(self) -> None:
        self.request.wait()


def spmm_flops(A, X_mF) -> int:
    """Return 2 nnz F, the flops of A X."""
    return 2 * A.nnz * X_mF.shape[1]


def sent(comm: Communicator, send, send_rows) -> tuple[int, int]:
    """Return (bytes, messages) that an exchange sends to other ranks."""
    rows = np.array(send_rows, np.int64)
    rows[comm.rank] = 0
    row_bytes = int(np.prod(send.shape[1:], dtype=np.int64)) * send.itemsize
    return int(rows.sum()) * row_bytes, int(np.count_nonzero(rows))
