"""The table of --trace: the seconds of a run by phase, over all ranks.

Shapes: P ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .recorder import EXCHANGE, OTHER, STAGES, TRAINING, Recorder

_FIELDS = ("calls", "seconds", "flops", "bytes", "messages")
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
        return (
            None if flight is None or flight.sum_s == 0 else 1 - min(1.0, (wait.sum_s if wait else 0.0) / flight.sum_s)
        )

    def __str__(self) -> str:
        lines = [
            f"log view: {self.ranks} rank{'s' * (self.ranks > 1)}, {self.epochs} epochs, {self.max_s:.3f} s",
            _HEADING,
        ]
        for stage in STAGES:
            rows = [row for row in self.rows if row.stage == stage]
            lines += [stage] * bool(rows) + [self._line(row) for row in rows]
        if self.hidden is not None:
            lines += [
                "exchanges in flight are not part of the shares;",
                f"{100 * self.hidden:.0f} % of their time in training overlapped with other phases",
            ]
        return "\n".join(lines)

    def _line(self, row: Row) -> str:
        ratio = f"{row.ratio:.2f}" if row.ratio < 1e4 else "-"
        share = f"{100 * row.share:.1f}%" if row.phase != EXCHANGE else "-"
        gflops = f"{row.gflops:.2f}" if row.flops else "-"
        messages, sent = (
            (f"{row.messages:,}" if row.messages else "-"),
            (f"{row.bytes / 1e6:,.3f}" if row.bytes else "-"),
        )
        phase = f"  {row.phase}" + (" in flight" if row.phase == EXCHANGE else "")
        return f"{phase:<22}{row.calls:>7,}{row.max_s:>9.4f}{ratio:>8}{share:>7}{gflops:>8}{messages:>9}{sent:>10}"


def log_view(comm, recorder: Recorder) -> LogView:
    """Gather the totals of all ranks' recorders into a table. Call recorder.close() first. Collective."""
    mine = [
        [stage, phase, *(getattr(total, name) for name in _FIELDS)]
        for (stage, phase), total in recorder.totals.items()
        if total.calls
    ]
    ranks = comm.all_gather_json({"totals": mine, "epochs": recorder.epochs})
    counted = [{(stage, phase): values for stage, phase, *values in theirs["totals"]} for theirs in ranks]
    seen = dict.fromkeys(key for theirs in counted for key in theirs)  # in the order in which they began
    in_order = sorted(seen, key=lambda key: (STAGES.index(key[0]), key[1] == EXCHANGE, key[1] == OTHER))
    spent_P = [_spent(theirs) for theirs in counted]
    rows = tuple(
        _row(key, [theirs.get(key, (0, 0.0, 0, 0, 0)) for theirs in counted], sum(spent_P)) for key in in_order
    )
    return LogView(rows, comm.size, max(theirs["epochs"] for theirs in ranks), max(spent_P))


def _spent(counted: dict[tuple[str, str], list]) -> float:
    return sum(values[1] for (_, phase), values in counted.items() if phase != EXCHANGE)


def _row(key: tuple[str, str], values_P: Iterable, all_s: float) -> Row:
    calls, seconds, flops, n_bytes, messages = np.array(list(values_P), dtype=np.float64).T
    share = 0.0 if key[1] == EXCHANGE or all_s == 0 else seconds.sum() / all_s
    counts = (int(flops.sum()), int(n_bytes.sum()), int(messages.sum()))
    return Row(
        *key, int(calls.max()), float(seconds.max()), float(seconds.min()), float(seconds.sum()), float(share), *counts
    )
