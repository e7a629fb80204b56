"""Training on subgraphs: the same curve on any ranks and threads, exact where a subgraph is the graph, no hang."""

import re
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig, build
from spgnn.config.names import SAMPLERS
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import GraphError, RankError, SamplerError, UsageError
from spgnn.graph import Graph
from spgnn.layers import GAT, GCN, MLP, SAGE, MixHop, Stack
from spgnn.samplers import Cluster, presample
from spgnn.training import Trainer
from spgnn.training.custom import COMMAND_LINE, Custom
from spgnn.training.trainer import step_maker

BLOCKS = {"batch": 8, "fanout": "4,3"}
MARGIN = partial(torch.nn.functional.multi_margin_loss, reduction="sum")
OPTIONS = {
    "node": {"budget": 20}, "edge": {"budget": 20}, "walk": {"budget": 20}, "frontier": {"budget": 20},
    "neighbour": BLOCKS, "labor": BLOCKS,
}  # fmt: skip


def graph_of(multilabel=False, **options) -> Graph:
    graph = random_graph(**{"n": 90, "edges": 500, "use": "undirected"} | options)
    if multilabel:
        y = (np.random.default_rng(1).random((graph.n_nodes, 4)) < 0.4).astype(np.int64)
        graph = spgnn.graph.Graph(graph.A, graph.X, y, graph.split, edges=graph.edges)
    return graph


def made(comm, graph, sampler, model=None, custom=COMMAND_LINE, **options) -> Trainer:
    dgraph = distribute(graph, comm, method="random", dtype=torch.float64)
    model = model or Stack(SAGE(6, 8, act="relu"), GCN(8, dgraph.n_classes), dropout=0.3)
    own = None
    if sampler == "cluster":
        own = Cluster(graph, clusters=options.pop("clusters", 6), batch=options.pop("batch", 2))
    config = build(TrainConfig, {"epochs": 3, "lr": 0.05} | OPTIONS.get(sampler, {}) | {"sampler": sampler} | options)
    return Trainer(model, dgraph, config, step_maker(config, graph, own, custom))


def losses(trainer: Trainer) -> list[float]:
    return [record["loss"] for record in trainer.fit().records]


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().ravel() for p in trainer.model.parameters()])


@parallel([2, 4], mpi=[])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_four_subgraphs_a_step_train_alike_on_any_ranks(comm, sampler):
    alone = made(SelfCommunicator(), graph_of(), sampler, subgraphs=4, epochs=2)
    ranks = made(comm, graph_of(), sampler, subgraphs=4, epochs=2)
    np.testing.assert_allclose(losses(ranks), losses(alone), rtol=1e-10)
    torch.testing.assert_close(weights(ranks), weights(alone), rtol=1e-10, atol=1e-12)
    assert ranks.history.bytes_sent == ranks.history.bytes_predicted == 0


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("subgraphs", [1, 4])
@pytest.mark.parametrize("sampler", ["cluster", "neighbour"])
@pytest.mark.parametrize("custom", [COMMAND_LINE, Custom(class_weights=[0.5, 3, 1]), Custom(loss=MARGIN)])
def test_the_loss_of_an_epoch_is_the_mean_over_its_targets(comm, sampler, subgraphs, custom):
    graph = graph_of(train_every=20)  # fewer training nodes than clusters
    model = lambda: Stack(MLP(6, 8, act="relu"), MLP(8, 3))
    some = {"clusters": 8, "batch": 1} if sampler == "cluster" else {"batch": 4}
    if sampler != "cluster":
        model = lambda: Stack(SAGE(6, 8, act="relu"), GCN(8, 3))
        some |= {"fanout": "99,99"}
    dgraph, config = distribute(graph, comm, method="random", dtype=torch.float64), TrainConfig(lr=1e-12)
    full = Trainer(model(), dgraph, config, step_maker(config, custom=custom))
    trainer = made(comm, graph, sampler, model(), custom, lr=1e-12, subgraphs=subgraphs, epochs=1, **some)
    np.testing.assert_allclose(losses(trainer)[0], full.step(1), rtol=1e-9)


