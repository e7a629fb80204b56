"""Training part by part, layer by layer from disk, is the training in memory: losses, weights, scores, on any ranks and parts."""

import os
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from graphs import KINDS, random_graph
from part_folders import parts_of
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import Parts, distribute, merge_parts, part_rows
from spgnn.errors import ResourceError, UsageError
from spgnn.experiment import run
from spgnn.layers import APPNP, GAT, GCN, GCNII, GIN, MLP, SAGE, SGC, MixHop, Stack
from spgnn.training.parts import scratch
from spgnn.training.parts.out_of_core_step import OutOfCoreStep
from spgnn.training.parts.scratch import Scratch
from spgnn.training.trainer import Trainer, weights_of

SOURCE = "sbm:n=60,classes=3,features=6,seed=1"
norm = torch.nn.BatchNorm1d

MODELS = {
    "gcn": lambda **o: Stack(GCN(6, 8, act="relu"), GCN(8, 7, act="elu", norm="layer"), GCN(7, 3), **o),
    "gcn residual": lambda **o: Stack(GCN(6, 6, act="relu", residual=True), GCN(6, 3), **o),
    "sage": lambda **o: Stack(SAGE(6, 8, act="relu"), SAGE(8, 3, "gcn"), **o),
    "sage max": lambda **o: Stack(SAGE(6, 8, "max", act="relu"), SAGE(8, 3, "max"), **o),
    "gat": lambda **o: Stack(GAT(6, 8, 4, dropout=o["dropout"], act="elu"), GAT(8, 3, 2, merge="mean", dropout=o["dropout"]), **o),
    "gin": lambda **o: Stack(GIN(6, 8, hidden=7, train_eps=True, act="relu"), GIN(8, 3), **o),
    "gin as wide": lambda **o: Stack(GIN(6, 8, act="relu"), GIN(8, 8, train_eps=True, act="relu"), GIN(8, 9), GIN(9, 3), **o),
    "sage sum as wide": lambda **o: Stack(SAGE(6, 8, "sum"), SAGE(8, 8, "sum", act="relu"), SAGE(8, 3, "sum"), **o),
    "gcn residual as wide": lambda **o: Stack(GCN(6, 8, act="relu"), GCN(8, 8, act="relu", residual=True), GCN(8, 3), **o),
    "sgc": lambda **o: Stack(SGC(6, 3, 3), **o),
    "appnp": lambda **o: Stack(MLP(6, 3), APPNP(3, 4, dropout=o["dropout"]), **o),
    "gcnii": lambda **o: Stack(MLP(6, 5, act="relu"), GCNII(5, 3, dropout=o["dropout"]), MLP(5, 3), **o),
    "mixhop": lambda **o: Stack(MixHop(6, 9, (0, 1, 3)), MixHop(9, 3, (1, 2), combine="sum"), **o),
    "batch norm": lambda **o: Stack(norm(6), GCN(6, 8), norm(8), torch.nn.ReLU(), GCN(8, 5), norm(5), GCN(5, 3), **o),
    "mlp": lambda **o: Stack(MLP(6, 5, act="relu"), torch.nn.Dropout(o["dropout"]), MLP(5, 3), **o),
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_rows_at_once(monkeypatch):
    for module in (part_rows, scratch):
        monkeypatch.setattr(module, "BLOCK", 7)


def small(kind="undirected", k=4, n=60):
    """A graph with labels and a split, and unequal parts."""
    graph = random_graph(n=n, edges=3 * n, seed=1, **KINDS[kind])
    owner_N = np.random.default_rng(3).integers(0, k, n)
    owner_N[:k], owner_N[k : n // 3] = np.arange(k), 0
    return graph, owner_N


def options_of(**more):
    return TrainConfig(**{"epochs": 4, "lr": 0.05, "weight_decay": 0.01, "seed": 3, "prune": "never"} | more)


def out_of_core(make, graph, owner_N, comm, scratch="", dtype="float64", **more):
    """The Trainer of a training out of core."""
    parts = parts_of(graph, owner_N, comm, hops=1, dtype=dtype, threads=1)
    step = lambda model, dgraph, config: OutOfCoreStep(model, dgraph, config, parts, scratch)
    return Trainer(make().to(getattr(torch, dtype)), merge_parts(parts, has_rows=False), options_of(**more), step)


def in_memory(make, graph, **more):
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    return Trainer(make().double(), dgraph, options_of(**more))


def check_equal(trainer, expected):
    """Compare losses, scores, weights and buffers."""
    for name in ("loss", "train", "val", "test"):
        found, wanted = ([record[name] for record in t.history.records] for t in (trainer, expected))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    found, wanted = weights_of(trainer.model), weights_of(expected.model)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["undirected", "weighted directed"])
@pytest.mark.parametrize("name", MODELS)
def test_each_family_trains_as_in_memory(name, kind, dropout, tmp_path):
    graph, owner_N = small(kind)
    make = lambda: MODELS[name](dropout=dropout)
    trainer, expected = out_of_core(make, graph, owner_N, SelfCommunicator(), tmp_path), in_memory(make, graph)
    trainer.fit()
    expected.fit()
    check_equal(trainer, expected)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["gcn", "batch norm", "gat"])
@pytest.mark.parametrize("k", [1, 7])
@parallel([2, 3], mpi=[2])
def test_any_ranks_and_parts_train_as_in_memory(comm, name, k, tmp_path):
    graph, owner_N = small("weighted directed", k)
    make = lambda: MODELS[name](dropout=0.3)
    trainer, expected = out_of_core(make, graph, owner_N, comm, tmp_path), in_memory(make, graph)
    trainer.fit()
    expected.fit()
    check_equal(trainer, expected)
    comm.barrier()
    assert os.listdir(tmp_path) == []


