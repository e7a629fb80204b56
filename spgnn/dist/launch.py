"""world(): the ranks that a launcher started, or this process alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import LaunchError
from .alone import SelfCommunicator
from .communicator import Communicator
from .job.protect import Job, this_job


@contextmanager
def world() -> Iterator[Communicator]:
    """Yield the communicator of all ranks: MPI's where a launcher started them, else of one rank.

    A rank that leaves the block by an error, or by sys.exit of anything but 0, is reported and ends
    the job on all ranks: no code behind the block runs. Where no launcher is, errors pass through.
    Raises: LaunchError if the launcher's processes do not make one job, or MPI is missing.
    Collective.
    """
    job = this_job()
    if job.launcher is None:
        yield SelfCommunicator()
        return
    try:
        comm = _connect(job)
        try:
            yield comm
        except SystemExit as leaving:
            if leaving.code:
                raise
            comm.close()  # before the others miss this rank: they are told that it has left
            raise
        comm.close()
        job.set_phase("after spgnn.world()")
    except BaseException as error:  # whatever it is, the other ranks must not wait for this one
        job.fail(error)  # comes back for sys.exit(0) alone
        raise


def _connect(job: Job):
    launcher = job.launcher
    try:
        from .mpi import mpi_communicator as mpi
    except (ImportError, RuntimeError) as error:
        if launcher.size == 1:
            return SelfCommunicator()
        raise LaunchError(
            f"{launcher.name} started {launcher.size} ranks, but MPI cannot be loaded: {' '.join(str(error).split())}; "
            f"pip install 'spgnn[mpi]' brings mpi4py and an MPI; on a cluster pip install mpi4py, "
            f"which finds the MPI of the loaded module"
        ) from None
    size = mpi.world_size()
    if size != launcher.size:
        raise LaunchError(
            f"{launcher.name} started {launcher.size} processes, but MPI makes jobs of {size} of them; "
            f"the launcher is not of the MPI that mpi4py loads ({mpi.library()}): use the mpirun that "
            f"came with that MPI, or on Slurm srun --mpi=pmi2 or --mpi=pmix (srun --mpi=list names them)"
        )
    return mpi.connect_world(job)
