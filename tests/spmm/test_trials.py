"""Trials: each way of a product is tried in turns, the fastest stays, kinds do not see each other."""

import pytest

from spgnn.spmm.kernels.trials import TRIALS, Trials

WAYS = ("rows", "panels", "slices")


def finish(trials: Trials, kind, seconds: dict[str, float], work: float = 1.0) -> None:
    """Let a kind try all its ways to the end; the first time in each takes long."""
    for trial in range(TRIALS):
        for way in seconds:
            assert trials.next_way(kind, tuple(seconds)) == way
            is_last = trials.took(kind, way, (9.0 if trial == 0 else seconds[way]) * work, work)
            assert is_last == (trial == TRIALS - 1 and way == list(seconds)[-1])


@pytest.mark.parametrize(
    "seconds, stays",
    [((1, 0.5, 0.6), "panels"), ((1, 0.7, 0.6), "slices"), ((1, 0.98, 2), "rows"), ((1, 0.96, 2), "panels")],
)
def test_the_fastest_way_stays(seconds, stays):
    trials = Trials()
    finish(trials, 64, dict(zip(WAYS, seconds)))
    assert [trials.next_way(64, WAYS) for _ in range(3)] == [stays] * 3
    assert trials.uses(stays) and not trials.uses("slices" if stays == "panels" else "panels")
    assert not trials.took(64, "slices", 0.0) and trials.next_way(64, WAYS) == stays  # nothing is timed any more


def test_a_kind_of_one_way_is_not_tried():
    trials = Trials()
    assert trials.next_way(64, ("rows",)) == "rows" and not trials.took(64, "rows", 1.0) and not trials.seconds


def test_products_of_other_sizes_are_compared_by_seconds_per_work():
    trials = Trials()
    for _ in range(TRIALS):
        for way, seconds, work in (("rows", 4.0, 4.0), ("slices", 2.0, 1.0)):
            assert trials.next_way("s", ("rows", "slices")) == way
            trials.took("s", way, seconds, work)
    assert trials.chosen == {"s": "rows"}


def test_a_way_is_in_use_while_a_kind_tries_it():
    trials = Trials()
    trials.next_way("once", WAYS[:2])
    trials.took("once", "rows", 1.0)
    assert not trials.uses("panels")
    trials.next_way("once", WAYS[:2])
    trials.took("once", "panels", 1.0)
    finish(trials, "loses", {"rows": 1.0, "panels": 2.0})
    assert trials.chosen == {"loses": "rows"} and trials.uses("panels")
