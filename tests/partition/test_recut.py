"""Borders drawn by flows and regions cut anew: counts against counting from the matrix, and what is kept."""

from types import SimpleNamespace

import numpy as np
import pytest
from graphs import random_graph

from spgnn.data import load_graph
from spgnn.graph import graph_from_coo
from spgnn.partition import part_graph
from spgnn.partition.cover import cover_PP
from spgnn.partition.methods import recut as recut_module
from spgnn.partition.methods.metis import kway, neighbours
from spgnn.partition.methods.recut import CORRIDOR, FEWEST, MOST, NORM, OF_MEAN, SLACK, _State, cost, recut
from spgnn.partition.metrics import rows_PP
from spgnn.partition.refine import _volume

HELD = [(True, False), (False, True), (True, True), (False, False)]


def state_of(graph, k, *, balance=1.3, send=True, receive=False, seed=0):
    A = graph.in_use().A
    owner_N = np.random.default_rng(seed).permutation(np.arange(A.shape[0]) % k)
    return A, _State(A, owner_N, k, seed, balance, send, receive)


def check_counts(A, state):
    """The rows that are kept equal those counted anew, the cost that of this module; return it."""
    owner_N = state.borders.owner()
    rows_kk = rows_PP(A, owner_N, state.k)
    np.testing.assert_array_equal(state.borders.rows(), rows_kk)
    assert np.bincount(owner_N, minlength=state.k).all(), "no part is empty"
    assert state.borders.cost() == pytest.approx(cost(rows_kk, **state.held), rel=1e-12)
    return state.borders.cost()


@pytest.mark.parametrize("use", ["directed", "undirected", "reversed"])
@pytest.mark.parametrize("held", HELD)
def test_counts_follow_every_cut_and_the_cost_never_rises(use, held):
    changed = 0
    for seed in range(8):
        k = 2 + seed
        A, state = state_of(random_graph(120, 300, seed=seed, use=use), k, send=held[0], receive=held[1], seed=seed)
        rng, before = np.random.default_rng(seed), check_counts(A, state)
        for _ in range(6):
            was = state.borders.owner()
            is_kept = state.cut(region := state.region(rng), rng)
            owner_N, now = state.borders.owner(), check_counts(A, state)
            assert now <= before and (is_kept or np.array_equal(owner_N, was))
            assert np.all(np.isin(was[owner_N != was], region)), "nodes of other parts stay"
            if is_kept:
                assert np.bincount(owner_N, weights=state.work_N)[region].max() <= state.most_work
            before, changed = now, changed + is_kept
    assert changed >= 8


@pytest.mark.parametrize("held", HELD)
def test_flows_draw_all_borders_within_the_work_at_no_higher_cost(held):
    for seed, use in enumerate(("directed", "undirected", "reversed") * 3):
        A, state = state_of(
            random_graph(150, 250, seed=seed, use=use), 2 + seed, send=held[0], receive=held[1], seed=seed
        )
        before = check_counts(A, state)
        state.borders.refine(list(range(state.k)), 3, 0.2, 0.8)
        assert check_counts(A, state) < before
        assert np.bincount(state.borders.owner(), weights=state.work_N).max() <= state.most_work


def test_no_border_that_is_drawn_raises_the_cost():
    drawn = 0
    for seed in range(6):
        A, state = state_of(random_graph(150, 250, seed=seed, use="undirected"), 6, seed=seed)
        before = state.borders.cost()
        for a, b in [(a, b) for _ in range(3) for a in range(6) for b in range(a)]:
            state.borders.refine([a, b], 1, 0.2, 0.8)
            assert (now := state.borders.cost()) <= before
            before, drawn = now, drawn + (now < before)
    assert drawn > 50


def test_flows_straighten_the_border_of_two_halves_of_a_grid():
    A = load_graph("grid:rows=20,cols=20").in_use().A
    row, column = np.divmod(np.arange(400), 20)
    jagged_N = (column + row % 3 >= 11).astype(np.int32)
    state = _State(A, jagged_N, 2, 0, 1.03, True, False)
    assert state.borders.rows().sum() > 50
    state.borders.refine([0, 1], 8, *CORRIDOR)
    assert state.borders.rows().sum() <= 42, "a straight border sends 20 rows either way"
    drawn_N = recut(A, jagged_N, 2, seed=0, balance=1.03, rounds=0, send=True, receive=False)
    assert rows_PP(A, drawn_N, 2).sum() < rows_PP(A, jagged_N, 2).sum(), "before any region is cut"


