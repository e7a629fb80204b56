"""The two outputs of --trace: the table of seconds by phase over all ranks, and the timelines in Chrome's trace format.

In the file (ui.perfetto.dev opens it), a process is a rank; its threads are `compute` and one `exchange` per exchange
in flight at the same time. All times are on the clock of rank 0.

Shapes: P ranks.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from ..atomic import check_writable, read_regular, write_text
from ..dist import Communicator
from ..errors import InputError, UsageError
from .recorder import EXCHANGE, OTHER, STAGES, TRAINING, Recorder, Span, Total

_HEADING = f"{'phase':<22}{'calls':>7}{'max s':>9}{'max/min':>8}{'share':>7}{'GFLOP/s':>8}{'messages':>9}{'MB':>10}"


@dataclass(frozen=True, slots=True)
class Row:
    """One phase of one stage over all ranks.

    calls, max_s: maximum over ranks; flops, bytes, messages: sums over ranks; share: of the seconds of all
    ranks, 0 for exchanges in flight, which overlap with other phases.
    """

    stage: str
    phase: str
    calls: int
    max_s: float
    min_s: float
    sum_s: float
    share: float
    flops: int
    bytes: int
    messages: int

    @property
    def ratio(self) -> float:
        """Slowest over fastest rank."""
        return self.max_s / self.min_s if self.min_s > 0 else float("inf")

    @property
    def gflops(self) -> float:
        """10^9 operations per second: those of all ranks over the time of the slowest."""
        return self.flops / self.max_s / 1e9 if self.max_s > 0 else 0.0

    def __str__(self) -> str:
        in_flight = self.phase == EXCHANGE
        ratio = f"{self.ratio:.2f}" if self.ratio < 1e4 else "-"
        share = "-" if in_flight else f"{100 * self.share:.1f}%"
        gflops = f"{self.gflops:.2f}" if self.flops else "-"
        messages = f"{self.messages:,}" if self.messages else "-"
        sent = f"{self.bytes / 1e6:,.3f}" if self.bytes else "-"
        phase = f"  {self.phase}" + " in flight" * in_flight
        return f"{phase:<22}{self.calls:>7,}{self.max_s:>9.4f}{ratio:>8}{share:>7}{gflops:>8}{messages:>9}{sent:>10}"


@dataclass(frozen=True, slots=True)
class LogView:
    """The table; print it."""

    rows: tuple[Row, ...]
    ranks: int
    epochs: int
    max_s: float  # from start to end, maximum over ranks

    def row(self, phase: str, stage: str = TRAINING) -> Row | None:
        """Return the row of a phase, or None if it did not occur."""
        return next((row for row in self.rows if (row.stage, row.phase) == (stage, phase)), None)

    @property
    def hidden(self) -> float | None:
        """Fraction of the training's exchange time without waiting; None without exchanges."""
        flight, wait = self.row(EXCHANGE), self.row("exchange wait")
        if flight is None or flight.sum_s == 0:
            return None
        return 1 - min(1.0, (wait.sum_s if wait else 0.0) / flight.sum_s)

    def __str__(self) -> str:
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
        lines = [f"log view: {ranks}, {self.epochs} epochs, {self.max_s:.3f} s", _HEADING]
        for stage in STAGES:
            rows = [str(row) for row in self.rows if row.stage == stage]
            lines += [stage] * bool(rows) + rows
        if self.hidden is not None:
            lines += [
                "exchanges in flight are not part of the shares;",
                f"{100 * self.hidden:.0f} % of their time in training overlapped with other phases",
            ]
        return "\n".join(lines)


def log_view(comm: Communicator, recorder: Recorder) -> LogView:
    """Gather the totals of all ranks' recorders into a table. Call recorder.close() first. Collective."""
    mine = [[*key, *astuple(total)] for key, total in recorder.totals.items() if total.calls]
    ranks = comm.all_gather_json([recorder.epochs, mine])
    totals_P = [{(stage, phase): Total(*of) for stage, phase, *of in totals} for _, totals in ranks]
    seen = dict.fromkeys(key for totals in totals_P for key in totals)  # in the order in which they began
    spent_P = [sum(total.seconds for (_, phase), total in of.items() if phase != EXCHANGE) for of in totals_P]
    rows = []
    for key in sorted(seen, key=lambda key: (STAGES.index(key[0]), key[1] == EXCHANGE, key[1] == OTHER)):
        of_P = [totals.get(key, Total()) for totals in totals_P]
        seconds_P = [of.seconds for of in of_P]
        share = 0.0 if key[1] == EXCHANGE or not any(spent_P) else sum(seconds_P) / sum(spent_P)
        sums = (sum(of.flops for of in of_P), sum(of.bytes for of in of_P), sum(of.messages for of in of_P))
        calls = max(of.calls for of in of_P)
        rows.append(Row(*key, calls, max(seconds_P), min(seconds_P), sum(seconds_P), share, *sums))
    return LogView(tuple(rows), comm.size, max(epochs for epochs, _ in ranks), max(spent_P))


