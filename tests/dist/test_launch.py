"""world() and what a launcher leaves in the environment."""

import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from worlds import ROOT, launch_text

from spgnn.dist.launch import find_launcher
from spgnn.errors import LaunchError

TORCH = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
OPEN = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
HYDRA = {"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "9"}


@pytest.mark.parametrize("env, expected", [
    ({}, None),
    ({"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9"}, (1, 4, 9)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2, -1)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # a batch script that has not called srun
    ({"SLURM_PROCID": "3", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, (3, 8, -1)),
    ({"PMIX_RANK": "2", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8"}, (2, 8, -1)),
    ({"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_FD": "9", "SLURM_STEP_ID": "0"}, (5, 8, -1)),  # Slurm's own PMI
    ({"PMI_RANK": "5", "PMI_SIZE": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, (5, 8, -1)),
    ({"PMI_RANK": "5", "PMI_SIZE": "8", **TORCH}, (5, 8, -1)),  # variables of the container
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", **TORCH}, (1, 4, -1)),
    ({"PMI_RANK": "0", "PMI_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", **TORCH}, (1, 4, -1)),  # once per host
])  # fmt: skip
def test_a_launcher_is_known_by_its_variables(env, expected):
    found = find_launcher(env)
    assert (None if found is None else (found.rank, found.size, found.pmi_fd)) == expected


def run(code, **env):
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM", "RANK", "WORLD_SIZE"))
    } | env
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=30)


STATE = """
import atexit, builtins, json, os, signal, sys, threading, warnings

def state():
    hooks = sys.excepthook, sys.exit, builtins.exit, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.path_hooks
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return [*map(repr, hooks), repr(handlers), atexit._ncallbacks(), repr(warnings.filters), dict(os.environ), threading.active_count()]

before = state()
import spgnn
after = state()
assert before == after, [pair for pair in zip(before, after) if pair[0] != pair[1]]
with spgnn.world(): pass
print(sys.excepthook is not sys.__excepthook__)
"""


@pytest.mark.parametrize(
    "env, library, fault",
    [
        (OPEN, "MPICH Version: 5.0.2", "loads MPICH Version: 5.0.2; start it with MPICH's mpirun"),
        (HYDRA, "Open MPI v4.1.4", "loads Open MPI v4.1.4; start it with Open MPI's mpirun"),
        (OPEN, "Open MPI v4.1.4", ""),
        (HYDRA, "MPICH Version: 5.0.2", ""),
        (HYDRA | {"SLURM_STEP_ID": "0"}, "Open MPI v4.1.4", ""),  # Slurm's PMI, which both speak
    ],
)
def test_an_mpi_of_another_launcher_is_refused_before_it_starts(monkeypatch, env, library, fault):
    mpi = pytest.importorskip("spgnn.dist.mpi.library")
    MPI, started = pytest.importorskip("mpi4py"), []
    fake = SimpleNamespace(Is_initialized=lambda: False, Init_thread=lambda: started.append(True))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", fake)
    monkeypatch.setattr(MPI, "MPI", fake, raising=False)
    monkeypatch.setattr(mpi, "name", lambda: library)
    with pytest.raises(LaunchError, match=fault) if fault else nullcontext():
        mpi.start(find_launcher(env))
    assert bool(started) == (not fault)


def test_a_rank_of_srun_is_not_said_to_be_of_mpirun():
    ranks = {"PMI_RANK": "1", "PMI_SIZE": "4", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}
    assert find_launcher(ranks).name == "srun"
    assert find_launcher(ranks | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}).name == "mpirun (PMI)"


@pytest.mark.parametrize("env, has_hooks", [({}, False), ({"PMI_RANK": "0", "PMI_SIZE": "1"}, True)])
def test_importing_spgnn_changes_nothing_of_the_process_and_world_sets_its_hooks_under_a_launcher(env, has_hooks):
    ended = run(f"import sys; sys.modules['mpi4py'] = None\n{STATE}", **env)
    assert (ended.stdout, ended.stderr) == (f"{has_hooks}\n", "")


SCRIPT = "import sys, spgnn\nwith spgnn.world() as comm: print(comm, 'mpi4py' in sys.modules)"


def test_a_process_that_no_launcher_started_is_a_world_of_one_without_mpi():
    ended = run(SCRIPT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "SelfCommunicator(rank 0 of 1) False\n", "")


@pytest.mark.parametrize(
    "env, said",
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "torchrun started this process (RANK=0, WORLD_SIZE=2) without MASTER_ADDR and MASTER_PORT"),
        ({"PMI_SIZE": "2"}, "mpirun (PMI) started this process (PMI_SIZE=2) without PMI_RANK"),
        ({"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "2"}, "whose ranks spgnn does not connect"),
        (TORCH | {"TORCHELASTIC_RUN_ID": "x", "PMI_RANK": "0", "PMI_SIZE": "8"}, "started 8 processes, but torchrun makes jobs of 4 ranks"),
        ({"PMIX_RANK": "0"}, "a PMIx launcher started this process (PMIX_RANK=0), whose ranks spgnn does not connect"),
    ],
)  # fmt: skip
def test_a_launcher_that_is_not_understood_is_never_ignored(env, said):
    ended = run(SCRIPT, **env)
    assert (ended.returncode, ended.stdout, ended.stderr.count("spgnn: ")) == (4, "", 1)
    assert said in ended.stderr and ("--nnodes" if len(env) > 2 else "or torchrun, or unset") in ended.stderr
    assert run(SCRIPT, WORLD_SIZE="1", RANK="0", HOROVOD_SIZE="1").stdout.startswith("SelfCommunicator")


@pytest.mark.slow
def test_jobs_of_one_are_refused_with_the_fix():
    pytest.importorskip("mpi4py")
    ended = run(SCRIPT, SLURM_STEP_ID="0", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="3")
    assert ended.returncode == 4 and ended.stdout == ""
    assert "srun started 3 processes, but MPI makes jobs of 1 of them" in ended.stderr
    assert "--mpi=pmi2" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.slow
def test_an_mpi_that_is_missing_is_a_clear_error():
    hidden = "import sys; sys.modules['mpi4py'] = None\n"
    ended = run(hidden + SCRIPT, PMI_RANK="0", PMI_SIZE="2")
    assert ended.returncode == 4
    assert "started 2 ranks, but MPI cannot be loaded" in ended.stderr and "pip install" in ended.stderr
    assert "Traceback" not in ended.stderr
    alone = run(hidden + SCRIPT, PMI_RANK="0", PMI_SIZE="1")
    assert (alone.returncode, alone.stdout) == (0, "SelfCommunicator(rank 0 of 1) True\n")


OF_SOME = """
import numpy as np
from mpi4py import MPI
from spgnn.dist.mpi.mpi_communicator import MpiCommunicator

some = MPI.COMM_WORLD.Split(0 if MPI.COMM_WORLD.rank < 2 else MPI.UNDEFINED)
if some != MPI.COMM_NULL:
    comm = MpiCommunicator(some)
    assert comm.all_reduce(np.ones(1))[0] == 2 and comm.split(comm.rank).size == 1
    comm.close()
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_a_communicator_of_some_ranks_does_not_wait_for_the_others(tmp_path):
    ended = launch_text(3, OF_SOME, tmp_path, limit_s=20)
    assert ended.code == 0, ended.err
