"""The frontier sampler draws as Algorithm 2 does.

Each statistic has a wrong sampler beside it, which must fail it: a test that cannot fail holds nothing.
"""

import numpy as np
import pytest
from graphs import random_graph
from scipy.stats import chisquare, norm
from scripts import script
from small_graphs import with_hub

from spgnn.errors import UsageError
from spgnn.graph import graph_from_coo
from spgnn.samplers.node_samplers import Frontier

RIGHT, WRONG = 1e-4, 1e-9


def clique_with_pendants(clique=40, pendants=160):
    """A frontier that starts on pendants, of degree 1, moves on to nodes of degree 43: the Dashboard grows."""
    a, b = np.triu_indices(clique, 1)
    pendant = np.arange(clique, clique + pendants)
    return graph_from_coo(np.r_[a, pendant], np.r_[b, pendant % clique], clique + pendants).with_edges("undirected")


GRAPHS = {
    "undirected": random_graph(use="undirected", seed=1),
    "directed": random_graph(),  # with nodes that read no other, an isolated one and self-loops
    "hub": with_hub(100),
    "hub-directed": with_hub(100, use="directed"),
    "pendants": clique_with_pendants(),
}


def algorithm_2(indptr, indices, budget: int, frontier: int, rng: np.random.Generator) -> list[int]:
    """The first frontier and the popped nodes in their order. Source: GraphSAINT (Zeng et al. 2021), Algorithm 2."""
    FS = [int(v) for v in rng.choice(len(indptr) - 1, frontier, replace=False)]  # 1
    V = list(FS)  # 2
    for _ in range(budget - frontier):  # 3
        degrees = [indptr[v + 1] - indptr[v] for v in FS]
        if sum(degrees) == 0:
            break
        slot = rng.choice(frontier, p=np.array(degrees) / sum(degrees))  # 4
        u = FS[slot]
        FS[slot] = int(indices[indptr[u] + rng.integers(degrees[slot])])  # 5, 6
        V.append(u)  # 7
    return V


def degrees_of(graph):
    return np.diff(graph.A.indptr)


def traces_of(walks, steps):
    """(R, M) first frontiers, (R, steps) slots and new nodes, -1 after an early end."""
    slot_Rs, node_Rs = (np.full((len(walks), steps), -1) for _ in range(2))
    for index, (_, slots, nodes, *_) in enumerate(walks):
        slot_Rs[index, : len(slots)], node_Rs[index, : len(nodes)] = slots, nodes
    return np.array([start for start, *_ in walks]), slot_Rs, node_Rs


def wrong_traces(graph, M, steps, count, seed=0):
    """A sampler that pops any slot with neighbours, whatever the degree, and prefers neighbours of low id."""
    rng, degree_N, A = np.random.default_rng(seed), degrees_of(graph), graph.A
    start_RM = np.array([rng.choice(graph.n_nodes, M, replace=False) for _ in range(count)])
    slot_Rs, node_Rs = (np.full((count, steps), -1) for _ in range(2))
    for FS_M, slots, nodes in zip(start_RM.copy(), slot_Rs, node_Rs):
        for step in range(steps):
            if not degree_N[FS_M].any():
                break
            slots[step] = slot = rng.choice(np.flatnonzero(degree_N[FS_M]))
            u = FS_M[slot]
            nodes[step] = FS_M[slot] = A.indices[A.indptr[u] + rng.integers(degree_N[u]) * rng.integers(2)]
    return start_RM, slot_Rs, node_Rs


def replay(graph, traces, seed=0):
    """Probability integral transforms of the pops under deg / sum of deg, slots in order of degree, and of the
    neighbours under the uniform distribution: both uniform on [0, 1]."""
    start_RM, slot_Rs, node_Rs = traces
    rng, degree_N, A = np.random.default_rng(seed), degrees_of(graph), graph.A
    FS_RM, rows = start_RM.copy(), np.arange(len(start_RM))
    pops, neighbours = [], []
    for slot_R, node_R in zip(slot_Rs.T, node_Rs.T):
        goes_on = slot_R >= 0
        weight_RM = degree_N[FS_RM]
        assert not weight_RM[~goes_on].any(), "a frontier with neighbours ended early"
        R, slot, node = rows[goes_on], slot_R[goes_on], node_R[goes_on]
        by_degree = np.argsort(weight_RM[R], axis=1, kind="stable")
        ends = np.cumsum(np.take_along_axis(weight_RM[R], by_degree, 1), axis=1)
        end = ends[np.arange(len(R)), np.argmax(by_degree == slot[:, None], axis=1)]
        u, degree = FS_RM[R, slot], weight_RM[R, slot]
        assert (degree > 0).all(), "a node without neighbours was popped"
        pops.append((end - degree * rng.random(len(R))) / ends[:, -1])
        place = np.array([np.searchsorted(A.indices[A.indptr[v] : A.indptr[v + 1]], w) for v, w in zip(u, node)], int)
        found = A.indices[np.minimum(A.indptr[u] + place, A.nnz - 1)]
        assert (place < degree).all() and (found == node).all(), "a new node is no neighbour of the popped one"
        neighbours.append((place + rng.random(len(R))) / degree)
        FS_RM[R, slot] = node
    return np.concatenate(pops), np.concatenate(neighbours)


