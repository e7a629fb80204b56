"""The MPI library: loaded without being started, compared with the launcher, started."""

from __future__ import annotations

import mpi4py

from ...errors import LaunchError
from ..job.protect import JobLauncher

# What runs under a launcher of the other family dies in MPI_Init, or makes a job of one rank of each process.
OTHERS = ("MPICH", "MVAPICH", "Intel")


def name() -> str:
    """Load the library that mpi4py finds and return its name and version. Raises: RuntimeError where it cannot be loaded."""
    before = mpi4py.rc.initialize
    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # read once, by the import
    try:
        from mpi4py import MPI
    finally:
        mpi4py.rc.initialize = before
    return " ".join(MPI.Get_library_version().replace(",", " ").split()[:3])


def start(launcher: JobLauncher) -> None:
    """Start MPI, if it is the launcher's. Raises: LaunchError if it is not; RuntimeError where it cannot be loaded."""
    library, is_open = name(), launcher.name == "Open MPI's mpirun"
    if library.startswith(OTHERS) if is_open else launcher.pmi_fd >= 0 and library.startswith("Open MPI"):
        other = "MPICH's mpirun, which the mpich wheel has beside python" if is_open else "Open MPI's mpirun"
        own = "Open MPI (pip uninstall mpich, or MPI4PY_LIBMPI=FILE)" if is_open else "MPICH (pip install mpich)"
        raise LaunchError(
            f"{launcher.name} started this process, but mpi4py loads {library}; start it with {other}, "
            f"or let mpi4py load {own}"
        )
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread()


def check_size(launcher: JobLauncher, size: int) -> None:
    """Raise LaunchError where MPI's world has another size than the launcher's job: MPI belongs to another launcher."""
    if size != launcher.size:
        raise LaunchError(
            f"{launcher.name} started {launcher.size} processes, but MPI makes jobs of {size} of them; "
            f"the launcher does not belong to the MPI that mpi4py loads ({name()}): use the mpirun that "
            f"came with that MPI, or on Slurm srun --mpi=pmi2 or --mpi=pmix (srun --mpi=list names them)"
        )
