"""Recorder: a span's own seconds, stages, what is kept of a long training, and clocks that differ."""

import time

import numpy as np
import pytest
from worlds import parallel

from spgnn.timeline.recorder import EVALUATION, EXCHANGE, KEPT_EPOCHS, KEPT_SPANS, SET_UP, TRAINING, Recorder


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def seconds(recorder):
    return {key: round(total.seconds, 9) for key, total in recorder.totals.items() if total.calls}


def test_a_span_does_not_count_the_seconds_of_those_inside_it(clock):
    recorder = Recorder(clock)
    recorder.phase("epoch 1")
    with recorder.span("outer"):
        clock.now += 1
        with recorder.span("inner", flops=8):
            clock.now += 2
        clock.now += 4
    clock.now += 8
    recorder.close()
    assert seconds(recorder) == {
        (SET_UP, "other"): 0,
        (TRAINING, "other"): 8,
        (TRAINING, "outer"): 5,
        (TRAINING, "inner"): 2,
    }
    assert recorder.totals[TRAINING, "inner"].flops == 8


def test_the_phases_of_all_stages_add_up_to_the_whole(clock):
    recorder = Recorder(clock)
    rng = np.random.default_rng(0)

    def work(depth=3):
        for name in "ab"[: depth % 2 + 1]:
            clock.now += rng.random()
            with recorder.span(name, stage=EVALUATION if depth == 2 else ""):
                clock.now += rng.random()
                if depth:
                    work(depth - 1)

    for text in ("load", "epoch 1", "epoch 2", "write results"):
        recorder.phase(text)
        work()
    recorder.close()
    assert sum(total.seconds for total in recorder.totals.values()) == pytest.approx(clock.now - 100)


def test_what_is_inside_a_span_of_another_stage_counts_there(clock):
    recorder = Recorder(clock)
    recorder.phase("epoch 1")

    def product():
        with recorder.span("own SpMM"):
            clock.now += 1

    evaluate = recorder.span("other", stage=EVALUATION)(product)
    product()
    evaluate()
    product()
    assert seconds(recorder) == {
        (SET_UP, "other"): 0,
        (TRAINING, "own SpMM"): 2,
        (EVALUATION, "own SpMM"): 1,
        (EVALUATION, "other"): 0,
    }


def test_a_span_is_recorded_where_its_block_raises(clock):
    recorder = Recorder(clock)
    with pytest.raises(ZeroDivisionError), recorder.span("fail"):
        _ = 1 / 0
    assert recorder.totals[SET_UP, "fail"].calls == 1
    recorder.phase("epoch 1")  # no span stayed open
    assert recorder.stage == TRAINING


def test_an_exchange_in_flight_takes_nothing_from_the_phases(clock):
    recorder = Recorder(clock)
    recorder.phase("epoch 1")
    with recorder.span("own SpMM"):
        clock.now += 1
    recorder.add_flight("layer 1 forward", clock.now - 0.5, clock.now - 0.25, 1000, 3)
    recorder.close()
    assert recorder.totals[TRAINING, EXCHANGE].seconds == 0.25
    assert recorder.totals[TRAINING, "other"].seconds == 0


def test_a_long_training_keeps_its_first_and_last_epochs_and_all_totals(clock):
    recorder = Recorder(clock)
    for epoch in range(1, 101):
        recorder.phase(f"epoch {epoch}")
        for _ in range(3):
            with recorder.span("GEMM"):
                clock.now += 1
    recorder.close()
    kept = [span.phase for span in recorder.spans if span.phase.startswith("epoch")]
    assert kept[:KEPT_EPOCHS] == [f"epoch {e}" for e in range(1, KEPT_EPOCHS + 1)]
    assert kept[-KEPT_EPOCHS:] == [f"epoch {e}" for e in range(101 - KEPT_EPOCHS, 101)]
    assert len(recorder.spans) < 4 * (2 * KEPT_EPOCHS + 3)
    assert recorder.totals[TRAINING, "GEMM"].calls == 300


def test_an_epoch_of_very_many_spans_keeps_a_bounded_number(clock):
    recorder = Recorder(clock)
    for _ in range(KEPT_SPANS + 7):
        with recorder.span("GEMM"):
            clock.now += 1
    assert len(recorder.spans) == KEPT_SPANS
    assert recorder.dropped == 7


@parallel([1, 2, 4], mpi=[2, 3])
def test_clocks_that_differ_by_hours_are_put_on_rank_0s(comm):
    ahead_s = 3600.0 * comm.rank
    recorder = Recorder(lambda: time.monotonic() + ahead_s)
    recorder.synchronise(comm)
    _, measured_s, error_s = recorder.syncs[-1]
    assert abs(measured_s - ahead_s) <= error_s + 1e-9
    assert error_s < 0.05
    now = time.monotonic()
    assert abs(recorder.aligned([now + ahead_s])[0] - now) <= error_s + 1e-9


@parallel([2, 3], mpi=[])
def test_ranks_that_are_late_at_every_barrier_do_not_look_ahead(comm):
    def late() -> float:
        if comm.rank == 1:
            time.sleep(0.002)
        return time.monotonic()

    recorder = Recorder(late)
    recorder.synchronise(comm)
    _, measured_s, error_s = recorder.syncs[-1]
    assert abs(measured_s) <= error_s + 1e-9


def test_a_clock_that_drifts_is_followed_between_two_measurements():
    recorder = Recorder()
    recorder.syncs = [(0.0, 1.0, 0.0), (100.0, 3.0, 0.0)]
    assert recorder.aligned([0.0, 50.0, 100.0, 200.0]).tolist() == [-1.0, 48.0, 97.0, 197.0]
