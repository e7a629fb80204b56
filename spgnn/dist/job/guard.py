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
                self.talk.close()
                self.talk = None
            elif message.startswith(b"\0"):
                self.said = message
            else:
                self.phase = message.decode(errors="replace")

    def answer(self, word: bytes) -> None:
        """Answer ASK or WAIT."""
        self.said = b""
        if self.talk is not None:
            try:
                self.talk.send(word, socket.MSG_DONTWAIT)
            except OSError:  # it has just died: its life tells
                return

    def has_ended(self) -> bool:
        """Return whether the process has closed its life."""
        try:
            return not self.life.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


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
            for peer in [self.peers[number] for number in ready if number in self.peers]:
                if peer.is_alive and peer.has_ended():
                    self._end(peer)
            if self.listener.fileno() in ready:
                self._accept()
            self._answer()
        return self.has_failed

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        kind, rank, pid = connection.recv(64).split()
        if kind == b"life":
            self.peers[connection.fileno()] = Peer(int(rank), int(pid), connection)
        else:
            next(p for p in self.peers.values() if p.rank == int(rank)).talk = connection
            connection.send(UP)
        self.poll.register(connection.fileno(), select.EPOLLIN)

    def _end(self, peer: Peer) -> None:
        """Report the death of peer, unless it said goodbye or another was first."""
        peer.is_alive = False
        self.poll.unregister(peer.life.fileno())
        if not self.has_failed and peer.said not in (CLEAN, FAILED):
            self.has_failed = True
            sys.stderr.write(report_line(peer.rank, cause(peer.pid), peer.phase, self.host, peer.pid))
            sys.stderr.flush()

    def _answer(self) -> None:
        """Let the first rank that asks speak, and the others go on once it has."""
        for peer in self.peers.values():
            if peer.said == ASK and not self.has_failed:
                self.has_failed, self.speaker = True, peer
                peer.answer(SPEAK)
        if self.has_failed and (self.speaker is None or self.speaker.said == FAILED or not self.speaker.is_alive):
            for peer in self.peers.values():
                if peer.said in (ASK, WAIT):
                    peer.answer(QUIET)


def cause(pid: int) -> str:
    """Return how process pid ended, as long as its parent has not asked for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            status = int(file.read().rpartition(")")[2].split()[49])  # field 52 of proc(5)
    except (OSError, ValueError, IndexError):
        return "killed, or it left without a word (the launcher has already taken its exit status)"
    if status & 0x7F:
        number = status & 0x7F
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        why = " (by a person, the batch system, or the kernel when memory ran out)" if name == "SIGKILL" else ""
        return f"killed by {name}{why}"
    return f"the process left with exit code {status >> 8} in the middle of the job"


def report_line(rank: int, message: str, phase: str, host: str, pid: int) -> str:
    """Return the line that names a failed rank."""
    return f"spgnn: rank {rank}: {message} [phase: {phase or 'set-up'}; host {host}, pid {pid}]\n"


def main() -> None:
    host, files = sys.argv[2], sys.argv[3:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        has_failed = Guard(listener, host).run()
    for file in files if has_failed else ():
        try:
            os.unlink(file)
        except FileNotFoundError:
            continue


if __name__ == "__main__":
    main()
