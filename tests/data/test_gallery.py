"""Generated graphs: the sizes, degrees and shares that their docstrings promise."""

import numpy as np
import pytest

from spgnn.data import GALLERY, generate, load_graph
from spgnn.data.gallery import complete, grid, kronecker, path, random_directed, rmat, sbm, star
from spgnn.errors import UsageError


def degrees(graph) -> list[int]:
    return np.diff(graph.A.indptr).tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_path_has_two_nonzeros_an_edge_and_two_ends(n):
    graph = path(n)
    assert (graph.n_nodes, graph.nnz, graph.is_symmetric) == (n, 2 * max(n - 1, 0), True)
    assert degrees(path(7)) == [1, 2, 2, 2, 2, 2, 1]


def test_star_joins_the_centre_to_all():
    assert degrees(star(5)) == [4, 1, 1, 1, 1]
    assert star(5).is_symmetric and star(1).nnz == 0


def test_grid_numbers_nodes_row_by_row():
    graph = grid(2, 3)
    assert graph.nnz == 2 * (2 * 2 * 3 - 2 - 3)
    assert graph.is_symmetric and degrees(graph) == [2, 3, 2, 2, 3, 2]
    assert np.flatnonzero(graph.A.toarray()[1]).tolist() == [0, 2, 4]
    assert grid(1, 4).digest() == path(4).digest()


def test_complete_joins_every_pair():
    graph = complete(5)
    assert (graph.nnz, degrees(graph), graph.is_symmetric) == (20, [4] * 5, True)
    assert graph.A.diagonal().sum() == 0 and complete(0).nnz == 0


def test_random_directed_has_exactly_n_degree_edges_and_no_loop():
    graph = random_directed(50, 3, seed=1)
    assert (graph.n_nodes, graph.nnz, graph.A.diagonal().sum()) == (50, 150, 0)
    assert not graph.is_symmetric
    assert random_directed(6, 5).digest() == complete(6).digest()


def test_sbm_keeps_its_share_of_edges_inside_a_class():
    graph = sbm(3000, classes=5, degree=20, inside=0.7, features=8, seed=3)
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))
    inside = np.mean(graph.y[rows] == graph.y[graph.A.indices])
    assert graph.is_symmetric and abs(inside - 0.7) < 0.02
    assert abs(graph.nnz / graph.n_nodes - 20) < 0.5
    assert np.bincount(graph.y).tolist() == [600] * 5
    assert graph.X.shape == (3000, 8) and graph.X.dtype == np.float32
    assert np.bincount(graph.split).tolist() == [1800, 600, 600]


def test_sbm_features_tell_the_class_when_there_is_little_noise():
    graph = sbm(400, classes=4, features=32, noise=0.1)
    mean = np.stack([graph.X[graph.y == c].mean(axis=0) for c in range(4)])
    assert np.array_equal(np.argmax(graph.X @ mean.T, axis=1), graph.y)


@pytest.mark.parametrize("n, classes", [(1, 1), (3, 5), (7, 3)])
def test_sbm_of_few_nodes_is_a_graph(n, classes):
    graph = sbm(n, classes, degree=2)
    assert graph.n_nodes == n and graph.A.diagonal().sum() == 0


def test_rmat_edges_and_duplicates_add_up():
    graph = rmat(10, 8, seed=2)
    assert graph.n_nodes == 1024
    assert graph.nnz + graph.meta["duplicates"] == 8 * 1024


def test_kronecker_follows_its_initiator():
    # With one level the edges fall into the four cells in the ratio 9 : 5 : 5 : 1.
    from spgnn.data.gallery import _draw_keys

    keys = _draw_keys(np.random.default_rng(0), 1, 200_000, 0.45, 0.25, 0.25)
    assert np.allclose(np.bincount(keys) / 200_000, np.array([0.9, 0.5, 0.5, 0.1]) / 2, atol=0.005)
    graph = kronecker(11, 16)
    quarter = graph.A[:1024].nnz / graph.nnz
    assert abs(quarter - 0.7) < 0.02 and graph.nnz > 0.9 * 16 * 2048


@pytest.mark.parametrize("name", GALLERY)
def test_a_spec_names_every_generator_and_a_seed_repeats_it(name):
    assert load_graph(name).digest() == generate(name).digest()
    if "seed" in GALLERY[name].__annotations__:
        assert generate(f"{name}:seed=1").digest() != generate(f"{name}:seed=2").digest()


@pytest.mark.parametrize("spec, message", [
    ("gird:rows=2", "did you mean 'grid'"), ("grid:row=2", "unknown parameter 'row'; did you mean 'rows'"),
    ("grid:rows=two", "rows = 'two'; expected int"), ("grid:rows=0", "rows = 0; expected at least 1"),
    ("path:n=-1", "n = -1; expected at least 0"), ("random_directed:n=4,degree=4", "expected at most n - 1 = 3"),
    ("rmat:a=0.9,b=0.2", "d = -0.29; expected at least 0"), ("rmat:scale=50", "expected at most 40"),
    ("sbm:noise=nan", "noise = nan; expected at least 0"), ("grid:return=2", "unknown parameter 'return'"),
])  # fmt: skip
def test_a_wrong_spec_says_what_is_wrong(spec, message):
    with pytest.raises(UsageError, match=message):
        generate(spec)
