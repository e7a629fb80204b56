"""Write results to stdout and messages to stderr: tables, JSON lines, bars of progress, byte counts."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from ..errors import printable, styled
from ..terminal import redraw, say, terminal_columns

SECONDS_BETWEEN_LINES = 3.0
BAR_WIDTH = 28
MOST_NAMES = 12  # of a list
UNITS = ("B", "kB", "MB", "GB", "TB")
Row = Mapping[str, Any]
Columns = Mapping[str, str]

LABELS = {
    "n": "nodes", "sources": "  sources", "targets": "  targets", "types": "  types", "nnz": "nonzeros", "self_loops": "self-loops", "isolated": "isolated nodes",
    "edge_attr": "attributes of edges", "parallel": "  parallel edges", "edges_listed": "  edges of the list",
    "edge_features": "  their names", "antisymmetric": "  antisymmetric", "edge_task": "labels of edges",
    "edge_classes": "  their classes", "edge_labelled": "  labelled edges", "edge_train": "  train edges",
    "edge_val": "  validation edges", "edge_test": "  test edges", "dropped_lines": "dropped lines",
    "sparse_features": "features are sparse", "task": "labels are", "labelled": "labelled nodes",
    "train": "  train nodes", "val": "  validation nodes", "test": "  test nodes", "peak_rss_mb": "peak memory (MB)",
    "out": "results in",
}  # fmt: skip


def write_error(text: str) -> None:
    """Write a table or messages, lines that begin with "spgnn: ", to stderr, apart from data."""
    for line in text.split("\n"):
        if line.startswith("spgnn: "):
            say(line[7:])
        else:
            sys.stderr.write(printable(line) + "\n")
    sys.stderr.flush()


def write(text: str, **style: Any) -> None:
    """Write lines of data to stdout; style: of errors.styled."""
    sys.stdout.write(styled(printable(text), sys.stdout, **style) + "\n")
    sys.stdout.flush()


def write_json(value: Mapping[str, Any]) -> None:
    """Write one object on one line to stdout; a number that is not finite becomes null."""
    write(json.dumps(_plain(value), allow_nan=False))


def fields_table(title: str, values: Mapping[str, Any]) -> str:
    """Return a title and one aligned line per key, with readable labels; long values are folded on a terminal."""
    lines = [(LABELS.get(key, key.replace("_", " ")), value_text(value)) for key, value in values.items()]
    left = max((len(label) for label, _ in lines), default=0)
    return "\n".join([folded(title)] + [folded(text, f"  {label:<{left}}  ") for label, text in lines])


def write_report(title: str, report: dict[str, Any], as_json: bool) -> None:
    """Write a report as a line of JSON; or its notes to stderr, and title and values to stdout."""
    if as_json:
        write_json(report)
        return
    for note in report.pop("notes", ()):
        say(note)
    write(fields_table(title, report))


def folded(text: str, first: str = "") -> str:
    """Return first + text, on a terminal wrapped between words at its width; further lines start below the text."""
    room = max(output_columns(), len(first) + 20)
    return textwrap.fill(
        text, room, initial_indent=first, subsequent_indent=" " * max(len(first), 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def write_table(
    rows: Sequence[Row], columns: Columns, omit: Sequence[str] = (), colour: Callable[[Row], str] | None = None
) -> None:
    """Write rows as a table to stdout, at most as wide as the terminal; all of it where there is none.

    Args: columns  key of the rows -> heading.
          omit     keys of columns to leave out, in this order, until it fits; a message counts them.
          colour   of a row on a terminal, see errors.styled.
    """
    shown = _fitting(rows, columns, omit)
    styles = [{"bold": True}, *({"colour": colour(row) if colour else ""} for row in rows), {}]
    for number, line in enumerate(rows_table(rows, shown).split("\n")):
        write(line, **styles[number % len(styles)])
    if missing := len(columns) - len(shown):
        width = rows_table(rows, columns, room=sys.maxsize).index("\n")
        say(f"{missing} more column{'s' * (missing > 1)}: COLUMNS={width} before the command, or --json")


def rows_table(rows: Sequence[Row], columns: Columns, room: int = 0) -> str:
    """Return rows as aligned columns; columns maps a key of the rows to its heading.

    Args: room  columns of the terminal; 0: those of stdout. Where the table is wider it becomes several, one below the
                other, each starting with the first column.
    """
    cells = {key: [heading, *(_cell(row[key]) for row in rows)] for key, heading in columns.items()}
    words = {key for key in columns if any(row[key][:1].isalpha() for row in rows if isinstance(row[key], str))}
    widths = {key: max(map(len, column)) for key, column in cells.items()}
    first, *others = columns
    blocks, room = [[first]], room or output_columns()
    for key in others:
        if len(blocks[-1]) > 1 and sum(widths[name] + 2 for name in (*blocks[-1], key)) - 2 > room:
            blocks.append([first])
        blocks[-1].append(key)
    aligned = {
        key: [cell.ljust(widths[key]) if key in words else cell.rjust(widths[key]) for cell in column]
        for key, column in cells.items()
    }
    return "\n\n".join(
        "\n".join("  ".join(line).rstrip() for line in zip(*(aligned[key] for key in block))) for block in blocks
    )


def _fitting(rows: Sequence[Row], columns: Columns, omit: Sequence[str]) -> Columns:
    """Return the columns without as many of `omit` as make the table fit the terminal."""
    shown = dict(columns)
    for key in omit:
        if "\n\n" not in rows_table(rows, shown):
            break
        shown.pop(key, None)
    return shown


def in_one_unit(rows: Sequence[dict[str, Any]], key: str, per: str) -> str:
    """Return the heading of a column of bytes, such as MB/epoch; its numbers become those in this unit."""
    largest = max((row[key] for row in rows if row[key] is not None), default=0)
    power = min(max(len(str(int(largest))) - 1, 0) // 3, len(UNITS) - 1)
    decimals = max(4 + 3 * power - len(str(int(largest))), 0) if power else 0
    for row in rows:
        row[key] = "" if row[key] is None else f"{row[key] / 1000**power:,.{decimals}f}"
    return f"{UNITS[power]}/{per}"


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
        if len(value) > MOST_NAMES and isinstance(value[0], str):
            return f"{', '.join(value[:MOST_NAMES])}, ... ({len(value):,})"
        return ", ".join(value_text(v) for v in value) or "none"
    return str(value)


def bytes_text(count: float) -> str:
    """Return a byte count with its unit: 3.42 MB; powers of 1,000."""
    for unit in UNITS[:-1]:
        if abs(count) < 1000:
            break
        count /= 1000
    else:
        unit = UNITS[-1]
    return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"


def output_columns() -> int:
    """Return COLUMNS, or the columns of the terminal on stdout; no limit if that is a pipe or file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def page_width(stream: TextIO) -> int | None:
    """Return the width of click's help, 78 of 80 columns, where stream is a pipe or file; on a terminal None."""
    return None if stream.isatty() else 78


class ProgressBar:
    """Show how much is done: a bar on a terminal, otherwise a line every few seconds, on stderr.

    Call it with (done, total); use it in `with`, which ends the bar.
    """

    def __init__(self, what: str, text: Callable[[int], str] = bytes_text):
        self.what = what
        self.text = text
        self.is_terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + (0.2 if self.is_terminal else SECONDS_BETWEEN_LINES)
        self._is_drawn = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
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
        self._name, self._done = "", 0
        self._bar: ProgressBar | None = None

    def __enter__(self) -> PassBars:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)
            self._bar = None

    def __call__(self, name: str, done: int, total: int) -> None:
        if self._bar is None or name != self._name or done < self._done:
            self.__exit__()
            self._name, self._bar = name, ProgressBar(f"{self.what}: {name}", text=lambda count: f"{count:,}")
        self._done = done
        self._bar(done, total)

    def note(self, line: str) -> None:
        """Write a line of text between two bars."""
        self.__exit__()
        say(line)


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
