"""Regions cut anew: counts against counting from the matrix, and what is kept."""

from types import SimpleNamespace

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.graph import graph_from_coo
from spgnn.partition import _volume, cover_PP, part_graph, rows_PP
from spgnn.partition import recut as recut_module
from spgnn.partition.metis import kway, neighbours
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


def state_of_loads(rows_kk, *, send=True, receive=False):
    """A state whose parts send and read what rows_kk says."""
    k = len(rows_kk)
    state = _State(graph_from_coo([], [], k).in_use().A, np.arange(k), k, 1.03, send, receive)
    state.rows_kk = np.array(rows_kk)
    state.sums = [state.rows_kk.sum(1), state.rows_kk.sum(0)]
    return state


def test_the_first_part_of_a_region_is_drawn_by_its_load():
    # Parts 0 and 1 send 4 and 2 rows; 2 reads all.
    rows_kk = [[0, 0, 4], [0, 0, 2], [0, 0, 0]]
    share_of_first = lambda **held: np.mean([state_of_loads(rows_kk, **held).region(np.random.default_rng(seed))[0] == 0 for seed in range(300)])
    assert share_of_first() == pytest.approx(2**8 / (2**8 + 1), abs=0.02)
    assert share_of_first(send=False) == pytest.approx(2 / 3, abs=0.1)
    assert share_of_first(send=False, receive=True) == 0, "2 alone receives"


def test_neighbours_that_send_little_are_welcome():
    # 0 sends the most, to 1 and 2 alike; 1 sends nearly as much, 2 nothing.
    rows_kk = np.zeros((10, 10), int)
    rows_kk[0, 1:3] = 10
    rows_kk[1, 3:] = 2
    second = lambda **held: [state_of_loads(rows_kk, **held).region(np.random.default_rng(seed))[:2].tolist() for seed in range(600)]
    drawn = [pair[1] for pair in second() if pair[0] == 0]
    assert drawn.count(2) > 4 * drawn.count(1) > 0
    drawn = [pair[1] for pair in second(send=False) if pair[0] == 0]
    assert 0.7 < drawn.count(2) / drawn.count(1) < 1.4


def test_metis_gives_each_part_its_share():
    A = load_graph("grid:rows=40,cols=40").in_use().A
    shares_k = np.array([0.5, 0.3, 0.2])
    owner_N = kway("a grid", neighbours(A), 3, np.ones(1600, np.int64), seed=0, balance=1.01, shares_k=shares_k)
    np.testing.assert_allclose(np.bincount(owner_N) / 1600, shares_k, atol=0.01)


def test_a_region_goes_to_metis_with_shares_and_is_refined_beside_what_is_outside(monkeypatch):
    A = load_graph("grid:rows=30,cols=30").in_use().A
    state = _State(A, (np.arange(900) % 30) // 6, 5, 1.2, True, False)
    seen = []
    monkeypatch.setattr(recut_module, "kway", lambda *args, **options: seen.append(options) or kway(*args, **options))

    def refine(*args):
        *_, work, part, m, balance, _, _, _, settings = args
        assert m == 3 and part[-1] == 2 and part[:-1].max() == 1, "two parts of the region, and the outside"
        assert work[-1] > balance * work.sum() / m > work[:-1].sum() / 2, "none has room for the outside"
        assert settings["send"] in (True, False) and not settings["receive"]
        seen.append(_volume.refine(*args))
        return seen[-1]

    monkeypatch.setattr(recut_module, "_volume", SimpleNamespace(refine=refine))
    state.cut(np.array([1, 2]), np.random.default_rng(0))
    options, (part, _, _) = seen
    assert options["shares_k"].sum() == pytest.approx(1)
    np.testing.assert_array_equal(part[:-1], (state.owner_N[np.isin(state.owner_N, [1, 2])] == 2))


def test_a_cut_that_is_too_heavy_or_no_better_is_not_kept(monkeypatch):
    A = load_graph("grid:rows=20,cols=20").in_use().A
    stripes_N = (np.arange(400) % 20) // 5
    state = _State(A, stripes_N, 4, 1.03, True, False)
    rng, region = np.random.default_rng(0), np.array([1, 2])
    for part in (np.zeros(200, int), np.arange(200) % 2):  # nothing travels inside; everything does
        monkeypatch.setattr(state, "_refined", lambda *_, part=part: part)
        state.cut(region, rng)
        np.testing.assert_array_equal(state.owner_N, stripes_N)
    monkeypatch.setattr(state, "_refined", lambda *_: (np.arange(200) % 10 < 5).astype(int))
    state.cut(region, rng)
    assert np.any(state.owner_N != stripes_N), "1 and 2 changed their names, at the same cost"
    monkeypatch.setattr(recut_module, "kway", lambda *_, **__: pytest.fail("a region that is too heavy for any cut"))
    state.most_work = 0.99 * state.work_N[np.isin(state.owner_N, region)].sum() / 2
    state.cut(region, rng)


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