def test_a_region_that_is_given_worse_parts_and_cannot_mend_them_stays():
    A = load_graph("grid:rows=10,cols=40").in_use().A
    stripes_N = (np.arange(400) % 40 // 10).astype(np.int32)
    state = _State(A, stripes_N, 4, 0, 1.03, True, False)
    nodes = np.flatnonzero(stripes_N < 2).astype(np.int32)
    for to in (np.arange(200) % 2, np.zeros(200)):  # everything travels; one part is empty, the other too heavy
        assert not state.borders.recut([0, 1], nodes, to.astype(np.int32), 0, *CORRIDOR)
        np.testing.assert_array_equal(state.borders.owner(), stripes_N)
        check_counts(A, state)
    roomy = _State(A, stripes_N, 4, 0, 3.0, True, False)
    assert not roomy.borders.recut([0, 1], nodes, np.zeros(200, np.int32), 0, *CORRIDOR), (
        "no part may be empty, cheap as that is"
    )
    assert state.borders.recut([0, 1], nodes, 1 - stripes_N[nodes], 0, *CORRIDOR), (
        "0 and 1 change their names, at the same cost"
    )
    np.testing.assert_array_equal(state.borders.owner()[nodes], 1 - stripes_N[nodes])


def test_the_cost_is_that_of_what_is_held():
    rows_kk = np.array([[0, 3], [1, 0]])
    norm = lambda *loads: (np.array(loads, float) ** NORM).sum() ** (1 / NORM)
    costs = [cost(rows_kk, send=send, receive=receive) for send, receive in HELD]
    assert costs == pytest.approx(
        [norm(3, 1) + OF_MEAN * 2, norm(3, 1) + OF_MEAN * 2, norm(3, 1, 3, 1) + OF_MEAN * 2, OF_MEAN * 2]
    )
    rows_kk = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert cost(rows_kk, send=True, receive=False) == pytest.approx(2 + OF_MEAN * 2 / 3)
    assert cost(rows_kk, send=False, receive=True) == pytest.approx(norm(1, 1) + OF_MEAN * 2 / 3)
    assert cost(0 * rows_kk, send=True, receive=True) == 0
    assert np.isfinite(cost(rows_kk * 10**12, send=True, receive=True))


def test_a_region_is_of_parts_that_border_on_each_other():
    ring = graph_from_coo(np.arange(60), (np.arange(60) + 1) % 60, 60)
    A = ring.in_use().A
    state = _State(A, np.arange(60) // 6, 10, 0, 1.03, True, False)
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
    state = _State(graph_from_coo([], [], k).in_use().A, np.arange(k), k, 0, 1.03, send, receive)
    state.borders = SimpleNamespace(rows=lambda: np.array(rows_kk))
    return state


def test_the_first_part_of_a_region_is_drawn_by_its_load():
    # Parts 0 and 1 send 4 and 2 rows; 2 reads all.
    rows_kk = [[0, 0, 4], [0, 0, 2], [0, 0, 0]]
    share_of_first = lambda **held: np.mean(
        [state_of_loads(rows_kk, **held).region(np.random.default_rng(seed))[0] == 0 for seed in range(300)]
    )
    assert share_of_first() == pytest.approx(2**8 / (2**8 + 1), abs=0.02)
    assert share_of_first(send=False) == pytest.approx(2 / 3, abs=0.1)
    assert share_of_first(send=False, receive=True) == 0, "2 alone receives"


def test_neighbours_that_send_little_are_welcome():
    # 0 sends the most, to 1 and 2 alike; 1 sends nearly as much, 2 nothing.
    rows_kk = np.zeros((10, 10), int)
    rows_kk[0, 1:3] = 10
    rows_kk[1, 3:] = 2
    second = lambda **held: [
        state_of_loads(rows_kk, **held).region(np.random.default_rng(seed))[:2].tolist() for seed in range(600)
    ]
    drawn = [pair[1] for pair in second() if pair[0] == 0]
    assert drawn.count(2) > 4 * drawn.count(1) > 0
    drawn = [pair[1] for pair in second(send=False) if pair[0] == 0]
    assert 0.7 < drawn.count(2) / drawn.count(1) < 1.4


def test_metis_gives_each_part_its_share():
    A = load_graph("grid:rows=40,cols=40").in_use().A
    shares_k = np.array([0.5, 0.3, 0.2])
    owner_N = kway("a grid", neighbours(A), 3, np.ones(1600, np.int64), seed=0, balance=1.01, shares_k=shares_k)
    np.testing.assert_allclose(np.bincount(owner_N) / 1600, shares_k, atol=0.01)


class Draws:
    """A random number generator whose coins fall as told."""

    def __init__(self, *coins):
        self.coins, self.others = list(coins), np.random.default_rng(0)

    def integers(self, *args):
        return self.coins.pop(0) if args == (2,) else self.others.integers(*args)

    def __getattr__(self, name):
        return getattr(self.others, name)


@pytest.mark.parametrize(
    ("coins", "means"), [((1, 0, 0), ["metis"]), ((1, 1, 1, 0), ["metis", "moves"]), ((0, 1), ["moves"])]
)
def test_a_region_is_cut_by_metis_or_moved_beside_what_is_outside_or_both(monkeypatch, coins, means):
    A = load_graph("grid:rows=30,cols=30").in_use().A
    owner_N = (np.arange(900) % 30) // 6
    state = _State(A, owner_N, 5, 0, 1.2, True, False)
    seen, parts = [], []

    def cut(*args, **options):
        assert options["shares_k"].sum() == pytest.approx(1)
        seen.append("metis")
        parts.append(kway(*args, **options))
        return parts[-1]

    def refine(*args):
        *_, work, part, m, balance, _, _, _, settings = args
        assert m == 3 and part[-1] == 2 and part[:-1].max() == 1, "two parts of the region, and the outside"
        assert work[-1] > balance * work.sum() / m > work[:-1].sum() / 2, "none has room for the outside"
        assert settings["send"] in (True, False) and not settings["receive"]
        np.testing.assert_array_equal(part[:-1], parts[-1] if parts else owner_N[np.isin(owner_N, [1, 2])] - 1)
        seen.append("moves")
        result = _volume.refine(*args)
        parts.append(result[0][:-1])
        return result

    monkeypatch.setattr(recut_module, "kway", cut)
    monkeypatch.setattr(recut_module, "_volume", SimpleNamespace(refine=refine))
    to = []
    monkeypatch.setattr(
        state, "borders", SimpleNamespace(owner=lambda: owner_N.astype(np.int32), recut=lambda *args: to.append(args))
    )
    state.cut(np.array([1, 2], np.int32), Draws(*coins))
    ((region, nodes, given, passes, *corridor),) = to
    assert seen == means and region == [1, 2] and passes == recut_module.PASSES and tuple(corridor) == CORRIDOR
    np.testing.assert_array_equal(nodes, np.flatnonzero(np.isin(owner_N, [1, 2])))
    np.testing.assert_array_equal(given, 1 + parts[-1])


def test_a_region_that_is_too_heavy_for_any_cut_stays(monkeypatch):
    A, state = state_of(load_graph("grid:rows=20,cols=20"), 4)
    region, was = np.array([1, 2], np.int32), state.borders.owner()
    monkeypatch.setattr(recut_module, "kway", lambda *_, **__: pytest.fail("it was cut"))
    monkeypatch.setattr(state, "_moved", lambda *_: pytest.fail("it was moved"))
    state.most_work = 0.99 * state.work_N[np.isin(was, region)].sum() / 2
    assert not state.cut(region, np.random.default_rng(0))
    np.testing.assert_array_equal(state.borders.owner(), was)


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
    np.testing.assert_array_equal(
        recut(A, owner_N, 2, seed=0, balance=1.03, rounds=5, send=True, receive=False), owner_N
    )


@pytest.mark.parametrize(
    ("costs", "rounds", "cut"),
    [
        ([9.0] * 50, 30, 8),
        ([9.0 - 0.1 * i for i in range(50)], 30, 30),
        ([9.0, 9.0, 5.0] + [5.0] * 40, 30, 10),
        ([9.0], 0, 0),
    ],
)
def test_regions_are_cut_until_so_many_gain_nothing(monkeypatch, costs, rounds, cut):
    A = load_graph("grid:rows=10,cols=10").in_use().A
    calls = []
    monkeypatch.setattr(_State, "cut", lambda *_: calls.append(1))

    class Costs:
        def __init__(self, borders):
            self.borders = borders

        def __getattr__(self, name):
            return getattr(self.borders, name)

        def cost(self):
            return costs[len(calls)]

    made = recut_module._flow.Borders
    monkeypatch.setattr(
        recut_module, "_flow", SimpleNamespace(Borders=lambda *args, **options: Costs(made(*args, **options)))
    )
    recut(A, np.arange(100) // 50, 2, seed=0, balance=1.1, rounds=rounds, send=True, receive=False)
    assert len(calls) == cut


@pytest.mark.slow
def test_the_largest_send_of_a_mesh_is_below_that_of_metis_and_the_same_for_a_seed():
    graph = load_graph("grid:rows=100,cols=100")
    k = 9
    start = part_graph(graph, k, "metis", objective="vol").metrics
    part = part_graph(graph, k, "volume")
    np.testing.assert_array_equal(part.owner_N, part_graph(graph, k, "volume").owner_N)
    assert (
        part.metrics["total_rows"] < 1.03 * start["total_rows"]
        and part.metrics["max_send_rows"] < start["max_send_rows"]
    )
    assert part.metrics["nnz_imbalance"] <= 1.03
    both = [
        part_graph(graph, k, "volume", effort=0.2, objective=objective).owner_N for objective in ("columns", "cover")
    ]
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
    most = [
        rows_PP(A, recut(A, owner_N, 9, seed=0, balance=1.03, rounds=rounds, send=True, receive=False), 9).sum(1).max()
        for rounds in (0, 60)
    ]
    assert most[1] < most[0]
