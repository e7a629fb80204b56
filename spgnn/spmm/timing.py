"""TimedOperations: Operations whose every call is a span of a Recorder; Layout.use puts them in place.

Shapes: n, m rows, F, C columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dist import Communicator, Request, Traffic
from ..timeline.recorder import Recorder
from .kernels.csr import LocalCSR
from .operations import Operations

OWN, GHOST, GEMM, PACK, UNPACK = "own SpMM", "ghost SpMM", "GEMM", "pack", "unpack"
START, WAIT, SUM = "exchange start", "exchange wait", "sum over process row"


class TimedOperations(Operations):
    """The same operations, recorded: 2 nnz F flops of a product with A, 2 n F C of a GEMM, rows sent to others.

    Args: traffic  of all ranks; its open label says which layer and direction a span is of.
          settle   waits for what was launched, so that a span on a device is its work; nothing overlaps then.
    """

    def __init__(self, recorder: Recorder, traffic: Traffic, settle: Callable[[], None] | None = None):
        self.recorder, self.traffic, self.settle = recorder, traffic, settle

    def own_spmm(self, A, X_mF, out_nF, **options):
        return self._spanned(OWN, super().own_spmm, A, X_mF, out_nF, flops=spmm_flops(A, X_mF), **options)

    def ghost_spmm(self, A, X_mF, out_nF, **options):
        return self._spanned(GHOST, super().ghost_spmm, A, X_mF, out_nF, flops=spmm_flops(A, X_mF), **options)

    def pack(self, B, X_nF, out_mF):
        flops = spmm_flops(B, X_nF) if isinstance(B, LocalCSR) else 0  # a Selection copies
        return self._spanned(PACK, super().pack, B, X_nF, out_mF, flops=flops)

    def unpack(self, A, X_mF, out_nF):
        return self._spanned(UNPACK, super().unpack, A, X_mF, out_nF, flops=spmm_flops(A, X_mF))

    def gemm(self, a, b, out=None, bias=None):
        return self._spanned(GEMM, super().gemm, a, b, out, bias, flops=2 * a.shape[0] * a.shape[1] * b.shape[1])

    def run(self, phase, function, *args):
        return self._spanned(phase, function, *args)

    def start(self, comm, send, send_rows, recv, recv_rows):
        flight = _Flight(self.traffic.open_label(), self.recorder.clock(), *sent(comm, send, send_rows))
        flight.request = self._spanned(START, super().start, comm, send, send_rows, recv, recv_rows)
        return flight

    def wait(self, request):
        self._spanned(WAIT, super().wait, request)
        self.recorder.add_flight(request.label, request.start_s, request.ended_s, request.bytes, request.messages)

    def sum_rows(self, comm, send, send_rows, recv, recv_rows):
        n_bytes, messages = sent(comm, send, send_rows)
        self.recorder.begin(SUM, self.traffic.open_label(), n_bytes=n_bytes, messages=messages)
        try:
            super().sum_rows(comm, send, send_rows, recv, recv_rows)
        finally:
            self.recorder.end()

    def _spanned(self, phase: str, function: Callable, *args, flops: int = 0, **options):
        with self.recorder.span(phase, self.traffic.open_label(), flops=flops):
            result = function(*args, **options)
            if self.settle is not None:
                self.settle()
            return result


class _Flight:
    """A started exchange, and what it carries."""

    request: Request

    def __init__(self, label: str, start_s: float, n_bytes: int, messages: int):
        self.label, self.start_s, self.bytes, self.messages = label, start_s, n_bytes, messages

    @property
    def ended_s(self) -> float:
        return self.request.ended_s

    def test(self) -> bool:
        return self.request.test()

    def wait(self) -> None:
        self.request.wait()


def spmm_flops(A: LocalCSR, X_mF) -> int:
    """Return 2 nnz F."""
    return 2 * A.nnz * X_mF.shape[1]


def sent(comm: Communicator, send, send_rows) -> tuple[int, int]:
    """Return (bytes, messages) that an exchange sends to other ranks."""
    rows = np.array(send_rows, np.int64)
    rows[comm.rank] = 0
    row_bytes = int(np.prod(send.shape[1:], dtype=np.int64)) * send.itemsize
    return int(rows.sum()) * row_bytes, int(np.count_nonzero(rows))
