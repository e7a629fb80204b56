"""Nodes, edges, walks and clusters are drawn from their distributions; the same tests reject wrong samplers.

A true sampler passes with p > 1e-4 at these seeds; a wrong one fails with p < 1e-9.
"""

import itertools

import numpy as np
import pytest
from graphs import dense_operator
from scipy.stats import chi2, chisquare
from small_graphs import GRAPHS

from spgnn.samplers import Cluster, Edge, Node, Walk, _samplers, graph_arrays

DRAWS = 20_000
PASS, FAIL = 1e-4, 1e-9


def p_value(drawn, P):
    """Pearson's chi-square of integers against probabilities; what has probability 0 must not be drawn."""
    counts = np.bincount(drawn, minlength=len(P))
    if counts[P == 0].any():
        return 0.0
    return chisquare(counts[P > 0], P[P > 0] / P[P > 0].sum() * counts.sum()).pvalue


def in_batches(draw, budget):
    """DRAWS draws of several subgraphs."""
    return np.concatenate([draw(7, index) for index in range(DRAWS // budget)], axis=-1)


@pytest.mark.parametrize("n", [1, 2, 33])
def test_an_alias_table_draws_by_its_weights(n):
    rng = np.random.default_rng(n)
    weight = rng.random(n) ** 3
    weight[2::4] = 0
    drawn = _samplers.Alias(weight).draw(1, 0, 0, DRAWS)
    assert p_value(drawn, weight) > PASS or n == 1
    if n > 2:
        assert p_value(_samplers.Alias(weight**1.3).draw(1, 0, 0, DRAWS), weight) < FAIL


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [np.nan], [np.inf, 1.0]])
def test_weights_that_are_no_distribution_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        _samplers.Alias(np.array(weights))


@pytest.mark.parametrize("name", ["undirected", "weighted", "hub"])
def test_nodes_are_drawn_by_the_squared_column_norms_of_the_gcn_operator(name):
    graph = GRAPHS[name]
    P = (dense_operator(graph, "gcn") ** 2).sum(0)
    np.testing.assert_allclose(graph_arrays(graph).column_norms(), P, rtol=1e-12)
    sampler = Node(graph, budget=200)
    assert p_value(in_batches(sampler.draw, 200), P) > PASS
    norms = _samplers.Alias(np.sqrt(P))  # of the columns, without the square
    assert p_value(norms.draw(7, 0, 0, DRAWS), P) < FAIL


def edge_distribution(graph):
    """P(e) proportional to 1 / deg u + 1 / deg v, deg of rows and columns together, and the number of each edge.

    Of a symmetric graph both directions are one edge: which end comes first means nothing.
    """
    A = graph.A.tocoo()
    degree = np.bincount(A.row, minlength=graph.n_nodes) + np.bincount(A.col, minlength=graph.n_nodes)
    P = 1 / degree[A.row] + 1 / degree[A.col]
    number = {(u, v): e for e, (u, v) in enumerate(zip(A.row, A.col))}
    if graph_arrays(graph).is_symmetric:
        number = {(u, v): number[min(u, v), max(u, v)] for u, v in number}
        P = np.bincount([number[u, v] for u, v in zip(A.row, A.col)], P, graph.nnz)
    return P / P.sum(), number


@pytest.mark.parametrize("name", ["undirected", "directed", "weighted", "hub", "hub-directed", "wide", "dense"])
def test_edges_are_drawn_by_the_inverse_degrees_of_their_ends(name):
    graph = GRAPHS[name]
    P, number = edge_distribution(graph)
    ends = in_batches(Edge(graph, budget=500).ends, 500)
    assert p_value(np.array([number[u, v] for u, v in ends.T]), P) > PASS
    assert p_value(_samplers.Alias(P).draw(7, 0, 0, DRAWS), P) > PASS  # the table that the draws do without
    if name.startswith("hub"):
        uniform = _samplers.integers(7, 0, 0, graph.nnz, DRAWS)
        ends = np.array(graph.A.nonzero())[:, uniform]
        assert p_value(np.array([number[u, v] for u, v in ends.T]), P) < FAIL


def walk_p_values(graph, walks):
    """The roots are uniform; the steps of each node are uniform over its neighbours: one chi-square, summed."""
    A = graph.A
    roots = p_value(walks[0], np.ones(graph.n_nodes))
    statistic, freedom = 0.0, 0
    before, after = walks[:-1].ravel(), walks[1:].ravel()
    for u in range(graph.n_nodes):
        neighbours, steps = A.indices[A.indptr[u] : A.indptr[u + 1]], after[before == u]
        if not len(neighbours):
            assert (steps == u).all()
            continue
        counts = np.bincount(np.searchsorted(neighbours, steps), minlength=len(neighbours))
        assert np.isin(steps, neighbours).all()
        if len(steps):
            statistic += ((counts - len(steps) / len(neighbours)) ** 2).sum() / (len(steps) / len(neighbours))
            freedom += len(neighbours) - 1
    return roots, chi2.sf(statistic, freedom)


def biased_walks(graph, roots, steps, seed):
    """The wrong twin: an early neighbour in the row is preferred, and so is an early root."""
    rng, A = np.random.default_rng(seed), graph.A
    walks = [(rng.random(roots) ** 1.3 * graph.n_nodes).astype(int)]
    for _ in range(steps):
        u = walks[-1]
        degree = np.diff(A.indptr)[u]
        step = A.indices[np.minimum(A.indptr[u] + (rng.random(roots) ** 1.3 * degree).astype(int), A.nnz - 1)]
        walks.append(np.where(degree > 0, step, u))
    return np.array(walks)


@pytest.mark.parametrize("name", ["undirected", "directed", "hub", "wide", "no-edges"])
def test_walks_start_and_step_uniformly(name):
    graph = GRAPHS[name]
    walks = in_batches(Walk(graph, budget=1000, walk=3).draw, 250)
    roots, steps = walk_p_values(graph, walks)
    assert roots > PASS and (steps > PASS or not graph.nnz)
    if name in ("undirected", "hub"):
        roots, steps = walk_p_values(graph, biased_walks(graph, DRAWS, 3, 0))
        assert roots < FAIL and steps < FAIL


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_each_cluster_is_drawn_once_per_epoch(batch):
    graph = GRAPHS["undirected"]
    sampler = Cluster(graph, clusters=5, batch=batch)
    assert sampler.steps_per_epoch == -(-sampler.clusters // batch)
    orders = set()
    for epoch in range(6):
        steps = range(epoch * sampler.steps_per_epoch, (epoch + 1) * sampler.steps_per_epoch)
        chosen = np.concatenate([sampler.chosen(3, step) for step in steps])
        orders.add(tuple(chosen))
        assert sorted(chosen) == list(range(sampler.clusters))
        nodes = np.concatenate([sampler.nodes(3, step) for step in steps])
        assert sorted(nodes) == list(range(graph.n_nodes))
    assert len(orders) > 1


def order_p_value(orders):
    numbers = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    return p_value(np.array([numbers[tuple(order)] for order in orders]), np.ones(24))


def swapped_with_any(rng):
    """The wrong twin of Fisher & Yates: each place is swapped with any place."""
    order = list(range(4))
    for i in range(4):
        j = rng.integers(4)
        order[i], order[j] = order[j], order[i]
    return order


def test_the_order_of_an_epoch_is_uniform():
    assert order_p_value([_samplers.permutation(5, 1, epoch, 4) for epoch in range(DRAWS)]) > PASS
    rng = np.random.default_rng(0)
    assert order_p_value([swapped_with_any(rng) for _ in range(DRAWS // 4)]) < FAIL


def test_clusters_without_nodes_are_left_out_and_the_default_number_suits_the_graph():
    few = Cluster(GRAPHS["no-edges"], clusters=5, batch=2)
    nodes = [few.nodes(0, step) for step in range(few.steps_per_epoch)]
    assert all(len(node_m) for node_m in nodes)
    assert Cluster(GRAPHS["wide"]).clusters == 1
