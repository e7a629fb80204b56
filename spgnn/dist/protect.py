"""Protection: one rank that fails ends the whole job, in seconds, and is named once.

A Job is this process's part in what a launcher started. What Python can see (exceptions, sys.exit)
it reports itself and ends with MPI's Abort; what it cannot see (SIGKILL, segfaults, os._exit) its
guard reports, and the launcher ends the others.
"""

from __future__ import annotations

import array
import atexit
import fcntl
import functools
import os
import select
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from ..errors import RankError, SpgnnError, exit_code_of
from . import guard
from .launchers import Launcher, find_launcher

INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal, as a shell says it
_PATIENCE_S = 1.0  # how long a rank that need not speak waits for the one that does


def run_protected(body: Callable[[], int | None], *, debug: bool = False) -> int:
    """Return the exit code of body(); an error becomes one message, and the end of all ranks.

    Args: debug  show tracebacks; also on while body runs if SPGNN_DEBUG=1 is in the environment.
    An int that body returns is the exit code. Under a launcher no other code than 0 returns: the
    job ends here. For entry points: `sys.exit(run_protected(...))`.
    """
    job = this_job()
    if debug:
        os.environ["SPGNN_DEBUG"] = "1"
    os.environ.setdefault("SPGNN_DEBUG", "0")
    try:
        code = body() or 0
        sys.stdout.flush()
    except BaseException as error:  # SystemExit and KeyboardInterrupt end a rank like any error
        return job.fail(error)
    return job.end(code) if code else 0


@functools.cache
def this_job() -> Job:
    """Return the Job of this process, its hooks installed if a launcher started it."""
    job = Job(find_launcher(os.environ))
    if job.launcher is not None:
        job.install_hooks()
    return job


