"""Launch: the launcher that started this process, its job, world() and the threads of each rank."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LaunchError, StoppedError, UsageError
from ..machine import core_ids, host_id, share_of_cores, unseen_ranks
from .base import SelfCommunicator
from .communicator import Communicator
from .job.protect import JobLauncher, JobMember, end_with_parent, find_launcher

if TYPE_CHECKING:
    from .gloo import GlooCommunicator
    from .mpi.mpi_communicator import MpiCommunicator


@functools.cache
def this_job() -> JobMember:
    """Return the JobMember of this process; the first call installs its exit hooks if a launcher started the process."""
    job = JobMember(find_launcher(os.environ))
    if job.launcher is not None:
        job.install_hooks()
        if job.launcher.by == "torch":
            end_with_parent()
    return job


def run_protected(body: Callable[[], int | None], *, debug: bool = False) -> int:
    """Return the exit code of body(); an error becomes one message, and the end of all ranks.

    Args: debug  show tracebacks; also on while body runs if SPGNN_DEBUG=1 is in the environment.
    An int that body returns is the exit code. Under a launcher no other code than 0 returns: the
    job ends here. For entry points: `sys.exit(run_protected(...))`.
    """
    job = this_job()
    before = os.environ.get("SPGNN_DEBUG")
    os.environ["SPGNN_DEBUG"] = "1" if debug else before or "0"
    try:
        code = body() or 0
        sys.stdout.flush()
        return job.end(code) if code else 0
    except BaseException as error:  # SystemExit and KeyboardInterrupt end a rank like any error
        return job.fail(error)
    finally:
        os.environ.pop("SPGNN_DEBUG")
        if before is not None:
            os.environ["SPGNN_DEBUG"] = before


@contextmanager
def world(comm: Any = None) -> Iterator[Communicator]:
    """Yield the communicator of all ranks: MPI's under mpirun or srun, gloo's under torchrun, else of one rank.

    Args: comm  a communicator of mpi4py, whose ranks alone make this call, such as MPI.COMM_WORLD.Split(color); stays open.
    A rank that leaves the block by an error, or by sys.exit of anything but 0, is reported and ends
    the job on all ranks: no code after the block runs. From the first call on, errors after the block do
    the same. A signal that stops all ranks together ends them after the block, see JobMember.leave. Without a
    launcher, errors pass through.
    Raises: LaunchError if the launcher's processes do not make one job, or MPI is missing; UsageError for another comm.
    Collective.
    """
    job = this_job()
    if job.launcher is None:
        yield SelfCommunicator() if comm is None else communicator_of(comm)
        return
    try:
        own = _connect(job, job.launcher) if comm is None else None
        ranks = own or communicator_of(comm)
        leave = ranks.barrier if own is None else own.close
        try:
            yield ranks
        except SystemExit as leaving:
            if leaving.code:
                raise
            leave()  # before the others miss this rank: they learn that it has left
            raise
        except StoppedError as stop:
            if not stop.is_together:
                raise
            leave()
            job.leave(stop)
        leave()
        job.set_phase("after spgnn.world()")
    except BaseException as error:  # whatever it is, the other ranks must not wait for this one
        job.fail(error)  # returns for sys.exit(0) only
        raise


def communicator_of(comm: Any) -> Communicator:
    """Return comm, or the communicator of the ranks of an mpi4py or petsc4py one, kept until that is freed.

    Raises: UsageError for anything else. Collective.
    """
    if hasattr(comm, "all_gather_json"):
        return comm
    given = comm.tompi4py() if hasattr(comm, "tompi4py") else comm
    if not any(base.__module__ == "mpi4py.MPI" and base.__name__ == "Comm" for base in type(given).__mro__):
        raise UsageError(
            f"got a {type(comm).__name__} instead of a communicator: with spgnn.world() as comm: spgnn.distribute(graph, comm); "
            "or give one of mpi4py"
        )
    from .mpi.given_comm import kept_communicator

    return kept_communicator(given)


def share_of_threads(comm: Communicator) -> int:
    """Return OMP_NUM_THREADS if it is set, else max(1, this rank's share of the host's cores, see share_of_cores).

    SLURM_CPUS_PER_TASK, if it is set, is the most of a share: not every Slurm binds a task to its cores. Collective.
    """
    mask = sum(1 << core for core in core_ids())
    everywhere = comm.all_gather_json([host_id(), f"{mask:x}"])
    here = [_cores_of(text) for host, text in everywhere if host == host_id()]
    here += [core_ids()] * unseen_ranks(len(here))
    share = max(1, int(share_of_cores(core_ids(), here)))
    most = _number("SLURM_CPUS_PER_TASK")
    return _number("OMP_NUM_THREADS") or min(share, share if most is None else max(1, most))


def find_hosts(comm: Communicator, hosts: int = 0) -> np.ndarray:
    """Return the host of each rank, (P,) int64, hosts numbered by their first rank. Collective.

    Args: hosts  H, taken as they would be: ranks in blocks, see host_of; 0: the hosts that the ranks run on.
    """
    if hosts:
        from ..partition.hosts import host_of

        return host_of(comm.size, hosts)
    names = comm.all_gather_json(host_id())
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([order[name] for name in names], np.int64)


def _number(variable: str) -> int | None:
    """Return the integer of an environment variable, the first of OpenMP's list; None if there is none."""
    text = os.environ.get(variable, "").split(",")[0].strip()
    return int(text) if text.isdigit() else None


def _connect(job: JobMember, launcher: JobLauncher) -> GlooCommunicator | MpiCommunicator | SelfCommunicator:
    if launcher.problem:
        raise LaunchError(launcher.problem)
    if launcher.by == "torch":
        if launcher.size == 1:
            return SelfCommunicator()
        from . import gloo

        return gloo.connect_world(job, launcher)
    try:
        from .mpi import library

        library.start(launcher)
        from .mpi import mpi_communicator as mpi
    except (ImportError, RuntimeError) as error:
        if launcher.size == 1:
            return SelfCommunicator()
        raise LaunchError(
            f"{launcher.name} started {launcher.size} ranks, but MPI cannot be loaded: {' '.join(str(error).split())}; "
            f"pip install 'spgnn[mpi]' brings mpi4py and an MPI; on a cluster pip install mpi4py, "
            f"which finds the MPI of the loaded module; torchrun needs none"
        ) from None
    library.check_size(launcher, mpi.MPI.COMM_WORLD.size)
    return mpi.connect_world(job)


def _cores_of(mask: str) -> list[int]:
    bits = int(mask, 16)
    return [core for core in range(bits.bit_length()) if bits >> core & 1]
