"""Threads of each rank, on hosts and under launchers that bind ranks or do not."""

import json
import os
import sys

import pytest
from hosts import ok, on_hosts

# Prints one line a rank: host, rank, threads that spgnn would start, cores that the rank may use.
RANK = (
    "import os, socket, spgnn, json\n"
    "from spgnn.dist.launch import share_of_threads\n"
    "from spgnn.dist.mpi.mpi_communicator import shares_cores\n"
    "with spgnn.world() as comm:\n"
    "    line = [socket.gethostname(), share_of_threads(comm), len(os.sched_getaffinity(0)), shares_cores()]\n"
    "    lines = comm.all_gather_json(line)\n"
    "    if comm.rank == 0: print(json.dumps(lines))\n"
)
CORES = sorted(os.sched_getaffinity(0))


def ranks_of(launcher, *, hosts, slurm=False, commands, **env):
    """Return [host, threads, cores, shares cores] of each rank."""
    return json.loads(
        ok(on_hosts([*launcher, sys.executable, "-c", RANK], hosts=hosts, slurm=slurm, PATH=commands, **env)).out
    )


def cores_of_a_host(hosts: int) -> int:
    return max(1, len(CORES) // hosts)


@pytest.mark.parametrize("hosts, ranks_a_host", [(1, 1), (1, 2), (1, 4), (2, 1), (2, 3)])
def test_mpirun_s_ranks_have_together_the_cores_of_their_host(commands, hosts, ranks_a_host):
    launcher = ["sh", "-c", f'exec mpirun -f "$HOSTFILE" -ppn {ranks_a_host} -n {hosts * ranks_a_host} "$@"', "sh"]
    found = ranks_of(launcher, hosts=hosts, commands=commands)
    cores = cores_of_a_host(hosts)
    expected = [[f"h{h}", max(1, cores // ranks_a_host), cores, ranks_a_host > cores] for h in range(1, hosts + 1)]
    assert found == [line for line in expected for _ in range(ranks_a_host)]


@pytest.mark.skipif(len(CORES) < 2, reason="binding needs two cores")
def test_ranks_that_mpirun_binds_keep_their_cores(commands):
    found = ranks_of(["mpirun", "-n", "2", "-bind-to", "core"], hosts=1, commands=commands)
    assert [line[1:] for line in found] == [[1, 1, False], [1, 1, False]]


@pytest.mark.parametrize("tasks, cpus", [(1, 1), (1, len(CORES)), (2, 1), (4, 2)])
def test_srun_s_ranks_have_their_cpus_per_task_at_most(commands, tasks, cpus):
    """This Slurm binds no task: each may run on all cores of the node."""
    found = ranks_of(["srun", "--mpi=pmi2", "-n", tasks, "-c", cpus], hosts=1, slurm=True, commands=commands)
    assert found == [["h1", min(cpus, max(1, len(CORES) // tasks)), len(CORES), tasks > len(CORES)]] * tasks
