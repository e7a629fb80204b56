"""Targets that are numbers: losses, gradients and scores on ranks are those of a dense float64 model, by formula."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_model import dense_operator_of, make, relative
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import distribute
from spgnn.errors import ShapeError, UsageError
from spgnn.graph import Graph
from spgnn.layers import GCN, Stack
from spgnn.training.custom import Custom
from spgnn.training.metrics import SCORES
from spgnn.training.steps.sampled import SampledStep
from spgnn.training.trainer import Trainer


def numbers_graph(columns=3, gaps=True, **options) -> Graph:
    """A graph whose nodes have numbers of unlike scales; some are absent, of one node and of one split all."""
    graph, rng = random_graph(**options), np.random.default_rng(3)
    Y = rng.standard_normal((graph.n_nodes, columns)) * 10.0 ** np.arange(columns) + 50
    if gaps:
        Y[rng.random(Y.shape) < 0.2] = np.nan
        Y[4] = np.nan
    return replace(graph, y=Y if columns > 1 else Y[:, 0], classes=None)


def dense(graph: Graph, model: Stack, how: str):
    """Loss, predictions and gradients of a dense model whose outputs are scaled by moments of the training nodes."""
    Y = torch.tensor(graph.y.reshape(len(graph.y), -1))
    train = torch.from_numpy((graph.split == 0)[:, None]) & ~Y.isnan()
    rows = [Y[train[:, c], c] for c in range(Y.shape[1])]
    mean = torch.stack([of.mean() for of in rows])
    deviation = torch.stack([of.std(correction=0) for of in rows])
    Z = model.double()(dense_operator_of(graph, "gcn"), torch.tensor(graph.X)) * deviation + mean
    E = ((Z - Y) / deviation)[train]
    loss = {"mse": E.square, "mae": E.abs, "huber": lambda: torch.where(E.abs() <= 1, E**2 / 2, E.abs() - 0.5)}[how]()
    loss.mean().backward()
    return float(loss.mean().detach()), Z.detach().numpy(), [p.grad.numpy() for p in model.parameters()]


def scores_by_formula(Z, graph: Graph, split: int) -> dict[str, float]:
    Y = graph.y.reshape(len(graph.y), -1)
    known = (graph.split == split)[:, None] & ~np.isnan(Y)
    E = (Z - Y)[known]
    of_column = []
    for z, y, k in zip(Z.T, Y.T, known.T):
        if k.any():
            of_column.append(1 - ((z - y)[k] ** 2).sum() / ((y[k] - y[k].mean()) ** 2).sum())
    norm = np.linalg.norm(Y[known])
    values = np.mean(of_column), np.abs(E).mean(), np.sqrt((E**2).mean()), np.linalg.norm(E) / norm
    return dict(zip(SCORES["numbers"], values))


@parallel([1, 2, 3], mpi=[3])
@pytest.mark.parametrize("how, columns, prune, scheme", [
    ("mse", 3, "never", "columns"), ("mae", 1, "always", "cover"), ("huber", 3, "always", "columns"),
    ("huber", 1, "never", "broadcast"),
])  # fmt: skip
def test_loss_gradients_and_scores_are_those_of_a_dense_model(comm, how, columns, prune, scheme):
    graph = numbers_graph(columns)
    dgraph = distribute(graph, comm, dtype="float64", scheme=scheme)
    config = TrainConfig(lr=0.0, optimizer="sgd", split="given", prune=prune, loss=how)
    trainer = Trainer(make("wide", c=columns), dgraph, config)
    expected, Z, gradients = dense(graph, make("wide", c=columns), how)
    assert abs(trainer.step(1) - expected) <= 1e-10 * expected
    for parameter, gradient in zip(trainer.model.parameters(), gradients):
        assert relative(parameter.grad.numpy(), gradient) <= 1e-10
    assert relative(dgraph.collect(trainer.logits().numpy()), Z) <= 1e-10
    history = Trainer(make("wide", c=columns), dgraph, replace(config, epochs=1)).fit()
    assert history.metric == "r2" and set(history.scores["val"]) == set(SCORES["numbers"])
    for split, name in enumerate(("train", "val", "test")):
        for metric, value in scores_by_formula(Z, graph, split).items():
            assert history.scores[name][metric] == pytest.approx(value, rel=1e-10)
    assert sum(of["support"] for of in history.per_class) == np.count_nonzero(
        (graph.split == 2)[:, None] & ~np.isnan(graph.y.reshape(len(graph.y), -1))
    )
    predictions_N = trainer.steps.scorer.predictions()
    assert predictions_N.shape == graph.y.shape and relative(predictions_N.reshape(Z.shape), Z) <= 1e-10


def trained(comm, of, **options):
    dgraph = distribute(of, comm, dtype="float64", replication=2 if comm.size == 4 else 1)
    model = Stack(GCN(6, 8, act="tanh"), GCN(8, of.n_classes), dropout=0.2)
    return spgnn.train(model, dgraph, epochs=12, **options), model, dgraph


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("options", [{"loss": "huber"}, {"sampler": "node", "budget": 30}], ids=["full", "sampled"])
def test_a_training_on_numbers_is_one_on_any_ranks(columns, options):
    graph = numbers_graph(columns, use="undirected", n=60, edges=240)

    def losses(comm):
        given = options | ({"graph": graph} if "sampler" in options else {})
        history, model, dgraph = trained(comm, graph, **given)
        return [r["loss"] for r in history.records], [r["val"] for r in history.records], spgnn.predict(model, dgraph)

    one = losses(SelfCommunicator())
    for size in (2, 3, 4):
        for found in run_threads(size, losses):
            assert relative(np.array(found[0]), np.array(one[0])) < 1e-10
            assert relative(np.array(found[1]), np.array(one[1])) < 1e-9
            assert relative(found[2].numbers, one[2].numbers) < 1e-9 and found[2].classes is None


def test_a_subgraph_that_is_the_graph_has_the_loss_of_all_nodes():
    graph = numbers_graph(3, use="undirected")
    dgraph = distribute(graph, dtype="float64")
    config = TrainConfig(sampler="cluster", batch=4, normalise="none", split="given")
    sampler = spgnn.samplers.Cluster(graph, clusters=4, batch=4)
    steps = [
        Trainer(make("wide"), dgraph, config, lambda *args: SampledStep(*args, graph=graph, sampler=sampler)),
        Trainer(make("wide"), dgraph, TrainConfig(split="given")),
    ]
    sampled, full = (trainer.step(1) for trainer in steps)
    assert sampled == pytest.approx(full, rel=1e-10)


@pytest.mark.parametrize("metric", SCORES["numbers"])
def test_the_best_epoch_is_that_of_the_best_score_in_its_direction(metric):
    history, model, dgraph = trained(SelfCommunicator(), numbers_graph(2), metric=metric, lr=0.1)
    values = [record["val"] for record in history.records]
    best = (max if metric == "r2" else min)(values)
    assert history.metric == metric and history.val == best and history.best_epoch == 1 + values.index(best)
    assert len(set(values)) > 6 and 1 < history.best_epoch
    again = trained(SelfCommunicator(), numbers_graph(2), metric=metric, lr=0.1, patience=1)[0]
    rises = [
        k for k in range(1, 12) if (values[k] < max(values[:k]) if metric == "r2" else values[k] > min(values[:k]))
    ]
    assert len(again.records) == (rises[0] + 1 if rises else 12)


def test_a_model_has_the_units_of_its_targets_and_keeps_them_when_its_weights_are_loaded():
    graph = numbers_graph(2)
    _, model, dgraph = trained(SelfCommunicator(), graph)
    train = (graph.split == 0)[:, None] & ~np.isnan(graph.y)
    means = [graph.y[train[:, c], c].mean() for c in range(2)]
    assert np.allclose(model.units.mean_C, means, rtol=1e-12)
    other = Stack(GCN(6, 8, act="tanh"), GCN(8, 2), dropout=0.2).double()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(dgraph), model.eval()(dgraph))
    units = model.units
    spgnn.train(model, distribute(replace(graph, y=graph.y + 1000), dtype="float64"), epochs=1)
    assert model.units is units and np.allclose(units.mean_C, means, rtol=1e-12)


def test_a_constant_column_and_a_custom_model_are_trained():
    graph = numbers_graph(2, gaps=False)
    graph = replace(graph, y=np.column_stack([graph.y[:, 0], np.full(graph.n_nodes, 7.5)]))

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.W = torch.nn.Parameter(torch.ones(6, 2, dtype=torch.float64))

        def forward(self, A, X):
            return A @ (X @ self.W)

    history = spgnn.train(Own(), distribute(graph, dtype="float64"), epochs=3)
    assert np.isfinite(history.records[-1]["loss"]) and np.isfinite(history.test)
    history, model, dgraph = trained(SelfCommunicator(), graph)
    assert model.units.deviation_C[1] == 1 and abs(model.units.mean_C[1] - 7.5) < 1e-12


def test_what_numbers_do_not_have_is_refused():
    graph = numbers_graph(2)
    with pytest.raises(UsageError, match="metric accuracy: the labels are numbers; expected one of r2, mae"):
        trained(SelfCommunicator(), graph, metric="accuracy")
    with pytest.raises(UsageError, match="metric r2: the labels are classes; expected one of accuracy"):
        spgnn.train(Stack(GCN(6, 3)), distribute(random_graph()), metric="r2")
    with pytest.raises(UsageError, match="loss mse is for numbers, and the labels of graph are classes"):
        spgnn.train(Stack(GCN(6, 3)), distribute(random_graph()), loss="mse")
    with pytest.raises(
        ShapeError, match="the model returns 3 columns, the targets have 2; the last layer must have f_out"
    ):
        spgnn.train(Stack(GCN(6, 3)), distribute(graph), epochs=1)
    with pytest.raises(UsageError, match="class_weights are for one label of each node"):
        trained(SelfCommunicator(), graph, class_weights="balanced")
    parts = parts_of(graph, np.arange(graph.n_nodes) % 2, SelfCommunicator())
    with pytest.raises(UsageError, match="numbers to predict, which mode average does not train on"):
        spgnn.train(Stack(GCN(6, 2)), parts)


def test_a_custom_loss_and_val_loss_have_numbers():
    graph = numbers_graph(2, gaps=False)
    dgraph = distribute(graph, dtype="float64")
    model = lambda: Stack(GCN(6, 2))
    given = lambda Z, Y: ((Z - Y) / dgraph.y_n[graph.split == 0].std(0, correction=0)).square().mean(1).sum()
    a, b = (spgnn.train(model(), dgraph, epochs=4, loss=loss) for loss in (given, "mse"))
    assert [r["loss"] for r in a.records] == pytest.approx([r["loss"] for r in b.records], rel=1e-10)
    history = Trainer(model(), dgraph, TrainConfig(epochs=2, loss="mae"), custom=Custom(monitor="val_loss")).fit()
    assert all(np.isfinite(record["val_loss"]) for record in history.records)
