"""EpochLines: the epochs of a training as they end, for a person who waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from ..terminal import is_notebook, redraw, say
from .metrics import SPLITS

SECONDS_BETWEEN_LINES = 3.0


class EpochLines:
    """Show epochs as they end: one line rewritten on a terminal or in a notebook, otherwise a line every few seconds.

    Call it with an epoch's record: {epoch, loss, train, val, test, epoch_s, ...}.
    """

    def __init__(self, epochs: int):
        self.epochs = epochs
        self.in_notebook = is_notebook()
        self.is_rewritten = self.in_notebook or sys.stderr.isatty()
        self._next_s = 0.0
        self._first: tuple[int, float] | None = None  # epoch and time
        self._is_drawn = False

    def __call__(self, record: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self._first = self._first or (record["epoch"], now)
        is_last = record.get("epoch") == self.epochs
        if now < self._next_s and not is_last:
            return
        parts = self.parts(record) | self._left(record["epoch"], now)
        if self.is_rewritten:
            self._next_s, self._is_drawn = now + 0.1, True
            redraw(parts, "  ", ("wait", "train", "gradient", "seconds", "left", "test", "val"), self.in_notebook)
            if is_last:
                self.end()
        else:
            self._next_s = now + SECONDS_BETWEEN_LINES
            say("  ".join(parts.values()))

    def parts(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Return the parts of an epoch's line by name, without scores that were not evaluated in this epoch."""
        scores = {
            name: f"{name} {value:.4f}" for name in SPLITS if (value := record.get(name)) is not None and value == value
        }
        wait_s = record.get("sample_wait_s")
        return {
            "epoch": f"epoch {record['epoch']:>{len(str(self.epochs))}} of {self.epochs}",
            "loss": f"loss {record['loss']:.4f}",
            **scores,
            "seconds": f"{record['epoch_s']:.3f} s/epoch",
            **({} if wait_s is None else {"wait": f"{wait_s:.3f} s wait for draws"}),
        }

    def end(self) -> None:
        """End the line that was rewritten."""
        if self._is_drawn:
            (sys.stdout if self.in_notebook else sys.stderr).write("\n")
            self._is_drawn = False

    def _left(self, epoch: int, now: float) -> dict[str, str]:
        """Return the time that the epochs to come take, by those that were seen; nothing before the second."""
        assert self._first is not None  # of the first epoch
        first, since = self._first
        seconds = round((now - since) / max(epoch - first, 1) * (self.epochs - epoch))
        return {} if epoch == first or not seconds else {"left": f"{time_text(seconds)} left"}


class PassLines:
    """Show how far an epoch is that lasts longer than others do: after 3 s on a terminal, else every 30 s.

    Args: name  of the epoch; visits: of parts, in all its passes.
    """

    def __init__(self, name: str, visits: int):
        self.name, self.visits, self.done = name, visits, 0
        self.is_rewritten = is_notebook() or sys.stderr.isatty()
        self._began = time.monotonic()
        self._next_s = self._began + (SECONDS_BETWEEN_LINES if self.is_rewritten else 30)

    def __call__(self, phase: str) -> None:
        """Note that a part was visited, in a phase."""
        self.done, now = self.done + 1, time.monotonic()
        if now < self._next_s or self.done == self.visits:
            return
        left = round((now - self._began) / self.done * (self.visits - self.done))
        parts = {"epoch": self.name, "phase": phase, "share": f"{100 * self.done // self.visits} %"}
        parts["left"] = f"{time_text(left)} left"
        if self.is_rewritten:
            self._next_s = now + 0.5
            redraw(parts, "  ", ("phase",), is_notebook())
        else:
            self._next_s = now + 30
            say("  ".join(parts.values()))


def time_text(seconds: int) -> str:
    """Return seconds as 12 s, 3:07 min or 2 h 05 min."""
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    return f"{hours} h {m:02} min" if hours else f"{m}:{s:02} min" if minutes else f"{s} s"
