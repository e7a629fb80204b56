"""DatagramChannel: short messages between watchdogs, next to all collectives, where the ranks have no MPI for it."""

from __future__ import annotations

import hashlib
import json
import socket
import time

from ..communicator import Communicator

LONGEST = 4096  # bytes of a message
ARRIVE_S = 3.0  # how long the first message of each rank may take


class DatagramChannel:
    """Messages over UDP. Never waits.

    Args: sock       bound, and freed by `close`.
          addresses  (size,) of the sockets of all ranks.
          token      of the job: other datagrams are dropped.
    """

    def __init__(self, sock: socket.socket, addresses: list[tuple[str, int]], token: bytes):
        self._socket, self._addresses, self._token = sock, addresses, token

    @classmethod
    def connect(cls, comm: Communicator, host: str) -> DatagramChannel | None:
        """Return the channel of the ranks of comm; None on all if a message of any rank to another is lost. Collective.

        Args: host  the address of this rank that the others reach.
        """
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind((host, 0))
        addresses = comm.all_gather_json(sock.getsockname()[:2])
        token = hashlib.sha256(json.dumps(addresses).encode()).digest()
        channel = cls(sock, [tuple(address) for address in addresses], token)
        for rank in range(comm.size):
            channel.send(rank, str(comm.rank).encode())
        missing, end = set(range(comm.size)), time.monotonic() + ARRIVE_S
        while missing and time.monotonic() < end:
            missing -= {int(message) for message in channel.receive()}
            time.sleep(0.001 if missing else 0)
        if all(comm.all_gather_json(not missing)):
            return channel
        sock.close()
        return None

    def send(self, rank: int, message: bytes) -> None:
        """Send; a rank that is stopped receives it later or never."""
        try:
            self._socket.sendto(self._token + message[:LONGEST], self._addresses[rank])
        except OSError:  # full or out of reach: as if it was lost
            return

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived."""
        arrived = []
        while True:
            try:
                message = self._socket.recv(len(self._token) + LONGEST)
            except OSError:  # nothing more
                return arrived
            if message.startswith(self._token):
                arrived.append(message[len(self._token) :])

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()
