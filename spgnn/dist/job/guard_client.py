"""GuardLine: how one rank reaches the guard of its host (guard.py), and starts it if it is the first."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable

from . import guard

START_S = 5.0  # how long a rank waits for its guard to come up, which takes 0.03-0.04 s
PATIENCE_S = 1.0  # how long a rank waits for the guard, or for another rank that has more to say


class GuardLine:
    """The two connections of a rank to its guard; a rank that has none goes on without.

    Args: token    one for the job, on all its ranks.
          barrier  is called once, on all ranks.
          files    what the guard removes if the job does not end as it should.
    """

    def __init__(self, rank: int, token: str, barrier: Callable[[], None], files: list[str]):
        self._life: socket.socket | None = None
        self._talk: socket.socket | None = None
        self._guard: subprocess.Popen | None = None
        address = f"\0spgnn-{token}"  # abstract: no file, and gone with the guard
        with contextlib.suppress(OSError):
            self._start_guard(address, files)
        barrier()
        with contextlib.suppress(OSError):
            life, talk = _connect(address), _connect(address)
            for kind, line in (("life", life), ("talk", talk)):
                line.send(f"{kind} {rank} {os.getpid()}".encode())
            if talk.recv(64) == guard.UP:
                talk.settimeout(PATIENCE_S)
                self._life, self._talk = life, talk

    @property
    def is_up(self) -> bool:
        return self._talk is not None

    def tell(self, message: bytes) -> None:
        """Send a phase, CLEAN or FAILED; never waits."""
        if self._talk is not None:
            with contextlib.suppress(OSError):  # full or gone: the guard is a help, not a need
                self._talk.send(message[:4096], socket.MSG_DONTWAIT)

    def ask(self, message: bytes) -> bytes:
        """Send ASK or WAIT and return the answer, b"" if none comes in time."""
        self.tell(message)
        if self._talk is not None:
            with contextlib.suppress(OSError):
                return self._talk.recv(64)
        return b""

    def leave(self) -> None:
        """Send the guard home: this rank ends as it should."""
        self.tell(guard.CLEAN)
        for line in (self._life, self._talk):
            if line is not None:
                line.close()
        self._life = self._talk = None
        if self._guard is not None:
            self._guard.returncode = 0  # it stays as long as another rank does, and is no child to wait for

    def _start_guard(self, address: str, files: list[str]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)  # fails on all ranks of a host but one
            listener.listen(4096)
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(listener.fileno()), socket.gethostname(), *files],
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
