"""Edges, or rows of numbers, of blocks of text lines; a FormatError names file, line, column and value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import FormatError
from .. import _text
from .npz import read_npy
from .text import Progress, line_blocks

MOST_ID = 10**18 - 1
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
NUMBER = re.compile(rb"[-+]?[\d.]+(?:[eE][-+]?\d+)?")
PERCENT = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?) ?%")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")
SHOWN_BYTES = 30  # of a bad value


class EmptyCell(FormatError):
    """A line whose ids and weight are there, and another cell is empty."""


@dataclass(frozen=True, slots=True)
class EdgeLines:
    """Which columns of a line are source, target and weight (-1: none), and what may stand there.

    Args:
        count   columns of every line, separated by blanks, tabs, commas or semicolons.
        low, high  ids that exist; high None: any up to 10^18 - 1.
        marks   characters that start a comment line.
        names   of the three columns, and what a line holds, for messages.
    """

    count: int
    source: int = 0
    target: int = 1
    weight: int = -1
    low: int = 0
    high: int = MOST_ID
    marks: str = "#%"
    names: tuple[str, str, str] = ("source", "target", "weight")
    what: str = "source, target and perhaps a weight"

    def read(self, block: bytes, path: Path, line: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids (m, 2) int64 and the weights (m,) float64, or (0,) without, of whole lines, the first of number line."""
        where = (self.count, self.source, self.target, self.weight)
        ids, weights, fault = _text.read_edges(block, *where, self.low, self.high, self.marks)
        if fault is not None:
            if fault[1] == "columns" and fault[2] < self.count:
                self._check_cells(f"{path}:{line + fault[0]}", block.split(b"\n", fault[0] + 1)[fault[0]])
            raise FormatError(f"{path}:{line + fault[0]}: {self._message(*fault[1:])}")
        return np.frombuffer(ids, np.int64).reshape(-1, 2), np.frombuffer(weights)

    def _check_cells(self, where: str, line: bytes) -> None:
        """Raise FormatError if cells of a line are empty that has as many as the others."""
        cells = next(
            (line.split(mark) for mark in (b",", b";", b"\t") if line.count(mark) + 1 == self.count > 1), [b"-"]
        )
        if all(cell.strip() for cell in cells):
            return
        for name, column in zip(self.names, (self.source, self.target, self.weight)):
            if column >= 0 and not cells[column].strip():
                none = ", or read none by --weight none of `spgnn convert`" if column == self.weight else ""
                raise FormatError(f"{where}: the {name} is missing; fill it, or omit the line{none}")
        raise EmptyCell(f"{where}: a cell is empty; first read the table by `spgnn convert`")

    def _message(self, fault: str, column: int, text: bytes) -> str:
        if fault == "columns":
            return f"{column} columns; expected {self.count} as in the lines before: {self.what}"
        name = self.names[(self.source, self.target, self.weight).index(column)]
        if fault == "range":
            return f"{name} {text.decode()}; expected {self.low} to {self.high}"
        if fault == "number":
            return f"{name} is {shown(text)}; {number_wanted(text.decode('utf-8', 'replace'), column == self.weight)}"
        if self.low or NUMBER.fullmatch(text):
            return f"{name} is {shown(text)}; expected an integer from {self.low} to 10^18 - 1"
        return f"{name} is {shown(text)}; expected an integer from 0, or names with --relabel of `spgnn convert`"


def read_rows(
    path: Path, what: str, marks: str = "", progress: Progress = None
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield (values float64, numbers of each line, number of the first line) of blocks of lines; -1 numbers: a comment.

    Raises: FormatError for what is no finite number.
    """
    for block, line in line_blocks(path, progress, has_long_lines=True):
        values, counts, fault = _text.read_rows(block, marks)
        if fault is not None:
            raise FormatError(f"{path}:{line + fault[0]}: {what} is {shown(fault[3])}; expected a finite number")
        yield np.frombuffer(values), np.frombuffer(counts, np.int64), line


def whole(values: np.ndarray, counts: np.ndarray, where: tuple[Path, int], what: str) -> np.ndarray:
    """Return the values of read_rows as int64; FormatError names the line of the first that is no integer >= 0.

    Args: where  (path, first line).
    """
    bad = (values < 0) | (values != np.floor(values)) | (values >= 2.0**53)
    if bad.any():
        at = int(np.argmax(bad))
        line = where[1] + int(np.searchsorted(np.cumsum(np.maximum(counts, 0)), at, side="right"))
        raise FormatError(f"{where[0]}:{line}: {what} is '{values[at]:.17g}'; expected an integer from 0 to 2^53")
    return values.astype(np.int64)


def read_integers(path: Path, what: str) -> np.ndarray:
    """Return the integers >= 0 of a text file, int64; FormatError names the line of the first that is none."""
    return np.concatenate([whole(values, counts, (path, line), what) for values, counts, line in read_rows(path, what)])


def read_owner(path: Path) -> np.ndarray:
    """Return the part of each node, of an .npy, or of a text file with a number per line, as METIS writes it."""
    if path.suffix.lower() == ".npy":
        return read_npy(path)
    return read_integers(path, "part")


def number_wanted(text: str, is_weight: bool = True) -> str:
    """Return what is expected instead of a text, and for weights how to go on."""
    if THOUSANDS.fullmatch(text):
        return f"expected a finite number without commas: {text.replace(',', '')}, or {text.replace(',', '.')}"
    if DECIMAL_COMMA.fullmatch(text):
        return f"expected a finite number, with a point: {text.replace(',', '.')}"
    if found := PERCENT.fullmatch(text):
        return f"expected a finite number without %: {found[1]}"
    if text.isdigit() and not text.isascii():
        return (
            f"expected a finite number, of the digits 0 to 9: {int(text)}" if text.isdecimal() else "expected a number"
        )
    if not is_weight or text[:1] in "-+0123456789.":
        return "expected a finite number"
    return "expected a finite number; `spgnn convert --weight none` reads no weights, and each row is an edge"


def shown(text: bytes) -> str:
    """Return a value as a message shows it."""
    return repr(text[:SHOWN_BYTES].decode("utf-8", "replace"))
