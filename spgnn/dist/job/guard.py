"""The guard: one small process per host that names a rank which dies without a message.

Run by its path with the standard library alone, in a session of its own, so that the launcher that ends the job does not
end it first: `python -I -S guard.py LISTENER TOKEN HOST FILE...`. Each rank connects twice (GuardLine). Its `life` stays
silent, so that the kernel lists deaths in their order: the launcher kills the other ranks microseconds after the first.
Its `talk` carries its phase, CLEAN before a normal end, and FAILED once it has reported its own failure. A life that ends
without either is a death: SIGKILL, a segfault, os._exit. FILEs are what MPI leaves in shared memory when a job fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable

TYPE_CHECKING = False  # of a type checker True: the guard itself imports neither typing nor subprocess
if TYPE_CHECKING:
    import subprocess

CLEAN, FAILED, UP = b"\0clean", b"\0failed", b"up"
START_S = 5.0  # how long a rank waits for its guard to start, which takes 0.03-0.04 s


class Peer:
    """One rank as the guard sees it; `said` is CLEAN, FAILED or nothing."""

    def __init__(self, rank: int, pid: int, life: socket.socket):
        self.rank, self.pid, self.life = rank, pid, life
        self.talk: socket.socket | None = None
        self.phase, self.said, self.is_alive = "", b"", True
        self.claims: list[socket.socket] = []  # of a rank that has reported its failure, held until the guard ends

    def listen(self) -> None:
        """Read all messages that have arrived over talk."""
        while self.talk is not None:
            try:
                # Not recv_fds, which ignores its flags and would wait.
                message, more, _, _ = self.talk.recvmsg(4096, socket.CMSG_LEN(4), socket.MSG_DONTWAIT)
                self.claims += [socket.socket(fileno=int.from_bytes(fd, sys.byteorder)) for _, _, fd in more]
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


def watch(listener: socket.socket, token: str, host: str) -> bool:
    """Report the first rank that dies without a message, unless one has reported a failure; return whether any failed.

    Ends when all ranks have gone.
    """
    peers: dict[int, Peer] = {}  # file number of life -> peer
    has_failed = False
    claims: list[socket.socket | None] = []  # held until this process ends: nobody reports a second failure
    with select.epoll() as poll:
        poll.register(listener.fileno(), select.EPOLLIN)
        while not peers or any(peer.is_alive for peer in peers.values()):
            # In the order in which they became so. Once a rank has failed, it also looks for those that are stopped.
            ready = [number for number, _ in poll.poll(1.0 if has_failed else None)]
            if has_failed:
                end_stopped(peer.pid for peer in peers.values() if peer.is_alive)
            for peer in peers.values():
                peer.listen()
            has_failed |= any(peer.said == FAILED for peer in peers.values())
            for peer in [peers[number] for number in ready if number in peers]:  # its life has ended
                poll.unregister(peer.life.fileno())
                peer.is_alive = False
                if peer.said not in (CLEAN, FAILED) and not has_failed:
                    has_failed = True
                    claims.append(claim_report(token))
                    if claims[-1] is not None:
                        sys.stderr.write(
                            report_line(peer.rank, f"error: {cause(peer.pid)}", peer.phase, host, peer.pid)
                        )
                        sys.stderr.flush()
            if listener.fileno() in ready:
                connection, _ = listener.accept()
                kind, rank, pid = connection.recv(64).split()
                if kind == b"life":
                    peers[connection.fileno()] = Peer(int(rank), int(pid), connection)
                else:
                    next(peer for peer in peers.values() if peer.rank == int(rank)).talk = connection
                    connection.send(UP)
                poll.register(connection.fileno(), select.EPOLLIN)
    return has_failed


def claim_report(token: str) -> socket.socket | None:
    """Return the right to report a failure of the job, held until it is closed; None where another process has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0spgnn-{token}-failed")  # abstract: no file, and gone with the process
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
    return claim


def cause(pid: int) -> str:
    """Return how process pid ended, if its parent has not read its exit status yet."""
    try:
        status = int(_stat(pid)[49])  # field 52 of proc(5)
    except (OSError, ValueError, IndexError):
        return "killed, or it left without a message (the launcher has already read its exit status)"
    if number := status & 0x7F:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        why = " (by a person, the batch system, or the kernel when memory ran out)" if name == "SIGKILL" else ""
        return f"killed by {name}{why}"
    return f"the process left with exit code {status >> 8} in the middle of the job"


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def end_stopped(pids: Iterable[int]) -> None:
    """Kill the processes that are stopped: SIGTERM does not end them, and a launcher such as torchrun would wait 30 s."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if _stat(pid)[0] in "tT":
                os.kill(pid, signal.SIGKILL)


def report_line(rank: int, message: str, phase: str, host: str, pid: int) -> str:
    """Return the message of a failed rank, and a line that names it."""
    return f"spgnn: {message}\n  rank {rank}; phase: {phase or 'set-up'}; host {host}, pid {pid}\n"


class GuardLine:
    """The two connections of a rank to the guard of its host, started by the first rank; without a guard the job continues.

    Args: token    equal on all ranks of the job.
          barrier  is called once, on all ranks.
          files    are removed by the guard if the job fails.
    """

    def __init__(self, rank: int, token: str, barrier: Callable[[], None], files: list[str]):
        self._token = token
        self._guard: subprocess.Popen | None = None
        self._lines: list[socket.socket] = []  # life, talk
        self._claim: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._start_guard(files)
        barrier()
        with contextlib.suppress(OSError):
            for kind in ("life", "talk"):
                self._lines.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                self._lines[-1].settimeout(START_S)
                self._lines[-1].connect(f"\0spgnn-{token}")
                self._lines[-1].send(f"{kind} {rank} {os.getpid()}".encode())
            self._lines[-1].recv(64)  # UP: from now on it sees who dies first

    def send(self, message: bytes) -> None:
        """Send a phase, CLEAN or FAILED; never waits."""
        if self._lines:
            with contextlib.suppress(OSError):  # full or gone: the guard is a help, not a need
                self._lines[-1].send(message[:4096], socket.MSG_DONTWAIT)

    def fail(self) -> None:
        """Send FAILED and the right to report, which the guard then holds: this rank may end before the others."""
        if self._lines and self._claim is not None:
            with contextlib.suppress(OSError):
                right = self._claim.fileno().to_bytes(4, sys.byteorder)
                more = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, right)]
                self._lines[-1].sendmsg([FAILED], more, socket.MSG_DONTWAIT)
        else:
            self.send(FAILED)

    def claim_report(self) -> bool:
        """Return whether this rank is the first of its host to report a failure."""
        self._claim = claim_report(self._token)
        return self._claim is not None

    def leave(self) -> None:
        """Send CLEAN: this rank ends as it should."""
        self.send(CLEAN)
        for line in self._lines:
            line.close()
        self._lines = []
        if self._guard is not None:
            self._guard.returncode = 0  # it runs as long as another rank does; nobody waits for it

    def _start_guard(self, files: list[str]) -> None:
        import subprocess

        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0spgnn-{self._token}")  # fails on all ranks of a host but one
            listener.listen(4096)
            arguments = [str(listener.fileno()), self._token, socket.gethostname(), *files]
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, *arguments],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )


def main() -> None:
    token, host, *files = sys.argv[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        has_failed = watch(listener, token, host)
    for file in files if has_failed else ():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)


if __name__ == "__main__":
    main()
