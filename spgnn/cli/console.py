"""Write results to stdout and messages to stderr: tables, JSON lines, progress, byte counts."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import message_text, printable

SECONDS_BETWEEN_LINES = 3.0
BAR_WIDTH = 28
SCORES = ("train", "val", "test")

LABELS = {
    "n": "nodes",
    "nnz": "nonzeros",
    "self_loops": "self-loops",
    "isolated": "isolated nodes",
    "dropped_lines": "dropped lines",
    "sparse_features": "features are sparse",
    "multilabel": "multi-label",
    "labelled": "labelled nodes",
    "train": "  train nodes",
    "val": "  validation nodes",
    "test": "  test nodes",
    "peak_rss_mb": "peak memory (MB)",
    "out": "results in",
}


def say(message: str) -> None:
    """Write one message line to stderr."""
    sys.stderr.write(f"spgnn: {message_text(message)}\n")
    sys.stderr.flush()


def write_error(text: str) -> None:
    """Write a table to stderr, apart from data."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write lines of data to stdout."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def write_json(value: Mapping[str, Any]) -> None:
    """Write one object on one line to stdout; a number that is not finite becomes null."""
    write(json.dumps(_plain(value), allow_nan=False))


def fields_table(title: str, values: Mapping[str, Any]) -> str:
    """Return a title and one aligned line per key, with readable labels."""
    lines = [(LABELS.get(key, key.replace("_", " ")), value_text(value)) for key, value in values.items()]
    left = max((len(label) for label, _ in lines), default=0)
    return "\n".join([title] + [f"  {label:<{left}}  {text}" for label, text in lines])


def rows_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Return rows as aligned columns; columns maps a key of the rows to its heading."""
    cells = [list(columns.values())] + [[_cell(row[key]) for key in columns] for row in rows]
    is_text = [any(row[key][:1].isalpha() for row in rows if isinstance(row[key], str)) for key in columns]
    widths = [max(len(line[c]) for line in cells) for c in range(len(columns))]
    lines = (
        "  ".join(cell.ljust(w) if text else cell.rjust(w) for cell, w, text in zip(line, widths, is_text))
        for line in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def value_text(value: Any) -> str:
    """Return a value for reading: 117,659; 0.7312; yes; none."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {value_text(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text(v) for v in value) or "none"
    return str(value)


def bytes_text(count: float) -> str:
    """Return a byte count with its unit: 3.42 MB; powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            break
        count /= 1000
    else:
        unit = "TB"
    return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"


def terminal_columns() -> int:
    """Return the columns of the terminal on stderr; 80 if there is none or its size is unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return shutil.get_terminal_size().columns


def redraw(parts: Mapping[str, str], separator: str, omit: Sequence[str]) -> None:
    """Rewrite one line of the terminal; it must fit, as a wrapped line would stay.

    Args: omit  names of parts to omit, in this order, until the rest fits.
    """
    parts, room = dict(parts), terminal_columns() - 1  # a terminal may wrap after its last column
    for name in omit:
        if len(separator.join(parts.values())) > room:
            parts.pop(name, None)
    sys.stderr.write(f"\r\x1b[K{separator.join(parts.values())[:room]}")
    sys.stderr.flush()


class ProgressBar:
    """Show how much is done: a bar on a terminal, otherwise a line every few seconds, on stderr.

    Call it with (done, total); use it in `with`, which ends the bar.
    """

    def __init__(self, what: str, text=bytes_text):
        self.what = what
        self.text = text
        self.is_terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + (0.2 if self.is_terminal else SECONDS_BETWEEN_LINES)
        self._is_drawn = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next_s:
            return
        share = min(done / total, 1.0) if total else 0.0
        amount = f"{self.text(done)} of {self.text(total)}" if total else self.text(done)
        if not self.is_terminal:
            self._next_s = now + SECONDS_BETWEEN_LINES
            say(f"{self.what}: {100 * share:.0f} %, {amount}" if total else f"{self.what}: {amount}")
            return
        self._next_s = now + 0.1
        self._is_drawn = True
        filled = int(share * BAR_WIDTH)
        room = terminal_columns() // 2  # a long path is cut at its start
        what = self.what if len(self.what) <= room else f"...{self.what[3 - room :]}"
        bar = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"
        redraw({"what": what, "bar": bar, "share": f"{100 * share:3.0f} %", "amount": amount}, " ", ("bar", "amount"))


class PassBars:
    """Show one ProgressBar after another: call it with (pass, done, total); use it in `with`, which ends the last."""

    def __init__(self, what: str):
        self.what = what
        self._name, self._done, self._bar = "", 0, None

    def __enter__(self) -> PassBars:
        return self

    def __exit__(self, *error) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)
            self._bar = None

    def __call__(self, name: str, done: int, total: int) -> None:
        if self._bar is None or name != self._name or done < self._done:
            self.__exit__(None, None, None)
            self._name, self._bar = name, ProgressBar(f"{self.what}: {name}", text=lambda count: f"{count:,}")
        self._done = done
        self._bar(done, total)

    def note(self, line: str) -> None:
        """Write a line of text between two bars."""
        self.__exit__(None, None, None)
        say(line)


class EpochLines:
    """Show epochs as they end: one line rewritten on a terminal, otherwise a line every few seconds.

    Call it with an epoch's record: {epoch, loss, train, val, test, epoch_s, ...}.
    """

    def __init__(self, epochs: int):
        self.epochs = epochs
        self.is_terminal = sys.stderr.isatty()
        self._next_s = 0.0
        self._is_drawn = False

    def __call__(self, record: Mapping[str, Any]) -> None:
        now = time.monotonic()
        is_last = record.get("epoch") == self.epochs
        if now < self._next_s and not is_last:
            return
        parts = self.parts(record)
        if self.is_terminal:
            self._next_s, self._is_drawn = now + 0.1, True
            redraw(parts, "  ", omit=("train", "gradient", "seconds", "test", "val"))
        else:
            self._next_s = now + SECONDS_BETWEEN_LINES
            say("  ".join(parts.values()))

    def parts(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Return the parts of an epoch's line by name, without scores that were not evaluated in this epoch."""
        scores = {name: f"{name} {record[name]:.4f}" for name in SCORES if record.get(name) is not None}
        return {
            "epoch": f"epoch {record['epoch']:>{len(str(self.epochs))}} of {self.epochs}",
            "loss": f"loss {record['loss']:.4f}",
            **scores,
            "seconds": f"{record['epoch_s']:.3f} s/epoch",
        }

    def end(self) -> None:
        """End the line that was rewritten."""
        if self._is_drawn:
            sys.stderr.write("\n")
            self._is_drawn = False


def _cell(value: Any) -> str:
    """Return a value as a column of a table shows it: all numbers of a column with as many decimals."""
    return f"{value:,.3f}" if isinstance(value, float) else value_text(value)


def _plain(value: Any) -> Any:
    """Return value with NumPy's numbers and arrays as Python's, and nan and inf as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
