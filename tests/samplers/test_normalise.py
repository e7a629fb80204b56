"""Divided by how often nodes and nonzeros are drawn, losses and sums of subgraphs estimate those of the whole graph.

Means over many subgraphs lie within 4 standard errors; without the coefficients, or with wrong ones, they do not.
"""

import numpy as np
import pytest
from small_graphs import GRAPHS, random_graph

from spgnn.errors import UsageError
from spgnn.samplers import Cluster, Coefficients, Edge, Maker, Node, Walk, make_sampler, presample, sampler

SUBGRAPHS = 10_000
GRAPH = random_graph(n=30, edges=70, use="undirected", seed=6)
DIRECTED = random_graph(n=30, edges=110, seed=6)
LOSS_N = np.random.default_rng(3).random(30) + 0.5
X_N = np.random.default_rng(4).standard_normal(30)


def train_of(graph):
    return (graph.split == 0) & (graph.y >= 0)


def node_inclusion(graph, budget):
    """P(v is drawn), and P(row and column of each nonzero are), of Node."""
    P = Node(graph, budget=1).graph.column_norms()
    P /= P.sum()
    A = graph.A.tocoo()
    of_node = 1 - (1 - P) ** budget
    neither = np.where(A.row == A.col, 1 - P[A.row], 1 - P[A.row] - P[A.col]) ** budget
    return of_node, 1 - (1 - P[A.row]) ** budget - (1 - P[A.col]) ** budget + neither


def edge_inclusion(graph, budget):
    """The same of Edge."""
    A, N = graph.A.tocoo(), graph.n_nodes
    degree = np.bincount(A.row, minlength=N) + np.bincount(A.col, minlength=N)
    P = 1 / degree[A.row] + 1 / degree[A.col]
    P /= P.sum()
    between = np.zeros((N, N))  # P of an edge between two nodes, either way
    np.add.at(between, (A.row, A.col), P)
    off = A.row != A.col
    np.add.at(between, (A.col[off], A.row[off]), P[off])
    touches = between.sum(1)  # P of an edge with an end in the node
    union = np.where(off, touches[A.row] + touches[A.col] - between[A.row, A.col], touches[A.row])
    of_node = 1 - (1 - touches) ** budget
    return of_node, of_node[A.row] + of_node[A.col] - (1 - (1 - union) ** budget)


def closed_form(graph, inclusion, budget):
    of_node, of_edge = inclusion(graph, budget)
    seen = np.maximum(of_node, 1e-300)
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))
    return Coefficients(train_of(graph).sum() * seen, np.float32(of_edge / seen[rows]))


def estimates(graph, drawn, coefficients, is_full=False, count=SUBGRAPHS):
    """The loss of each subgraph, and (D^-1 A x)_v of each where v was drawn, nan elsewhere."""
    maker = Maker(drawn, graph, train_of(graph), ["row"], np.float64, coefficients)
    maker.is_full |= is_full
    loss_S, sum_SN = np.zeros(count), np.full((count, graph.n_nodes), np.nan)
    for index in range(count):
        subgraph = maker.draw(11, index)
        loss_S[index] = subgraph.weight_t @ LOSS_N[subgraph.node_m[subgraph.target_t]]
        A = subgraph.blocks[0]["row"].A
        parts = np.concatenate([[0.0], np.cumsum(A.values * X_N[subgraph.node_m[A.indices]])])
        sum_SN[index, subgraph.node_m] = np.diff(parts[A.indptr])
    return loss_S, sum_SN


def errors_of(graph, loss_S, sum_SN, counted=np.inf):
    """Deviations from the whole graph in standard errors: of the mean loss, and the largest of the sums of a node.

    Args: counted  subgraphs from which the coefficients come: their errors add to those of the means.
    """
    more = np.sqrt(1 + len(loss_S) / counted)
    train_N = train_of(graph)
    loss = abs(loss_S.mean() - LOSS_N[train_N].mean()) / (loss_S.std() / np.sqrt(len(loss_S))) / more
    exact_N = graph.normalise("row").astype(np.float64) @ X_N
    drawn = np.count_nonzero(~np.isnan(sum_SN), axis=0)
    often = drawn > 200
    mean, spread = np.nanmean(sum_SN[:, often], 0), np.nanstd(sum_SN[:, often], 0)
    error = abs(mean - exact_N[often]) / np.maximum(spread / np.sqrt(drawn[often]), 1e-7) / more
    return loss, error.max()


