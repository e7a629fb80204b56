"""The table of --trace: the seconds of a run by phase, over all ranks.

Shapes: P ranks.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from .recorder import EXCHANGE, OTHER, STAGES, TRAINING, Recorder

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


def log_view(comm, recorder: Recorder) -> LogView:
    """Gather the totals of all ranks' recorders into a table. Call recorder.close() first. Collective."""
    mine = [[*key, *astuple(total)] for key, total in recorder.totals.items() if total.calls]
    ranks = comm.all_gather_json([recorder.epochs, mine])
    counted_P = [{(stage, phase): values for stage, phase, *values in totals} for _, totals in ranks]
    seen = dict.fromkeys(key for counted in counted_P for key in counted)  # in the order in which they began
    spent_P = [sum(values[1] for (_, phase), values in of.items() if phase != EXCHANGE) for of in counted_P]
    rows = []
    for key in sorted(seen, key=lambda key: (STAGES.index(key[0]), key[1] == EXCHANGE, key[1] == OTHER)):
        calls, s, *sums = np.array([counted.get(key, (0,) * 5) for counted in counted_P], np.float64).T
        share = 0.0 if key[1] == EXCHANGE or not any(spent_P) else s.sum() / sum(spent_P)
        seconds = map(float, (s.max(), s.min(), s.sum(), share))
        rows.append(Row(*key, int(calls.max()), *seconds, *(int(of.sum()) for of in sums)))
    return LogView(tuple(rows), comm.size, max(epochs for epochs, _ in ranks), max(spent_P))
