"""AddressTransport: device tensors by an MPI that takes addresses of a device; the library says whether it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import headers as buffers
from ..communicator import Communicator, Request
from .staged import StagedTransport


class AddressTransport(StagedTransport):
    """Rows by MPI from device to device; sums and broadcasts, which are small, through the host.

    MPI knows no streams: `settle` waits for what the rank has launched before an exchange starts. What is
    launched after that runs beside it; `wait` waits on the host.
    Args: comm  MPI's, as it is or observed.
    """

    name = "MPI on device addresses"

    def __init__(self, comm: Communicator, settle: Callable[[], None]):
        super().__init__(comm)
        self._mpi, self._settle = getattr(comm, "unobserved", comm), settle

    def start(self, send, send_rows: Sequence[int], recv, recv_rows: Sequence[int]) -> Request:
        comm = self.comm
        send_rows, recv_rows = buffers.check_rows(send, send_rows, recv, recv_rows, comm.rank, comm.size)
        unit = buffers.row_bytes(send)
        sent_bytes = send_rows * unit
        sent_bytes[comm.rank] = 0
        comm.traffic.count_sent("all_to_all", sent_bytes)
        own, at, to = int(send_rows[comm.rank]), int(send_rows[: comm.rank].sum()), int(recv_rows[: comm.rank].sum())
        recv[to : to + own].copy_(send[at : at + own])
        self._settle()
        return self._mpi.start_addresses(send.data_ptr(), send_rows, recv.data_ptr(), recv_rows, unit)

    def split(self, part: Communicator | None, color: int | None, key: int) -> AddressTransport | None:
        return None if part is None else AddressTransport(part, self._settle)
