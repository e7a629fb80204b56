"""The recorder, its table and its trace: own seconds of spans, stages, stored epochs, clocks, what a training shows."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from graphs import random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.errors import InputError, NumericalError
from spgnn.experiment import run
from spgnn.experiment.train import observed, time_operations
from spgnn.layers import GCN, Stack
from spgnn.spmm.operator.timing import Operations
from spgnn.timeline.outputs import log_view, read_trace, write_own_trace, write_trace
from spgnn.timeline.recorder import EVALUATION, EXCHANGE, KEPT_EPOCHS, KEPT_SPANS, SET_UP, TRAINING, Recorder
from spgnn.training import Trainer
from spgnn.training.steps import FullStep

GRAPH = "sbm:n=300,seed=1"


@pytest.fixture
def clock():
    """A clock that is moved by hand."""
    return SimpleNamespace(now=100.0)


def seconds(recorder):
    return {key: round(total.seconds, 9) for key, total in recorder.totals.items() if total.seconds}


def test_a_span_does_not_count_the_seconds_of_those_inside_it(clock):
    recorder = Recorder(lambda: clock.now)
    recorder.phase("epoch 1")
    with recorder.span("outer"):
        clock.now += 1
        with recorder.span("inner", flops=8):
            clock.now += 2
        clock.now += 4
    clock.now += 8
    recorder.close()
    assert seconds(recorder) == {(TRAINING, "other"): 8, (TRAINING, "outer"): 5, (TRAINING, "inner"): 2}
    assert recorder.totals[TRAINING, "inner"].flops == 8


def test_what_is_inside_a_span_of_another_stage_counts_there(clock):
    recorder = Recorder(lambda: clock.now)
    recorder.phase("epoch 1")

    def product():
        with recorder.span("own SpMM"):
            clock.now += 1

    evaluate = recorder.span("other", stage=EVALUATION)(product)
    product()
    evaluate()
    product()
    assert seconds(recorder) == {(TRAINING, "own SpMM"): 2, (EVALUATION, "own SpMM"): 1}


def test_a_span_is_recorded_where_its_block_raises(clock):
    recorder = Recorder(lambda: clock.now)
    with pytest.raises(ZeroDivisionError), recorder.span("fail"):
        _ = 1 / 0
    assert recorder.totals[SET_UP, "fail"].calls == 1
    recorder.phase("epoch 1")  # no span stayed open
    assert recorder.stage == TRAINING


def test_an_exchange_in_flight_takes_nothing_from_the_phases(clock):
    recorder = Recorder(lambda: clock.now)
    recorder.phase("epoch 1")
    with recorder.span("own SpMM"):
        clock.now += 1
    recorder.add_flight("layer 1 forward", clock.now - 0.5, clock.now - 0.25, 1000, 3)
    recorder.close()
    assert recorder.totals[TRAINING, EXCHANGE].seconds == 0.25
    assert recorder.totals[TRAINING, "other"].seconds == 0


def test_a_long_training_keeps_its_first_and_last_epochs_and_all_totals(clock):
    recorder = Recorder(lambda: clock.now)
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
    recorder = Recorder(lambda: clock.now)
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


def recorded(rank=0):
    """Two epochs of 1 s SpMM (2 s on rank 1) with 0.5 s in flight, 0.25 s waited for."""
    clock = SimpleNamespace(now=10.0)
    recorder = Recorder(lambda: clock.now)
    for epoch in (1, 2):
        recorder.phase(f"epoch {epoch}")
        start = clock.now
        with recorder.span("own SpMM", "layer 1 forward", flops=3_000_000_000):
            clock.now += 1 + rank
        with recorder.span("exchange wait"):
            clock.now += 0.25
        recorder.add_flight("layer 1 forward", start, start + 0.5, 1_000_000, 1)
        clock.now += 0.75
    recorder.close()
    return recorder


@parallel([2], mpi=[2])
def test_the_table_has_calls_largest_ratio_share_and_rates(comm):
    table = log_view(comm, recorded(comm.rank))
    phases = [row.phase for row in table.rows if row.stage == "training"]
    assert phases == ["own SpMM", "exchange wait", "other", EXCHANGE]
    row = table.row("own SpMM")
    assert (row.calls, row.max_s, row.ratio, row.flops) == (2, 4.0, 2.0, 12_000_000_000)
    assert row.gflops == 3.0
    assert row.share == pytest.approx(6 / 10)
    assert sum(r.share for r in table.rows) == pytest.approx(1)
    flight = table.row(EXCHANGE)
    assert (flight.bytes, flight.messages) == (4_000_000, 4)
    assert table.hidden == pytest.approx(0.5)
    text = str(table)
    assert "log view: 2 ranks, 2 epochs, 6.000 s" in text
    assert "50 % of their time in training overlapped" in text
    line = next(line for line in text.splitlines() if "own SpMM" in line)
    assert line.split() == ["own", "SpMM", "2", "4.0000", "2.00", "60.0%", "3.00", "-", "-"]
    assert len({len(line) for line in text.splitlines()[1:] if line.startswith("  ")}) == 1


@parallel([1, 2, 3], mpi=[2])
def test_the_trace_has_all_ranks_on_one_clock(comm, tmp_path):
    path = tmp_path / "trace.json"
    recorder = recorded(comm.rank)
    recorder.syncs = [(0.0, 1000.0 * comm.rank, 1e-5)]
    recorder._ended = [
        [s._replace(start=s.start + 1000 * comm.rank, end=s.end + 1000 * comm.rank) for s in spans]
        for spans in recorder._ended
    ]
    recorder._spans = []
    write_trace(comm, recorder, path)
    comm.barrier()
    whole = json.loads(path.read_text())
    assert whole["otherData"]["ranks"] == comm.size
    assert whole["otherData"]["clock_error_us"] == pytest.approx(10)
    events = read_trace(path)
    assert {event["pid"] for event in events} == set(range(comm.size))
    assert {(e["ts"], e["dur"]) for e in events if e["name"] == EXCHANGE and e["tid"] == 1} >= {(0, 500000)}
    assert [e["ts"] for e in events if (e["name"], e["pid"]) == ("exchange wait", 0)] == [1e6]
    starts = [e["ts"] for e in events if e["name"] == "epoch 1"]
    assert starts == [0] * comm.size


def test_exchanges_that_overlap_get_lanes_of_their_own(tmp_path):
    recorder = recorded()
    recorder.add_flight("layer 2 forward", 10.2, 10.4, 8, 1)
    write_own_trace(0, recorder, tmp_path / "t.json", "test")
    lanes = {e["args"]["of"]: e["tid"] for e in read_trace(tmp_path / "t.json") if e["name"] == EXCHANGE}
    assert lanes == {"layer 1 forward": 1, "layer 2 forward": 2}


def config(**options):
    return replace(TrainConfig(epochs=3, hidden=8, watchdog=0.0), **options)


@parallel([1, 3], mpi=[2])
def test_a_training_shows_its_table_and_writes_its_trace(comm, tmp_path):
    path = tmp_path / f"trace{comm.size}.json"
    shown = []
    run(GRAPH, config(trace=str(path), scheme="columns"), comm, show=shown.append)
    comm.barrier()
    events = read_trace(path)
    names = {event["name"] for event in events}
    assert sorted(name for name in names if name.startswith("epoch ")) == ["epoch 1", "epoch 2", "epoch 3"]
    assert {"load", "own SpMM", "GEMM", "optimiser", "scores"} <= names
    assert (comm.size == 1) or {"exchange", "exchange wait", "ghost SpMM", "pack", "unpack", "all-reduce"} <= names
    if comm.rank:
        assert shown == []
    else:
        loaded, table = shown
        assert "300 nodes" in loaded
        for word in ("set-up", "load", "plan", "training", "own SpMM", "optimiser", "evaluation"):
            assert word in table


@parallel([2], mpi=[])
def test_the_bytes_of_the_table_are_those_that_were_counted(comm, tmp_path):
    shown = []
    summary = run(GRAPH, config(trace=str(tmp_path / "trace.json"), scheme="columns"), comm, show=shown.append)
    if comm.rank == 0:
        line = next(line for line in shown[-1].splitlines() if "in flight" in line)
        assert float(line.split()[-1]) * 1e6 == pytest.approx(3 * summary["bytes_sent"], abs=500)


@parallel([1, 2], mpi=[])
def test_nothing_is_observed_or_timed_where_nothing_is_asked_for(comm):
    with observed(config(), comm) as (same, recorder):
        assert same is comm
        assert recorder is None
    trainer = Trainer(Stack(GCN(6, 3)), distribute(random_graph(), comm), TrainConfig())
    time_operations(None, trainer)
    assert type(trainer.dgraph.A.layout.ops) is Operations
    assert type(trainer.steps) is FullStep


@parallel([1, 2], mpi=[])
def test_a_training_that_fails_leaves_a_valid_trace(comm, tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(NumericalError):
        run(GRAPH, config(epochs=50, lr=1e30, optimizer="sgd", trace=str(path)), comm)
    if comm.rank == 0:
        whole = json.loads(path.read_text())
        assert whole["otherData"]["incomplete"].startswith("rank 0 alone: NumericalError: epoch")
        assert "epoch 1" in {event["name"] for event in read_trace(path)}
        assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"traceEvents": 3}'])
def test_what_is_no_trace_is_refused(tmp_path, text):
    path = tmp_path / "t.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match="t.json: cannot be read: .*expected a file that `spgnn train --trace` wrote"):
        read_trace(path)
