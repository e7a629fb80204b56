"""The partitioner `volume` where few rows travel: what is cut anew, from which starts, and what is returned."""

from types import SimpleNamespace

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.partition import _volume, cover_PP, part_graph, rows_PP, volume
from spgnn.partition.recut import cost

K = 4
ROWS = 20


@pytest.fixture(scope="module")
def mesh():
    return load_graph(f"grid:rows={ROWS},cols={ROWS}")


@pytest.fixture
def recuts(monkeypatch):
    """Return a list of (owner_N, rounds) with which regions were cut anew; nothing is cut, no border drawn."""
    calls = []
    monkeypatch.setattr(volume, "recut", lambda A, owner_N, *, rounds, **_: rounds and calls.append((owner_N, rounds)) or owner_N)
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
    assert [call[1] for call in recuts] == [rounds]


def test_regions_are_cut_where_few_rows_travel(mesh, recuts, monkeypatch):
    part = part_graph(mesh, K, "volume")
    share = part.metrics["total_rows"] / mesh.n_nodes
    assert volume.FEW < share < volume.FEW_OF_SMALL and len(recuts) == 1
    part_graph(load_graph("rmat:scale=8,degree=8,seed=0"), K, "volume")
    assert len(recuts) == 1, "on a power-law graph nearly all rows travel"
    monkeypatch.setattr(volume, "SMALL", mesh.nnz - 1)
    part_graph(mesh, K, "volume")
    assert len(recuts) == 1, "on a large graph these rows are many"
    monkeypatch.setattr(volume, "FEW", share + 0.01)
    part_graph(mesh, K, "volume")
    assert len(recuts) == 2


@pytest.mark.parametrize("start", ["metis", QUARTERS], ids=["metis", "given"])
def test_the_best_of_several_starts_is_cut_anew(mesh, recuts, monkeypatch, start):
    starts, free = [], []
    take = volume._start
    monkeypatch.setattr(volume, "_start", lambda graph, k, seed, balance, name, **options: starts.append((seed, options)) or take(graph, k, seed, balance, name, **options))

    def refine(*args):
        result = _volume.refine(*args)
        if not args[-1]["send"]:
            free.append(result[0])
        return result

    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine))
    part_graph(mesh, K, "volume", start=start, seed=5)
    of_metis = {"objective": "vol"} if isinstance(start, str) else {}
    assert starts == [(5, {}), (1_000_008, of_metis), (2_000_011, {})]
    costs = [sends(mesh, owner_N) for owner_N in free]
    assert len(set(costs)) > 1 and sends(mesh, recuts[0][0]) == min(costs)


def test_borders_of_each_start_are_drawn_before_the_best_is_chosen(mesh, monkeypatch):
    drawn = [SHUFFLED, QUARTERS, STRIPES]
    seen = []

    def recut(A, owner_N, *, rounds, **_):
        if rounds:
            seen.append(owner_N)
            return owner_N
        return drawn.pop()

    monkeypatch.setattr(volume, "recut", recut)
    part_graph(mesh, K, "volume")
    assert not drawn and len(seen) == 1 and seen[0] is QUARTERS


@pytest.mark.parametrize("recut_N", [QUARTERS, SHUFFLED, ONE_LARGE], ids=["better", "worse", "too heavy"])
def test_the_better_one_of_both_ways_is_returned_within_the_balance(mesh, monkeypatch, recut_N):
    refine = lambda *args: (STRIPES, 100, 40) if args[-1]["send"] else _volume.refine(*args)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine))
    monkeypatch.setattr(volume, "recut", lambda *_, **__: recut_N)
    assert max(sends(mesh, QUARTERS), sends(mesh, ONE_LARGE)) < sends(mesh, STRIPES) < sends(mesh, SHUFFLED)
    np.testing.assert_array_equal(part_graph(mesh, K, "volume").owner_N, QUARTERS if recut_N is QUARTERS else STRIPES)


@pytest.mark.parametrize("moved_N", [QUARTERS, SHUFFLED], ids=["better", "worse"])
def test_moves_for_covers_are_undone_where_covers_grow(mesh, monkeypatch, moved_N):
    refine = lambda *args: (moved_N if args[-1].get("both") else STRIPES, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine, nets_of_covers=_volume.nets_of_covers))
    monkeypatch.setattr(volume, "recut", lambda *_, **__: STRIPES)
    assert sends(mesh, QUARTERS, cover_PP) < sends(mesh, STRIPES, cover_PP) < sends(mesh, SHUFFLED, cover_PP)
    owner_N = part_graph(mesh, K, "volume", objective="cover").owner_N
    np.testing.assert_array_equal(owner_N, QUARTERS if moved_N is QUARTERS else STRIPES)


def test_under_cover_covers_are_compared(mesh, monkeypatch):
    refine = lambda *args: (SHUFFLED if args[-1].get("both") else STRIPES, 100, 40)
    monkeypatch.setattr(volume, "_volume", SimpleNamespace(refine=refine, nets_of_covers=_volume.nets_of_covers))
    monkeypatch.setattr(volume, "recut", lambda *_, **__: STRIPES)
    monkeypatch.setattr(volume, "cover_PP", lambda A, owner_N, k: np.full((k, k), not np.array_equal(owner_N, SHUFFLED)))
    np.testing.assert_array_equal(part_graph(mesh, K, "volume", objective="cover").owner_N, SHUFFLED)
