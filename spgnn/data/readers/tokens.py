"""Numbers of a block of text lines, all at once: positions of the tokens, then their values.

Shapes: T tokens of the block, L its lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...errors import FormatError

SEPARATORS = b" \t,\r\n\v\f"
MAX_DIGITS = 18  # what an int64 always holds
MAX_NUMBER_BYTES = 40
CHUNK_TOKENS = 1 << 16


@dataclass(frozen=True)
class Tokens:
    """The tokens of `block`, whose first line is number first_line of path.

    Args: start_T, end_T: byte offsets of the tokens; line_T: 0-based line of the block.
    """

    path: Path
    first_line: int
    buffer: np.ndarray
    start_T: np.ndarray
    end_T: np.ndarray
    line_T: np.ndarray
    n_lines: int

    @cached_property
    def count_L(self) -> np.ndarray:
        """Tokens of each line, (L,)."""
        return np.bincount(self.line_T, minlength=self.n_lines)

    @cached_property
    def place_T(self) -> np.ndarray:
        """Place of each token in its line, from 0."""
        first_L = np.cumsum(self.count_L) - self.count_L
        return np.arange(len(self.line_T)) - first_L[self.line_T]

    def keep(self, which_T: np.ndarray | slice) -> Tokens:
        """Return some of these tokens, by a mask or a slice."""
        kept = (array[which_T] for array in (self.start_T, self.end_T, self.line_T))
        return Tokens(self.path, self.first_line, self.buffer, *kept, self.n_lines)

    def comment_lines(self, marks: bytes) -> np.ndarray:
        """Which lines start with a token that starts with one of marks, (L,) bool."""
        is_comment = np.zeros(self.n_lines, bool)
        first = self.place_T == 0
        marked = np.isin(self.buffer[self.start_T[first]], np.frombuffer(marks, np.uint8))
        is_comment[self.line_T[first][marked]] = True
        return is_comment

    def width(self, counts: tuple[int, ...], what: str) -> int:
        """Return how many tokens every line has; FormatError at the first line that has others.

        Args: counts: the widths that are allowed; () for any. Lines without a token do not count: 0 where all are.
        """
        has = self.count_L > 0
        if not has.any():
            return 0
        width = int(self.count_L[np.argmax(has)])
        if counts and width not in counts:
            l = int(np.argmax(has))
            raise FormatError(
                f"{self.where_line(l)}: {width} columns; expected {' or '.join(map(str, counts))}: {what}"
            )
        is_odd = has & (self.count_L != width)
        if is_odd.any():
            l = int(np.argmax(is_odd))
            raise FormatError(
                f"{self.where_line(l)}: {self.count_L[l]} columns; expected {width} as in the lines before: {what}"
            )
        return width

    def columns(self, counts: tuple[int, ...], what: str) -> list[Tokens]:
        """Return the tokens of each column, see width."""
        width = self.width(counts, what)
        return [self.keep(slice(column, None, width)) for column in range(width)]

    def text(self, t: int) -> str:
        """Return token t as a message shows it."""
        raw = self.buffer[self.start_T[t] : min(self.end_T[t], self.start_T[t] + 30)].tobytes()
        return repr(raw.decode("utf-8", "replace"))

    def where(self, t: int) -> str:
        """Return path:line of token t."""
        return f"{self.path}:{self.first_line + int(self.line_T[t])}"

    def where_line(self, l: int) -> str:
        """Return path:line of line l of the block."""
        return f"{self.path}:{self.first_line + int(l)}"

    def integers(self, what: str) -> np.ndarray:
        """Return the tokens as integers >= 0, (T,) int64; FormatError at the first that is none."""
        length_T = self.end_T - self.start_T
        value_T = np.zeros(len(length_T), np.int64)
        is_bad = length_T > MAX_DIGITS
        for place in range(min(int(length_T.max(initial=0)), MAX_DIGITS)):  # from the last digit on
            has = length_T > place
            digit = self.buffer[np.where(has, self.end_T - 1 - place, 0)].astype(np.int64) - ord("0")
            is_bad |= has & ((digit < 0) | (digit > 9))
            value_T += np.where(has & ~is_bad, digit, 0) * 10**place
        if is_bad.any():
            t = int(np.argmax(is_bad))
            raise FormatError(
                f"{self.where(t)}: {what} is {self.text(t)}; expected an integer from 0 to 10^{MAX_DIGITS} - 1"
            )
        return value_T

    def ids(self, what: str) -> np.ndarray:
        """Return integers(what) as int32 where they fit, else int64."""
        value_T = self.integers(what)
        return value_T.astype(np.int32) if value_T.max(initial=0) < 2**31 - 1 else value_T

    def numbers(self, what: str) -> np.ndarray:
        """Return the tokens as finite numbers, (T,) float64; FormatError at the first that is none."""
        length_T = self.end_T - self.start_T
        width = int(length_T.max(initial=1))
        if width > MAX_NUMBER_BYTES:
            t = int(np.argmax(length_T))
            raise FormatError(
                f"{self.where(t)}: {what} is {self.text(t)}; expected a number of at most {MAX_NUMBER_BYTES} bytes"
            )
        value_T = np.empty(len(length_T))
        for first in range(0, len(length_T), CHUNK_TOKENS):
            chunk = slice(first, first + CHUNK_TOKENS)
            chars = self._characters(chunk, width)
            try:
                if (chars == ord("_")).any():  # Python reads 1_0 as 10
                    raise ValueError
                value_T[chunk] = chars.view(f"S{width}").ravel().astype(np.float64)
            except ValueError:
                t = first + next(t for t in range(len(chars)) if not _is_number(chars[t].tobytes()))
                raise FormatError(f"{self.where(t)}: {what} is {self.text(t)}; expected a number") from None
        if not np.isfinite(value_T).all():
            t = int(np.argmax(~np.isfinite(value_T)))
            raise FormatError(f"{self.where(t)}: {what} is {self.text(t)}; expected a finite number")
        return value_T

    def _characters(self, chunk: slice, width: int) -> np.ndarray:
        """Return the bytes of the tokens in chunk, zeros behind them, (tokens, width) uint8."""
        place = np.arange(width)
        start, end = self.start_T[chunk, None], self.end_T[chunk, None]
        inside = start + place < end
        return np.where(inside, self.buffer[np.where(inside, start + place, 0)], np.uint8(0))


def tokenise(block: bytes, path: Path, first_line: int) -> Tokens:
    """Return the Tokens of a block of whole lines, separated by blanks, tabs or commas."""
    buffer = np.frombuffer(block, np.uint8)
    is_separator = np.zeros(256, bool)
    is_separator[list(SEPARATORS)] = True
    between = np.ones(len(buffer) + 2, bool)
    between[1:-1] = is_separator[buffer]
    edges = np.flatnonzero(between[1:] != between[:-1])
    start_T, end_T = edges[0::2], edges[1::2]
    newlines = np.flatnonzero(buffer == ord("\n"))
    n_lines = len(newlines) + (not block.endswith(b"\n"))
    return Tokens(path, first_line, buffer, start_T, end_T, np.searchsorted(newlines, start_T), n_lines)


def _is_number(raw: bytes) -> bool:
    try:
        float(raw.rstrip(b"\0"))
    except ValueError:
        return False
    return b"_" not in raw
