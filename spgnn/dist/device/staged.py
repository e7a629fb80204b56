"""Transports by a communicator of the CPU: staged through pinned host memory, or MPI on device addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import headers
from ..communicator import Communicator, Counts, Op, Request

if TYPE_CHECKING:
    from ..mpi.mpi_communicator import MpiCommunicator


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

    def close(self) -> None:
        """Nothing to free."""


class AddressTransport(StagedTransport):
    """Rows by MPI from device to device; sums and broadcasts, which are small, through the host.

    MPI knows no streams: `settle` waits for all launched work before an exchange starts. Work that is launched
    after that overlaps with it; `wait` waits on the host.
    Args: comm  an MpiCommunicator, or an observed one.
    """

    name = "MPI on device addresses"

    def __init__(self, comm: Communicator, settle: Callable[[], None]):
        super().__init__(comm)
        mpi: Any = getattr(comm, "unobserved", comm)
        self._mpi: MpiCommunicator = mpi
        self._settle = settle

    def start(self, send, send_rows: Counts, recv, recv_rows: Counts) -> Request:
        comm = self.comm
        sent, received = headers.check_rows(send, send_rows, recv, recv_rows, comm.rank, comm.size)
        unit = headers.row_bytes(send)
        sent_bytes = sent * unit
        sent_bytes[comm.rank] = 0
        comm.traffic.count_sent("all_to_all", sent_bytes)
        own, at, to = int(sent[comm.rank]), int(sent[: comm.rank].sum()), int(received[: comm.rank].sum())
        recv[to : to + own].copy_(send[at : at + own])
        self._settle()
        return self._mpi.start_addresses(send.data_ptr(), sent, recv.data_ptr(), received, unit)

    def split(self, part: Communicator, color: int, key: int) -> AddressTransport:
        return AddressTransport(part, self._settle)


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
