"""Predicted choices are made from the same counts as those of a training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spgnn import distribute, load_graph, part_graph
from spgnn.analysis import planned as planning
from spgnn.analysis.epoch import gcn_of
from spgnn.analysis.planned import PlannedGraph, PlannedTraining, train_nodes
from spgnn.config import PlanConfig, TrainConfig
from spgnn.cost.machines import this_host
from spgnn.cost.seconds import choose_scheme
from spgnn.dist import run_threads
from spgnn.distgraph import assemble
from spgnn.errors import GraphError, UsageError
from spgnn.layers import GCN, Stack
from spgnn.training.scorer import split_of
from spgnn.training.steps import step_rows
from spgnn.training.trainer import Trainer

GRAPH = load_graph("sbm:n=200,classes=4,features=10,degree=5")


@pytest.mark.parametrize(
    "P, c, operator, hosts",
    [(3, 1, "gcn", 0), (4, 2, "gcn", 0), (4, 1, "row", 2), (8, 2, "none", 0), (3, 1, "loops", 0), (6, 1, "gcn", 3)],
)
@pytest.mark.parametrize("edges", ["undirected", "directed"])
def test_the_counts_of_auto_are_those_that_ranks_gather(P, c, operator, hosts, edges, monkeypatch):
    found = {}

    def recorded(name):
        return lambda counts, *of: found.setdefault(name, counts) and choose_scheme(counts, *of)

    monkeypatch.setattr(assemble, "choose_scheme", recorded("trained"))
    monkeypatch.setattr(planning, "choose_scheme", recorded("predicted"))
    graph = GRAPH.with_edges(edges)
    part, machine = part_graph(graph, P // c, "random"), this_host().placed(P // max(hosts, 1))
    body = lambda comm: distribute(graph, comm, part, replication=c, operator=operator, hosts=hosts).scheme
    planned = PlannedGraph(graph, edges, operator=operator)
    scheme = PlannedTraining(planned, None, PlanConfig()).scheme(part, c, machine)
    assert run_threads(P, body) == [scheme] * P
    assert found["trained"].keys() == found["predicted"].keys() and ("two_tier_PP" in found["trained"]) == (hosts > 1)
    for name in found["trained"]:
        np.testing.assert_array_equal(*(found[who][name] for who in ("trained", "predicted")), err_msg=name)


SPARSE = [("wordnet", 2, 1, operator, {"keep": keep}) for operator in ("gcn", "none") for keep in (True, False)]
DENSE = [
    ("sbm:n=200,classes=4,features=10,degree=5", P, c, operator, options)
    for P, c, operator in ((2, 1, "gcn"), (4, 2, "gcn"), (2, 1, "none"), (2, 1, "row_loops"), (3, 1, "sym"))
    for options in ({}, {"keep": False}, {"keep": False, "order": "spmm_first"})
]


@pytest.mark.parametrize(
    "spec, P, c, operator, options", [*DENSE, *(pytest.param(*case, marks=pytest.mark.slow) for case in SPARSE)]
)
def test_the_work_of_pruning_is_that_which_ranks_count(spec, P, c, operator, options, monkeypatch):
    found = {}

    def recorded(name):
        return lambda full, pruned, *of: found.setdefault(name, []).append((full, pruned)) or (True, "")

    monkeypatch.setattr(step_rows, "choose_pruning", recorded("trained"))
    monkeypatch.setattr(
        planning, "choose_pruning", lambda full, less, *of: [found.setdefault("predicted", (full, less))]
    )
    graph = load_graph(spec)
    part, widths = part_graph(graph, P // c, "block"), (graph.n_features, 6, graph.n_classes)

    def body(comm):
        torch.set_num_threads(1)
        dgraph = distribute(graph, comm, part, replication=c, scheme="columns", operator=operator, threads=1, **options)
        Trainer(Stack(GCN(*widths[:2], act="relu"), GCN(*widths[1:])), dgraph, TrainConfig(prune="auto"))

    run_threads(P, body)
    names = ("dtype", "wire", "wire_gradients", "order", "keep")
    config = SimpleNamespace(
        **{name: getattr(PlanConfig(), name) for name in names} | options, prune="auto", eval_every=1
    )
    PlannedTraining(PlannedGraph(graph, operator=operator), gcn_of(widths), config).is_pruned(part, c)
    assert found["predicted"] == found["trained"][-1]


def test_training_nodes_are_those_that_train_takes():
    part = load_graph("sbm:n=50,seed=1")
    given = train_nodes(part, "given", 0)
    np.testing.assert_array_equal(given, part.split == 0)
    np.testing.assert_array_equal(train_nodes(part, "auto", 0), given)
    drawn = train_nodes(part, "random", 3)
    split_N = lambda dgraph: dgraph.collect(split_of(dgraph, "random", 3))
    trained = run_threads(2, lambda comm: split_N(distribute(part, comm, method="random")) == 0)[0]
    np.testing.assert_array_equal(drawn, trained)
    with pytest.raises(UsageError, match="has one split, 0; split 2 does not exist"):
        train_nodes(part, "2", 0)
    with pytest.raises(GraphError, match="no split and no labels"):
        train_nodes(load_graph("path:n=4"), "auto", 0)