def test_free_buffers_of_parts_of_other_sizes_do_not_add_up():
    graph, owner_N = small(n=3000, k=6)
    make = lambda: Stack(GCN(6, 64, act="relu"), GCN(64, 64, act="relu"), GCN(64, 3))
    trainer = out_of_core(make, graph, owner_N, SelfCommunicator())
    trainer.fit()
    pool = trainer.steps.engine.reader.layout.pool
    assert 0 < pool.held_bytes <= 1.1 * pool.most_used


@pytest.mark.parametrize("labels", ["classes", "several", "a number", "numbers"])
@parallel([1, 3], mpi=[])
def test_a_loss_of_ones_own_several_labels_and_numbers_train_as_in_memory(comm, labels):
    graph, owner_N = small()
    given = {"optimizer": lambda weights: torch.optim.SGD(weights, lr=0.3, momentum=0.9)}
    Y = np.random.default_rng(2).random((graph.n_nodes, 3))
    if labels == "several":
        graph = replace(graph, y=(Y < 0.4).astype(np.int8))
    elif labels != "classes":
        Y[Y < 0.1] = np.nan
        graph, given["loss"] = replace(graph, y=7 + 3 * (Y if labels == "numbers" else Y[:, 0])), "huber"
    else:
        given["loss"] = lambda Z, y: torch.nn.functional.cross_entropy(Z, y, reduction="sum", label_smoothing=0.1)
    histories = []
    for of in (
        parts_of(graph, owner_N, comm, hops=1, dtype="float64", threads=1),
        distribute(graph, comm, dtype="float64", threads=1),
    ):
        model = Stack(SAGE(6, 5, act="relu"), SAGE(5, 1 if labels == "a number" else 3), dropout=0.2).double()
        more = {"mode": "out-of-core"} if isinstance(of, Parts) else {}
        histories.append(spgnn.train(model, of, epochs=4, progress=False, **given, **more))
    for name in ("loss", "train", "val", "test"):
        np.testing.assert_allclose(*[[record[name] for record in h.records] for h in histories], rtol=1e-10)


REFUSED = {
    "omit jump cat": ({"layers": 3, "jump": "cat"}, UsageError),
    "omit sampler walk": ({"sampler": "walk"}, UsageError),
    "omit hops=0": ({"hops": 0}, UsageError),
    "interval requires": ({"interval": 3}, UsageError),
    "reads relations of edges, which": ({"model": "rgcn"}, UsageError),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_train_out_of_core_is_refused(message):
    options, error = REFUSED[message]
    with pytest.raises(error, match=message):
        run(SOURCE, TrainConfig(mode="out-of-core", parts=3, epochs=1, **options), SelfCommunicator())


def test_what_does_not_fit_in_memory_trains_out_of_core_with_the_same_result(tmp_path):
    source, said = "sbm:n=20000,classes=5,features=20,seed=1", []
    options = {"epochs": 2, "hidden": 256, "layers": 3, "dtype": "float64", "threads": 1}
    whole = run(source, TrainConfig(**options), SelfCommunicator())
    found = run(source, TrainConfig(memory="405MB", **options), SelfCommunicator(), show=said.append)
    assert (whole["mode"], found["mode"]) == ("full", "out-of-core") and found["parts"] > 1
    assert any("it trains out of core, with the same result" in line for line in said)
    assert any("MB of disk" in line for line in said) and found["disk_bytes"] > 0
    told = next(line for line in said if "MB read in an epoch" in line)
    predicted = float(re.search(r"([\d,]+) MB read", told)[1].replace(",", ""))
    assert found["val"] == whole["val"] and found["disk_read_bytes"] / 1e6 == pytest.approx(predicted, rel=0.15)
    with pytest.raises(ResourceError, match=r"(?s)does not fit.*out of core: .*omit jump cat"):
        run(source, TrainConfig(memory="405MB", **options, jump="cat"), SelfCommunicator())


@pytest.mark.parametrize("writes", [0, 1, 2, 3, 5, 8, 13, 20, 30, 40, 50, 60])
def test_a_disk_that_fills_ends_the_training_and_nothing_is_left(writes, tmp_path, monkeypatch):
    graph, owner_N = small()
    trainer = out_of_core(lambda: MODELS["gcn"](dropout=0.1), graph, owner_N, SelfCommunicator(), tmp_path)
    write, count = Scratch.write, []

    def full(scratch, name, p, rows):
        count.append(name)
        if len(count) > writes:
            raise scratch._refused(OSError(28, "No space left on device"))
        write(scratch, name, p, rows)

    monkeypatch.setattr(Scratch, "write", full)
    with pytest.raises(ResourceError, match="No space left on device; give a folder with more room"):
        trainer.fit()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_an_error(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1 << 40))
    graph, owner_N = small()
    trainer = out_of_core(lambda: MODELS["gcn"](dropout=0.1), graph, owner_N, SelfCommunicator(), "/proc/scratch")
    with pytest.raises(ResourceError, match="scratch: cannot be written: .*; give a folder with more room"):
        trainer.fit()


def test_a_disk_with_too_little_room_is_an_error_before_the_first_epoch(tmp_path, monkeypatch):
    graph, owner_N = small()
    trainer = out_of_core(lambda: MODELS["gcn"](dropout=0.1), graph, owner_N, SelfCommunicator(), tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(ResourceError, match="has 0.0 GB free; training out of core writes"):
        trainer.fit()
    assert os.listdir(tmp_path) == []
