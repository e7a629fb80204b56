"""What the benchmarks share: graphs, medians, the machine's line, peers' numbers, the table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "runs" / "out" / "smoke"  # what scripts write with --smoke
FOLDERS = {"arxiv": "arxiv_graphsaint", "flickr": "flickr_graphsaint"}  # in SPGNN_DATA
OURS = ("PYTHONPATH", "THP_MEM_ALLOC_ENABLE")
TUNED = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
# An mpirun beside this interpreter is of the MPI that it loads; the first one on PATH may be another's.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])


def options(description: str) -> argparse.ArgumentParser:
    """Return the parser with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--graph",
        default="arxiv",
        help="arxiv or flickr (in SPGNN_DATA), rmat (2^17 nodes x 32), or a symmetric SciPy CSR .npz",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7, help="timed repetitions; the median counts")
    parser.add_argument("--peers", metavar="FILE", help="JSON lines that the peers' scripts printed")
    parser.add_argument("--json", action="store_true", help="print JSON lines, no table")
    return parser


def parse(parser: argparse.ArgumentParser, smoke: str) -> argparse.Namespace:
    """Return the options of the command line; --smoke puts the words of smoke before them.

    With these the whole script runs in seconds: on generated graphs, without peers, data or network. What is measured
    then means nothing, so that targets which it misses do not count.
    """
    parser.add_argument("--smoke", action="store_true", help="run everything at a tiny size, on generated graphs")
    if "--smoke" in sys.argv:
        SMOKE.mkdir(parents=True, exist_ok=True)
    return parser.parse_args(smoke_words(smoke))


def smoke_words(smoke: str) -> list[str]:
    """Return the words of the command line, with --smoke those of smoke before them."""
    words = sys.argv[1:]
    return [*shlex.split(smoke), *words] if "--smoke" in words else words


def adjacency(name: str) -> sp.csr_array:
    """Return a symmetric 0/1 CSR without self-loops."""
    if name.endswith(".npz"):
        return sp.csr_array(sp.load_npz(name))
    from spgnn import load_graph

    if name in FOLDERS:
        folder = os.environ.get("SPGNN_DATA")
        if not folder:
            sys.exit("set SPGNN_DATA to the folder of real graphs, or give --graph FILE.npz")
        graph = load_graph(Path(folder) / FOLDERS[name])
    else:
        graph = load_graph("rmat:scale=17,degree=32,seed=0" if name == "rmat" else name)
    A = graph.with_edges("undirected").A
    A = sp.csr_array(A - sp.diags_array(A.diagonal()))
    A.eliminate_zeros()
    A.data[:] = 1
    return sp.csr_array((A.data.astype(np.float32), A.indices, A.indptr), shape=A.shape)


def draw_rmat(path: str, scale: int, degree: int, seed: int = 0) -> None:
    """Write 2^scale degree edges, drawn bit by bit from [[0.57, 0.19], [0.19, 0.05]], ids scrambled, chunk by chunk."""
    rng = np.random.default_rng(seed)
    mask = (1 << scale) - 1
    with open(path, "wb") as file:
        for _ in range(degree):
            edges = np.zeros((1 << scale, 2), np.int64)
            for _ in range(scale):
                drawn = rng.random(1 << scale, np.float32)
                edges[:, 0] = edges[:, 0] << 1 | (drawn >= 0.76)
                edges[:, 1] = edges[:, 1] << 1 | ((drawn >= 0.57) & (drawn < 0.76) | (drawn >= 0.95))
            # An odd factor permutes the ids: hubs are not neighbours in memory.
            (edges * 0x9E3779B1 & mask).astype(np.int32).tofile(file)


