"""world(comm=) and comm= of calls: the ranks of an mpi4py communicator, such as a half of a job."""

import os

import pytest
from worlds import launch_text

import spgnn
from spgnn.errors import UsageError
from spgnn.machine import unseen_ranks

PROGRAM = """
import numpy as np, spgnn
from mpi4py import MPI
from spgnn.doctor.health import check_launcher, check_mpi, check_threads
from spgnn.doctor.probe import latency_seconds
from spgnn.layers import GCN, Stack

world, graphs = MPI.COMM_WORLD, ["sbm:n=60,classes=3,features=4,seed=1", "sbm:n=90,classes=3,features=4,seed=2"]

def trained(graph, comm):
    model = Stack(GCN(4, 8, act="relu"), GCN(8, 3), dropout=0.2)
    dgraph = spgnn.distribute(spgnn.load_graph(graph), comm, method="random", dtype="float64")
    losses = [record["loss"] for record in spgnn.train(model, dgraph, epochs=4).records]
    return np.array(losses), spgnn.predict(model, spgnn.load_graph(graph), comm, method="random").probabilities

half = world.Split(world.rank // 2)
with spgnn.world(half) as comm:
    assert (comm.size, comm.rank) == (2, world.rank % 2)
    losses, proba = trained(graphs[world.rank // 2], comm)
    assert check_launcher(comm).state == check_mpi(comm).state == "ok" and latency_seconds(comm, 3) > 0
    assert "2 rank(s) with" in check_threads(comm, 1).found
losses_2, proba_2 = trained(graphs[world.rank // 2], half)  # the communicator that mpi4py's keeps
alone, proba_1 = trained(graphs[world.rank // 2], spgnn.dist.SelfCommunicator())
assert np.abs(losses - alone).max() < 1e-12 and np.abs(proba - proba_1).max() < 1e-6
assert np.array_equal(losses, losses_2) and np.array_equal(proba, proba_2)
for _ in range(3):
    again = spgnn.distribute(spgnn.load_graph(graphs[0]), half, method="random")
    assert again.comm is spgnn.distribute(spgnn.load_graph(graphs[0]), half, method="random").comm
with spgnn.world(type("Comm", (), {"tompi4py": lambda self: half})()) as comm:  # of petsc4py
    assert comm is again.comm
half.Free()
both = trained(graphs[0], world)[0]  # all ranks go on together
first = world.bcast(alone, 0)
assert np.abs(both - first).max() < 1e-12
try:
    spgnn.distribute(spgnn.load_graph(graphs[0]), MPI.COMM_NULL)
except spgnn.SpgnnError as error:
    print(error)
"""

PETSC_PROGRAM = """
import sys, numpy as np, petsc4py
petsc4py.init(sys.argv)  # starts MPI, for calls from one thread
from petsc4py import PETSc
import spgnn
from spgnn.layers import GCN, Stack

world = PETSc.COMM_WORLD
color = 2 * world.rank // world.size
half, n, rng = PETSc.Comm(world.tompi4py().Split(color)), (60, 90)[color], np.random.default_rng(color)
A = PETSc.Mat().createAIJ((n, n), nnz=4, comm=half)
for i in range(*A.getOwnershipRange()):
    for j in {(i + 1) % n, (i - 1) % n, 7 * i % n}:
        A[i, j] = 1.0 + (i + j) % 3
A.assemble()
X, y, split = rng.standard_normal((n, 4)), rng.integers(0, 3, n), np.zeros(n, np.int8)
graph = spgnn.from_petsc(A, X=X, y=y, split=split)
assert all(graph.A[[i]].sum() == A.getRow(i)[1].sum() for i in range(*A.getOwnershipRange()))

def trained(comm):
    dgraph = spgnn.distribute(graph, comm=comm, method="random", dtype="float64")
    history = spgnn.train(Stack(GCN(4, 8, act="relu"), GCN(8, 3)), dgraph, epochs=3)
    return np.array([record["loss"] for record in history.records])

losses = trained(half)
with spgnn.world(half) as comm:
    assert (comm.size, comm.rank) == (half.size, half.rank) and np.array_equal(trained(comm), losses)
    assert spgnn.doctor.examine(half, threads=1, repeat=1).ok
assert np.abs(losses - trained(spgnn.dist.SelfCommunicator())).max() < 1e-12
found = spgnn.doctor.examine(world, threads=1, repeat=1)
if world.rank == 0:
    print(found)
"""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_halves_of_a_program_of_petsc_train_their_matrices_as_each_alone(tmp_path, ranks):
    pytest.importorskip("petsc4py")
    ended = launch_text(ranks, PETSC_PROGRAM, tmp_path, limit_s=120)
    assert ended.code == 0, ended.err
    assert f"{ranks} rank(s) on 1 host(s)" in ended.out


@pytest.mark.mpi
@pytest.mark.slow
def test_two_halves_of_a_job_train_two_graphs_as_each_alone(tmp_path):
    pytest.importorskip("mpi4py")
    ended = launch_text(4, PROGRAM, tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.count("comm is MPI.COMM_NULL on this rank") == 4


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_fails_in_its_half_ends_the_job(tmp_path):
    pytest.importorskip("mpi4py")
    lines = ["import spgnn, time", "from mpi4py import MPI", "half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank // 2)"]
    lines += ["with spgnn.world(comm=half) as comm:", "    if MPI.COMM_WORLD.rank == 3:"]
    lines += ["        raise spgnn.SpgnnError('no such thing')", "    time.sleep(60)"]
    ended = launch_text(4, "\n".join(lines), tmp_path)
    assert ended.code != 0 and ended.seconds < 30
    assert ended.err.count("no such thing") == 1 and "rank 3" in ended.err


@pytest.mark.mpi
@pytest.mark.slow
def test_processes_that_each_have_a_world_of_their_own_are_no_part_of_a_job(tmp_path):
    pytest.importorskip("mpi4py")
    program = (
        "import spgnn\nfrom mpi4py import MPI\n"
        "try:\n    spgnn.distribute(spgnn.load_graph('path:n=9'), MPI.COMM_WORLD)\n"
        "except spgnn.SpgnnError as error:\n    print(error)\n"
    )
    other = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}  # of a launcher that this MPI does not know
    ended = launch_text(0, program, tmp_path, env=other)
    assert "started 2 processes, but MPI makes jobs of 1 of them" in ended.out, ended.err


def test_another_object_is_no_communicator():
    with pytest.raises(UsageError, match="got a int instead of a communicator"), spgnn.world(comm=7):
        pass


@pytest.mark.parametrize("given, is_bound, expected", [({}, False, 0), ({"MPI_LOCALNRANKS": "4"}, False, 2),
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, False, 0), ({"MPI_LOCALNRANKS": "4"}, True, 0)])  # fmt: skip
def test_ranks_of_the_other_half_share_the_cores(monkeypatch, given, is_bound, expected):
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("spgnn.machine.cores", lambda: 1 if is_bound else os.cpu_count())
    assert unseen_ranks(2) == expected