def p_uniform(values):
    return chisquare(np.histogram(values, 20, (0, 1))[0]).pvalue


def p_same(a, b):
    """Two samples of draws have the same inclusion of every node and pair: the least p, times their number."""
    (p, n), (q, m) = ((x.mean(0), len(x)) for x in (a, b))
    pool = (n * p + m * q) / (n + m)
    varies = (pool > 0) & (pool < 1)
    z = np.abs(p - q)[varies] / np.sqrt(pool * (1 - pool) * (1 / n + 1 / m))[varies]
    return min(1.0, 2 * norm.sf(z.max()) * varies.sum())


def inclusion(draws, N):
    """(R, N + pairs) whether a draw has a node, and two nodes that follow each other by id."""
    has = np.zeros((len(draws), N), bool)
    for row, nodes in zip(has, draws):
        row[nodes] = True
    return np.hstack([has, has & np.roll(has, 1, axis=1)])


@pytest.mark.parametrize("name", GRAPHS)
def test_pops_follow_degrees_and_neighbours_are_uniform(name):
    graph, M = GRAPHS[name], 50 if name == "pendants" else 12
    sampler = Frontier(graph, budget=M + 80, frontier=M)
    pops, neighbours = replay(graph, traces_of([sampler.trace(0, index) for index in range(120)], 80))
    assert p_uniform(pops) > RIGHT and p_uniform(neighbours) > RIGHT


@pytest.mark.parametrize("name", ["undirected", "hub", "pendants"])
def test_a_sampler_that_ignores_degrees_is_found(name):
    pops, neighbours = replay(GRAPHS[name], wrong_traces(GRAPHS[name], 12, 80, 120))
    assert p_uniform(pops) < WRONG and p_uniform(neighbours) < WRONG


def test_first_frontiers_are_uniform_sets():
    graph = random_graph(n=7, edges=20)
    sampler = Frontier(graph, budget=3, frontier=3)
    drawn = [tuple(sorted(sampler.draw(0, index))) for index in range(3500)]
    counts = np.unique(np.array(drawn), axis=0, return_counts=True)[1]
    assert all(len(set(nodes)) == 3 for nodes in drawn) and len(counts) == 35 and chisquare(counts).pvalue > RIGHT


@pytest.fixture(scope="module")
def plain():
    graph, rng = GRAPHS["hub"], np.random.default_rng(5)
    return inclusion([algorithm_2(graph.A.indptr, graph.A.indices, 20, 6, rng) for _ in range(1200)], 100)


@pytest.mark.slow
def test_nodes_are_as_often_in_a_draw_as_with_algorithm_2(plain):
    graph = GRAPHS["hub"]
    sampler = Frontier(graph, budget=20, frontier=6)
    assert p_same(inclusion([sampler.draw(3, index) for index in range(6000)], 100), plain) > RIGHT
    rng = np.random.default_rng(6)
    in_numpy = script("bench/sampling").algorithm_2_numpy
    numpy_draws = [in_numpy(graph.A.indptr, graph.A.indices, 20, 6, rng) for _ in range(1200)]
    assert p_same(inclusion(numpy_draws, 100), plain) > RIGHT


def test_a_draw_is_the_first_frontier_and_the_popped_nodes():
    sampler = Frontier(GRAPHS["hub"], budget=50, frontier=10)
    start_M, slot_s, node_s = sampler.trace(2, 3)
    popped, FS = [], list(start_M)
    for slot, node in zip(slot_s, node_s):
        popped.append(FS[slot])
        FS[slot] = node
    assert sampler.draw(2, 3).tolist() == [*start_M, *popped]
    assert sampler.nodes(2, 3).tolist() == sorted({*start_M, *popped})


def test_a_frontier_without_neighbours_ends_the_draw():
    chain = graph_from_coo([0, 1, 2], [1, 2, 3], 6).with_edges("directed")  # 3, 4 and 5 read no node
    sampler = Frontier(chain, budget=100, frontier=6)
    _, slot_s, _ = sampler.trace(0, 0)
    assert len(slot_s) == 3 + 2 + 1
    assert sorted(set(sampler.draw(0, 0))) == [0, 1, 2, 3, 4, 5]
    edgeless = graph_from_coo([], [], 5)
    assert sorted(Frontier(edgeless, budget=9, frontier=5).draw(0, 0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options, message", [
    ({"frontier": 41, "budget": 50}, "frontier = 41; .* has 40 nodes"),
    ({"frontier": 10, "budget": 9}, "frontier = 10 with budget = 9; expected a budget"),
    ({"frontier": 0, "budget": 9}, "frontier = 0; expected an integer of 1 or more"),
    ({"frontier": 5, "budget": 9.5}, "budget = 9.5"),
])  # fmt: skip
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Frontier(random_graph(), **options)