def check_path(path: str | Path) -> None:
    """Raise unless a file can be written there; called before the training starts."""
    check_writable(Path(path), "--trace")
    if Path(path).is_symlink():
        raise UsageError(f"--trace {path} is a symbolic link; expected the name of a file")


def write_trace(comm: Communicator, recorder: Recorder, path: str | Path) -> None:
    """Write the stored spans of all ranks to one file, from rank 0. Collective."""
    texts = _gather_to_root(comm, json.dumps(_recorded(recorder)).encode())
    if comm.rank == 0:
        _write([json.loads(text) for text in texts], path)


def write_own_trace(rank: int, recorder: Recorder, path: str | Path, reason: str) -> None:
    """Write the stored spans of one rank, after a training failed."""
    _write([_recorded(recorder)], path, rank, {"incomplete": f"rank {rank} alone: {reason}"})


def read_trace(path: str | Path) -> list[dict]:
    """Return the complete events of a trace file: name, pid (rank), tid, ts and dur (microseconds), args.

    Raises: InputError if it is not a trace file.
    """
    try:
        events = json.loads(read_regular(path))["traceEvents"]
        return [event for event in events if event["ph"] == "X"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {error}; expected a file that `spgnn train --trace` wrote") from None


def _recorded(recorder: Recorder) -> dict:
    spans = recorder.spans
    times = recorder.aligned([(span.start, span.end) for span in spans]).reshape(-1, 2).tolist()
    on_rank_0 = [[*span[:2], start, end, *span[4:]] for span, (start, end) in zip(spans, times)]
    error_s = max((error for *_, error in recorder.syncs), default=0.0)
    return {"spans": on_rank_0, "error_s": error_s, "dropped": recorder.dropped}


def _gather_to_root(comm: Communicator, text: bytes) -> list[bytes]:
    """Return the text of each rank on rank 0, an empty list on the others."""
    sizes_P = comm.all_gather(np.array([len(text)], np.int64))
    send_P = np.zeros(comm.size, np.int64)
    send_P[0] = len(text)
    recv_P = sizes_P if comm.rank == 0 else np.zeros(comm.size, np.int64)
    joined = comm.all_to_all(np.frombuffer(text, np.uint8).copy(), send_P, np.empty(recv_P.sum(), np.uint8), recv_P)
    ends = np.cumsum(recv_P)
    return [joined[end - size : end].tobytes() for size, end in zip(recv_P, ends)] if comm.rank == 0 else []


def _write(ranks: list[dict], path: str | Path, first: int = 0, more: dict | None = None) -> None:
    zero_s = min((span[2] for rank in ranks for span in rank["spans"]), default=0.0)
    events = []
    for pid, rank in enumerate(ranks, start=first):
        events += _events(pid, [Span(*span) for span in rank["spans"]], zero_s)
    error_us = max(rank["error_s"] for rank in ranks) * 1e6
    dropped = sum(rank["dropped"] for rank in ranks)
    about = {"ranks": len(ranks), "clock_error_us": error_us, "dropped_spans": dropped} | (more or {})
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    write_text(Path(path), json.dumps(document), "--trace")


def _events(pid: int, spans: list[Span], zero_s: float) -> list[dict]:
    events = [_named("process_name", pid, 0, f"rank {pid}"), _named("thread_name", pid, 0, "compute")]
    lanes_end: list[float] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        tid = 0
        if span.phase == EXCHANGE:
            lane = next((lane for lane, end in enumerate(lanes_end) if end <= span.start), len(lanes_end))
            if lane == len(lanes_end):
                lanes_end.append(0.0)
                events.append(_named("thread_name", pid, lane + 1, "exchange"))
            lanes_end[lane], tid = span.end, lane + 1
        args = {"of": span.label, "flop": span.flops, "bytes": span.bytes, "messages": span.messages}
        events.append({
            "name": span.phase, "cat": "exchange" if tid else "compute", "ph": "X", "pid": pid, "tid": tid,
            "ts": round((span.start - zero_s) * 1e6, 3), "dur": round((span.end - span.start) * 1e6, 3),
            "args": {name: value for name, value in args.items() if value},
        })  # fmt: skip
    return events


def _named(what: str, pid: int, tid: int, name: str) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
