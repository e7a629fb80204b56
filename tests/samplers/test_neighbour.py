"""Neighbour and LABOR samplers: every set of neighbours as likely, estimates without bias, blocks of A; their targets.

Each statistic has a wrong sampler beside it, which must fail it.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
import pytest
from graphs import dense_operator, random_graph
from scipy.sparse import csr_array
from scipy.stats import chisquare
from small_graphs import GRAPHS
from test_frontier import p_same

from spgnn.errors import GraphError, ShapeError, UsageError
from spgnn.graph import Graph, graph_from_coo
from spgnn.samplers import SAMPLERS, Edge, Node, Walk, graph_arrays, make_sampler, operators
from spgnn.samplers.node_samplers import Frontier, Labor, Neighbour
from spgnn.samplers.targets import Targets, balancing_weights

RIGHT, WRONG = 1e-4, 1e-9


def all_train(graph):
    return np.ones(graph.n_nodes, bool)


def star(degree):
    """Node 0 reads nodes 1 to degree."""
    return graph_from_coo(np.zeros(degree, int), np.arange(1, degree + 1), degree + 1).with_edges("directed")


def only(node, graph):
    return np.arange(graph.n_nodes) == node


def check_pattern(graph, node_m, pattern):
    """Rows and columns are nodes, nonzeros are those of A at their places, ascending in each row."""
    n, m = pattern.shape
    A = graph.A
    assert pattern.indptr.dtype == np.int64 and pattern.indices.dtype == np.int32 and pattern.place_e.dtype == np.int64
    assert len(pattern.indptr) == n + 1 and pattern.indptr[0] == 0 and n <= m
    assert pattern.indptr[-1] == len(pattern.indices) == len(pattern.place_e)
    row_e = np.repeat(np.arange(n), np.diff(pattern.indptr))
    assert (A.indices[pattern.place_e] == node_m[pattern.indices]).all()
    assert (A.indptr[node_m[row_e]] <= pattern.place_e).all() and (pattern.place_e < A.indptr[node_m[row_e] + 1]).all()
    assert (np.diff(pattern.indices)[np.diff(row_e) == 0] > 0).all(), "columns must ascend"
    return row_e


@pytest.mark.parametrize("fanout", [(3, 2), (-1, 2), (1,), (70, 5, 2)], ids=str)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", [Neighbour, Labor])
def test_blocks_are_parts_of_the_graph(kind, name, fanout):
    graph = GRAPHS[name]
    degree_N = np.diff(graph.A.indptr)
    sampler = kind(graph, all_train(graph), fanout=fanout, batch=7)
    for index in range(6):
        sample = sampler.sample(0, index)
        assert len(sample.patterns) == sampler.n_blocks == len(fanout)
        assert len(set(sample.node_m)) == len(sample.node_m) == sample.patterns[0].shape[1]
        hops = [sample.patterns[-1].shape[0], *(pattern.shape[1] for pattern in reversed(sample.patterns))]
        assert (sample.node_m[: hops[0]] == sampler.targets.draw(0, index)).all()
        assert all((np.diff(hop) > 0).all() for hop in np.split(sample.node_m, hops))
        for layer, (pattern, k) in enumerate(zip(sample.patterns, fanout)):
            row_e = check_pattern(graph, sample.node_m, pattern)
            n, m = pattern.shape
            assert layer == 0 or m == sample.patterns[layer - 1].shape[0]
            assert set(range(n, m)) <= set(pattern.indices), "an input that no row reads"
            degree_n = degree_N[sample.node_m[:n]]
            drawn_n = degree_n if k < 0 else np.minimum(degree_n, k)
            scale_n = degree_n / np.maximum(drawn_n, 1)
            if kind is Neighbour:
                assert (np.bincount(row_e, minlength=n) == drawn_n).all()
            if pattern.scale_e is None:
                assert (degree_n == drawn_n).all()
            else:
                np.testing.assert_allclose(pattern.scale_e, scale_n[row_e].astype(np.float32), rtol=1e-7)


@pytest.mark.parametrize("name", [*GRAPHS, "10,000 nodes"])
@pytest.mark.parametrize("kind", [Neighbour, Labor])
def test_blocks_of_all_neighbours_are_scipys_submatrices(kind, name):
    graph = GRAPHS.get(name) or random_graph(n=10_000, edges=30_000, use="undirected")
    sample = kind(graph, all_train(graph), fanout="-1,-1", batch=max(3, graph.n_nodes // 30)).sample(0, 1)
    for pattern in sample.patterns:
        n, m = pattern.shape
        expected = graph.A[sample.node_m[:n]][:, sample.node_m[:m]].tocsr()
        expected.sort_indices()
        assert (pattern.indptr == expected.indptr).all() and (pattern.indices == expected.indices).all()
        assert (graph.A.data[pattern.place_e] == expected.data).all() and pattern.scale_e is None


def p_of_subsets(drawn, degree, fanout):
    """Pearson's p of the drawn sets against all sets of that size, each as likely."""
    place = {nodes: k for k, nodes in enumerate(combinations(range(1, degree + 1), fanout))}
    counts = np.zeros(len(place))
    for nodes in drawn:
        counts[place[tuple(sorted(nodes))]] += 1
    return chisquare(counts).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("degree, fanout", [(7, 3), (7, 5), (64, 1), (65, 64), (70, 2)])