def median_s(function: Callable[[], object], repeat: int) -> float:
    """Return the median seconds of repeat calls, after one that does not count."""
    function()
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def medians_s(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Return the median seconds of repeat calls of each, all in turns: a slow moment of the machine falls on every one.

    In each turn a call that does not count comes first, so that none pays for what the one before it left in the caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


@dataclass(frozen=True)
class Watched:
    """How a command ended: exit code (None: not in time), what its Python processes held, what outlived it.

    left      command lines of processes that were there 3 seconds later, and files of shared memory that they had mapped.
    peaks_mb  peak resident MB of each process; stages: name -> [seconds, sampled resident MB of the largest process].
    """

    code: int | None
    out: str
    err: str
    seconds: float
    peaks_mb: list[float]
    stages: dict[str, list[float]]
    left: list[str]


def watch(
    argv: list[str],
    limit_s: float = 3600,
    env: dict[str, str] | None = None,
    stage: Callable[[], str] = str,
    every_s: float = 0.25,
) -> Watched:
    """Run a command in a session of its own and sample the memory of its processes; end what is left of it."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SPGNN_BENCH": mark} | (env or {})
    peaks, shared, stages = {}, set(), defaultdict(lambda: [0.0, 0.0])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = last = time.monotonic()
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=err, start_new_session=True)
        while process.poll() is None and last - begun < limit_s:
            time.sleep(every_s)
            name, now, largest = stage(), time.monotonic(), 0.0
            for pid, line in _of_mark(mark).items():
                high, resident = _resident_mb(pid)
                shared |= _shared_files(pid)
                if "python" in line:
                    peaks[pid], largest = max(high, peaks.get(pid, 0.0)), max(largest, resident)
            stages[name] = [stages[name][0] + now - last, max(stages[name][1], largest)]
            last = now
        code, seconds = process.poll(), time.monotonic() - begun
        while code is not None and _of_mark(mark) and time.monotonic() - last < 3:
            time.sleep(0.05)
        left = _of_mark(mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        out.seek(0), err.seek(0)
        text, errors = out.read().decode(), err.read().decode(errors="replace")
    outlived = [*left.values(), *filter(os.path.exists, sorted(shared))] if code is not None else []
    return Watched(code, text, errors, seconds, [mb for mb in peaks.values() if mb], dict(stages), outlived)


def _of_mark(mark: str) -> dict[int, str]:
    """Return pid -> command line of the processes whose environment has a mark."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SPGNN_BENCH={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended, or is another user's
            continue
    return {pid: line for pid, line in found.items() if line}


def _shared_files(pid: int) -> set[str]:
    """Return the files of shared memory that a process has mapped."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return set()
    return {path for line in maps.splitlines() if (path := line[73:].strip()).startswith("/dev/shm/")}


def _resident_mb(pid: int) -> tuple[float, float]:
    """Return the peak and present resident MB of a process; 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0, 0.0
    found = [re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmHWM", "VmRSS")]
    return tuple(int(of[1]) * 1024 / 1e6 if of else 0.0 for of in found)


def machine(threads: int) -> str:
    """Return the line that says where the figures come from."""
    import torch

    with open("/proc/cpuinfo") as info:
        cpu = next(
            (line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), platform.machine()
        )
    return f"{cpu}, {os.cpu_count()} cores, {threads} threads, Python {platform.python_version()}, torch {torch.__version__}"


def read_peers(path: str | None) -> list[dict]:
    """Return the objects of a file of JSON lines; other lines are passed over."""
    if path is None:
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.lstrip().startswith("{")]


def run_peer(argv: list[str], tuned: bool = False) -> list[dict]:
    """Run a script in its own interpreter, without what spgnn sets, and return the JSON lines that it prints."""
    is_ours = argv[0] == sys.executable
    env = {k: v for k, v in os.environ.items() if is_ours or k not in OURS} | (TUNED if tuned else {})
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        print(f"{' '.join(argv)}\n{done.stderr.strip()[-2000:]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(title: str, header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with a title line."""
    widths = [max(len(str(row[c])) for row in [header, *rows]) for c in range(len(header))]
    line = lambda row: "| " + " | ".join(str(cell).rjust(w) for cell, w in zip(row, widths)) + " |"
    return "\n".join(
        [title, "", line(header), "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|", *map(line, rows)]
    )


def random_training(model, path, f_in, classes, epochs, threads, dtype="float32", locality=True):
    """Train a model on random features and labels of every node; return (median seconds of an epoch, peak MiB, loss).

    Args: path  of a symmetric SciPy CSR; locality: own rows are ordered for the cache.
    """
    import torch

    from spgnn import distribute
    from spgnn.config import TrainConfig
    from spgnn.dist import SelfCommunicator
    from spgnn.graph import Graph
    from spgnn.layers.stack import norms_of
    from spgnn.machine import peak_rss_mb
    from spgnn.training import Trainer

    torch.set_num_threads(threads)
    A, rng = sp.csr_array(sp.load_npz(path)), np.random.default_rng(0)
    n = A.shape[0]
    X, y = rng.standard_normal((n, f_in), dtype=np.float32), rng.integers(0, classes, n)
    graph = Graph(A, X=X, y=y, split=np.zeros(n, np.int8), edges="undirected")
    options = {"operator": norms_of(model)[0] or "gcn", "dtype": getattr(torch, dtype), "threads": threads}
    dgraph = distribute(graph, SelfCommunicator(), locality=locality, **options)
    del graph, X, A
    trainer = Trainer(model, dgraph, TrainConfig(epochs=epochs))
    trainer.release_input()
    seconds = []
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        loss = trainer.step(epoch)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[2:])), peak_rss_mb() * 1e6 / 2**20, loss
