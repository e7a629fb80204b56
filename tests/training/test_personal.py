"""Personal phases: what a part trains on alone, which model it takes, and that no rank waits for another before the end."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import NumericalError, RankError, SpgnnError, UsageError
from spgnn.layers import GCN, SAGE, Layer, Stack
from spgnn.partition import part_graph, partition_of
from spgnn.partition.metrics import label_entropies
from spgnn.training.metrics import count, scores
from spgnn.training.optimizer import Optimizer, ProximalOptimizer
from spgnn.training.parts.average import make_part_step
from spgnn.training.parts.personal import personalise
from spgnn.training.trainer import Trainer, weights_of

pytestmark = pytest.mark.slow
OPTIONS = {"epochs": 3, "lr": 0.05, "personal": 12, "prune": "never"}


def cut(k, seed=4, **more):
    graph = random_graph(n=90, edges=260, seed=seed, use="undirected", **more)
    return graph, part_graph(graph, k, "random", seed=1)


def general(graph, layer=SAGE, epochs=3):
    """A model trained on the whole graph."""
    model = Stack(layer(6, 5, act="relu"), layer(5, 3))
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    spgnn.train(model, dgraph, epochs=epochs, lr=0.05)
    return model


def personal(graph, partition, comm=None, model=None, hops=1, report=None, proximal=0.01, **options):
    comm = SelfCommunicator() if comm is None else comm
    parts = parts_of(graph, partition, comm, hops=hops, dtype="float64", threads=1)
    model = general(graph) if model is None else model
    return personalise(model, parts, TrainConfig(**OPTIONS | options), report, proximal)


def comparable(result):
    return [{name: value for name, value in part.items() if name not in ("rank", "seconds")} for part in result.parts]


def test_a_part_validates_as_well_as_the_general_model_or_better():
    chosen = 0
    for seed in range(4):
        graph, partition = cut(4, seed)
        result = personal(graph, partition)
        assert result.scores["val"]["micro_f1"] >= result.general["val"]["micro_f1"]
        chosen += result.chosen
        for part in result.parts:
            assert (part["chosen"] == "personal") == (part["val_personal"] > part["val_general"])
            assert 1 <= part["best"] <= part["epochs"] == 12
    assert 3 <= chosen <= 13


def test_scores_come_from_the_counts_of_all_parts_each_with_its_model():
    graph, partition = cut(4)
    result = personal(graph, partition)
    right = result.predictions_N == graph.y
    for s, name in enumerate(("train", "val", "test")):
        rows = (graph.split == s) & (graph.y >= 0)
        assert result.scores[name]["accuracy"] == pytest.approx(right[rows].mean())
        Z = torch.nn.functional.one_hot(torch.from_numpy(result.predictions_N), 3).double()
        counts = count(Z, torch.from_numpy(graph.y.astype(np.int64)), graph.split, 3, SelfCommunicator())
        assert result.scores[name] == scores(counts[s], "classes")
    for part in result.parts:
        rows = (partition.owner_N == part["part"]) & (graph.y >= 0)
        assert (
            part["test"] == (rows & (graph.split == 2)).sum()
            and part["nodes"] == (partition.owner_N == part["part"]).sum()
        )
        assert part[f"test_{part['chosen']}"] == pytest.approx(right[rows & (graph.split == 2)].mean())
        assert part["entropy"] == pytest.approx(label_entropies(graph.y, partition.owner_N, 4)[0][part["part"]])


def test_the_general_model_of_a_part_with_enough_hops_scores_as_the_whole_graph():
    graph, partition = cut(4)
    model = general(graph)
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    exact = Trainer(model, dgraph, TrainConfig(prune="never")).steps.scorer.counts()
    result = personal(graph, partition, model=model, hops=2, personal=1)
    assert result.general["test"] == scores(exact[2], "classes")


def test_the_choice_does_not_depend_on_test_nodes():
    disagrees = 0
    for seed in range(6):
        graph, partition = cut(4, seed)
        y = np.array(graph.y)
        y[graph.split == 2] = (y[graph.split == 2] + 1) % 3
        model = general(graph)
        W_G = weights_of(model)
        found = personal(graph, partition, model=model)
        others = personal(replace(graph, y=y), partition, model=model)
        for part, other in zip(found.parts, others.parts):
            same = ("chosen", "best", "epochs", "val_general", "val_personal")
            assert [part[name] for name in same] == [other[name] for name in same]
            for of in (part, other):
                better = "personal" if of["test_personal"] > of["test_general"] else "general"
                disagrees += better != of["chosen"] and of["test_personal"] != of["test_general"]
        np.testing.assert_array_equal(found.predictions_N, others.predictions_N)
        assert all(torch.equal(value, W_G[name]) for name, value in model.state_dict().items())
    assert disagrees >= 5  # otherwise the test nodes could have chosen


@pytest.mark.parametrize("rule", ["adam", "sgd"])
def test_the_proximal_step_is_one_along_the_gradient_of_the_loss_with_its_term(rule):
    torch.manual_seed(0)
    W = torch.nn.Parameter(torch.randn(3, 2, dtype=torch.float64))
    V = torch.nn.Parameter(W.detach().clone())
    x, W_G = torch.randn(2, dtype=torch.float64), W.detach().clone()
    optimizer = ProximalOptimizer(Optimizer([([W], 0.01)], 0.1, rule), 0.3)
    plain = Optimizer([([V], 0.01)], 0.1, rule)
    for _ in range(5):
        optimizer.zero_grad()
        (W @ x).square().sum().backward()
        optimizer.step()
        plain.zero_grad()
        ((V @ x).square().sum() + 0.3 * (V - W_G).square().sum()).backward()
        plain.step()
        torch.testing.assert_close(W, V, rtol=0, atol=1e-14)


def test_without_a_proximal_term_and_with_one_part_it_is_training_on():
    graph, partition = cut(1)
    model, other = general(graph, GCN), general(graph, GCN)
    result = personal(graph, partition, model=model, hops=0, proximal=0.0)
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    history = Trainer(other, dgraph, TrainConfig(epochs=12, lr=0.05, prune="never")).fit()
    vals = [record["val"] for record in history.records]
    assert result.parts[0]["best"] == 1 + int(np.argmax(vals)) and result.parts[0]["val_personal"] == max(vals)


def silent(comm):
    """A communicator whose collectives are counted, and raise while it is silent."""
    kinds = ("all_reduce", "all_gather", "all_gather_json", "all_to_all", "broadcast", "barrier")
    calls = []

    def counted(name, collective):
        def call(*args, **more):
            if comm.phase.startswith(("personal", "open part")):
                raise AssertionError(f"{name} in phase {comm.phase}")
            calls.append(comm.phase)
            return collective(*args, **more)

        return call

    for name in kinds:
        setattr(comm, name, counted(name, getattr(comm, name)))
    return calls


@parallel([1, 3], mpi=[])
def test_no_collective_between_the_first_part_and_the_last(comm):
    graph, partition = cut(4)
    calls, phases = silent(comm), []
    result = personal(graph, partition, comm, report=lambda record: phases.append((comm.phase, record)))
    assert calls[-1] == "gather personal models" and len(result.parts) == 4
    assert [phase for phase, _ in phases] == [f"personal epoch {r['epoch']}, part {r['part']}" for _, r in phases]
    assert len({phase for phase, _ in phases}) == len(phases) == 12 * len(range(comm.rank, 4, comm.size))


@parallel([3, 7], mpi=[2])
def test_the_result_depends_on_the_parts_and_not_on_the_ranks(comm):
    graph, partition = cut(4)
    expected = personal(graph, partition)
    model = general(graph)
    result = personal(graph, partition, comm, model=model)
    assert comparable(result) == comparable(expected)
    assert [part["rank"] for part in result.parts] == [p % comm.size for p in range(4)]
    assert (result.scores, result.general) == (expected.scores, expected.general)
    np.testing.assert_array_equal(result.predictions_N, expected.predictions_N)
    chosen = {part["part"] for part in result.parts if part["chosen"] == "personal"}
    assert set(result.weights) == {p for p in chosen if p % comm.size == comm.rank}
    for p, weights in result.weights.items():
        assert all(torch.equal(value, expected.weights[p][name]) for name, value in weights.items())


def with_split(graph, nodes, value):
    split = np.array(graph.split)
    split[nodes] = np.where(split[nodes] == value, -1, split[nodes])
    return replace(graph, split=split)


@parallel([2], mpi=[])
def test_parts_without_nodes_to_train_or_validate_on_keep_the_general_model(comm):
    graph, partition = cut(3)
    graph = with_split(graph, partition.owner_N == 0, 0)
    graph = with_split(graph, partition.owner_N == 1, 1)
    result = personal(graph, partition, comm)
    assert [part["epochs"] for part in result.parts] == [0, 0, 12]
    assert [part["chosen"] for part in result.parts][:2] == ["general", "general"]
    assert result.parts[0]["val_general"] is not None and result.parts[1]["val_general"] is None
    assert result.parts[0]["test_personal"] is None and result.parts[0]["test_general"] is not None


def test_empty_parts_are_no_obstacle():
    graph = random_graph(n=6, edges=12, seed=1, use="undirected")
    partition = part_graph(graph, 9, "random", seed=1)
    result = personal(graph, partition, personal=2)
    nodes = [part["nodes"] for part in result.parts]
    assert sum(nodes) == len(result.predictions_N) == 6 and nodes.count(0) >= 3
    assert all(part["chosen"] == "general" for part in result.parts if not part["nodes"])
    assert result.chosen == sum(part["chosen"] == "personal" for part in result.parts)


def test_a_part_stops_after_epochs_without_progress_of_its_own():
    graph, partition = cut(4)
    result = personal(graph, partition, personal=60, patience=3)
    epochs = [part["epochs"] for part in result.parts]
    assert all(part["epochs"] in (part["best"] + 3, 60) for part in result.parts) and len(set(epochs)) > 1


class Failing(Layer):
    """Z = H W, which fails in the training of graphs with some rows."""

    rows, error = 0, ValueError("no such luck")

    def __init__(self, F, C):
        super().__init__(F, C)
        self.W_FC = self.weight(F, C)

    def forward(self, A, H_nF):
        if self.training and len(H_nF) == self.rows:
            raise self.error
        return A @ (H_nF @ self.W_FC)


@parallel([1, 3], mpi=[2])
def test_an_error_on_a_part_is_raised_on_all_ranks_with_the_part_and_its_rank(comm):
    graph = random_graph(n=90, edges=260, seed=4, use="undirected")
    partition = partition_of(graph, np.repeat(np.arange(4), [20, 21, 22, 27]))
    model = Stack(Failing(6, 3))
    model.initialise(0)
    model.layers[0].rows = 22
    with pytest.raises(
        (SpgnnError, RankError), match=rf"rank {2 % comm.size}, part 2, personal epoch 1: ValueError: no such luck"
    ):
        personal(graph, partition, comm, model=model.double(), hops=0)


def test_a_loss_that_is_not_finite_names_the_part():
    graph, partition = cut(2)
    model = general(graph)
    with pytest.raises(NumericalError, match="rank 0, part 0, personal epoch"):
        personal(graph, partition, model=model, lr=1e300, optimizer="sgd", proximal=0.0)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_options_that_a_personal_phase_cannot_have_are_refused():
    graph, partition = cut(2)
    with pytest.raises(UsageError, match="personal = 0: a personal phase needs 1 epoch or more"):
        personal(graph, partition, personal=0)
    with pytest.raises(UsageError, match="proximal = 20 diverges with optimizer = sgd and lr = 0.05"):
        personal(graph, partition, optimizer="sgd", proximal=20.0)


@parallel([2], mpi=[])
def test_ranks_with_other_weights_are_refused(comm):
    graph, partition = cut(2)
    model = general(graph)
    next(model.parameters()).data[0] += comm.rank
    with pytest.raises(UsageError, match="weights"):
        personal(graph, partition, comm, model=model)


def test_multi_label_parts_have_scores_and_predictions():
    graph, partition = cut(3)
    Y = np.random.default_rng(0).integers(0, 2, (90, 3)).astype(np.int8)
    graph = replace(graph, y=Y)
    result = personal(graph, partition)
    assert result.predictions_N.shape == (90, 3) and set(np.unique(result.predictions_N)) <= {0, 1}
    assert result.scores["val"]["micro_f1"] >= result.general["val"]["micro_f1"]


NEIGHBOUR = {"sampler": "neighbour", "fanout": "4,4", "batch": 8}


def test_class_balanced_mini_epochs_train_on_a_share_of_the_parts_own_nodes():
    graph, partition = cut(3)
    parts = parts_of(graph, partition, SelfCommunicator(), hops=2, dtype="float64", threads=1)
    for p in range(3):
        local, dgraph = parts.graph(p), parts.open(p)
        np.testing.assert_array_equal(np.asarray(local.y), dgraph.y_n.numpy())
        config = TrainConfig(split="given", class_balance=0.5, **OPTIONS | NEIGHBOUR)
        step = make_part_step(general(graph), parts, p, config)
        own = np.flatnonzero((graph.split == 0) & (graph.y >= 0) & (partition.owner_N == p))
        targets = step.subgraphs.sampler.targets
        nodes = [dgraph.node_n[targets.chosen(0, epoch)] for epoch in range(4)]
        assert all(len(of) == int(np.ceil(0.5 * len(own))) and np.isin(of, own).all() for of in nodes)
        assert step.n_updates == -(-len(nodes[0]) // 8)
        step.close()


@parallel([1, 2], mpi=[])
def test_a_personal_phase_on_subgraphs_depends_on_the_parts_alone(comm):
    graph, partition = cut(3)
    result = personal(graph, partition, comm, personal=4, class_balance=0.5, **NEIGHBOUR)
    assert result.chosen and result.scores["val"]["micro_f1"] >= result.general["val"]["micro_f1"]
    assert comparable(result) == comparable(personal(graph, partition, personal=4, class_balance=0.5, **NEIGHBOUR))


def test_subgraphs_of_a_part_without_the_last_class_have_all_classes():
    graph, partition = cut(2)
    y = np.where((partition.owner_N == 1) & (graph.y == 2), 0, graph.y)
    result = personal(replace(graph, y=y), partition, hops=0, personal=1, **NEIGHBOUR)
    assert [part["epochs"] for part in result.parts] == [1, 1]


def test_whole_neighbourhoods_of_all_nodes_train_as_whole_parts_do():
    graph, partition = cut(2)
    whole = personal(graph, partition, hops=2, personal=3)
    drawn = personal(graph, partition, hops=2, personal=3, sampler="neighbour", fanout="90,90", batch=90)
    assert comparable(whole) == comparable(drawn)
    for p, weights in whole.weights.items():
        assert all(torch.allclose(value, drawn.weights[p][name], atol=1e-10) for name, value in weights.items())
