"""Launchers: the program that started this process as one rank of several, by the variables that it sets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
