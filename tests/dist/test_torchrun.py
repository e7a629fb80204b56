"""torchrun: one job of several ranks, with the losses and bytes of other launchers; how it ends."""

import re
import sys
from dataclasses import replace

import pytest
from worlds import launch, parallel

from spgnn.config import TrainConfig
from spgnn.data import load_graph
from spgnn.dist import run_threads
from spgnn.experiment import resume, run
from spgnn.partition import part_graph, save_partition

GRAPH = "sbm:n=60,classes=3,features=6,seed=1"
CONFIG = TrainConfig(hidden=5, epochs=4, dtype="float64", checkpoint_every=0.0)
RUNS = {
    "full": {"method": "metis", "model": "sage"},
    "sampled": {"model": "sage", "sampler": "walk"},
    "average": {"mode": "average", "parts": 8, "interval": 2},
    "1.5D": {"replication": 2, "scheme": "broadcast"},
    "parts": {"method": "metis"},
}


def records_of(comm, name, folder):
    """Train, continue from the checkpoint where there is one, and return the records of all epochs."""
    records, config = [], replace(CONFIG, **RUNS[name])
    if name == "parts" and comm.rank == 0:
        save_partition(part_graph(load_graph(GRAPH), 4, "metis"), folder / "parts", load_graph(GRAPH))
    comm.barrier()
    if name == "parts":
        config = replace(config, partition=str(folder / "parts"))
    if name == "full":
        config = replace(config, out=str(folder / "run"))
    run(GRAPH, config, comm, report=records.append)
    if name == "full":
        resume(folder / "run", comm, report=records.append, epochs=7)
    return records


@parallel([], mpi=[4], torch=[4])
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.every
def test_the_losses_and_bytes_of_every_mode_are_those_of_threads(comm, tmp_path, name):
    records = records_of(comm, name, tmp_path)
    if comm.rank == 0:
        (tmp_path / "threads").mkdir()
        expected = run_threads(comm.size, records_of, name, tmp_path / "threads")[0]
        assert len(records) == len(expected) > 1
        for mine, theirs in zip(records, expected):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-10)
            for key in ("epoch", "bytes_sent", "train", "val", "test"):
                assert mine.get(key) == theirs.get(key)
    comm.barrier()


FAILS = """
import numpy as np, spgnn
from spgnn.errors import InputError
with spgnn.world() as comm:
    for epoch in range(30):
        comm.phase = f"epoch {epoch}"
        if (comm.rank, epoch) == (1, 7):
            raise InputError("graph.txt:7: node -3 is negative")
        comm.all_reduce(np.zeros(100))
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_fails_ends_the_job_and_is_named_once():
    ended = launch(3, [sys.executable, "-c", FAILS], by="torch")
    assert ended.code and not ended.is_late and not ended.left
    (report,) = re.findall(r"spgnn: .*\n.*", ended.err)
    assert report.startswith("spgnn: graph.txt:7: node -3 is negative\n  rank 1; phase: epoch 7; host ")
    assert re.search(r"rank +: 1 .*\n +exitcode +: 3 ", ended.err)  # in torchrun's report


STOPS = """
import os, signal, time, numpy as np, spgnn
from spgnn.errors import InputError
with spgnn.world() as comm:
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1)
    raise InputError("graph.txt:7: node -3 is negative")
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_is_stopped_ends_with_the_job():
    ended = launch(3, [sys.executable, "-c", STOPS], by="torch")
    assert ended.code and not ended.left and "node -3 is negative" in ended.err
    assert "Unable to shutdown process" not in ended.err  # as torchrun says where it has waited 30 s for the SIGTERM
