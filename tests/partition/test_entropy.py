"""The entropy partitioner: weights of Algorithm 1 against a double loop, features left alone, parts of few classes."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.errors import GraphError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import part_graph
from spgnn.partition.methods import entropy
from spgnn.partition.methods.entropy import dots, edge_weights
from spgnn.partition.methods.metis import neighbours

OPTIONS = (
    {}, {"similarity": "dot"}, {"c": 3.5, "fanout": 2}, {"c": 0.25, "floor": 40}, {"c": 0.0},
    {"similarity": "dot", "c": 7, "floor": 9},
)  # fmt: skip


def slow_weights(A, X, c=1.0, floor=1, fanout=25, similarity="cosine"):
    """Algorithm 1 over all pairs: {(u, v): weight}."""
    n = len(X)
    near = [{u for u in range(n) if u != v and (A[u, v] or A[v, u])} for v in range(n)]
    dot = lambda u, v: sum(float(a) * float(b) for a, b in zip(X[u], X[v]))
    weights = {}
    for v in range(n):
        for u in near[v]:
            alike = dot(u, v)
            if similarity == "cosine":
                norms = math.sqrt(dot(u, u)) * math.sqrt(dot(v, v))
                alike = alike / norms if norms else 0.0
            p = sum(1 - math.exp(-fanout / len(near[w])) for w in (u, v)) / 2
            weights[u, v] = max(floor, round(100 * (c * alike + p)))
    return weights


def random_graph(seed):
    """Directed, with self-loops, duplicates and isolated nodes; X of any kind, some of its rows 0."""
    rng = np.random.default_rng(seed)
    n, f = int(rng.integers(1, 25)), int(rng.integers(1, 12))
    src, dst = rng.integers(0, max(n - 1, 1), (2, int(rng.integers(0, 4 * n))))
    X = rng.standard_normal((n, f)) * (rng.random((n, f)) < 0.6) * (rng.random((n, 1)) < 0.9)
    X = [X, X.astype(np.float32), sp.csr_array(X), sp.csr_array(X.astype(np.float32)), np.rint(3 * X).astype(int)][
        seed % 5
    ]
    if seed % 10 == 2:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return graph_from_coo(src, dst, n, X=X).with_edges(["directed", "undirected"][seed % 2])


@pytest.mark.slow
def test_the_weights_are_algorithm_1_on_200_random_graphs(monkeypatch):
    for seed in range(200):
        graph = random_graph(seed)
        options = OPTIONS[seed % len(OPTIONS)]
        monkeypatch.setattr(entropy, "CHUNK", 1 + seed)
        pattern = neighbours(graph.A)
        got = sp.csr_array(
            (edge_weights(graph, pattern, **options), pattern.indices, pattern.indptr), shape=pattern.shape
        ).todok()
        X = graph.X.toarray() if sp.issparse(graph.X) else graph.X
        assert dict(got.items()) == slow_weights(graph.A.toarray(), X, **options), seed


@pytest.mark.parametrize("is_sparse", [False, True])
def test_dot_products_are_the_same_bits_in_both_directions(is_sparse):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((300, 37)) * (rng.random((300, 37)) < 0.5)).astype(np.float32)
    graph = graph_from_coo(*rng.integers(0, 300, (2, 3000)), 300)
    pattern = neighbours(graph.A)
    found = sp.csr_array(
        (dots(pattern.indptr, pattern.indices, sp.csr_array(X) if is_sparse else X), pattern.indices, pattern.indptr)
    )
    assert (found != found.T).nnz == 0
    rows = np.repeat(np.arange(300), np.diff(pattern.indptr))
    np.testing.assert_allclose(found.data, (X.astype(float)[rows] * X[pattern.indices]).sum(axis=1), 1e-12, 1e-12)


def mixed(n=400, seed=0, sparse=False):
    """Edges that know nothing of the classes, features that do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = np.eye(2, 6, dtype=np.float32)[y] + 0.05 * rng.standard_normal((n, 6)).astype(np.float32)
    return graph_from_coo(*rng.integers(0, n, (2, 8 * n)), n, X=sp.csr_array(X) if sparse else X, y=y)


@pytest.mark.parametrize("sparse", [False, True])
def test_parts_have_the_nodes_that_are_alike_and_as_many_each(sparse):
    graph = mixed(sparse=sparse)

    def largest_class(method):
        owner_N = part_graph(graph, 2, method, **({"c": 20.0} if method == "entropy" else {})).owner_N
        assert np.bincount(owner_N).max() <= (1.03 if method == "entropy" else 1.2) * 200 + 1
        return np.mean([np.bincount(graph.y[owner_N == p]).max() / np.sum(owner_N == p) for p in range(2)])

    assert largest_class("entropy") > 0.9 and largest_class("metis") < 0.7


def test_features_are_read_and_never_written():
    graph = mixed()
    before = graph.X.copy()
    graph.X.flags.writeable = False
    first, second = (part_graph(graph, 4, "entropy", seed=3) for _ in range(2))
    assert graph.X.tobytes() == before.tobytes()
    np.testing.assert_array_equal(first.owner_N, second.owner_N)
    assert np.any(part_graph(graph, 4, "entropy", seed=4).owner_N != first.owner_N)


@pytest.mark.parametrize("k", [1, 2, 99])
def test_a_graph_without_features_is_refused(k):
    with pytest.raises(GraphError, match="has no features.*features=FILE, or use method metis"):
        part_graph(graph_from_coo([0, 1, 2], [1, 2, 3], 4), k, "entropy")


@pytest.mark.parametrize("options, message", [
    ({"c": -1}, "c = -1; expected a number of 0 or more"), ({"c": math.inf}, "c = inf"), ({"c": "1"}, "c = '1'"), ({"floor": 0}, "floor = 0; expected an integer"),
    ({"floor": 1.5}, "floor = 1.5"), ({"fanout": 0}, "fanout = 0"), ({"similarity": "cosin"}, "did you mean 'cosine'"), ({"flor": 2}, "did you mean 'floor'"),
    ({"c": 1e9}, "has weight .*e\\+1.; expected at most 2147483647"), ({"similarity": "dot", "c": 1e300}, "use similarity cosine, or a smaller c"),
])  # fmt: skip
def test_an_option_that_does_not_fit_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        part_graph(mixed(60), 3, "entropy", **options)


def test_the_balance_is_of_nodes_as_in_the_paper():
    rng = np.random.default_rng(0)
    hub = rng.integers(0, 40, 3000), rng.integers(0, 40, 3000)
    chain = np.arange(40, 999)
    graph = graph_from_coo(
        np.concatenate([hub[0], chain]), np.concatenate([hub[1], chain + 1]), 1000, X=np.ones((1000, 1))
    )
    got = part_graph(graph, 2, "entropy").metrics
    assert got["node_imbalance"] <= 1.031 and got["nnz_imbalance"] > 1.2


@pytest.mark.parametrize(("n", "k", "balance"), [(200, 4, 1.03), (2000, 10, 1.03), (50, 7, 1.0)])
def test_stars_are_balanced_too(n, k, balance):
    X = np.random.default_rng(0).random((n, 4))
    graph = graph_from_coo(np.zeros(n - 1, int), np.arange(1, n), n, X=X)
    sizes_k = part_graph(graph, k, "entropy", balance=balance).sizes_k
    assert sizes_k.max() <= max(balance * n / k, math.ceil(n / k)) and sizes_k.min() >= 1
