"""DeviceCommunicator: the ranks of another communicator, for device tensors too.

CPU buffers pass through that communicator. Device tensors pass through a transport: pinned host memory, or NCCL (nccl.py).
Imports no torch: a tensor knows its device and is copied by its own methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..communicator import Buffer, Communicator, Counts, Op, Request


class Transport(Protocol):
    """Moves device tensors between the ranks of a communicator, and counts them in its traffic.

    Each operation is ordered after the work that the rank has launched; work that it launches after `wait`, or
    after an operation that waits, is ordered after the operation.
    """

    name: str

    def start(self, send, send_rows: Counts, recv, recv_rows: Counts) -> Request: ...
    def reduce(self, x, op: Op) -> None: ...
    def broadcast(self, x, root: int) -> None: ...
    def split(self, part: Communicator, color: int, key: int) -> Transport: ...


def on_device(x: Any) -> bool:
    """Return whether x is a tensor outside CPU memory."""
    return hasattr(x, "detach") and x.device.type != "cpu"


def _detached(x: Any) -> Any:
    return x.detach()


class DeviceCommunicator:
    """The ranks, collectives and traffic of `comm`; device tensors move by `transport`.

    Args: is_device  returns whether the transport moves a buffer.
    """

    def __init__(self, comm: Communicator, transport: Transport, is_device: Callable[[Any], bool] = on_device):
        self._comm, self.transport, self._is_device = comm, transport, is_device
        self.rank, self.size, self.traffic = comm.rank, comm.size, comm.traffic

    @property
    def phase(self) -> str:
        return self._comm.phase

    @phase.setter
    def phase(self, text: str) -> None:
        self._comm.phase = text

    def all_reduce(self, x: Buffer, op: Op = "sum") -> Buffer:
        if not self._is_device(x):
            return self._comm.all_reduce(x, op)
        self.transport.reduce(_detached(x), op)
        return x

    def all_gather(self, x: Any) -> np.ndarray:
        """Return the rows of all ranks in CPU memory."""
        return self._comm.all_gather(x.detach().cpu() if self._is_device(x) else x)

    def all_gather_json(self, value: Any) -> list[Any]:
        return self._comm.all_gather_json(value)

    def all_to_all(self, send: Any, send_rows: Counts, recv: Buffer, recv_rows: Counts) -> Buffer:
        if not self._is_device(send):
            return self._comm.all_to_all(send, send_rows, recv, recv_rows)
        self.transport.start(send.detach(), send_rows, _detached(recv), recv_rows).wait()
        return recv

    def start_all_to_all(self, send: Any, send_rows: Counts, recv: Any, recv_rows: Counts) -> Request:
        if not self._is_device(send):
            return self._comm.start_all_to_all(send, send_rows, recv, recv_rows)
        return self.transport.start(send.detach(), send_rows, recv.detach(), recv_rows)

    def broadcast(self, x: Buffer, root: int = 0) -> Buffer:
        if not self._is_device(x):
            return self._comm.broadcast(x, root)
        self.transport.broadcast(_detached(x), root)
        return x

    def barrier(self) -> None:
        self._comm.barrier()

    def split(self, color: int, key: int | None = None) -> DeviceCommunicator:
        part = self._comm.split(color, key)
        transport = self.transport.split(part, color, self.rank if key is None else key)
        return DeviceCommunicator(part, transport, self._is_device)

    def abort(self, exit_code: int, message: str) -> None:
        self._comm.abort(exit_code, message)

    def __repr__(self) -> str:
        return f"{self._comm!r} by {self.transport.name}"


class StagedTransport:
    """Copy to the host, move by `comm`, copy back; `comm` checks and counts.

    Once its rows are on the host, a started exchange overlaps with the work that is launched after it; the copy
    back is launched by `wait`.
    """

    name = "host memory"

    def __init__(self, comm: Communicator):
        self.comm = comm

    def start(self, send, send_rows: Counts, recv, recv_rows: Counts) -> Request:
        out, into = _pinned(send), _pinned(recv)
        out.copy_(send)  # waits for the kernel that packs the rows, and for the copy
        return _StagedRequest(self.comm.start_all_to_all(out, send_rows, into, recv_rows), recv, into)

    def reduce(self, x, op: Op) -> None:
        staged = x.cpu()
        self.comm.all_reduce(staged, op)
        x.copy_(staged)

    def broadcast(self, x, root: int) -> None:
        staged = x.cpu().contiguous()
        self.comm.broadcast(staged, root)
        x.copy_(staged)

    def split(self, part: Communicator, color: int, key: int) -> StagedTransport:
        return StagedTransport(part)


class _StagedRequest:
    """An exchange between host buffers, followed by the copy to the device."""

    def __init__(self, request: Request, recv, into):
        self._request, self._recv, self._into = request, recv, into
        self._is_copied = False

    @property
    def ended_s(self) -> float | None:
        return self._request.ended_s

    def test(self) -> bool:
        if self._request.test():
            self.wait()
        return self._is_copied

    def wait(self) -> None:
        self._request.wait()
        if not self._is_copied:
            # torch keeps pinned memory until a copy out of it has ended.
            self._recv.copy_(self._into, non_blocking=True)
            self._is_copied, self._into = True, None


def _pinned(x):
    """Return an uninitialised tensor of x's shape in pinned memory, for copies without the CPU."""
    return x.new_empty(x.shape, device="cpu", pin_memory=x.device.type == "cuda")
