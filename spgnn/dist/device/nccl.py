"""NcclTransport: device tensors by NCCL through CuPy, on a stream of its own; the only file of dist that imports cupy.

The unique id travels by the communicator that the transport is made for. Plans were compared over the
ranks when they were made (consistency.check_counts), so an exchange sends no headers: a rank that
nevertheless differs is found by the time limit of the next collective that waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import CollectiveError, ResourceError, agree
from .. import headers
from ..communicator import Communicator, Counts, Op

TYPES = {
    "bool": "UINT8", "uint8": "UINT8", "int8": "INT8", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64",
}  # fmt: skip
UNIQUE_ID_BYTES = 128
TO_DEVICE = 3  # cudaMemcpyDeviceToDevice
PAUSE_S = 5e-5
ENDED, NOT_READY = 0, 600  # cudaSuccess, cudaErrorNotReady


class NcclTransport:
    """Grouped sends and receives, reductions and broadcasts between devices, one per rank.

    Args: comm     the ranks; carries the unique id, checks nothing, counts everything.
          device   number of this rank's device.
          current  returns the stream that the rank computes on, as a CuPy object.
          limit_s  seconds that a collective that waits may take.
          handle   NCCL's communicator of a split; None: a new one.
    Collective.
    """

    name = "NCCL"

    def __init__(
        self, comm: Communicator, device: int, current: Callable[[], Any], limit_s: float = 600.0, handle=None
    ):
        import cupy
        from cupy.cuda import nccl

        self.comm, self.device, self.limit_s = comm, device, limit_s
        self._cupy, self._nccl, self._current = cupy, nccl, current
        with cupy.cuda.Device(device):
            self._handle = self._connect() if handle is None else handle
            self.stream = cupy.cuda.Stream(non_blocking=True)
        self._waiting: deque[tuple[str, object]] = deque()  # (operation, event) that were launched and not seen to end

    def start(self, send, send_rows: Counts, recv, recv_rows: Counts) -> NcclRequest:
        comm = self.comm
        sent, received = headers.check_rows(send, send_rows, recv, recv_rows, comm.rank, comm.size)
        unit = headers.row_bytes(send)
        sent_bytes = sent * unit
        own = int(sent_bytes[comm.rank])
        sent_bytes[comm.rank] = 0
        comm.traffic.count_sent("all_to_all", sent_bytes)
        starts, recv_starts = _starts(sent) * unit, _starts(received) * unit
        out, into, number = send.data_ptr(), recv.data_ptr(), self._nccl.NCCL_UINT8

        def post(stream: int) -> None:
            if own:
                self._cupy.cuda.runtime.memcpyAsync(
                    into + int(recv_starts[comm.rank]), out + int(starts[comm.rank]), own, TO_DEVICE, stream
                )
            self._nccl.groupStart()
            for step in range(1, comm.size):  # not all to the same rank first
                q, p = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
                if sent_bytes[q]:
                    self._handle.send(out + int(starts[q]), int(sent_bytes[q]), number, q, stream)
                if received[p] * unit:
                    self._handle.recv(into + int(recv_starts[p]), int(received[p] * unit), number, p, stream)
            self._nccl.groupEnd()

        return NcclRequest(self, self._launch("all_to_all", post), (send, recv))

    def reduce(self, x, op: Op) -> None:
        nccl, name = self._nccl, str(x.dtype).removeprefix("torch.")
        self._check(x, name)
        self.comm.traffic.count_collective("all_reduce", x.numel() * x.element_size())
        kind, how, at = getattr(nccl, f"NCCL_{TYPES[name]}"), getattr(nccl, f"NCCL_{op.upper()}"), x.data_ptr()
        event = self._launch("all_reduce", lambda stream: self._handle.allReduce(at, at, x.numel(), kind, how, stream))
        self._settle()
        self.order_behind(event)

    def broadcast(self, x, root: int) -> None:
        self._check(x, str(x.dtype).removeprefix("torch."))
        n_bytes = x.numel() * x.element_size()
        self.comm.traffic.count_collective("broadcast", n_bytes)
        event = self._launch(
            "broadcast", lambda stream: self._handle.bcast(x.data_ptr(), n_bytes, self._nccl.NCCL_UINT8, root, stream)
        )
        self._settle()
        self.order_behind(event)

    def split(self, part: Communicator, color: int, key: int) -> NcclTransport:
        self._settle()  # no operation may be in flight
        with self._cupy.cuda.Device(self.device):
            handle = self._call("split", lambda: self._handle.commSplit(color, key))
        return NcclTransport(part, self.device, self._current, self.limit_s, handle)

    def order_behind(self, event) -> None:
        """Make the stream that the rank computes on wait for an event."""
        with self._cupy.cuda.Device(self.device):  # torch's default stream has address 0, which is the current device's
            self._current().wait_event(event)

    def has_ended(self, event) -> bool:
        """Return whether the device has reached an event.

        Raises: CollectiveError if the device failed.
        """
        status = self._cupy.cuda.runtime.eventQuery(event.ptr)  # event.done would be False for ever
        if status not in (ENDED, NOT_READY):
            error = self._cupy.cuda.runtime.CUDARuntimeError(status)
            raise CollectiveError(
                f"rank {self.comm.rank}, phase {self.comm.phase}: device {self.device} failed: {error}; CUDA_LAUNCH_BLOCKING=1 shows where"
            )
        return status == ENDED

    def _connect(self):
        comm, nccl = self.comm, self._nccl
        error, unique_id = None, np.zeros(UNIQUE_ID_BYTES, np.uint8)
        if not nccl.available:
            error = ResourceError(f"rank {comm.rank}: CuPy finds no NCCL; pip install nvidia-nccl-cu13")
        elif comm.rank == 0:
            unique_id[:] = np.frombuffer(nccl.get_unique_id(), np.uint8)
        agree(comm, error)
        comm.broadcast(unique_id)
        return self._call("connect", lambda: nccl.NcclCommunicator(comm.size, unique_id.tobytes(), comm.rank))

    def _launch(self, what: str, post: Callable[[int], None]):
        """Post on the transport's stream after the work that the rank has launched; return the event of its end."""
        cuda = self._cupy.cuda
        label = self.comm.traffic.open_label()
        with cuda.Device(self.device):
            ready, ended = (cuda.Event(block=False, disable_timing=True) for _ in range(2))
            ready.record(self._current())
            self.stream.wait_event(ready)
            self._call(what, lambda: post(self.stream.ptr))
            ended.record(self.stream)
        self._waiting.append((f"{what} ({label})" if label else what, ended))
        while self._waiting[0][1] is not ended and self.has_ended(self._waiting[0][1]):
            self._waiting.popleft()
        return ended

    def _settle(self) -> None:
        """Wait on the host until all launched operations have ended; raise and name the one that does not."""
        limit, tries = time.monotonic() + self.limit_s, 0
        while self._waiting:
            what, event = self._waiting[0]
            if self.has_ended(event):
                self._waiting.popleft()
                continue
            tries += 1
            if tries % 1024 == 0 or tries == 1:
                self._call(what, self._handle.check_async_error)
            if time.monotonic() > limit:
                self._handle.abort()
                raise CollectiveError(
                    f"rank {self.comm.rank}, phase {self.comm.phase}: {what} by NCCL has not ended for {self.limit_s:g} s; "
                    f"another rank has stopped or calls something else"
                )
            time.sleep(0 if tries < 200 else PAUSE_S)

    def _call(self, what: str, function: Callable):
        try:
            return function()
        except self._nccl.NcclError as error:
            raise CollectiveError(
                f"rank {self.comm.rank}, phase {self.comm.phase}: NCCL failed in {what}: {error}; NCCL_DEBUG=INFO shows more"
            ) from error

    def _check(self, x, name: str) -> None:
        if name not in TYPES or not x.is_contiguous():
            raise CollectiveError(
                f"rank {self.comm.rank}: NCCL takes contiguous tensors of {', '.join(TYPES)}; got {name}, strides {tuple(x.stride())}"
            )


class NcclRequest:
    """An exchange on the transport's stream; `wait` makes the rank's stream wait for it, not the host."""

    def __init__(self, transport: NcclTransport, event, held: tuple):
        self._transport, self._event, self._held = transport, event, held
        self.ended_s: float | None = None  # host time at which it was seen to have ended or was waited for

    def test(self) -> bool:
        if self.ended_s is None and self._transport.has_ended(self._event):
            self.wait()
        return self.ended_s is not None

    def wait(self) -> None:
        if self.ended_s is None:
            self._transport.order_behind(self._event)
            self.ended_s, self._held = time.monotonic(), ()


def _starts(rows: np.ndarray) -> np.ndarray:
    return np.cumsum(rows) - rows
