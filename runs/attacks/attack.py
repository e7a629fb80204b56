"""What attacks share: commands of spgnn, in this process and in others, with limits and a time limit, and how they ended."""

import contextlib
import ctypes
import io
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CLEAN = (0, 2, 3, 4, 5)  # exit codes that a hostile input may give
GRAPH = "sbm:n=120,classes=3,features=6,seed=3"
FAST = ["--hidden", "4", "--threads", "1", "--seed", "1"]
PATIENCE = float(os.environ.get("TRUST_PATIENCE", "1"))  # times a time limit


class NotRun(Exception):
    """A line that cannot run on this machine, with the reason."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; code: None where it did not end in time."""

    code: int | None
    out: str
    err: str
    seconds: float = 0.0

    def fault(self, *codes: int) -> str:
        """Return what is wrong, or "": a hang, a signal, a traceback, more than a few lines, an exit code that is not in codes."""
        last = (self.err.strip().splitlines() or ["no message"])[-1][:300]
        if self.code is None:
            return f"no end after {self.seconds:.0f} s: {last}"
        if self.code < 0 or self.code not in (codes or CLEAN):
            return f"exit code {self.code}, expected {' or '.join(map(str, codes or CLEAN))}: {last}"
        if "Traceback" in self.err or "unexpected " in self.err:
            return f"a traceback: {self.err[-800:]}"
        return ""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield a new folder, which is removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        yield path
    finally:
        for inner in path.rglob("*"):
            if inner.is_dir() and not inner.is_symlink():
                inner.chmod(0o755)
        shutil.rmtree(path, ignore_errors=True)


def here(*words) -> Ended:
    """Run a command of spgnn in this process."""
    from spgnn import cli

    out, err, begun = io.StringIO(), io.StringIO(), time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main([str(word) for word in words])
        except BaseException:
            code = 1
            traceback.print_exc()
    return Ended(code, out.getvalue(), err.getvalue(), time.monotonic() - begun)


def start(*words, ranks: int = 1, before: Iterable = (), env: dict | None = None, cwd=None, python=None, launcher=()):
    """Start a command of spgnn in a session of its own.

    Args: before    (function of a file of attacks, its keywords as JSON values), called in each process before the command.
          launcher  words before the command, instead of MPICH's mpirun on several ranks.
    """
    mpirun = [str(Path(os.environ.get("VIRTUAL_ENV", sys.prefix)) / "bin" / "mpirun"), "-n", str(ranks)]
    launcher = launcher or (mpirun if ranks > 1 else [])
    planted = os.environ.get("TRUST_PLANT")
    calls = [[planted, "plant", {}]] if planted else []
    calls += [[function.__module__, function.__name__, keywords] for function, keywords in before]
    python = python or os.environ.get("TRUST_PYTHON", sys.executable)
    return subprocess.Popen(
        [*launcher, python, str(HERE / "child.py"), *map(str, words)],
        env=os.environ | {"TRUST_BEFORE": json.dumps(calls)} | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=cwd,
    )


def finish(process, limit_s: float = 60) -> Ended:
    """Wait for a command, and end all of its session after limit_s, times --patience."""
    begun = time.monotonic()
    try:
        out, err = process.communicate(timeout=limit_s * PATIENCE)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        (out, err), code = process.communicate(), None
    return Ended(code, out, err, time.monotonic() - begun)


def spgnn(*words, limit_s: float = 60, **how) -> Ended:
    """Run a command of spgnn in another process; how: as in start."""
    return finish(start(*words, **how), limit_s)


def need(ended: Ended) -> Ended:
    """Return what ended well. Raises: RuntimeError, as an attack needs it."""
    if ended.code != 0:
        raise RuntimeError(f"what an attack begins with failed: exit code {ended.code}: {ended.err[-1500:]}")
    return ended


def limit(**growth: int) -> None:
    """Set limits of this process: AS, bytes of address space above what it has; FSIZE, bytes of a file."""
    for name, value in growth.items():
        bound = value + (status_kb("VmSize") * 1024 if name == "AS" else 0)
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (bound, bound))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def own_shared_memory() -> bool:
    """Give this process a /dev/shm of its own, into which nothing beside it writes; return whether that is allowed."""
    if ctypes.CDLL(None).unshare(0x20000):  # CLONE_NEWNS
        return False
    steps = (["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"])
    return not any(subprocess.run(step, capture_output=True).returncode for step in steps)


def status_kb(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def within(megabytes: int, function: Callable[[], object]):
    """Return (what function returns, MB by which its peak exceeds what this process had), in so much more address space.

    Raises: MemoryError, and all that function raises.
    """
    Path("/proc/self/clear_refs").write_text("5")  # start the peak again
    before_mb, limits = status_kb("VmRSS") / 1024, resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status_kb("VmSize") * 1024 + (megabytes << 20), limits[1]))
    try:
        found = function()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    return found, status_kb("VmHWM") / 1024 - before_mb


def isolated(case: Callable[[object], dict], keys: Iterable, limit_s: float = 30) -> Iterator[tuple[object, dict]]:
    """Yield (key, case(key)) of each key, run in a fork of this process, which is replaced where it dies or does not answer.

    The answer is then {"crash": how it died, or that it hangs}.
    """
    keys = list(keys)
    while keys:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _answer(case, keys, writing)
        os.close(writing)
        rest, crash = b"", None
        while keys:
            if not select.select([reading], [], [], limit_s)[0]:
                os.kill(pid, signal.SIGKILL)
                crash = f"no answer in {limit_s:g} s"
                break
            if not (piece := os.read(reading, 1 << 16)):
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield keys.pop(0), json.loads(line)
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if keys:
            yield keys.pop(0), {"crash": crash or f"its process ended with {status}"}


def _answer(case, keys, writing: int) -> None:
    """Write a line of JSON for each key, and end this process."""
    for key in keys:
        try:
            found = case(key)
        except Exception:
            found = {"crash": f"the attack itself failed: {traceback.format_exc()[-600:]}"}
        os.write(writing, json.dumps(found).encode() + b"\n")
    os._exit(0)


def put(function: Callable, other: Callable) -> None:
    """Replace a function of spgnn, for a plant: also in the modules that imported it."""
    for module in [module for name, module in sys.modules.items() if name.startswith("spgnn")]:
        if vars(module).get(function.__name__) is function:
            setattr(module, function.__name__, other)


def tree(path: Path) -> dict[str, bytes]:
    """Return what is in a folder: name -> content of each file, where a link leads, or what else it is."""
    found = {}
    for inner in sorted(path.rglob("*")):
        name = str(inner.relative_to(path))
        if inner.is_symlink():
            found[name] = os.readlink(inner).encode()
        elif inner.is_file():
            found[name] = inner.read_bytes()
        else:
            found[name] = b"folder" if inner.is_dir() else b"device"
    return found
