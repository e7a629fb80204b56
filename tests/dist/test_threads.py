"""How many threads a rank starts: its share of the cores of its host."""

import os

import pytest
import torch
from worlds import parallel

import spgnn
from spgnn.dist import launch
from spgnn.dist.launch import share_of_threads
from spgnn.machine import core_ids, host_id, share_of_cores


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(name, raising=False)


class Ranks:
    """Stands for a communicator whose rank 0 is this process and whose others have these (host, cores)."""

    def __init__(self, others):
        self.others = others

    def all_gather_json(self, mine):
        return [mine, *([host, f"{sum(1 << c for c in cores):x}"] for host, cores in self.others)]


def test_a_host_is_known_by_more_than_its_name(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "localhost")
    assert host_id().startswith("localhost") and len(host_id().split()[-1]) == 36


@pytest.mark.parametrize("mine, others_here, expected", [
    (range(8), [], 8),
    (range(8), [range(8)] * 3, 2),  # the launcher has bound no one
    (range(8), [range(8)] * 2, 2),
    (range(2), [range(2)] * 7, 1),
    (range(4), [range(4, 8), range(8, 12), range(12, 16)], 4),  # bound to cores of their own: all of them
    (range(12), [range(12)] * 5, 2),  # 12/6, exactly
    ([0, 1, 2, 3], [[2, 3]], 3),
])  # fmt: skip
@pytest.mark.parametrize("elsewhere", [0, 5])
def test_ranks_share_the_cores_of_their_host(monkeypatch, mine, others_here, expected, elsewhere):
    monkeypatch.setattr(launch, "core_ids", lambda: list(mine))
    others = [(host_id(), cores) for cores in others_here] + [("another host", mine)] * elsewhere
    assert share_of_threads(Ranks(others)) == expected


@pytest.mark.parametrize("name, asked, others, expected", [
    *(("SLURM_CPUS_PER_TASK", asked, 0, most) for asked, most in (("4", 4), ("16", 8), ("0", 1), ("", 8))),
    *(("OMP_NUM_THREADS", asked, 3, n) for asked, n in (("3", 3), ("16,2", 16), ("0", 2), ("", 2), ("many", 2))),
])  # fmt: skip
def test_slurm_s_cpus_per_task_are_the_most_and_omp_num_threads_is_obeyed(monkeypatch, name, asked, others, expected):
    monkeypatch.setenv(name, asked)
    monkeypatch.setattr(launch, "core_ids", lambda: list(range(8)))
    assert share_of_threads(Ranks([(host_id(), range(8))] * others)) == expected


@parallel([1, 3], mpi=[1, 2])
def test_ranks_of_one_host_have_together_no_more_threads_than_cores(comm):
    omp = os.environ.pop("OMP_NUM_THREADS", None)  # which MPI ranks have
    share = share_of_threads(comm)
    if omp is not None:
        os.environ["OMP_NUM_THREADS"] = omp
    assert share == max(1, len(core_ids()) // comm.size)
    assert share_of_cores(core_ids(), [core_ids()] * comm.size) * comm.size == len(core_ids())


@parallel([1, 2], mpi=[2])
def test_a_rank_that_names_no_threads_takes_no_more_than_its_share(comm):
    dgraph = spgnn.distribute(spgnn.load_graph("path:n=8"), comm, method="block")
    assert dgraph.A.threads == torch.get_num_threads() <= share_of_threads(comm)
