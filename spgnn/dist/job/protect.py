"""Protection: one rank that fails ends the whole job, in seconds, and is named once.

JobLauncher is the program that started this process as one rank of several, found by the variables that it sets; a
JobMember is this process as one of those. Failures that Python sees (exceptions,
sys.exit) it reports itself and ends with MPI's Abort; those that Python does not see (SIGKILL, segfaults,
os._exit) are reported by the guard of the host, and the launcher ends the others.
"""

from __future__ import annotations

import array
import atexit
import builtins
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import stat
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ...errors import RankError, SpgnnError, StoppedError, exit_code_of, message_lines, message_text
from .guard import GuardLine, report_line

INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal, as in a shell
PATIENCE_S = 1.0  # how long a rank waits for another one that has more to report

# (launcher, rank, size, what else is set, what connects its ranks); the first whose variables are all set counts.
# Slurm is last: a launcher inside a Slurm job sets its own variables, and Slurm's then count its daemons.
_TORCH = ("torchrun", "RANK", "WORLD_SIZE", ("MASTER_ADDR", "MASTER_PORT"), "torch")
_KNOWN = (
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", (), "MPI"),
    ("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", (), "MPI"),
    ("mpirun (PMI)", "PMI_RANK", "PMI_SIZE", (), "MPI"),
    ("srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", (), "MPI"),
    _TORCH,
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", (), "MPI"),
)
# (launcher, a variable that it sets on each rank, the number of ranks if it is known)
_OTHERS = (
    ("Horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("a PMIx launcher", "PMIX_RANK", ""),
)


@dataclass(frozen=True, slots=True)
class JobLauncher:
    """The program that started this process as rank of size; problem: why its ranks cannot be connected."""

    name: str
    rank: int
    size: int
    pmi_fd: int = -1  # hydra's pipe to its proxy, for a rank that fails before MPI has started
    by: str = "MPI"  # what connects the ranks: MPI or torch
    problem: str = ""

    def abort(self, exit_code: int) -> None:
        """Ask the launcher to end the job, if it has a command for that (PMI-1, as hydra speaks it).

        hydra takes an exit before MPI_Init as a normal end, and the others would wait in MPI_Init.
        """
        if self.pmi_fd >= 0:
            try:
                os.write(self.pmi_fd, f"cmd=abort exitcode={exit_code}\n".encode())
            except OSError:  # the proxy has ended, and the job with it
                return


def find_launcher(env: Mapping[str, str]) -> JobLauncher | None:
    """Return the launcher whose variables are in env, None for a process that was started alone."""
    found = [launcher for known in _KNOWN if (launcher := _read(env, *known))]
    if found and "TORCHELASTIC_RUN_ID" in env:  # torchrun was started by the others, once per host
        found.sort(key=lambda launcher: launcher.by != "torch")
        outer = max(found[1:], key=lambda launcher: launcher.size, default=found[0])
        if outer.size > found[0].size:
            problem = f"{outer.name} started {outer.size} processes, but torchrun makes jobs of {found[0].size} ranks"
            return replace(outer, problem=f"{problem}; give torchrun --nnodes and --rdzv-endpoint, once per host")
    return found[0] if found else _find_other(env)


def _read(
    env: Mapping[str, str], name: str, rank: str, size: str, others: tuple[str, ...], by: str
) -> JobLauncher | None:
    if not (_is_number(env, rank) and _is_number(env, size) and all(env.get(other) for other in others)):
        return None
    if env.get("SLURM_PROCID") == env[rank] and env.get("SLURM_STEP_NUM_TASKS") == env[size] and by == "MPI":
        name = "srun"
    is_hydra = rank == "PMI_RANK" and "SLURM_STEP_ID" not in env and _is_number(env, "PMI_FD")
    return JobLauncher(name, int(env[rank]), int(env[size]), int(env["PMI_FD"]) if is_hydra else -1, by)


def _find_other(env: Mapping[str, str]) -> JobLauncher | None:
    """Return a launcher of several ranks some of whose variables are missing, or whose ranks nothing connects."""
    for name, rank, size, *_ in (*_KNOWN[:3], _TORCH, *_OTHERS):
        found = [variable for variable in (rank, size) if env.get(variable)]
        n = int(env[size]) if _is_number(env, size) else 2 if not size and found else 0
        if n > 1:
            missing = [v for v in (rank, *(_TORCH[3] if name == "torchrun" else ())) if not env.get(v)]
            problem = f"{name} started this process ({', '.join(f'{v}={env[v]}' for v in found)})"
            problem += f" without {' and '.join(missing)}" if missing else ", whose ranks spgnn does not connect"
            problem += "; use mpirun, srun --mpi=pmi2 or torchrun, or unset these variables for one rank"
            return JobLauncher(name, int(env[rank]) if _is_number(env, rank) else 0, n, problem=problem)
    return None


def _is_number(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").isdigit()


class JobMember:
    """This process in its job: its rank, its phase, and its connection to the guard of the host."""

    def __init__(self, launcher: JobLauncher | None):
        self.launcher = launcher
        self.rank = 0 if launcher is None else launcher.rank
        self.phase = "set-up"
        self._line: GuardLine | None = None
        self._exit_code: object = None  # of the last sys.exit, unless a phase was set since

    def join(self, rank: int, token: str, barrier: Callable[[], None], files: list[str]) -> None:
        """Start the guard of this host, once, see GuardLine. Collective."""
        if self._line is None:
            self.rank = rank
            self._line = GuardLine(rank, token, barrier, files)

    def set_phase(self, phase: str) -> None:
        """Record what this rank does; the guard reports it."""
        self.phase, self._exit_code = " ".join(phase.split()), None
        if self._line is not None:
            self._line.send(self.phase.encode())

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
        _flush()
        for fd in (1, 2):
            _wait_until_read(fd)
        if self._line is not None:
            self._line.fail()
        if "mpi4py.MPI" in sys.modules:
            abort_world(sys.modules["mpi4py.MPI"], exit_code)
        self.launcher.abort(exit_code)
        os._exit(exit_code)

    def leave(self, stop: StoppedError) -> NoReturn:
        """Report a stop of all ranks on rank 0, and end this process with its exit code; with 0 on other ranks of MPI.

        MPI is finalised, not aborted: a job that Slurm requeues would meet the files of an aborted one in shared memory.
        Collective; world() does not close the communicator afterwards.
        """
        if self.rank == 0:
            sys.stderr.write(message_lines(str(stop), sys.stderr))
        _flush()
        if self._line is not None:
            self._line.leave()
        MPI, code, launcher = sys.modules.get("mpi4py.MPI"), stop.exit_code, self.launcher
        if MPI is not None and launcher is not None and MPI.Is_initialized() and not MPI.Is_finalized():
            size, is_hydra = MPI.COMM_WORLD.size, launcher.pmi_fd >= 0
            if is_hydra:
                _wait_until_read(1), _wait_until_read(2)
                launcher = replace(launcher, pmi_fd=os.dup(launcher.pmi_fd))  # the end of MPI closes it
            MPI.Finalize()
            if self.rank > 0:
                code = 0
            elif is_hydra:
                launcher.abort(code)
            # hydra takes the code of whichever rank is first, unless it is told one; srun -K and Open MPI's mpirun
            # end the other ranks when rank 0 leaves with its code.
            if size > 1 and (is_hydra or self.rank == 0):
                time.sleep(PATIENCE_S)
        os._exit(code)

    def install_hooks(self) -> None:
        """End the job for errors outside spgnn.world() too, from now on: sys.excepthook, and sys.exit when Python ends.

        Python calls no hook with the code of a SystemExit, so sys.exit notes it.
        """

        def leave_process(code: object = None) -> NoReturn:
            if threading.current_thread() is threading.main_thread():
                self._exit_code = code
            raise SystemExit(code)

        sys.excepthook = lambda kind, error, trace: self.fail(error)
        # pyrefly: ignore[bad-assignment]: exit and quit are objects of site.py, called as this function is
        sys.exit = builtins.exit = builtins.quit = leave_process
        atexit.register(self._leave_python)

    def _leave_python(self) -> None:
        self.fail(SystemExit(self._exit_code))
        if self._line is not None:
            self._line.leave()

    def _report(self, error: BaseException, message: str) -> None:
        if not self._may_speak(error):
            return
        if _shows_traceback(error):
            traceback.print_exception(error)
        if self.launcher is None:
            sys.stderr.write(message_lines(message, sys.stderr))
        else:
            sys.stderr.write(
                report_line(self.rank, message_text(message), self.phase, socket.gethostname(), os.getpid())
            )
        sys.stderr.flush()
        if self._line is not None:
            self._line.fail()  # before it waits for the launcher: if it is killed there, it has been reported

    def _may_speak(self, error: BaseException) -> bool:
        """Return whether no other rank of this host has been reported; wait for one that has more to report."""
        if self.launcher is None:
            return True
        if isinstance(error, RankError) or (self._line is None and self.rank > 0):
            # The rank that failed, or rank 0, ends the job meanwhile: at once by hydra's pipe; Open MPI's mpirun
            # and srun notice its exit after a second or so.
            time.sleep(PATIENCE_S if self._line is not None or self.launcher.pmi_fd >= 0 else 3 * PATIENCE_S)
        if self._line is None or self._line.claim_report():
            return True
        time.sleep(PATIENCE_S)  # until the other one has written its report
        return False


class _Aborted(SpgnnError):
    """The error with which `abort` ends the job."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class InJob:
    """Adds to a communicator: its phases are reported to the job of this process, and `abort` ends that."""

    _phase = ""
    _job: JobMember | None = None

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, text: str) -> None:
        if text != self._phase:
            self._phase = text
            if self._job is not None:
                self._job.set_phase(text)

    def abort(self, exit_code: int, message: str) -> None:
        if self._job is not None:
            self._job.fail(_Aborted(message, exit_code))


def abort_world(MPI: Any, exit_code: int) -> None:
    """End all ranks by MPI_Abort, without its own message on stderr; of one rank alone, only MPI ends.

    Args: MPI  mpi4py's module, which only dist/mpi imports.
    """
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return
    if MPI.COMM_WORLD.size == 1:
        MPI.Finalize()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    MPI.COMM_WORLD.Abort(exit_code)


def end_with_parent() -> None:
    """Send this process SIGTERM when its parent ends: torchrun, ended by SIGUSR1 or SIGKILL, leaves its ranks running."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def shared_files() -> list[str]:
    """Return the files in shared memory that MPICH has mapped and forgets when a job is aborted."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sorted({path for line in maps if (path := line[73:].strip()).startswith("/dev/shm/mpich_shm_")})


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


def _wait_until_read(fd: int) -> None:
    """Wait until the launcher has read what is in fd, if it is a pipe: hydra drops it at an abort."""
    end, unread = time.monotonic() + PATIENCE_S, array.array("i", [0])
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
    return exit_code_of(error), f"{type(error).__name__}: {error}"


def _shows_traceback(error: BaseException) -> bool:
    """SPGNN_DEBUG=1: always; 0: never; otherwise for errors that are not spgnn's."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return False
    debug = os.environ.get("SPGNN_DEBUG", "")
    return debug == "1" or (debug != "0" and not isinstance(error, SpgnnError))
