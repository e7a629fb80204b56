"""The guard: one small process a host that says which rank died, when the rank cannot.

Run by its path with the standard library alone, in a session of its own, so that the launcher that
ends the job does not take it first: `python -I -S guard.py LISTENER HOST FILE...`. Each rank connects
twice. Its `life` stays silent, so that the kernel lists deaths in their order: the launcher kills the
other ranks microseconds after the first. Its `talk` brings its phase, CLEAN for goodbye, and when it
has failed ASK (may I write?) and FAILED (written). A life that ends without either is a death:
SIGKILL, a segfault, os._exit. The first failure on the host is written to stderr, by the rank or
here. FILEs are what MPI leaves in shared memory when a job does not end as it should.
"""

import os
import select
import signal
import socket
import sys

CLEAN, FAILED, ASK, WAIT = b"\0clean", b"\0failed", b"\0ask", b"\0wait"
UP, SPEAK, QUIET = b"up", b"speak", b"quiet"


class Peer:
    """One rank as its guard knows it."""

    def __init__(self, rank: int, pid: int, life: socket.socket):
        self.rank, self.pid, self.life = rank, pid, life
        self.talk: socket.socket | None = None
        self.phase, self.said = "", b""
        self.is_alive = True

    def listen(self) -> None:
        """Take in all that has come over talk."""
        while self.talk is not None:
            try:
                message = self.talk.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self.talk = None
            elif message.startswith(b"\0"):
                self.said = message
            else:
                self.phase = message.decode(errors="replace")

    def answer(self, word: bytes) -> None:
        """Answer ASK or WAIT."""
        self.said = b""
        try:
            self.talk.send(word, socket.MSG_DONTWAIT)
        except (OSError, AttributeError):  # it has just died: its life tells
            return


class Guard:
    """Report the first failure among peers; hold the other ranks that fail until it is written."""

    def __init__(self, listener: socket.socket, host: str):
        self.listener, self.host = listener, host
        self.peers: dict[int, Peer] = {}  # file number of life -> peer
        self.speaker: Peer | None = None
        self.has_failed = False
        self.poll = select.epoll()
        self.poll.register(listener.fileno(), select.EPOLLIN)

    def run(self) -> bool:
        """Watch until all ranks have gone; return whether one failed."""
        while not self.peers or any(p.is_alive for p in self.peers.values()):
            ready = [number for number, _ in self.poll.poll()]  # in the order in which they became so
            for peer in self.peers.values():
                peer.listen()
            for number in ready:
                if number == self.listener.fileno():
                    self._accept()
                elif number in self.peers and self.peers[number].is_alive:
                    self._end(self.peers[number])
            self._answer()
            for number in ready:  # talks that have closed
                if number not in self.peers and number != self.listener.fileno():
                    self._forget_closed(number)
        return self.has_failed

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        kind, rank, pid = connection.recv(64).split()
        if kind == b"life":
            self.peers[connection.fileno()] = Peer(int(rank), int(pid), connection)
        else:
            peer = next(p for p in self.peers.values() if p.rank == int(rank))
            peer.talk = connection
            connection.send(UP)
        self.poll.register(connection.fileno(), select.EPOLLIN)
