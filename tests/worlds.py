"""One test body, run on thread ranks and on MPI ranks.

    from worlds import parallel

    @parallel([1, 2, 3, 7], mpi=[1, 2, 4, 16])      # mpi left out: the same sizes; mpi=[]: threads only; torch=[3]
    @pytest.mark.parametrize("scheme", ["columns", "broadcast"])
    def test_pull_copies_the_ghost_rows(comm, scheme, tmp_path):
        ...                                         # plain asserts; every rank runs the whole body

It becomes the items [thread-1] ... [mpi-16]. All selected bodies of one size, of all files, share one
`mpirun` (marked `mpi`; skipped with the reason where there is none) of ranks forked from a Python that has imported torch.
With torch=[3] they also run under torchrun.
Arguments: parametrized literals, `tmp_path` (one folder, all ranks) and `data_dir`. A failure shows
the ranks and their tracebacks. `launch(n, argv)` runs any program under mpirun with a time limit.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PATHS = ("tmp_path", "data_dir")
BATCHES = pytest.StashKey[dict]()
MANY = 8  # ranks
THREAD_LIMIT_S, START_LIMIT_S, CASE_LIMIT_S, GRACE_S = 120, 240, 2, 2


@dataclass(frozen=True)
class World:
    """How many ranks of which kind one test item has."""

    kind: str
    size: int

    @property
    def mpi_size(self) -> int:
        return 0 if self.kind == "thread" else self.size


def parallel(
    sizes: Sequence[int],
    mpi: Sequence[int] | None = None,
    timeout: float = THREAD_LIMIT_S,
    only: Callable = lambda given: True,
    torch: Sequence[int] = (),
) -> Callable:
    """Return the decorator that runs body(comm, ...) on thread ranks of each size, on MPI ranks and those of torchrun.

    Args: only  of the items on MPI ranks, those whose arguments and `ranks`, a dict, it returns True for:
                threads run them all.
    """
    worlds = [pytest.param(World("thread", n), id=f"thread-{n}") for n in sizes]
    for kind, of in (("mpi", sizes if mpi is None else mpi), ("torch", torch)):
        worlds += [pytest.param(World(kind, n), id=f"{kind}-{n}", marks=pytest.mark.mpi) for n in of]

    def decorate(body: Callable) -> Callable:
        names = list(inspect.signature(body).parameters)[1:]

        def test(request, world, **arguments):
            if world.mpi_size:
                _report(_batch(request, world)[request.node.nodeid])
            else:
                from spgnn.dist import run_threads

                with _on_one_core():
                    run_threads(world.size, lambda comm: body(comm, **arguments), timeout=timeout)

        test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
        test.__module__, test.body, test.pytestmark = body.__module__, body, list(getattr(body, "pytestmark", []))
        test.only = only
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        test.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in ("request", "world", *names)])
        return pytest.mark.parametrize("world", worlds)(test)

    return decorate


@contextmanager
def _on_one_core():
    """Keep this thread, and those that it starts, on one core, another one for each worker of pytest-xdist.

    Thread ranks hold Python's lock in turn: on two cores they take twice the time, and the other worker's too.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    os.sched_setaffinity(0, {sorted(cores)[worker % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def is_wanted(item) -> bool:
    """Return whether an item is to be run; see `only` of parallel."""
    world = _world_of(item)
    if not isinstance(world, World) or not world.mpi_size:
        return True
    return item.obj.only(item.callspec.params | {"ranks": world.size})


def some(comm, cases: Sequence) -> Sequence:
    """Return the cases; the first alone on many ranks, which wait for each other's cores."""
    return cases[:1] if comm.size >= MANY else cases


def mpirun() -> Path:
    """Return $SPGNN_TEST_MPIRUN, else the launcher beside this interpreter or of the PATH; skip the test where there is none."""
    beside = Path(sys.prefix) / "bin" / "mpirun"
    found = os.environ.get("SPGNN_TEST_MPIRUN") or (str(beside) if beside.exists() else shutil.which("mpirun"))
    if found is None:
        pytest.skip("no mpirun beside this interpreter or on PATH; pip install mpi4py mpich")
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed; pip install mpi4py mpich")
    return Path(found)


@dataclass(frozen=True)
class Launched:
    """How a launched program ended; left: command lines of its processes that outlived the launcher by grace_s."""

    code: int
    out: str
    err: str
    seconds: float
    is_late: bool
    left: list[str]


def launch(
    n: int,
    argv: Sequence,
    limit_s: float = 60,
    env: dict[str, str] | None = None,
    cwd=ROOT,
    by: str = "mpi",
    grace_s: float = GRACE_S,
) -> Launched:
    """Run argv on n ranks (0: without a launcher) of mpirun, or by torchrun; end what is left of it after limit_s."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), "--no-python"]
    command = (torchrun if by == "torch" else [str(mpirun()), "-n", str(n)]) if n else []
    job = f"SPGNN_TEST_JOB={uuid.uuid4().hex}"
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(
            [*command, *map(str, argv)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, start_new_session=True,
            env=_environment(job, env or {}),
        )  # fmt: skip
        is_late = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            is_late = True
            os.killpg(process.pid, signal.SIGTERM)  # the launcher ends its ranks, which are sessions of their own
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        seconds = time.monotonic() - start
        while (left := _processes(job)) and time.monotonic() - start - seconds < grace_s:
            time.sleep(0.02)
        for pid in left:
            _kill(pid)
        out.seek(0), err.seek(0)
        text, errors = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    return Launched(process.returncode, text, errors, seconds, is_late, list(left.values()))


def launch_text(n: int, text: str, folder: Path, *words, run_by: Sequence = (), **options) -> Launched:
    """Launch a program of this text with words."""
    path = folder / "program.py"
    path.write_text(text)
    return launch(n, [sys.executable, *run_by, path, *words], **options)


def _environment(job: str, env: dict[str, str]) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    name, value = job.split("=")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
        name: value,
    } | env  # fmt: skip


def _processes(job: str) -> dict[int, str]:
    """Return pid -> command line of the processes whose environment has job."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if job.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended, or is another user's
            continue
    return {pid: line for pid, line in found.items() if line}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _batch(request, world: World) -> dict[str, dict]:
    """Return id of the item -> result, of all selected items of this world."""
    batches = request.config.stash.setdefault(BATCHES, {})
    if world not in batches:
        items = [item for item in request.session.items if _world_of(item) == world]
        folder = request.getfixturevalue("tmp_path_factory").mktemp(world.kind)
        cases = [_case(item, folder / f"case{i}") for i, item in enumerate(items)]
        batches[world] = _run_batch(world, cases, folder, request.getfixturevalue("python"))
    return batches[world]


def _world_of(item) -> World | None:
    return item.callspec.params.get("world") if hasattr(item, "callspec") else None


def _case(item, folder: Path) -> dict:
    values, paths = {}, {}
    for name in list(inspect.signature(item.obj.body).parameters)[1:]:
        if name in item.callspec.params:
            values[name] = item.callspec.params[name]
        elif name == "tmp_path":
            paths[name] = str(folder)
        elif name == "data_dir":
            paths[name] = os.environ.get("SPGNN_DATA", "")
        else:
            pytest.fail(f"{item.name}: the argument {name!r} cannot be passed to MPI ranks; see tests/worlds.py")
    body = {"file": str(item.path), "body": item.originalname}
    return body | {"name": item.nodeid, "values": repr(values), "paths": paths}


def _run_batch(world: World, cases: list[dict], folder: Path, python: str) -> dict[str, dict]:
    """Run cases under mpirun or torchrun; start again behind a case that ended the job."""
    results: dict[str, dict] = {}
    while cases:
        job = folder / f"job{len(results)}"
        job.mkdir()
        (job / "cases.json").write_text(json.dumps(cases))
        limit_s = START_LIMIT_S + CASE_LIMIT_S * len(cases)
        ended = launch(world.size, [python, Path(__file__), job], limit_s, by=world.kind)
        ranks = [_lines(job / f"rank{r}.jsonl") for r in range(world.size)]
        done = 0
        for case in cases:
            states = [[line for line in lines if line["name"] == case["name"]] for lines in ranks]
            done += 1
            is_last = done == len(cases) or not _passed(states)
            results[case["name"]] = {"states": states, "ended": ended, "is_last": is_last}
            if is_last:
                break
        cases = cases[done:]
    return results


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _passed(states: list[list[dict]]) -> bool:
    return all(lines and lines[-1]["state"] in ("passed", "skipped") for lines in states)


def _report(result: dict) -> None:
    """Pass, skip or fail this item as its ranks did."""
    states, ended = result["states"], result["ended"]
    if _passed(states):
        if result["is_last"] and (ended.code or ended.left):
            pytest.fail(
                f"all passed, then the launcher gave {ended.code}, left {ended.left}:\n{ended.err}", pytrace=False
            )
        if states[0][-1]["state"] == "skipped":
            pytest.skip(states[0][-1]["message"])
        return
    failures = [f"rank {r}: {s[-1]['message']}" for r, s in enumerate(states) if s and s[-1]["state"] == "failed"]
    running = [r for r, s in enumerate(states) if not s or s[-1]["state"] == "started"]
    limit = f"; time limit reached after {ended.seconds:.0f} s" if ended.is_late else ""
    failures.append(f"ranks that did not end: {running}{limit}; the launcher's exit code {ended.code}")
    pytest.fail("\n".join([*failures, ended.out[-2000:], ended.err[-4000:]]), pytrace=False)


def run_cases(job: Path) -> None:
    """Run the cases of a job folder on this rank of spgnn.world(), and write what became of each."""
    import spgnn

    cases = json.loads((job / "cases.json").read_text())
    with spgnn.world() as comm, open(job / f"rank{comm.rank}.jsonl", "a", buffering=1) as log:
        for case in cases:
            write = lambda state, message="": log.write(
                json.dumps({"name": case["name"], "state": state, "message": message}) + "\n"
            )
            comm.phase = case["name"]
            comm.traffic.reset()
            write("started")
            try:
                getattr(_module(Path(case["file"])), case["body"]).body(comm, **_arguments(case, comm))
            except pytest.skip.Exception as skipped:
                write("skipped", str(skipped))
            except BaseException as error:  # whatever ends a body ends the job, once it is written down
                write("failed", "".join(traceback.format_exception(error)))
                time.sleep(0.2)  # the others' own failures of the same case
                raise
            else:
                write("passed")
            comm.barrier()


def _module(path: Path):
    """Import a file of tests as pytest does: by its name, with its folder on the path."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)


def _arguments(case: dict, comm) -> dict:
    arguments = ast.literal_eval(case["values"])
    for name, text in case["paths"].items():
        if name == "data_dir" and not (text and Path(text).is_dir()):
            pytest.skip("SPGNN_DATA does not name the folder of real graphs")
        if name == "tmp_path" and comm.rank == 0:
            Path(text).mkdir(exist_ok=True)
        arguments[name] = Path(text)
    comm.barrier()
    return arguments


if __name__ == "__main__":
    import worlds

    worlds.run_cases(Path(sys.argv[1]))
