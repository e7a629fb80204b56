"""Epochs of targets: each training node once, or a class-balanced part drawn in proportion to eq. (3)'s weights."""

import numpy as np
import pytest
from graphs import dense_operator, random_graph
from scipy.stats import chisquare, norm

from spgnn.errors import UsageError
from spgnn.graph import Graph
from spgnn.samplers import graph_arrays
from spgnn.samplers.targets import Targets, balancing_weights

RIGHT, WRONG = 1e-4, 1e-9


def imbalanced(n=40, seed=0):
    """Three classes of 70, 20 and 10 %; all nodes train."""
    graph = random_graph(n=n, edges=5 * n, seed=seed)
    y = np.random.default_rng(seed).choice(3, n, p=(0.7, 0.2, 0.1))
    return Graph(graph.A, y=y, split=np.zeros(n, np.int8), edges="directed")


def weights_by_hand(graph):
    norms = (dense_operator(graph) ** 2).sum(0)
    return norms / np.bincount(graph.y)[graph.y]


@pytest.mark.parametrize("balance", [0.0, 1.0])
def test_an_epoch_has_each_training_node_once(balance):
    graph = random_graph(n=90)
    targets = Targets(graph, batch=7, class_balance=balance)
    trains = np.flatnonzero((graph.split == 0) & (graph.y >= 0))
    steps = targets.steps_per_epoch
    epochs = [[targets.draw(0, epoch * steps + step) for step in range(steps)] for epoch in range(5)]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [7] * (steps - 1) + [len(trains) - 7 * (steps - 1)]
        assert all((np.diff(batch) > 0).all() for batch in batches)
        assert sorted(np.concatenate(batches)) == trains.tolist()
    assert len({np.concatenate(batches).tobytes() for batches in epochs}) == 5
    assert targets.draw(1, 0).tobytes() != epochs[0][0].tobytes()
    assert targets.draw(0, 0).tobytes() == epochs[0][0].tobytes()  # after its epoch left the cache


@pytest.mark.slow
def test_the_order_of_an_epoch_is_uniform():
    targets = Targets(imbalanced(5), batch=2)
    orders = [tuple(targets.order(0, epoch)) for epoch in range(6000)]
    assert chisquare(np.unique(np.array(orders), axis=0, return_counts=True)[1]).pvalue > RIGHT
    assert len(set(orders)) == 120


@pytest.mark.parametrize("edges", ["directed", "undirected"])
def test_weights_are_those_of_the_dense_operator(edges):
    graph = random_graph(weighted=True, use=edges, seed=4)
    nodes = np.flatnonzero((graph.split == 0) & (graph.y >= 0))
    expected = (dense_operator(graph) ** 2).sum(0)[nodes] / np.bincount(graph.y[nodes])[graph.y[nodes]]
    np.testing.assert_allclose(balancing_weights(graph, graph_arrays(graph), nodes), expected, rtol=1e-6)


@pytest.mark.slow
def test_the_first_node_of_a_mini_epoch_is_drawn_by_weight():
    graph = imbalanced()
    w_N = weights_by_hand(graph)
    targets = Targets(graph, class_balance=0.25)
    first = np.bincount([targets.chosen(0, epoch)[0] for epoch in range(10_000)], minlength=40)
    assert chisquare(first, 10_000 * w_N / w_N.sum()).pvalue > RIGHT
    without_cf = w_N * np.bincount(graph.y)[graph.y]
    assert chisquare(first, 10_000 * without_cf / without_cf.sum()).pvalue < WRONG


def p_same_inclusion(a, b):
    """The least p of all nodes, times their number, that two samples of subsets have the same inclusion."""
    p, q, pool = a.mean(0), b.mean(0), np.vstack([a, b]).mean(0)
    z = np.abs(p - q) / np.sqrt(pool * (1 - pool) * (1 / len(a) + 1 / len(b)))
    return min(1.0, 2 * norm.sf(z.max()) * len(z))


@pytest.mark.slow
def test_mini_epochs_are_drawn_as_numpy_draws_without_replacement():
    graph, rng, draws = imbalanced(), np.random.default_rng(1), 5000
    w_N = weights_by_hand(graph)
    targets = Targets(graph, batch=4, class_balance=0.25)
    assert targets.per_epoch == 10 and targets.steps_per_epoch == 3
    has = {key: np.zeros((draws, 40)) for key in ("ours", "numpy", "with replacement")}
    for k in range(draws):
        has["ours"][k, targets.order(0, k)] = 1
        has["numpy"][k, rng.choice(40, 10, replace=False, p=w_N / w_N.sum())] = 1
        has["with replacement"][k, rng.choice(40, 10, p=w_N / w_N.sum())] = 1
    assert (has["ours"].sum(1) == 10).all()
    assert p_same_inclusion(has["ours"], has["numpy"]) > RIGHT
    assert p_same_inclusion(has["with replacement"], has["numpy"]) < WRONG


def test_classes_are_balanced_in_a_mini_epoch():
    graph = imbalanced(300)
    targets = Targets(graph, class_balance=0.1)
    share = np.mean([np.bincount(graph.y[targets.order(0, k)], minlength=3) for k in range(200)], axis=0) / 30
    assert share.min() > 0.2  # 10 % of the nodes are of the rarest class


def test_class_balance_out_of_range_or_without_classes_is_refused():
    graph = random_graph()
    for value in (-0.1, 1.5, float("nan"), "a"):
        with pytest.raises(UsageError, match="class_balance = .*; expected a number of 0 to 1"):
            Targets(graph, class_balance=value)
    multilabel = Graph(graph.A, y=np.ones((40, 2), np.int8), split=np.zeros(40, np.int8))
    with pytest.raises(UsageError, match="class_balance needs one class for each training node"):
        Targets(multilabel, class_balance=0.5)
    with pytest.raises(UsageError, match="class_balance needs one class"):
        Targets(graph_arrays(graph), np.ones(40, bool), class_balance=0.5)
    assert Targets(graph, class_balance=1e-12).per_epoch == 1
