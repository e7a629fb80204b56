"""Maker: operators, targets and weights of each draw; the registry; a user's sampler is checked."""

import time

import numpy as np
import pytest
from small_graphs import GRAPHS, random_graph

import spgnn
from spgnn.errors import SamplerError, ShapeError, UsageError
from spgnn.samplers import (
    SAMPLERS,
    Coefficients,
    Maker,
    Pattern,
    Sample,
    Walk,
    Whole,
    graph_arrays,
    make_sampler,
    operators,
)
from spgnn.samplers.registry import register


class Blocks:
    """Two layers that read the nodes 0 to 5 and 0 to 8; the last has rows 0 to 2."""

    name, n_blocks, rescales = "blocks", 2, False

    def sample(self, seed, index):
        empty = lambda n, m: Pattern((n, m), np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))
        return Sample(np.arange(9), (empty(6, 9), empty(3, 6)))


def check_same(first, second):
    for name in ("index", "shapes"):
        assert getattr(first, name) == getattr(second, name)
    for name in ("node_m", "target_t", "weight_t"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for mine, theirs in zip(first.blocks, second.blocks):
        assert list(mine) == list(theirs)
        for how in mine:
            for part in ("A", "transposed"):
                for array in ("indptr", "indices", "values"):
                    np.testing.assert_array_equal(
                        getattr(getattr(mine[how], part), array), getattr(getattr(theirs[how], part), array)
                    )
            np.testing.assert_array_equal(mine[how].order_e, theirs[how].order_e)


@pytest.fixture
def graph():
    return random_graph(use="undirected")


@pytest.fixture
def train_N(graph):
    return (graph.split == 0) & (graph.y >= 0)


def test_a_subgraph_has_the_operators_targets_and_mean_of_its_nodes(graph, train_N):
    sampler = Walk(graph, budget=15, walk=2)
    start = time.thread_time()
    subgraph = Maker(sampler, graph, train_N, ["gcn", "row"]).draw(3, 5)
    assert subgraph.index == 5 and 0 < subgraph.seconds <= time.thread_time() - start and len(subgraph.blocks) == 1
    sample = sampler.sample(3, 5)
    assert subgraph.shapes == ((len(sample.node_m),) * 2,)
    np.testing.assert_array_equal(subgraph.node_m, sample.node_m)
    np.testing.assert_array_equal(subgraph.node_m[subgraph.target_t], sample.node_m[train_N[sample.node_m]])
    np.testing.assert_allclose(subgraph.weight_t, 1 / len(subgraph.target_t))
    assert subgraph.weight_t.dtype == np.float64
    made = operators(graph_arrays(graph), sample.node_m, sample.patterns[0], ["gcn", "row"])
    for how in ("gcn", "row"):
        np.testing.assert_array_equal(subgraph.blocks[0][how].A.values, made[how].A.values)


def test_coefficients_divide_losses_and_values_and_take_the_degrees_of_the_graph(graph, train_N):
    lambda_N = np.arange(1.0, 41.0)
    alpha_E = np.linspace(0.1, 1, graph.nnz, dtype=np.float32)
    sampler = Walk(graph, budget=15)
    sample = sampler.sample(0, 0)
    full = Maker(sampler, graph, train_N, ["row"], np.float64, Coefficients(lambda_N, alpha_E)).draw(0, 0)
    node_t = full.node_m[full.target_t]
    np.testing.assert_allclose(full.weight_t, 1 / lambda_N[node_t], rtol=1e-6)
    expected = operators(
        graph_arrays(graph), sample.node_m, sample.patterns[0], ["row"], np.float64, alpha_E, is_full=True
    )["row"]
    np.testing.assert_array_equal(full.blocks[0]["row"].A.values, expected.A.values)
    own = Maker(sampler, graph, train_N, ["row"], coefficients=Coefficients(lambda_N, None)).draw(0, 0)
    np.testing.assert_array_equal(own.weight_t, full.weight_t)
    np.testing.assert_allclose(np.add.reduceat(own.blocks[0]["row"].A.values, own.blocks[0]["row"].A.indptr[:-1])[0], 1)


def test_blocks_have_an_operator_for_each_layer_and_the_loss_of_their_targets(graph):
    train_N = np.zeros(40, bool)
    train_N[[1, 5]] = True
    subgraph = Maker(Blocks(), graph, train_N, ["gcn"]).draw(0, 0)
    assert subgraph.shapes == ((6, 9), (3, 6)) and len(subgraph.blocks) == 2
    assert subgraph.target_t.tolist() == [1] and subgraph.weight_t.tolist() == [1]
    np.testing.assert_array_equal(subgraph.blocks[1]["gcn"].A.indices, [0, 1, 2])
    train_N[1] = False
    assert len(Maker(Blocks(), graph, train_N, ["gcn"]).draw(0, 0).target_t) == 0


def test_the_whole_graph_is_made_once(graph, train_N):
    maker = Maker(Whole(graph), graph, train_N, ["gcn"])
    first, second = maker.draw(0, 0), maker.draw(1, 7)
    assert first.blocks is second.blocks and second.index == 7
    np.testing.assert_array_equal(first.node_m, np.arange(40))
    np.testing.assert_array_equal(first.blocks[0]["gcn"].A.values, graph.normalise("gcn").data)


def test_what_does_not_fit_is_refused(graph, train_N):
    sampler = Walk(graph, budget=15)
    with pytest.raises(ShapeError, match=r"expected bool \(40,\)"):
        Maker(sampler, graph, train_N[:-1], ["gcn"])
    with pytest.raises(UsageError, match="not normalised by how often"):
        Maker(Blocks(), graph, train_N, ["gcn"], coefficients=Coefficients(np.ones(40), None))
    with pytest.raises(UsageError, match="float32 or float64"):
        Maker(sampler, graph, train_N, ["gcn"], np.int32)


def test_samplers_are_made_by_name_with_their_options(graph):
    assert {"node", "edge", "walk", "cluster", "none"} <= set(SAMPLERS)
    walk = make_sampler("walk", graph, {"budget": 30, "walk": 4})
    assert (walk.name, walk.steps, walk.roots) == ("walk", 4, 6)
    assert SAMPLERS["walk"].options == {"budget": 8000, "walk": 2}
    with pytest.raises(UsageError, match="sampler 'wlak' is not known; did you mean 'walk'"):
        make_sampler("wlak", graph)
    with pytest.raises(UsageError, match="sampler 'node' has no option 'walk'"):
        make_sampler("node", graph, {"walk": 2})
    with pytest.raises(UsageError, match="sampler 'none' has no option 'budget'; it has none"):
        make_sampler("none", graph, {"budget": 2})
    with pytest.raises(UsageError, match="built in"):
        register("walk", Walk)


@pytest.mark.parametrize("name, options, message", [
    ("node", {"budget": 0}, "budget = 0; expected an integer of 1 or more"), ("edge", {"budget": 2.5}, "budget = 2.5"),
    ("walk", {"walk": -1}, "walk = -1"), ("walk", {"budget": 2}, "walks of 2 steps need 3 or more"),
    ("cluster", {"clusters": 41}, "clusters = 41; the graph has 40 nodes"), ("cluster", {"batch": 0}, "batch = 0"),
])  # fmt: skip
def test_options_out_of_range_are_refused(graph, name, options, message):
    with pytest.raises(UsageError, match=message):
        make_sampler(name, graph, options)


@pytest.mark.parametrize("name, of", [("edge", "no-edges"), ("walk", "empty"), ("node", "empty")])
def test_graphs_with_nothing_to_draw_are_refused(name, of):
    graph = GRAPHS["no-edges"] if of == "no-edges" else spgnn.graph_from_coo([], [], 0)
    with pytest.raises(spgnn.SpgnnError, match="has no|is zero"):
        make_sampler(name, graph)


def registered(f, name="users"):
    spgnn.sampler(name)(f)
    return name


def test_a_users_sampler_draws_from_seed_and_index_alone(graph, train_N):
    def some(graph, rng, *, budget=10):
        return rng.integers(0, graph.n_nodes, budget)

    sampler = make_sampler(registered(some), graph, {"budget": 25})
    maker = Maker(sampler, graph, train_N, ["gcn"])
    check_same(maker.draw(4, 2), maker.draw(4, 2))
    assert not np.array_equal(sampler.nodes(4, 2), sampler.nodes(4, 3))
    assert not np.array_equal(sampler.nodes(4, 2), sampler.nodes(5, 2))
    assert (np.diff(sampler.nodes(4, 2)) > 0).all()
    with pytest.raises(UsageError, match="no option 'bugdet'; did you mean 'budget'"):
        make_sampler("users", graph, {"bugdet": 2})


@pytest.mark.parametrize("result, message", [
    (lambda graph: [3, 40], "sampler 'users', subgraph 6: node 40 is not one of 0 to 39"),
    (lambda graph: np.array([[-1, 2]]), "node -1 is not one of 0 to 39"),
    (lambda graph: [0.5], "nodes of float64; expected integers"),
    (lambda graph: np.zeros(40, bool), "nodes of bool; expected integers"),
    (lambda graph: 1 // 0, "sampler 'users', subgraph 6: ZeroDivisionError"),
])  # fmt: skip
def test_a_users_sampler_that_fails_or_returns_no_nodes_is_named(graph, result, message):
    sampler = make_sampler(registered(lambda graph, rng: result(graph)), graph)
    with pytest.raises(SamplerError, match=message):
        sampler.sample(0, 6)


def test_a_users_sampler_that_returns_nothing_makes_an_empty_subgraph(graph, train_N):
    subgraph = Maker(make_sampler(registered(lambda graph, rng: []), graph), graph, train_N, ["gcn"]).draw(0, 0)
    assert subgraph.shapes == ((0, 0),) and len(subgraph.target_t) == len(subgraph.weight_t) == 0
