"""Regions cut anew: counts against counting from the matrix, and what is kept."""

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.graph import graph_from_coo
from spgnn.partition import cover_PP, part_graph, rows_PP
from spgnn.partition.recut import FEWEST, MOST, SLACK, _State, cost, recut

from graphs import random_graph


def state_of(graph, k, *, balance=1.3, send=True, receive=False, seed=0):
    A = graph.in_use().A
    owner_N = np.random.default_rng(seed).permutation(np.arange(A.shape[0]) % k)
    return A, _State(A, owner_N, k, balance, send, receive)


@pytest.mark.parametrize("use", ["directed", "undirected", "reversed"])
@pytest.mark.parametrize("held", [(True, False), (False, True), (True, True), (False, False)])
def test_counts_follow_every_cut_and_the_cost_never_rises(use, held):
    changed = 0
    for seed in range(8):
        k = 2 + seed
        A, state = state_of(random_graph(120, 300, seed=seed, use=use), k, send=held[0], receive=held[1], seed=seed)
        rng, before = np.random.default_rng(seed), np.inf
        for _ in range(6):
            was = state.owner_N
            state.cut(state.region(rng), rng)
            rows = rows_PP(A, state.owner_N, k)
            np.testing.assert_array_equal(state.rows_kk, rows)
            np.testing.assert_array_equal(state.sums, [rows.sum(1), rows.sum(0)])
            now = cost(rows, send=held[0], receive=held[1])
            assert now <= before
            before, changed = now, changed + bool(np.any(was != state.owner_N))
            if np.any(was != state.owner_N):
                region = np.unique(state.owner_N[was != state.owner_N])
                assert np.bincount(state.owner_N, weights=state.work_N)[region].max() <= state.most_work
    assert changed >= 8


def test_the_cost_is_that_of_what_is_held():
    rows_kk = np.array([[0, 3], [1, 0]])
    costs = [cost(rows_kk, send=send, receive=receive) for send, receive in ((True, False), (False, True), (True, True), (False, False))]
    assert costs == [3**8 + 1, 3**8 + 1, 2 * (3**8 + 1), 4]
    assert cost(np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]]), send=True, receive=False) == 2**8
    assert cost(np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]]), send=False, receive=True) == 2


def test_a_region_is_of_parts_that_border_on_each_other():
    ring = graph_from_coo(np.arange(60), (np.arange(60) + 1) % 60, 60)
    A = ring.in_use().A
    state = _State(A, np.arange(60) // 6, 10, 1.03, True, False)
    rng, sizes = np.random.default_rng(0), set()
    for _ in range(100):
        region = state.region(rng)
        sizes.add(len(region))
        assert len(set(region.tolist())) == len(region)
        inside = sorted(region.tolist())
        gaps = np.diff([*inside, inside[0] + 10])
        assert np.count_nonzero(gaps != 1) == 1, "one stretch of the ring"
    assert sizes == set(range(FEWEST, MOST + 1))


@pytest.mark.parametrize("m", [2, 3, 5])
def test_shares_add_up_to_one_and_none_is_above_the_bound_where_that_can_be(m):
    _, state = state_of(random_graph(), 5)
    state.most_work = 103.0
    rng, smaller = np.random.default_rng(m), 0
    for _ in range(50):
        shares_m = state._shares(m, 100.0 * m, rng)
        assert shares_m.sum() == pytest.approx(1) and shares_m.max() <= SLACK * 1.03 / m + 1e-9
        smaller += shares_m[0] < 0.99 / m
    assert 5 <= smaller <= 25
    assert state._shares(m, 104.0 * m, rng) == pytest.approx(np.full(m, 1 / m)), "too heavy for the bound: alike"


def test_parts_between_which_nothing_travels_stay():
    A = graph_from_coo([0, 2], [1, 3], 4).in_use().A
    owner_N = np.array([0, 0, 1, 1], np.int32)
    np.testing.assert_array_equal(recut(A, owner_N, 2, seed=0, balance=1.03, rounds=5, send=True, receive=False), owner_N)


@pytest.mark.slow
def test_the_largest_send_of_a_mesh_is_below_that_of_metis_and_the_same_for_a_seed():
    graph = load_graph("grid:rows=100,cols=100")
    k = 9
    start = part_graph(graph, k, "metis", objective="vol").metrics
    part = part_graph(graph, k, "volume")
    np.testing.assert_array_equal(part.owner_N, part_graph(graph, k, "volume").owner_N)
    assert part.metrics["total_rows"] < 1.03 * start["total_rows"] and part.metrics["max_send_rows"] < start["max_send_rows"]
    assert part.metrics["nnz_imbalance"] <= 1.03
    both = [part_graph(graph, k, "volume", effort=0.2, objective=objective).owner_N for objective in ("columns", "cover")]
    of_columns, of_cover = (cost(cover_PP(graph.in_use().A, owner_N, k), send=True, receive=False) for owner_N in both)
    assert of_cover <= of_columns
    for options in ({"send": False}, {"receive": True}, {"objective": "cover"}):
        part = part_graph(graph, k, "volume", effort=0.2, **options)
        assert part.metrics["nnz_imbalance"] <= 1.03 and part.metrics["total_rows"] < 1.1 * start["total_rows"]


@pytest.mark.slow
def test_more_rounds_send_less_on_a_mesh():
    graph = load_graph("grid:rows=100,cols=100")
    A = graph.in_use().A
    owner_N = part_graph(graph, 9, "metis").owner_N
    most = [rows_PP(A, recut(A, owner_N, 9, seed=0, balance=1.03, rounds=rounds, send=True, receive=False), 9).sum(1).max() for rounds in (0, 60)]
    assert most[1] < most[0]
