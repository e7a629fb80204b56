"""--trace FILE: the timelines of all ranks on rank 0's clock, in Chrome's trace format (ui.perfetto.dev opens it).

A process is a rank; its threads are `compute` and one `exchange` per exchange in flight at the same time.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ..atomic import check_writable, read_regular, write_text
from ..errors import InputError, UsageError
from .recorder import EXCHANGE, Recorder, Span


def check_path(path: str | Path) -> None:
    """Raise unless a file can be written there; called before the training starts."""
    check_writable(Path(path), "--trace")
    if Path(path).is_symlink():
        raise UsageError(f"--trace {path} is a symbolic link; expected the name of a file")


def write_trace(comm, recorder: Recorder, path: str | Path) -> None:
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


def _gather_to_root(comm, text: bytes) -> list[bytes]:
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
