"""Launchers: what mpirun, srun and their like leave in the environment of a rank."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

# (launcher, rank, size, how to start one job of N); the first whose variables are all set counts.
# Slurm stands last: an mpirun inside a Slurm job sets its own, and Slurm's then count its daemons.
_KNOWN = (
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("mpirun (PMI)", "PMI_RANK", "PMI_SIZE"),
    ("srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


@dataclass(frozen=True, slots=True)
class Launcher:
    """Who started this process, as rank of size."""

    name: str
    rank: int
    size: int
    pmi_fd: int = -1  # hydra's pipe to its proxy, for a rank that fails before MPI has started

    def abort(self, exit_code: int) -> None:
        """Ask the launcher to end the job, where it has a word for that (PMI-1, as hydra speaks it).

        hydra takes an exit before MPI_Init as a normal end, and the others would wait in MPI_Init.
        """
        if self.pmi_fd >= 0:
            try:
                os.write(self.pmi_fd, f"cmd=abort exitcode={exit_code}\n".encode())
            except OSError:  # the proxy has gone, and with it the job
                return


def find_launcher(env: Mapping[str, str]) -> Launcher | None:
    """Return the launcher that env tells of, None for a process that was started alone."""
    for name, rank, size in _KNOWN:
        if env.get(rank, "").isdigit() and env.get(size, "").isdigit():
            is_hydra = rank == "PMI_RANK" and "SLURM_STEP_ID" not in env and env.get("PMI_FD", "").isdigit()
            return Launcher(name, int(env[rank]), int(env[size]), int(env["PMI_FD"]) if is_hydra else -1)
    return None