def test_an_update_without_a_training_node_leaves_the_weights_and_the_optimizer():
    trainer = made(SelfCommunicator(), graph_of(train_every=20), "cluster", clusters=9, batch=1)
    step, counts = trainer.steps, []
    step.subgraphs.begin(0, step.n_updates)
    for number in range(step.n_updates):
        before = weights(trainer)
        _, targets = step.one_update(number)
        counts.append(int(targets))
        assert torch.equal(weights(trainer), before) == (targets == 0)
    assert 0 in counts and sum(counts) == step.subgraphs.maker.train_N.sum()
    taken = {float(steps) for name, steps in step.optimizer.named_state().items() if name.endswith("steps")}
    assert taken == {np.count_nonzero(counts)}


@parallel([1, 2], mpi=[])
def test_an_update_takes_the_mean_gradient_of_the_subgraphs_that_have_training_nodes(comm):
    graph = graph_of(edges=0, train_every=30)  # three training nodes, of which no two are in one cluster
    once = {"optimizer": "sgd", "lr": 0.1, "epochs": 1}
    sampled = made(comm, graph, "cluster", Stack(MLP(6, 3)), clusters=45, batch=1, subgraphs=45, **once)
    dgraph = distribute(graph, comm, method="random", dtype=torch.float64)
    full = Trainer(Stack(MLP(6, 3)), dgraph, TrainConfig(**once))
    np.testing.assert_allclose(losses(sampled), losses(full), rtol=1e-12)
    torch.testing.assert_close(weights(sampled), weights(full), rtol=1e-12, atol=1e-14)


def test_an_epoch_without_any_training_node_is_refused():
    @spgnn.sampler("validation")
    def validation(graph, rng, *, seen=[]):  # noqa: B006
        seen.append(1)
        return np.flatnonzero(graph.split == (0 if len(seen) <= 8 else 1))  # the first draws only count targets

    with pytest.raises(GraphError, match="epoch 1: subgraphs of validation lack training nodes"):
        made(SelfCommunicator(), graph_of(), "validation", normalise="none").fit()


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("multilabel, directed, layers", [(0, 0, "gcn"), (1, 1, "gcn"), (0, 1, "gat"), (1, 0, "gat")])
def test_a_subgraph_that_is_the_graph_trains_as_the_full_graph_does(comm, multilabel, directed, layers):
    graph = graph_of(multilabel, use="directed" if directed else "undirected", weighted=directed)

    @spgnn.sampler("everything")
    def everything(graph, rng):
        return np.arange(graph.n_nodes)

    first, last = (SAGE(6, 8, act="relu"), GCN) if layers == "gcn" else (GAT(6, 8, heads=2, act="elu"), MixHop)
    model = lambda: Stack(deepcopy(first), last(8, 4 if multilabel else 3))
    dgraph, config = distribute(graph, comm, method="random", dtype=torch.float64), TrainConfig(epochs=3, lr=0.05)
    for custom, normalise in ((COMMAND_LINE, "none"), (Custom(class_weights="balanced"), "loss"))[: 2 - multilabel]:
        sampled = made(comm, graph, "everything", model(), custom, normalise=normalise)
        full = Trainer(model(), dgraph, config, step_maker(config, custom=custom))
        np.testing.assert_allclose(losses(sampled), losses(full), rtol=1e-10)


@parallel([1, 3], mpi=[3])
def test_a_sampler_that_fails_ends_all_ranks_with_its_index(comm):
    @spgnn.sampler("fails")
    def fails(graph, rng):
        nodes = rng.integers(0, graph.n_nodes, 20)
        return nodes if nodes[0] % 19 else nodes + graph.n_nodes

    with pytest.raises((SamplerError, RankError), match=r"'fails', subgraph \d+"):
        made(comm, graph_of(), "fails", subgraphs=3, normalise="none", epochs=9).fit()


