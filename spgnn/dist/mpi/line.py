"""MpiLine: short messages from thread to thread on an MPI communicator of their own."""

from __future__ import annotations

LONGEST = 4096  # bytes of a message


class MpiLine:
    """The line of a watchdog to those of the other ranks; needs MPI_THREAD_MULTIPLE. Never waits.

    Args: comm  an mpi4py communicator that nothing else uses; freed by `close`.
    """

    def __init__(self, comm):
        self._comm = comm
        self._sent: list[tuple] = []

    def send(self, rank: int, message: bytes) -> None:
        """Send; a rank that is stopped takes it later or never."""
        self._sent = [(request, held) for request, held in self._sent if not request.Test()]
        self._sent.append((self._comm.Isend(message[:LONGEST], rank), message))

    def receive(self) -> list[bytes]:
        """Return the messages that have come."""
        come = []
        while self._comm.Iprobe():
            message = bytearray(LONGEST)
            self._comm.Recv(message)
            come.append(bytes(message).rstrip(b"\0"))
        return come

    def close(self) -> None:
        """Take what is still under way and free the communicator. Collective, after a barrier."""
        self.receive()
        self._comm.Free()