CASES = {
    "node": (GRAPH, lambda: Node(GRAPH, budget=12), lambda: closed_form(GRAPH, node_inclusion, 12)),
    "edge": (GRAPH, lambda: Edge(GRAPH, budget=6), lambda: closed_form(GRAPH, edge_inclusion, 6)),
    "edge-directed": (DIRECTED, lambda: Edge(DIRECTED, budget=6), lambda: closed_form(DIRECTED, edge_inclusion, 6)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_losses_and_sums_are_unbiased_by_the_closed_forms(name):
    graph, make, coefficients = CASES[name]
    loss, sums = errors_of(graph, *estimates(graph, make(), coefficients()))
    assert loss < 4 and sums < 4


@pytest.mark.slow
def test_losses_and_sums_are_unbiased_by_presampling_and_biased_without():
    drawn, train_N = Walk(GRAPH, budget=12, walk=2), train_of(GRAPH)
    counted = presample(drawn, GRAPH, train_N, seed=5, coverage=4000)
    loss, sums = errors_of(GRAPH, *estimates(GRAPH, drawn, counted), counted.subgraphs)
    assert loss < 4 and sums < 4
    wrong_loss, wrong_sums = errors_of(GRAPH, *estimates(GRAPH, drawn, None, True, 5000))
    assert wrong_loss > 6.1 and wrong_sums > 6.1  # the mean over the targets prefers nodes that are drawn often


def test_presampling_counts_what_the_closed_forms_say():
    graph, make, coefficients = CASES["node"]
    counted, exact = presample(make(), graph, train_of(graph), 0, coverage=1000), coefficients()
    assert counted.subgraphs > 2000
    p_N = exact.lambda_N / train_of(graph).sum()
    error_N = abs(counted.lambda_N - exact.lambda_N) / train_of(graph).sum()
    assert (error_N < 4.5 * np.sqrt(p_N * (1 - p_N) / counted.subgraphs)).all()
    rows = np.repeat(np.arange(30), np.diff(graph.A.indptr))
    spread_E = np.sqrt(np.maximum(exact.alpha_E * (1 - exact.alpha_E), 0) / (p_N[rows] * counted.subgraphs))
    assert (abs(counted.alpha_E - exact.alpha_E) < 5 * spread_E + 1e-6).all()


def test_presampling_stops_at_the_coverage_and_does_not_depend_on_threads():
    drawn, train_N = Walk(GRAPH, budget=12), train_of(GRAPH)
    first = presample(drawn, GRAPH, train_N, seed=1, coverage=20)
    for threads in (2, 4):
        again = presample(drawn, GRAPH, train_N, seed=1, coverage=20, threads=threads)
        np.testing.assert_array_equal(first.lambda_N, again.lambda_N)
        np.testing.assert_array_equal(first.alpha_E, again.alpha_E)
        assert first.subgraphs == again.subgraphs and first.mean_targets == again.mean_targets
    total = first.mean_nodes * first.subgraphs
    assert 20 * 30 <= round(total) < 20 * 30 + 12
    sizes = first.lambda_N / train_N.sum() * first.subgraphs
    assert (np.maximum(sizes, 1) == np.round(sizes)).all()
    other = presample(drawn, GRAPH, train_N, seed=2, coverage=20)
    assert not np.array_equal(first.lambda_N, other.lambda_N)


def test_what_was_never_drawn_counts_as_drawn_once_and_is_reported():
    sampler("first-three")(lambda graph, rng: [0, 1, 2])
    drawn = make_sampler("first-three", GRAPH)
    counted = presample(drawn, GRAPH, np.ones(30, bool), 0, coverage=1)
    assert (counted.subgraphs, counted.mean_nodes, counted.mean_targets) == (10, 3, 3)
    np.testing.assert_allclose(counted.lambda_N, [30] * 3 + [3] * 27)
    rows, columns = GRAPH.A.nonzero()
    seen = (rows < 3) & (columns < 3)
    np.testing.assert_allclose(counted.alpha_E, np.where(seen, 1, np.where(rows < 3, 0.1, 1)), rtol=1e-6)
    assert counted.unseen_nodes == pytest.approx(0.9) and counted.unseen_edges == pytest.approx(1 - seen.mean())


def test_a_sampler_of_empty_subgraphs_ends():
    sampler("never")(lambda graph, rng: [])
    counted = presample(make_sampler("never", GRAPH), GRAPH, np.ones(30, bool), 0, coverage=2)
    assert counted.subgraphs == 60 and counted.unseen_nodes == 1 and counted.mean_nodes == 0


def test_what_is_normalised_can_be_chosen():
    drawn, train_N = Walk(GRAPH, budget=12), train_of(GRAPH)
    made = {of: presample(drawn, GRAPH, train_N, 0, 5, normalise=of) for of in ("both", "loss", "aggregator", "none")}
    assert [made[how].lambda_N is None for how in made] == [False, False, True, True]
    assert [made[how].alpha_E is None for how in made] == [False, True, False, True]
    assert len({made[how].mean_targets for how in made}) == 1


def test_what_does_not_fit_is_refused():
    drawn, train_N = Walk(GRAPH, budget=12), train_of(GRAPH)
    for given, message in (
        ({"coverage": 0}, "coverage = 0"),
        ({"coverage": np.inf}, "coverage = inf"),
        ({"threads": 0}, "threads = 0"),
        ({"normalise": "bth"}, "did you mean 'both'"),
    ):
        with pytest.raises(UsageError, match=message):
            presample(drawn, GRAPH, train_N, 0, **given)
    with pytest.raises(UsageError, match="sampler 'cluster'"):
        presample(Cluster(GRAPHS["undirected"], clusters=3), GRAPHS["undirected"], train_N, 0)