@parallel([1, 2], mpi=[])
def test_inductive_training_does_not_read_other_nodes(comm):
    graph = graph_of()
    X = np.array(graph.X)
    X[graph.split != 0] = np.nan  # evaluations would read them
    poisoned = Graph(graph.A, np.nan_to_num(X, nan=1e3), graph.y, graph.split, edges=graph.edges)
    for sampler in ("walk", "frontier", "neighbour"):
        a, b = (made(comm, g, sampler, inductive=True, eval_every=10, epochs=2) for g in (graph, poisoned))
        assert losses(a) == losses(b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "walks"}, "walk"),
        ({"sampler": "neighbour", "fanout": "4,3,2"}, "fan-outs"),
        ({"sampler": "neighbour", "fanout": "4,x"}, "fanout"),
        ({"sampler": "neighbour", "normalise": "loss"}, "normalise"),
        ({"sampler": "none", "budget": 5}, "budget"),
        ({"sampler": "walk", "fanout": "3"}, "fanout"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options, message):
    with pytest.raises(UsageError, match=message):
        made(SelfCommunicator(), graph_of(), **options).fit()


def test_a_model_that_does_not_multiply_with_a_takes_no_blocks():
    with pytest.raises(UsageError, match="no layer of the model multiplies with A"):
        made(SelfCommunicator(), graph_of(), "neighbour", Stack(MLP(6, 3))).fit()


@parallel([1, 3], mpi=[])
def test_a_run_says_how_many_updates_and_nodes_it_has(comm):
    trainer = made(comm, graph_of(), "walk", subgraphs=2)
    trainer.fit()
    first, *others = trainer.steps.notes()
    assert re.fullmatch(r"\d updates per epoch, 2 subgraphs each \(walk\) of 1\d nodes in the mean", first)
    assert others == ([] if comm.size == 1 else ["1 of 3 ranks draw no subgraph in an update; raise --subgraphs to 3"])
    one = made(comm, graph_of(), "neighbour", batch=90, epochs=1)
    one.fit()
    assert one.steps.notes()[0] == "1 update per epoch, 1 subgraph each (neighbour)"


@pytest.mark.parametrize(
    ("normalise", "coverage", "is_said"), [("both", 2, True), ("both", 200, False), ("loss", 2, False)]
)
def test_nonzeros_that_were_never_counted_are_mentioned(normalise, coverage, is_said, monkeypatch):
    monkeypatch.setattr("spgnn.training.steps.subgraphs.presample", partial(presample, coverage=coverage))
    step = made(SelfCommunicator(), graph_of(), "node", budget=10, normalise=normalise).steps
    assert any("nonzeros were never drawn" in note for note in step.notes()) == is_said


def test_a_sampler_of_another_graph_is_refused():
    graph, other = graph_of(), graph_of(n=80)
    dgraph = distribute(graph, SelfCommunicator())
    with pytest.raises(UsageError, match="80 nodes"):
        spgnn.train(Stack(GCN(6, 3)), dgraph, sampler=spgnn.samplers.Walk(other, budget=20), epochs=1)
    with pytest.raises(UsageError, match="graph="):
        spgnn.train(Stack(GCN(6, 3)), dgraph, sampler="walk", epochs=1)


def test_a_sampler_of_other_training_nodes_is_refused():
    graph = graph_of()
    dgraph = distribute(graph, SelfCommunicator())
    sampler = spgnn.samplers.Neighbour(graph, np.arange(graph.n_nodes) < 9, fanout="3", batch=4)
    with pytest.raises(UsageError, match="draws 9 training nodes"):
        spgnn.train(Stack(GCN(6, 3)), dgraph, sampler=sampler, epochs=1)


def test_the_default_of_a_users_sampler_holds_unless_the_option_is_given():
    seen = []

    @spgnn.sampler("counted")
    def counted(graph, rng, *, budget=7, hops=2):
        seen.append((budget, hops))
        return rng.integers(0, graph.n_nodes, budget)

    for options, expected in (({}, (7, 2)), ({"budget": 9}, (9, 2))):
        seen.clear()
        made(SelfCommunicator(), graph_of(), "counted", normalise="none", **options).fit()
        assert set(seen) == {expected}


@parallel([2], mpi=[])
def test_samplers_that_differ_between_ranks_are_refused(comm):
    graph = graph_of()
    dgraph = distribute(graph, comm, method="random")
    with pytest.raises(UsageError, match="sampler"):
        sampler = spgnn.samplers.Walk(graph, budget=20 + 40 * comm.rank)
        spgnn.train(Stack(GCN(6, 3)), dgraph, sampler=sampler, epochs=1)
