"""ROC-AUC and average precision of several labels: by their definitions, over the nodes of all ranks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph

import spgnn
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Stack
from spgnn.training.metrics import ranked_scores


def by_definition(z, y):
    """The share of ordered pairs, and precision at each threshold times the recall that it adds, one at a time."""
    pairs = [(a > b) + (a == b) / 2 for a in z[y] for b in z[~y]]
    precision, recall = 0.0, 0.0
    for threshold in sorted(set(z), reverse=True):
        taken = z >= threshold
        added = y[taken].sum() / y.sum() - recall
        precision, recall = precision + added * y[taken].mean(), recall + added
    return np.mean(pairs), precision


def expected(Z, Y, split, number):
    rows = split == number
    of_labels = [by_definition(z[rows], y[rows]) for z, y in zip(Z.T, Y.T) if 0 < y[rows].sum() < rows.sum()]
    return np.mean(of_labels, axis=0)


@pytest.mark.parametrize("ties", [False, True])
def test_scores_are_those_of_their_definitions_on_any_ranks(ties):
    rng = np.random.default_rng(0)
    Z, Y, split = rng.standard_normal((60, 4)).astype(np.float32), rng.random((60, 4)) < 0.3, rng.integers(-1, 3, 60)
    Z, Y[:, 3] = np.round(Z, 0) if ties else Z, True  # a label that all nodes have does not count
    owner = rng.integers(0, 3, 60)

    def found(comm):
        own = owner % comm.size == comm.rank
        given = torch.from_numpy(Z[own]), torch.from_numpy(Y[own].astype(np.float32)), split[own].astype(np.int8)
        return ranked_scores(*given, comm)

    for scores in (found(SelfCommunicator()), *run_threads(3, found)):
        for number, name in enumerate(("train", "val", "test")):
            assert np.allclose(list(scores[name].values()), expected(Z, Y, split, number), rtol=1e-12)


def test_without_both_kinds_of_nodes_there_is_no_score():
    none = ranked_scores(torch.zeros(2, 1), torch.ones(2, 1), np.zeros(2, np.int8), SelfCommunicator())
    assert np.isnan([value for of in none.values() for value in of.values()]).all()


@pytest.mark.parametrize("metric", ["auto", "roc_auc", "average_precision"])
def test_a_training_has_both_at_the_best_epoch_which_either_may_decide(metric):
    graph = random_graph(n=80, edges=300, use="undirected")
    graph = replace(graph, y=(np.random.default_rng(1).random((80, 3)) < 0.4).astype(np.int8))
    dgraph = distribute(graph, dtype="float64")
    model = Stack(GCN(6, 8, act="tanh"), GCN(8, 3))
    history = spgnn.train(model, dgraph, epochs=20, lr=0.05, metric=metric)
    Z = model.eval()(dgraph).detach().numpy()[np.argsort(dgraph.node_n)].astype(np.float32)
    for number, name in enumerate(("train", "val", "test")):
        auc, precision = expected(Z, graph.y > 0, graph.split, number)
        assert history.scores[name]["roc_auc"] == pytest.approx(auc, rel=1e-12)
        assert history.scores[name]["average_precision"] == pytest.approx(precision, rel=1e-12)
    assert history.val == history.scores["val"]["micro_f1" if metric == "auto" else metric]
    assert history.val == max(record["val"] for record in history.records)
