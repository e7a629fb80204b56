"""Training on parts that read stale hidden rows of their halos: exact after a refresh, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import Parts, distribute
from spgnn.errors import UsageError
from spgnn.layers import APPNP, GAT, GCN, GCNII, MLP, SAGE, SGC, MixHop, Stack
from spgnn.partition import part_graph, save_partition
from spgnn.training.stale_halos import StaleHalos
from spgnn.training.trainer import parts_trainer

pytestmark = pytest.mark.slow

KINDS = {"undirected": {"use": "undirected"}, "weighted directed": {"weighted": True, "sparse": True}}
MODELS = {
    "gcn": lambda **more: Stack(GCN(6, 5, act="relu"), GCN(5, 7, act="relu"), GCN(7, 3), **more),
    "gcn, residual": lambda **more: Stack(GCN(6, 5), GCN(5, 5, norm="layer", act="elu", residual=True), GCN(5, 3), **more),
    "sage": lambda **more: Stack(SAGE(6, 5, act="relu"), SAGE(5, 4, combine="cat", act="relu"), SAGE(4, 3), **more),
    "sage max": lambda **more: Stack(SAGE(6, 5, "max", act="relu"), SAGE(5, 3, "max"), **more),
    "gat": lambda **more: Stack(GAT(6, 8, 4, act="elu"), GAT(8, 4, 2, act="elu"), GAT(4, 3, 1, merge="mean"), **more),
    "gat v2": lambda **more: Stack(GAT(6, 8, 2, "v2", act="elu"), GAT(8, 3, 1, "v2"), **more),
    "mixed": lambda **more: Stack(MLP(6, 5, act="relu"), GCN(5, 7), MLP(7, 5), SAGE(5, 4, "sum"), MLP(4, 3), **more),
    "sgc": lambda **more: Stack(SGC(6, 3, 3), **more),
}  # fmt: skip


def cut(k, kind="undirected", **more):
    graph = random_graph(n=50, edges=140, seed=4, **KINDS[kind] | more)
    return graph, part_graph(graph, k, "random", seed=1)


def trainer_of(graph, partition, comm, model=None, keep=True, **options):
    parts = Parts.of_graph(graph, partition, comm, hops=1, dtype="float64", threads=1, keep=keep)
    model = MODELS["gcn"](dropout=0.3) if model is None else model
    return parts_trainer(model, parts, TrainConfig(**{"epochs": 5, "lr": 0.1, "halo": "stale"} | options))


def losses_of(trainer):
    return [record["loss"] for record in trainer.fit().records]


def whole_loss(graph, model):
    """The loss of the first epoch of full-graph training."""
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    return spgnn.train(model, dgraph, epochs=1, prune="never").records[0]["loss"]


CASES = [(name, "undirected") for name in MODELS] + [
    (name, "weighted directed") for name in ("gcn", "sage", "gat", "sgc")
]


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("name, kind", CASES)
def test_after_a_refresh_the_loss_is_that_of_the_whole_graph_for_any_number_of_layers(comm, name, kind):
    graph, partition = cut(4, kind)
    expected = whole_loss(graph, MODELS[name]())
    for keep in (True, False):
        losses = losses_of(trainer_of(graph, partition, comm, MODELS[name](), keep, epochs=1))
        np.testing.assert_allclose(losses, expected, atol=1e-10, rtol=0)
    truncated = losses_of(trainer_of(graph, partition, comm, MODELS[name](), epochs=1, halo="truncated"))
    assert abs(truncated[0] - expected) > 1e-4


@parallel([1, 2], mpi=[])
def test_so_is_that_of_nodes_with_several_labels(comm):
    graph, partition = cut(4)
    graph = replace(graph, y=np.random.default_rng(0).integers(0, 2, (50, 3)).astype(np.int8))
    losses = losses_of(trainer_of(graph, partition, comm, MODELS["gcn"](), epochs=1))
    np.testing.assert_allclose(losses, whole_loss(graph, MODELS["gcn"]()), atol=1e-10, rtol=0)


TWO = {
    "gcn": lambda: Stack(GCN(6, 5, act="relu"), GCN(5, 3), dropout=0.4, input_dropout=False),
    "sage": lambda: Stack(SAGE(6, 5, act="relu"), SAGE(5, 3), dropout=0.4, input_dropout=False),
    "gat": lambda: Stack(GAT(6, 8, 4), GAT(8, 3, 1, dropout=0.4), dropout=0.4, input_dropout=False),
}


@pytest.mark.parametrize("name", TWO)
def test_dropout_acts_on_rows_of_the_halo_as_on_those_of_their_owners(name):
    graph, partition = cut(4)  # H_1 is not random: dropout acts on the input of layer 2 alone
    losses = losses_of(trainer_of(graph, partition, SelfCommunicator(), TWO[name](), epochs=1))
    np.testing.assert_allclose(losses, whole_loss(graph, TWO[name]()), atol=1e-10, rtol=0)


@parallel([1, 2], mpi=[])
def test_a_graph_of_one_part_is_trained_as_a_whole(comm):
    graph, partition = cut(1)
    model = MODELS["gcn"](dropout=0.3)
    expected = spgnn.train(model, distribute(graph, SelfCommunicator(), dtype="float64", threads=1), epochs=6, lr=0.1)
    losses = losses_of(trainer_of(graph, partition, comm, epochs=6, interval=3))
    np.testing.assert_allclose(losses, [expected.records[e]["loss"] for e in (2, 5)], atol=1e-10, rtol=0)


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("kind", KINDS)
def test_drift_correction_every_epoch_is_full_graph_training(comm, kind):
    graph, partition = cut(4, kind)
    model = MODELS["sage"](dropout=0.3)
    expected = spgnn.train(model, distribute(graph, SelfCommunicator(), dtype="float64", threads=1), epochs=5, lr=0.1)
    trainer = trainer_of(graph, partition, comm, MODELS["sage"](dropout=0.3), correct="drift")
    val = [record["val"] for record in trainer.fit().records]
    np.testing.assert_allclose(val, [record["val"] for record in expected.records], atol=1e-10)
    for name, value in trainer.model.state_dict().items():
        np.testing.assert_allclose(value, model.state_dict()[name], atol=1e-10, rtol=0)


def test_training_reads_the_stale_rows_and_rows_of_later_weights_after_the_next_average(monkeypatch):
    graph, partition = cut(4)
    options = {"interval": 2, "epochs": 4}
    expected = losses_of(trainer_of(graph, partition, SelfCommunicator(), **options))
    read, seen = StaleHalos.read, []

    def recorded(halos, rows):
        found = read(halos, rows)
        seen.append((rows.p, found))
        return found

    monkeypatch.setattr(StaleHalos, "read", recorded)
    assert losses_of(trainer_of(graph, partition, SelfCommunicator(), **options)) == expected
    assert [p for p, _ in seen] == [0, 1, 2, 3] * 2  # once in an interval
    for (_, first), (_, second) in zip(seen[:4], seen[4:]):
        assert all(len(a) and not torch.equal(a, b) for a, b in zip(first, second))

    def random(halos, rows):
        generator = torch.Generator().manual_seed(rows.p)
        return [torch.rand(H.shape, generator=generator, dtype=H.dtype) for H in read(halos, rows)]

    monkeypatch.setattr(StaleHalos, "read", random)
    changed = losses_of(trainer_of(graph, partition, SelfCommunicator(), **options))
    assert all(abs(a - b) > 1e-4 for a, b in zip(changed, expected))


OPTIONS = [
    {"interval": 2},
    {"interval": 2, "moments": "local", "evaluation": "layerwise"},
    {"interval": 2, "correct": "drift"},
    {"interval": 2, "correct": "step", "correct_lr": 0.05},
    {"sync": "gradients", "evaluation": "layerwise"},
]


@parallel([1, 3], mpi=[2], only=lambda given: given["number"] == 0)
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_a_training_depends_on_the_parts_alone_and_goes_on_bitwise(comm, number):
    graph, partition = cut(4)
    make = lambda comm: trainer_of(graph, partition, comm, **OPTIONS[number])
    states, trainer, other = {}, make(comm), make(comm)
    expected = [r["loss"] for r in trainer.fit(lambda r: states.update({r["epoch"]: trainer.state_dict()})).records]
    other.load_state_dict(states[2])
    assert losses_of(other) == expected
    for name, value in other.last_state.items():
        assert torch.equal(value, trainer.last_state[name])
    np.testing.assert_allclose(losses_of(make(SelfCommunicator())), expected, atol=1e-10, rtol=0)


@parallel([1, 3], mpi=[])
def test_parts_that_are_opened_in_turn_train_alike_and_bytes_are_those_of_the_rows_read(comm, tmp_path):
    graph, partition = cut(5)
    if comm.rank == 0:
        save_partition(partition, tmp_path / f"{comm.size}", graph, hops=2)
    comm.barrier()
    expected = trainer_of(graph, partition, comm, interval=2).fit().records
    for memory in ("", "1KB"):
        parts = Parts(tmp_path / f"{comm.size}", comm, hops=1, dtype="float64", threads=1)
        more = {"memory": memory, "evaluation": "together", "scratch": str(tmp_path / "scratch"), "halo": "stale"}
        trainer = parts_trainer(MODELS["gcn"](dropout=0.3), parts, TrainConfig(epochs=5, lr=0.1, interval=2, **more))
        records = trainer.fit().records
        steps = trainer.steps.steps
        assert steps.keeps_open == (memory == "" or len(steps.own) < 2) and not steps.opened
        for key in ("loss", "sync_bytes", "bytes_sent"):
            assert [record[key] for record in records] == [record[key] for record in expected]
        layerwise, itemsize = steps.halos.layerwise, 8
        g = {p: layerwise.reader.halo_nodes(p) for p in parts.own}
        of_second = sum((parts.sizes(p)["n"] + g[p]) * 5 for p in parts.own)  # layer 2 of the refresh
        assert layerwise.bytes_read == itemsize * (of_second + sum(g[p] * (5 + 7) for p in steps.own))
        assert trainer.history.bytes_sent == trainer.history.bytes_predicted == 0
        comm.barrier()
    assert not (tmp_path / "scratch").exists()


REFUSED = {
    "layer 1, MixHop, .*: use --halo truncated": Stack(MixHop(6, 6), GCN(6, 3)),
    "layer 2, APPNP, makes 10: use --halo truncated": Stack(MLP(6, 3), APPNP(3)),
    "layer 2, GCNII, makes 4: use --halo truncated": Stack(MLP(6, 5), GCNII(5, 4), MLP(5, 3)),
    "jump = cat needs .*: use --halo truncated": Stack(GCN(6, 5), GCN(5, 5), GCN(10, 3), jump="cat"),
    "the model returns 4 columns, .* has 3 classes": Stack(GCN(6, 5), GCN(5, 4)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_models_that_do_not_fit_are_refused_with_the_remedy(message):
    graph, partition = cut(2)
    with pytest.raises(UsageError, match=message) as raised:
        trainer_of(graph, partition, SelfCommunicator(), REFUSED[message])
    assert raised.value.exit_code == 2


def test_options_that_do_not_fit_are_refused_by_name():
    graph, partition = cut(2)
    refused = {
        "omit --sampler walk, or use --halo truncated": {"sampler": "walk"},
        "--personal trains .*; omit --halo stale": {"personal": 3},
        "omit --prune always, or use --halo truncated": {"prune": "always"},
        "--hops 2 has no effect with --halo stale": {"hops": 2},
    }
    for text, options in refused.items():
        with pytest.raises(UsageError, match=text):
            trainer_of(graph, partition, SelfCommunicator(), **options)
    with pytest.raises(UsageError, match="--halo requires --mode average"):
        spgnn.train(MODELS["gcn"](), distribute(graph, SelfCommunicator()), halo="stale")
    parts = Parts.of_graph(graph, partition, SelfCommunicator(), hops=0)
    with pytest.raises(UsageError, match="parts need a halo"):
        spgnn.train(MODELS["gcn"](), parts, halo="stale")
