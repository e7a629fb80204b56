"""The partitioner `volume` where few rows travel: what is refined again, and which result is returned."""

from types import SimpleNamespace

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.partition import part_graph
from spgnn.partition.cover import cover_PP
from spgnn.partition.methods import volume
from spgnn.partition.methods.volume import NORM, OF_MEAN, cost
from spgnn.partition.metrics import rows_PP
from spgnn.partition.refine import _volume

K = 4
ROWS = 20


@pytest.fixture(scope="module")
def mesh():
    return load_graph(f"grid:rows={ROWS},cols={ROWS}")


@pytest.fixture
def refined(monkeypatch):
    """Return a list of (settings, start, result) of every refinement of nodes."""
    calls = []

    def refine(*args):
        calls.append((args[-1], args[4].copy(), _volume.refine(*args)[0]))
        return _volume.refine(*args)

    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine))
    return calls


def sends(graph, owner_N, rows_of=rows_PP):
    return cost(rows_of(graph.in_use().A, owner_N, K), send=True, receive=False)


QUARTERS = np.add.outer(2 * (np.arange(ROWS) >= ROWS // 2), np.arange(ROWS) >= ROWS // 2).ravel().astype(np.int32)
STRIPES = (np.arange(ROWS * ROWS) % ROWS * K // ROWS).astype(np.int32)
SHUFFLED = np.random.default_rng(0).permutation(STRIPES)
ONE_LARGE = np.zeros(ROWS * ROWS, np.int32)
ONE_LARGE[:3] = [1, 2, 3]


def test_where_few_rows_travel_the_start_is_refined_twice(mesh, refined, monkeypatch):
    part = part_graph(mesh, K, "volume", start="metis", minimise="largest")
    share = part.metrics["total_rows"] / mesh.n_nodes
    assert volume.FEW < share < volume.FEW_OF_SMALL and len(refined) == 2
    part_graph(load_graph("rmat:scale=8,degree=8,seed=0"), K, "volume", start="metis", minimise="largest")
    assert len(refined) == 3, "on a power-law graph nearly all rows travel"
    monkeypatch.setattr(volume, "SMALL", mesh.nnz - 1)
    part_graph(mesh, K, "volume", start="metis", minimise="largest")
    assert len(refined) == 4, "on a large graph these rows are many"
    monkeypatch.setattr(volume, "FEW", 2 * share)
    part_graph(mesh, K, "volume", start="metis", minimise="largest")
    assert len(refined) == 6


def test_a_small_graph_is_also_refined_less_evenly_for_time(mesh, refined, monkeypatch):
    part_graph(mesh, K, "volume", start="metis")
    assert [call[0].get("target") for call in refined] == [None, volume.LESS_EVEN["target"], None]
    monkeypatch.setattr(volume, "TINY", mesh.nnz - 1)
    part_graph(mesh, K, "volume", start="metis")
    assert len(refined) == 5


def test_for_time_no_more_rows_are_sent_than_by_the_first_start():
    graph = load_graph("rmat:scale=9,degree=2,seed=0")
    start, time, largest = (
        part_graph(graph, 40, method, **options).metrics["total_rows"]
        for method, options in (("metis", {"objective": "vol"}), ("volume", {}), ("volume", {"minimise": "largest"}))
    )
    assert time <= start < largest


@pytest.mark.parametrize(("most", "best"), [(6, 1), (7, 1), (9, 1), (10, 0)])
def test_where_all_results_send_more_rows_than_the_first_start_the_nearest_is_returned(mesh, most, best):
    sent = {0: np.array([[0, 5], [5, 0]]), 1: np.array([[0, 6], [1, 0]])}
    rows_of = lambda A, owner_N, k: sent[owner_N[0]]
    search = volume._Search(mesh, 2, 0, 1.03, volume.VolumeOptions())
    search.most_rows = {rows_of: most}
    owners = [np.arange(ROWS * ROWS) % 2, np.arange(1, ROWS * ROWS + 1) % 2]
    assert search._best(*owners, rows_of=rows_of) is owners[best]


def test_the_cost_is_nearly_the_largest_load_and_a_share_of_the_mean():
    rows_kk = np.array([[0, 3], [1, 0]])
    norm = lambda *loads: (np.array(loads, float) ** NORM).sum() ** (1 / NORM)
    held = [(True, False), (False, True), (True, True), (False, False)]
    costs = [cost(rows_kk, send=send, receive=receive) for send, receive in held]
    assert costs == pytest.approx(
        [norm(3, 1) + OF_MEAN * 2, norm(3, 1) + OF_MEAN * 2, norm(3, 1, 3, 1) + OF_MEAN * 2, OF_MEAN * 2]
    )
    rows_kk = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert cost(rows_kk, send=True, receive=False) == pytest.approx(2 + OF_MEAN * 2 / 3)
    assert cost(rows_kk, send=False, receive=True) == pytest.approx(norm(1, 1) + OF_MEAN * 2 / 3)
    assert cost(0 * rows_kk, send=True, receive=True) == 0
    assert np.isfinite(cost(rows_kk * 10**12, send=True, receive=True))


@pytest.mark.parametrize("graph", ["mesh", "rmat:scale=8,degree=8,seed=0"])
@pytest.mark.parametrize("objective", volume.OBJECTIVES)
def test_moves_that_lead_to_something_worse_are_undone(mesh, monkeypatch, graph, objective):
    graph = mesh if graph == "mesh" else load_graph(graph)
    start_N = part_graph(graph, K, "metis").owner_N
    shuffled_N = np.random.default_rng(0).permutation(start_N).astype(np.int32)
    monkeypatch.setattr(
        volume,
        "_volume",
        SimpleNamespace(refine=lambda *args: (shuffled_N, 100, 40), nets_of_covers=_volume.nets_of_covers),
    )
    np.testing.assert_array_equal(
        part_graph(graph, K, "volume", start=start_N, balance=1.5, objective=objective).owner_N, start_N
    )


@pytest.mark.parametrize("start_N", [STRIPES, SHUFFLED], ids=["stripes", "shuffled"])
@pytest.mark.parametrize("better", ["priced", "free"])
@pytest.mark.parametrize("other_N", [SHUFFLED, ONE_LARGE], ids=["worse", "too heavy"])
def test_the_better_refinement_within_the_balance_is_returned(mesh, monkeypatch, start_N, better, other_N):
    refine = lambda *args: (QUARTERS if args[-1]["send"] == (better == "priced") else other_N, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine))
    assert max(sends(mesh, QUARTERS), sends(mesh, ONE_LARGE)) < sends(mesh, STRIPES) < sends(mesh, SHUFFLED)
    np.testing.assert_array_equal(part_graph(mesh, K, "volume", start=start_N).owner_N, QUARTERS)


@pytest.mark.parametrize("moved_N", [QUARTERS, SHUFFLED], ids=["better", "worse"])
def test_moves_for_covers_are_undone_where_covers_grow(mesh, monkeypatch, moved_N):
    refine = lambda *args: (moved_N if args[-1].get("both") else STRIPES, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine, nets_of_covers=_volume.nets_of_covers))
    assert sends(mesh, QUARTERS, cover_PP) < sends(mesh, STRIPES, cover_PP) < sends(mesh, SHUFFLED, cover_PP)
    owner_N = part_graph(mesh, K, "volume", start=SHUFFLED, objective="cover").owner_N
    np.testing.assert_array_equal(owner_N, QUARTERS if moved_N is QUARTERS else STRIPES)


@pytest.mark.slow
def test_a_mesh_has_fewer_rows_than_the_cut_and_a_smaller_largest_send_than_metis():
    graph, k = load_graph("grid:rows=100,cols=100"), 9
    cut, vol = (part_graph(graph, k, "metis", objective=objective).metrics for objective in ("cut", "vol"))
    part = part_graph(graph, k, "volume")
    np.testing.assert_array_equal(part.owner_N, part_graph(graph, k, "volume").owner_N)
    assert part.metrics["max_send_rows"] < min(cut["max_send_rows"], vol["max_send_rows"])
    both = [
        part_graph(graph, k, "volume", effort=0.2, objective=of, start="metis").owner_N for of in ("columns", "cover")
    ]
    of_columns, of_cover = (cost(cover_PP(graph.in_use().A, owner_N, k), send=True, receive=False) for owner_N in both)
    assert of_cover <= of_columns
    for options in ({}, {"minimise": "total"}, {"receive": True}, {"objective": "cover"}):
        found = part_graph(graph, k, "volume", **options).metrics
        assert found["nnz_imbalance"] <= 1.03 and found["total_rows"] < cut["total_rows"]
