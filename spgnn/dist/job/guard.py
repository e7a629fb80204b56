"""The guard: one small process per host that reports which rank died, when the rank cannot.

Run by its path with the standard library alone, in a session of its own, so that the launcher that
ends the job does not end it first: `python -I -S guard.py LISTENER HOST FILE...`. Each rank connects
twice (GuardLine). Its `life` stays silent, so that the kernel lists deaths in their order: the launcher
kills the other ranks microseconds after the first. Its `talk` carries its phase, CLEAN for goodbye, and
after a failure ASK (may I write?) and FAILED (written). A life that ends without either is a death:
SIGKILL, a segfault, os._exit. The first failure on the host is written to stderr, by the rank or
here. FILEs are what MPI leaves in shared memory when a job fails.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable

CLEAN, FAILED, ASK, WAIT = b"\0clean", b"\0failed", b"\0ask", b"\0wait"
UP, SPEAK, QUIET = b"up", b"speak", b"quiet"
START_S = 5.0  # how long a rank waits for its guard to start, which takes 0.03-0.04 s
PATIENCE_S = 1.0  # how long a rank waits for the guard, or for another rank that has more to report


class Peer:
    """One rank as the guard sees it."""

    def __init__(self, rank: int, pid: int, life: socket.socket):
        self.rank, self.pid, self.life = rank, pid, life
        self.talk: socket.socket | None = None
        self.phase, self.said = "", b""
        self.is_alive = True

    def listen(self) -> None:
        """Read all messages that have arrived over talk."""
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
            except OSError:  # it has just died: its life shows it
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
    """Report the first failure among peers; other ranks that fail wait until it is written."""

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
        """Report the death of peer, unless it ended normally or another rank failed first."""
        peer.is_alive = False
        self.poll.unregister(peer.life.fileno())
        if not self.has_failed and peer.said not in (CLEAN, FAILED):
            self.has_failed = True
            sys.stderr.write(report_line(peer.rank, cause(peer.pid), peer.phase, self.host, peer.pid))
            sys.stderr.flush()

    def _answer(self) -> None:
        """Let the first rank that asks write its report, and the others continue after that."""
        for peer in self.peers.values():
            if peer.said == ASK and not self.has_failed:
                self.has_failed, self.speaker = True, peer
                peer.answer(SPEAK)
        if self.has_failed and (self.speaker is None or self.speaker.said == FAILED or not self.speaker.is_alive):
            for peer in self.peers.values():
                if peer.said in (ASK, WAIT):
                    peer.answer(QUIET)


def cause(pid: int) -> str:
    """Return how process pid ended, if its parent has not read its exit status yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            status = int(file.read().rpartition(")")[2].split()[49])  # field 52 of proc(5)
    except (OSError, ValueError, IndexError):
        return "killed, or it left without a message (the launcher has already read its exit status)"
    if status & 0x7F:
        number = status & 0x7F
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        why = " (by a person, the batch system, or the kernel when memory ran out)" if name == "SIGKILL" else ""
        return f"killed by {name}{why}"
    return f"the process left with exit code {status >> 8} in the middle of the job"


def report_line(rank: int, message: str, phase: str, host: str, pid: int) -> str:
    """Return the line that names a failed rank."""
    return f"spgnn: rank {rank}: {message} [phase: {phase or 'set-up'}; host {host}, pid {pid}]\n"


class GuardLine:
    """The two connections of a rank to the guard of its host, started by the first rank; without a guard the job runs on.

    Args: token    equal on all ranks of the job.
          barrier  is called once, on all ranks.
          files    are removed by the guard if the job fails.
    """

    def __init__(self, rank: int, token: str, barrier: Callable[[], None], files: list[str]):
        self._life: socket.socket | None = None
        self._talk: socket.socket | None = None
        self._guard = None
        address = f"\0spgnn-{token}"  # abstract: no file, and gone with the guard
        with contextlib.suppress(OSError):
            self._start_guard(address, files)
        barrier()
        with contextlib.suppress(OSError):
            life, talk = _connect(address), _connect(address)
            for kind, line in (("life", life), ("talk", talk)):
                line.send(f"{kind} {rank} {os.getpid()}".encode())
            if talk.recv(64) == UP:
                talk.settimeout(PATIENCE_S)
                self._life, self._talk = life, talk

    @property
    def is_up(self) -> bool:
        return self._talk is not None

    def send(self, message: bytes) -> None:
        """Send a phase, CLEAN or FAILED; never waits."""
        if self._talk is not None:
            with contextlib.suppress(OSError):  # full or gone: the guard is a help, not a need
                self._talk.send(message[:4096], socket.MSG_DONTWAIT)

    def ask(self, message: bytes) -> bytes:
        """Send ASK or WAIT and return the answer, b"" if none comes in time."""
        self.send(message)
        if self._talk is not None:
            with contextlib.suppress(OSError):
                return self._talk.recv(64)
        return b""

    def leave(self) -> None:
        """Send CLEAN: this rank ends as it should."""
        self.send(CLEAN)
        for line in (self._life, self._talk):
            if line is not None:
                line.close()
        self._life = self._talk = None
        if self._guard is not None:
            self._guard.returncode = 0  # it runs as long as another rank does; nobody waits for it

    def _start_guard(self, address: str, files: list[str]) -> None:
        import subprocess  # here: the guard itself starts without it

        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)  # fails on all ranks of a host but one
            listener.listen(4096)
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(listener.fileno()), socket.gethostname(), *files],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )


def _connect(address: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(START_S)
    line.connect(address)
    return line


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
