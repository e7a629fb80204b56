"""The partitioner `volume` where few rows travel: what is cut anew, from which starts, and what is returned."""

from types import SimpleNamespace

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.partition import part_graph
from spgnn.partition.cover import cover_PP
from spgnn.partition.methods import volume
from spgnn.partition.methods.recut import cost
from spgnn.partition.metrics import rows_PP
from spgnn.partition.refine import _volume

K = 4
ROWS = 20


@pytest.fixture(scope="module")
def mesh():
    return load_graph(f"grid:rows={ROWS},cols={ROWS}")


@pytest.fixture
def recuts(monkeypatch):
    """Return a list of (owner_N, rounds) with which regions were cut anew; nothing is cut, no border drawn."""
    calls = []
    monkeypatch.setattr(volume, "recut", lambda A, owner_N, *, rounds, **_: calls.append((owner_N, rounds)) or owner_N)
    return calls


def sends(graph, owner_N, rows_of=rows_PP):
    return cost(rows_of(graph.in_use().A, owner_N, K), send=True, receive=False)


QUARTERS = np.add.outer(2 * (np.arange(ROWS) >= ROWS // 2), np.arange(ROWS) >= ROWS // 2).ravel().astype(np.int32)
STRIPES = (np.arange(ROWS * ROWS) % ROWS * K // ROWS).astype(np.int32)
SHUFFLED = np.random.default_rng(0).permutation(STRIPES)
ONE_LARGE = np.zeros(ROWS * ROWS, np.int32)
ONE_LARGE[:3] = [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "changed", "rounds"),
    [
        ({}, {}, 4 * K),
        ({"effort": 0.5}, {}, 2 * K),
        ({"effort": 0.01}, {}, 1),
        ({}, {"MOST_ROUNDS": 10}, 10),
        ({"effort": 2}, {"MOST_ROUNDS": 10}, 20),
        ({}, {"MOST_NNZ": 380}, 4),  # a quarter of the nonzeros
    ],
)
def test_regions_are_cut_as_often_as_parts_effort_and_size_say(mesh, recuts, monkeypatch, options, changed, rounds):
    assert mesh.nnz == 1520
    for name, value in changed.items():
        monkeypatch.setattr(volume, name, value)
    part_graph(mesh, K, "volume", **options)
    assert [call[1] for call in recuts] == [rounds, rounds]


def test_regions_are_cut_where_few_rows_travel(mesh, recuts, monkeypatch):
    part = part_graph(mesh, K, "volume")
    share = part.metrics["total_rows"] / mesh.n_nodes
    assert volume.FEW < share < volume.FEW_OF_SMALL and len(recuts) == 2
    part_graph(load_graph("rmat:scale=8,degree=8,seed=0"), K, "volume")
    assert len(recuts) == 2, "on a power-law graph nearly all rows travel"
    monkeypatch.setattr(volume, "SMALL", mesh.nnz - 1)
    part_graph(mesh, K, "volume")
    assert len(recuts) == 2, "on a large graph these rows are many"
    monkeypatch.setattr(volume, "FEW", share + 0.01)
    part_graph(mesh, K, "volume")
    assert len(recuts) == 4


def test_what_was_refined_with_a_price_of_sends_and_without_is_cut_anew(mesh, recuts, monkeypatch):
    refined = []

    def refine(*args):
        refined.append((args[-1]["send"], args[4].copy(), _volume.refine(*args)))
        return refined[-1][-1]

    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine))
    part_graph(mesh, K, "volume", seed=5)
    assert [send for send, _, _ in refined] == [True, False]
    np.testing.assert_array_equal(refined[0][1], refined[1][1], "from one start")
    assert {id(owner_N) for owner_N, _ in recuts} == {id(result[0]) for _, _, result in refined}


@pytest.mark.parametrize("worst", ["priced", "free"])
def test_a_start_that_is_better_than_one_of_both_is_cut_anew_in_its_place(mesh, recuts, monkeypatch, worst):
    refine = lambda *args: (SHUFFLED if args[-1]["send"] == (worst == "priced") else QUARTERS, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine))
    np.testing.assert_array_equal(part_graph(mesh, K, "volume", start=STRIPES).owner_N, QUARTERS)
    assert [owner_N is QUARTERS for owner_N, _ in recuts] == [True, False]
    np.testing.assert_array_equal(recuts[1][0], STRIPES)


@pytest.mark.parametrize("graph", ["mesh", "rmat:scale=8,degree=8,seed=0"])
@pytest.mark.parametrize("objective", volume.OBJECTIVES)
def test_moves_that_lead_to_something_worse_are_undone(mesh, recuts, monkeypatch, graph, objective):
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


@pytest.mark.parametrize(
    "recut_of", [{True: SHUFFLED, False: QUARTERS}, {True: QUARTERS, False: SHUFFLED}], ids=["the second", "the first"]
)
def test_the_better_one_of_both_is_returned(mesh, monkeypatch, recut_of):
    STARTS = {True: STRIPES, False: STRIPES.copy()}
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=lambda *args: (STARTS[args[-1]["send"]], 100, 40)))
    monkeypatch.setattr(volume, "recut", lambda A, owner_N, **_: recut_of[owner_N is STARTS[True]])
    np.testing.assert_array_equal(part_graph(mesh, K, "volume", start=SHUFFLED).owner_N, QUARTERS)


@pytest.mark.parametrize("recut_N", [QUARTERS, SHUFFLED, ONE_LARGE], ids=["better", "worse", "too heavy"])
def test_what_was_cut_anew_is_returned_where_it_is_better_and_within_the_balance(mesh, monkeypatch, recut_N):
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=lambda *_: (STRIPES, 100, 40)))
    monkeypatch.setattr(volume, "recut", lambda *_, **__: recut_N)
    assert max(sends(mesh, QUARTERS), sends(mesh, ONE_LARGE)) < sends(mesh, STRIPES) < sends(mesh, SHUFFLED)
    np.testing.assert_array_equal(
        part_graph(mesh, K, "volume", start=STRIPES).owner_N, QUARTERS if recut_N is QUARTERS else STRIPES
    )


@pytest.mark.parametrize("moved_N", [QUARTERS, SHUFFLED], ids=["better", "worse"])
def test_moves_for_covers_are_undone_where_covers_grow(mesh, monkeypatch, moved_N):
    refine = lambda *args: (moved_N if args[-1].get("both") else STRIPES, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine, nets_of_covers=_volume.nets_of_covers))
    monkeypatch.setattr(volume, "recut", lambda *_, **__: STRIPES)
    assert sends(mesh, QUARTERS, cover_PP) < sends(mesh, STRIPES, cover_PP) < sends(mesh, SHUFFLED, cover_PP)
    owner_N = part_graph(mesh, K, "volume", start=SHUFFLED, objective="cover").owner_N
    np.testing.assert_array_equal(owner_N, QUARTERS if moved_N is QUARTERS else STRIPES)


@pytest.mark.parametrize("best_N", [QUARTERS, STRIPES, SHUFFLED], ids=["after moves", "before moves", "the start"])
def test_under_cover_covers_are_compared(mesh, monkeypatch, best_N):
    refine = lambda *args: (QUARTERS if args[-1].get("both") else STRIPES, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine, nets_of_covers=_volume.nets_of_covers))
    monkeypatch.setattr(volume, "recut", lambda *_, **__: STRIPES)
    monkeypatch.setattr(volume, "cover_PP", lambda A, owner_N, k: np.full((k, k), not np.array_equal(owner_N, best_N)))
    np.testing.assert_array_equal(part_graph(mesh, K, "volume", start=SHUFFLED, objective="cover").owner_N, best_N)
