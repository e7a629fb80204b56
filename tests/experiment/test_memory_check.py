"""Which device a rank takes, and memory that does not suffice: of a device, and of a host, before anything is partitioned."""

import re
from types import SimpleNamespace

import pytest
import torch
from graphs import random_graph

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.data import load_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import ResourceError
from spgnn.experiment import run
from spgnn.experiment.memory_check import PredictedTraining, check_fits, explaining_memory
from spgnn.layers import GCN, Stack
from spgnn.layers.registry import operator_of
from spgnn.partition import part_graph, save_partition
from spgnn.spmm.chains.autograd import on_this_thread
from spgnn.spmm.kernels.cuda.placement import number_on, place
from spgnn.training import Trainer

SOURCE, M = "sbm:n=3000,seed=1", 600_000_000


class FakeDriver:
    """Two devices on each host, or what the test says."""

    def __init__(self, problem=None, names=("00", "01")):
        self._problem, self.names = problem, names

    def problem(self):
        return self._problem

    def count(self):
        return len(self.names)

    def identity(self, number):
        return self.names[number]

    def use(self, number):
        self.used = number


def test_ranks_of_a_host_take_its_devices_in_turn():
    drivers = [FakeDriver() for _ in range(3)]
    placements = run_threads(3, lambda comm: place(comm, "cuda", drivers[comm.rank]))
    assert [driver.used for driver in drivers] == [0, 1, 0]
    assert [p.device.index for p in placements] == [0, 1, 0]
    assert [p.sharers for p in placements] == [2, 1, 2] and all(p.shares_anywhere for p in placements)
    assert not any(p.shares_anywhere for p in run_threads(2, lambda comm: place(comm, "cuda", FakeDriver())))


def test_ranks_that_see_one_device_each_do_not_share_it():
    placements = run_threads(2, lambda comm: place(comm, "cuda", FakeDriver(names=[f"0{comm.rank}"])))
    assert [(p.device.index, p.sharers, p.shares_anywhere) for p in placements] == [(0, 1, False)] * 2


def test_devices_are_counted_on_each_host():
    everywhere = [("a", 2), ("a", 2), ("b", 4), ("b", 4), ("b", 4)]
    assert [number_on(everywhere, rank) for rank in range(5)] == [0, 1, 0, 1, 2]


def test_a_rank_without_a_device_ends_all_with_the_fix():
    def body(comm):
        with pytest.raises(ResourceError if comm.rank == 1 else Exception, match="no driver: install one") as caught:
            place(comm, "cuda", FakeDriver("no driver: install one" if comm.rank == 1 else None))
        return caught.value.exit_code

    assert run_threads(2, body) == [4, 4]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_train_on_cuda_without_a_device_is_one_line_with_the_fix(capsys):
    assert cli.main(["train", "sbm:n=50,seed=0", "--device", "cuda", "--epochs", "1"]) == 4
    err = capsys.readouterr().err
    assert "--device cuda: " in err and ("built for CUDA" in err or "driver" in err) and "Traceback" not in err
    with pytest.raises(ResourceError, match="device cuda"):
        spgnn.distribute(random_graph(), SelfCommunicator(), device="cuda")


def test_backward_on_a_device_runs_on_the_thread_of_its_rank():
    is_multithreaded = torch._C._is_multithreading_enabled
    with on_this_thread(SimpleNamespace(device=torch.device("cuda", 0))):
        assert not is_multithreaded()
    with on_this_thread(SimpleNamespace(device=torch.device("cpu"))):
        assert is_multithreaded()


@pytest.fixture
def trainer():
    dgraph = spgnn.distribute(random_graph(), SelfCommunicator())
    return Trainer(Stack(GCN(6, 8, act="relu"), GCN(8, 3)), dgraph, TrainConfig())


def test_out_of_memory_is_one_error_with_what_the_device_has(trainer, monkeypatch):
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (int(1e8), int(2e9)))
    with pytest.raises(ResourceError, match="rank 0: out of memory on cpu, which has 2 GB, 0.1 GB of them free; use"):
        with explaining_memory(trainer):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("options, parts", [
    ({}, 1), ({"layers": 3, "dtype": "float64"}, 1), ({"model": "gat", "heads": 8}, 1),
    ({"model": "sage", "prune": "never"}, 4), ({"prune": "always"}, 2),
])  # fmt: skip
def test_the_width_that_is_named_fits_and_the_next_does_not(options, parts):
    config = TrainConfig(threads=1, hidden=400_000, **options)
    given = load_graph(SOURCE).with_edges(config.edges), config, operator_of(config)
    with pytest.raises(ResourceError, match="hidden=400000 does not fit: a rank needs") as error:
        check_fits(*given, parts, M)
    text = str(error.value)
    first, second = text.split("\n")
    assert "has 0.6 GB by its share of this host" in first and re.search(r"^  per rank: [\d,.]+ GB \w.* = ", second)
    hidden, step = int(re.search(r"hidden=(\d+) is the largest that fits", text)[1]), config.heads
    step = step if config.model == "gat" else 1
    predicted = PredictedTraining(*given)
    assert hidden % step == 0 and predicted.memory(hidden, parts).training <= M
    assert predicted.memory(hidden + step, parts).training > M


def test_what_fits_is_trained_and_memory_is_a_limit_below_that_of_the_host():
    comm = SelfCommunicator()
    assert run(SOURCE, TrainConfig(hidden=8, epochs=1, memory="600MB"), comm)["epochs"] == 1
    with pytest.raises(ResourceError, match=r"memory 600MB; hidden=\d+ is the largest") as error:
        run(SOURCE, TrainConfig(hidden=999_999, epochs=1, memory="600MB"), comm)
    assert error.value.exit_code == 4
    with pytest.raises(ResourceError, match="no hidden fits"):
        run(SOURCE, TrainConfig(layers=1, epochs=1, memory="9MB"), comm)


def test_a_rank_of_a_partition_folder_that_does_not_fit_memory_is_refused(tmp_path, capsys):
    graph = load_graph("sbm:n=300,seed=1")
    save_partition(part_graph(graph, 3, "block"), tmp_path / "parts", graph)
    words = ["train", str(tmp_path / "parts"), "--epochs", "1", "--out", "none"]
    assert cli.main([*words, "--memory", "200MB"]) == 4
    err = capsys.readouterr().err
    assert "a rank needs 0.2" in err and "has 0.2 GB" in err and "out of core: the largest part needs 0.3" in err
    assert cli.main([*words, "--memory", "2GB"]) == 0