class Job:
    """This process in its job: rank, phase, guard, and the ledger of who was reported on this host."""

    def __init__(self, launcher: Launcher | None):
        self.launcher = launcher
        self.rank = 0 if launcher is None else launcher.rank
        self.phase = "set-up"
        self._ledger = -1
        self._pipe = -1
        self._guard: subprocess.Popen | None = None
        self._is_joined = False

    def join(self, rank: int, token: str, barrier: Callable[[], None], files: list[str]) -> None:
        """Share a ledger with the ranks of this host and start the guard. Collective.

        Args: token    one for the job, on all ranks; barrier is called once.
              files    what to remove if the job does not end as it should.
        """
        if self._is_joined:
            barrier()
            return
        self.rank, self._is_joined = rank, True
        atexit.register(self._leave)
        path = Path(tempfile.gettempdir()) / f"spgnn-{token}"
        try:
            self._ledger = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            self._ledger = -1  # then every rank that fails speaks
        self._start_guard(files)
        barrier()
        path.unlink(missing_ok=True)  # all have it open, or never will

    def set_phase(self, phase: str) -> None:
        """Record what this rank does; the guard names it."""
        self.phase = " ".join(phase.split())
        self._tell(self.phase)

    def _leave(self) -> None:
        """Send the guard home: this process ends as it should."""
        self._tell(guard.CLEAN)
        if self._guard is not None:
            try:
                self._guard.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._guard.kill()

    def fail(self, error: BaseException) -> int:
        """Report error, once a host, and end the job with its exit code.

        Returns the exit code where there is no launcher, and for SystemExit of 0.
        """
        code, message = _verdict(error)
        if code == 0:
            return 0
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the flush at exit stays quiet too
        if message:
            self._report(error, message)
        return self.end(code)

    def end(self, exit_code: int) -> int:
        """End every rank of the job with exit_code; return it where there is no launcher."""
        if self.launcher is None:
            return exit_code
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                continue
        for fd in (1, 2):
            _wait_until_read(fd)
        self._tell(guard.FAILED)
        if "mpi4py.MPI" in sys.modules:
            from .mpi import abort_world

            abort_world(exit_code)
        self.launcher.abort(exit_code)
        os._exit(exit_code)

    def install_hooks(self) -> None:
        """End the job for errors before and after spgnn.world() too: sys.excepthook and sys.exit."""
        def leave_process(code=None):
            raise _exit_of(self, code)

        sys.excepthook = lambda kind, error, trace: self.fail(error)
        sys.exit = leave_process

    def _start_guard(self, files: list[str]) -> None:
        pipe, self._pipe = os.pipe()
        ready, is_up = os.pipe()
        os.set_blocking(self._pipe, False)
        numbers = [pipe, is_up, self._ledger, self.rank, os.getpid()]
        command = [sys.executable, "-I", "-S", guard.__file__, *map(str, numbers), socket.gethostname(), *files]
        try:
            self._guard = subprocess.Popen(
                command,
                pass_fds=[fd for fd in (pipe, is_up, self._ledger) if fd >= 0],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            select.select([ready], [], [], _PATIENCE_S)  # or a rank that dies now is named second
        except OSError:
            os.close(self._pipe)
            self._pipe = -1  # a rank that is killed is then named by the launcher alone
        for fd in (pipe, ready, is_up):
            os.close(fd)

    def _tell(self, line: str) -> None:
        if self._pipe >= 0:
            try:
                os.write(self._pipe, f"{line}\n".encode()[:4096])
            except OSError:  # full or gone: the guard is a help, not a need
                return

    def _report(self, error: BaseException, message: str) -> None:
        if self._must_wait(error) and self._was_reported():
            return
        if not guard.is_first(self._ledger):
            self._was_reported()
            return
        if _shows_traceback(error):
            traceback.print_exception(error)
        if self.launcher is None:
            sys.stderr.write(f"spgnn: {message}\n")
        else:
            sys.stderr.write(guard.report_line(self.rank, message, self.phase, socket.gethostname(), os.getpid()))
        sys.stderr.flush()
        guard.close_ledger(self._ledger)

    def _must_wait(self, error: BaseException) -> bool:
        """Another rank has more to say: the one that RankError names, or rank 0 before there is a ledger."""
        return isinstance(error, RankError) or (self._ledger < 0 and self.rank > 0)

    def _was_reported(self) -> bool:
        """Wait a moment for another rank's report; return whether it came."""
        if self.launcher is None:
            return False
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            if self._ledger >= 0 and os.fstat(self._ledger).st_size:
                return True
            time.sleep(0.01)
        return False


def _wait_until_read(fd: int) -> None:
    """Wait until the launcher has read what stands in fd, if it is a pipe: hydra drops it at an abort."""
    end, unread = time.monotonic() + _PATIENCE_S, array.array("i", [0])
    try:
        while stat.S_ISFIFO(os.fstat(fd).st_mode) and time.monotonic() < end:
            fcntl.ioctl(fd, termios.FIONREAD, unread)
            if not unread[0]:
                return
            time.sleep(0.002)
    except OSError:  # closed
        return


def _verdict(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the message of an error that ends a process."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0), f"sys.exit({error.code})"
        return 1, str(error.code)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE, ""
    if isinstance(error, SpgnnError):
        return exit_code_of(error), str(error)
    return 1, f"{type(error).__name__}: {error}"


def _shows_traceback(error: BaseException) -> bool:
    """SPGNN_DEBUG=1: always; 0: never; otherwise for what is no error of spgnn's own."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return False
    debug = os.environ.get("SPGNN_DEBUG", "")
    return debug == "1" or (debug != "0" and not isinstance(error, SpgnnError))


def _exit_of(job: Job, code) -> SystemExit:
    """Return a SystemExit that ends the job when the interpreter, not a caller, reads its code.

    A script's sys.exit(3) passes no hook of Python: the interpreter reads `code` and leaves. It reads
    it below all Python frames, which tells it from an `except SystemExit` that goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        return SystemExit(code)

    class Exit(SystemExit):
        @property
        def code(self):
            try:
                sys._getframe(1)
            except ValueError:
                job.fail(SystemExit(code))
            return code

    return Exit(code)