def test_every_set_of_neighbours_is_as_likely(degree, fanout):
    graph = star(degree)
    sampler = Neighbour(graph, only(0, graph), fanout=(fanout,), batch=1)
    drawn = [sampler.sample(0, index).node_m[1:] for index in range(10_000)]
    assert p_of_subsets(drawn, degree, fanout) > RIGHT


def standard_errors(estimates, expected):
    """How many standard errors the mean of estimates is away from what is expected, the largest of all entries."""
    estimates = np.array(estimates)
    error = estimates.std(0) / np.sqrt(len(estimates))
    away = np.abs(estimates.mean(0) - expected)
    return np.max(np.divide(away, error, out=np.where(away > 1e-9, np.inf, 0.0), where=error > 1e-12))


def aggregate(sample, x_N, is_scaled=True):
    pattern = sample.patterns[0]
    scale_e = pattern.scale_e if is_scaled and pattern.scale_e is not None else np.ones(len(pattern.indices))
    product_e = np.r_[scale_e * x_N[sample.node_m[pattern.indices]], 0.0]
    return np.add.reduceat(product_e, pattern.indptr[:-1]) * (np.diff(pattern.indptr) > 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Neighbour, Labor])
def test_the_scaled_sum_over_drawn_neighbours_is_unbiased(kind):
    graph = random_graph(n=60, edges=600, seed=3, use="undirected")
    x_N = np.random.default_rng(0).random(60) + 1
    pattern = graph.A.copy()
    pattern.data = np.ones_like(pattern.data)
    sampler = kind(graph, all_train(graph), fanout=(4,), batch=60)  # one batch is the whole epoch
    samples = [sampler.sample(0, index) for index in range(3000)]
    assert standard_errors([aggregate(s, x_N) for s in samples], pattern @ x_N) < 4.5
    assert standard_errors([aggregate(s, x_N, is_scaled=False) for s in samples], pattern @ x_N) > 20


@pytest.mark.slow
def test_labor_takes_each_neighbour_with_fanout_over_degree():
    graph = star(30)
    sampler = Labor(graph, only(0, graph), fanout=(7,), batch=1)
    draws = 6000
    taken = np.zeros((draws, 31))
    for index in range(draws):
        taken[index, sampler.sample(0, index).node_m[1:]] = 1
    assert standard_errors(taken[:, 1:], 7 / 30) < 4.5
    pairs = (taken[:, 1:] * np.roll(taken[:, 1:], 1, axis=1)).mean(0)  # independent: p^2
    assert np.abs(pairs - (7 / 30) ** 2).max() < 4.5 * 7 / 30 / np.sqrt(draws)
    assert standard_errors(taken[:, 1:], 6 / 30) > 6


def test_rows_of_labor_share_their_neighbours():
    rows, columns = np.divmod(np.arange(5 * 40), 40)
    graph = graph_from_coo(rows, columns + 5, 45).with_edges("directed")  # 5 rows with the same 40 neighbours
    train_N = np.arange(45) < 5
    inputs = {}
    for kind in (Neighbour, Labor):
        sampler = kind(graph, train_N, fanout=(10,), batch=5)
        inputs[kind] = np.mean([len(sampler.sample(0, index).node_m) - 5 for index in range(100)])
    assert inputs[Labor] == pytest.approx(10, rel=0.1) and inputs[Neighbour] > 25
    pattern = Labor(graph, train_N, fanout=(10,), batch=5).sample(0, 0).patterns[0]
    assert (pattern.indices.reshape(5, -1) == pattern.indices[: len(pattern.indices) // 5]).all()


@pytest.mark.parametrize("kind", [Neighbour, Labor, Frontier, Node, Edge, Walk])
def test_samples_depend_on_seed_and_index_and_not_on_threads_or_weights(kind):
    graph = random_graph(n=200, edges=3000, weighted=True, seed=3)
    weightless = graph if kind is Node else graph_from_coo(*graph.A.nonzero(), 200).with_edges("directed")
    options = (
        {"train_N": all_train(graph), "fanout": (3, 3), "batch": 20} if kind in (Neighbour, Labor) else {"budget": 60}
    )
    options |= {"frontier": 8} if kind is Frontier else {}
    sampler, other = (kind(graph_arrays(of), **options) for of in (graph, weightless))

    def bits(sample):
        pattern = sample.patterns[0]
        return sample.node_m.tobytes() + pattern.indptr.tobytes() + pattern.indices.tobytes()

    expected = [bits(sampler.sample(0, index)) for index in range(40)]
    assert len(set(expected)) == 40 and bits(sampler.sample(1, 0)) != expected[0]
    assert [bits(other.sample(0, index)) for index in range(40)] == expected
    for threads in (2, 4):
        with ThreadPoolExecutor(threads) as pool:
            assert list(pool.map(lambda index: bits(sampler.sample(0, index)), range(40))) == expected


@pytest.mark.parametrize("kind", [Neighbour, Labor])
def test_samplers_are_made_by_name_and_train_on_the_graphs_split(kind):
    graph = random_graph()
    sampler = make_sampler(kind.name, graph, {"fanout": "3,2", "batch": 4})
    assert SAMPLERS[kind.name].options == {"fanout": (25, 10), "batch": 512, "class_balance": 0.0}
    trains = np.flatnonzero((graph.split == 0) & (graph.y >= 0))
    steps = sampler.steps_per_epoch
    assert steps == -(-len(trains) // 4)
    drawn = np.concatenate([sampler.targets.draw(0, index) for index in range(steps)])
    assert sorted(drawn) == trains.tolist()


@pytest.mark.parametrize("kind", [Neighbour, Labor])
@pytest.mark.parametrize("fanout", ["", "5,x", "0,5", (), (3, -2), (2.5,), 7, (True,), (2**31,)], ids=str)
def test_a_fanout_out_of_range_is_refused(kind, fanout):
    with pytest.raises(UsageError, match="fanout = .*; expected neighbours of each layer, the first layer first"):
        kind(random_graph(), fanout=fanout)


def test_a_graph_without_training_nodes_is_refused():
    graph = random_graph()
    with pytest.raises(GraphError, match="no training node with a label"):
        Neighbour(graph, np.zeros(graph.n_nodes, bool))
    with pytest.raises(GraphError, match="has no split"):
        Neighbour(graph_from_coo([0], [1]))
    with pytest.raises(ShapeError, match=r"train_N is bool of shape \(3,\); expected bool \(40,\)"):
        Neighbour(graph, np.ones(3, bool))
    with pytest.raises(UsageError, match="batch = 0"):
        Neighbour(graph, batch=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Neighbour, Labor])
def test_operators_of_blocks_are_unbiased_where_the_graph_has_loops(kind):
    graph, hows = random_graph(n=30, edges=400, weighted=True), ["gcn", "sym", "row_loops", "row", "none"]
    assert graph.A.diagonal().any()
    x_N, arrays = np.random.default_rng(2).random(graph.n_nodes) + 0.5, graph_arrays(graph)
    sampler = kind(graph, all_train(graph), fanout=(4,), batch=graph.n_nodes)
    estimates = {how: [] for how in hows}
    for index in range(2500):
        sample = sampler.sample(0, index)
        order, shape = np.argsort(sample.node_m[: sample.patterns[0].shape[0]]), sample.patterns[0].shape
        made = operators(arrays, sample.node_m, sample.patterns[0], hows, np.float64, is_full=True)
        for how in hows:
            A = made[how].A
            z = csr_array((A.values, A.indices, A.indptr), shape=shape) @ x_N[sample.node_m]
            estimates[how].append(z[order])
    nodes = np.flatnonzero(all_train(graph))
    for how in hows:
        assert standard_errors(estimates[how], (graph.normalise(how) @ x_N)[nodes]) < 4.5, how


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
    assert p_same(has["ours"], has["numpy"]) > RIGHT
    assert p_same(has["with replacement"], has["numpy"]) < WRONG


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
