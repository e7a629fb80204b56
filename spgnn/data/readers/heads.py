"""What stands before the first edge of a text file, which columns its lines have, and the edges of lines of numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...config import TableConfig
from ...errors import FormatError, nearest
from ..formats import DEFAULTS
from .lines import DECIMAL_COMMA, EdgeLines
from .text import Progress, comments_end, line_blocks

ENDINGS = (".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist", ".wel")
COMMENTS_END = comments_end("#%")
BOM = b"\xef\xbb\xbf"
HEADER = re.compile(rb"nodes:?\s*(\d{1,18})[\s,|]+edges:?\s*(\d{1,18})", re.IGNORECASE)
IDS = re.compile(rb"(?:0|[1-9]\d{0,17})(\.0*)?")  # 007 is a name
NAMES = re.compile(rb'"|(?:^|[\s,;])(?:0\d|[A-Za-z\x80-\xff])')  # in lines of numbers
BIPARTITE = re.compile(rb"^%[ \t]*bip\b", re.MULTILINE)  # as KONECT says it
SAMPLED_BYTES = 1 << 18  # in which values of a first line are looked for
COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*", re.MULTILINE)
SOURCE_NAMES = ("source", "src", "from", "head", "subject")
TARGET_NAMES = ("target", "dst", "destination", "to", "tail", "object")
SAME_KIND = {  # words in names of columns that say which end, and not of what
    *SOURCE_NAMES, *TARGET_NAMES, *"id ids node nodes name key no num number index idx vertex entity".split(), "",
    *"a b i j u v x y l r s t h in out left right first second begin start end origin dest sender receiver recipient".split(),
    *"parent child ancestor descendant one two other orig of the".split(),
}  # fmt: skip
WEIGHT_NAMES = ("weight", "weights", "edge_weight", "w", "value", "val")


@dataclass(frozen=True, slots=True)
class Head:
    """The part before the first edge: a byte order mark, comments, blank lines, names of columns.

    Args:
        n_bytes:           of it, unpacked.
        has_title:         a line of it is no edge, but text.
        names:             of columns, where that line has them.
        n_nodes, n_edges:  what a comment `# Nodes: N Edges: E` declares; 0 without one.
        lines:             the columns of the edges; None where there is no edge.
        separator:         of cells, where it is no blank.
        is_plain:          the first edge has numbers alone, without quotes or empty cells.
        first_line:        the number of the line of the first edge.
        point:             of decimals, a comma where the first edge has it.
        taken:             what the first line was taken for, where nothing else says it.
        is_bipartite:      comments say that sources and targets are two kinds of nodes.
    """

    n_bytes: int
    has_title: bool
    names: tuple[str, ...]
    n_nodes: int
    n_edges: int
    lines: EdgeLines | None
    separator: str
    is_plain: bool
    first_line: int
    point: str = "."
    taken: str = ""
    is_bipartite: bool = False

    @property
    def has_weights(self) -> bool:
        """An edge has a weight."""
        return self.lines is not None and self.lines.weight >= 0

    @property
    def used(self) -> list[int]:
        """The columns source, target and perhaps weight."""
        columns = () if self.lines is None else (self.lines.source, self.lines.target, self.lines.weight)
        return [column for column in columns if column >= 0]

    @property
    def ends(self) -> list[str]:
        """The names of the columns source and target, or their numbers."""
        return [self.names[column] if self.names else str(column + 1) for column in self.used[:2]]

    @property
    def unread(self) -> list[str]:
        """Names of columns that are neither source, target nor weight."""
        return [name for column, name in enumerate(self.names) if column not in self.used] if self.used else []

    def edges(self, path: Path, progress: Progress = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the ids (m, 2) int64 and the weights of blocks of lines; FormatError with file:line."""
        if self.lines is not None:
            for block, line in edge_blocks(path, self, progress):
                yield self.lines.read(block, path, line)

    def check_edges(self, path: Path | str, n_read: int) -> None:
        """Raise FormatError if the file has fewer edges than it declares."""
        if n_read < self.n_edges:
            raise FormatError(
                f"{path}: its header declares {self.n_edges} edges, it holds {n_read}; get the file again, or delete the header line if it is wrong"
            )


class FirstRow(NamedTuple):
    """A line that is no comment: its first byte, unpacked, its number, its text, what comments before it say, what follows.

    Args: header  the HEADER of comments; is_bipartite: one says so; rest: the first lines after it.
    """

    start: int
    line: int
    text: bytes
    header: re.Match | None
    is_bipartite: bool
    rest: bytes


def _first_rows(path: Path) -> tuple[list[FirstRow], int]:
    """Return the first two lines that are no comments, and the bytes of a file that has fewer."""
    n_bytes, rows, header, is_bipartite = 0, [], None, False
    for block, line in line_blocks(path):
        at = len(BOM) if line == 1 and block.startswith(BOM) else 0
        while at < len(block):
            start = at
            if not rows or not _is_like(rows[0].text, block[at : block.find(b"\n", at) + 1 or len(block)]):
                at = COMMENTS_END(block, at)
            header = header or HEADER.search(block, start, at)
            is_bipartite = is_bipartite or bool(BIPARTITE.search(block[start:at]))
            if at == len(block):
                break
            end = block.find(b"\n", at) + 1 or len(block)
            text, rest = block[at:end].rstrip(b"\r\n"), block[end : end + SAMPLED_BYTES]
            rows.append(FirstRow(n_bytes + at, line + block.count(b"\n", 0, at), text, header, is_bipartite, rest))
            if len(rows) == 2:
                return rows, n_bytes
            at = end
        n_bytes += len(block)
    return rows, n_bytes


def _is_like(title: bytes, line: bytes) -> bool:
    """Whether a line that starts with # has as many cells as a line of names: a row, whose id is a hashtag."""
    mark = separator_of(title)
    return bool(mark) and line.startswith(b"#") and line.count(mark.encode()) == title.count(mark.encode())


def read_head(path: Path, wanted: TableConfig = DEFAULTS) -> Head:
    """Read a text file up to its first edge.

    Raises: FormatError if the columns that are wanted are not there, or which are source and target is not clear.
    """
    rows, n_bytes = _first_rows(path)
    known = (*SOURCE_NAMES, *TARGET_NAMES, wanted.source, wanted.target)
    names, separator, taken = _names(rows, known, wanted.source.isdigit() or wanted.target.isdigit())
    is_title = names is not None
    header = next((row.header for row in reversed(rows[: 1 + is_title]) if row.header), None)
    n_nodes, n_edges = map(int, header.groups()) if header else (0, 0)
    if len(rows) <= is_title:
        return Head(n_bytes, is_title, tuple(names or ()), n_nodes, n_edges, None, separator, True, 1)
    edge, names = rows[is_title], names or []
    lines = _lines(f"{path}:{rows[0].line}", names, edge.text, separator, wanted)
    is_plain, point = (
        _is_plain(edge.text, lines, wanted),
        "," if separator != "," and _has_commas(edge.text, separator) else ".",
    )
    return Head(
        edge.start, is_title, tuple(names), n_nodes, n_edges, lines, separator, is_plain, edge.line, point, taken,
        rows[0].is_bipartite,
    )  # fmt: skip


def has_names(path: Path, head: Head) -> bool:
    """Whether an id of a later line is a name, such as ann, or 007."""
    return any(NAMES.search(COMMENT.sub(b"", block)) for block, _ in edge_blocks(path, head))


def edge_blocks(path: Path, head: Head, progress: Progress = None) -> Iterator[tuple[bytes, int]]:
    """Yield line_blocks from the first edge on."""
    skip = head.n_bytes
    for block, line in line_blocks(path, progress):
        if skip < len(block):
            yield block[skip:], line + block.count(b"\n", 0, skip)
        skip = max(skip - len(block), 0)


def edge_chunks(path: Path, size: int) -> Iterator[np.ndarray]:
    """Yield the ids of the edges, (m, 2) int64, at most size at a time; weights are not read.

    Raises: FormatError with file:line.
    """
    head = read_head(path)
    if head.lines is None:
        return
    if not head.is_plain:
        raise FormatError(f"{path}: cells have quotes or decimal commas, or are empty; first spgnn convert {path} DST")
    for edges, _ in replace(head, lines=replace(head.lines, weight=-1)).edges(path):
        for start in range(0, len(edges), size):
            yield edges[start : start + size]


def read_title(path: Path, known: tuple[str, ...]) -> tuple[list[str], str, int, int, str]:
    """Return the names of the columns of a table, or their numbers, its separator, the first byte and line of its rows, and Head.taken."""
    rows, _ = _first_rows(path)
    names, separator, taken = _names(rows, known)
    if len(rows) <= (names is not None):
        raise FormatError(f"{path}: holds no row below its names")
    first = rows[names is not None]
    return (
        names or [str(c + 1) for c in range(len(cells_of(first.text, separator)))],
        separator,
        first.start,
        first.line,
        taken,
    )


def _names(rows: list[FirstRow], known: tuple[str, ...], by_number: bool = False) -> tuple[list[str] | None, str, str]:
    """Return the names of columns of a first line, or None where it is a row, the separator, and a note on a guess.

    They are names where one is known; or where none is a number, and the next line has some. A line of text before others
    is taken for a row where a value of it comes again, or columns are given by_number; where cells have no separator too.
    """
    separator = separator_of(rows[0].text) if rows else ""
    cells = [cells_of(row.text, separator) for row in rows]
    if not rows or any(map(is_number_text, cells[0])):
        return None, separator, ""
    if {name.lower() for name in cells[0]} & {name.lower() for name in known if name}:
        return cells[0], separator, ""
    if len(rows) > 1 and any(map(is_number_text, cells[1])):
        return cells[0], separator, ""
    shown = f"the first line ({', '.join(cells[0])[:80]}) was taken for"
    words = {cell for cell in cells[0] if cell}
    again = (words & {*cells_of(line, separator)} for line in (rows[0].rest.splitlines() if separator else ()))
    if not separator or len(rows) < 2 or by_number or any(again):
        return None, separator, f"{shown} a row, not for names of columns" if separator else ""
    return cells[0], separator, f"{shown} names of columns"


def kinds_of(ends: list[str], is_bipartite: bool = False) -> list[str]:
    """Return the names of the columns of edges where they are of two kinds of nodes, as customer and product; else []."""
    words = [{*re.split("[^a-z]+", name.lower().removesuffix("id"))} - SAME_KIND for name in ends]
    is_kind = all(words) and words[0].isdisjoint(words[1]) and len({min(word)[:3] for word in words}) == 2
    return ends if is_bipartite or is_kind else []


def column_of(where: str, names: list[str], wanted: str, option: str) -> int:
    """Return the place of a column that an option names; FormatError with the names that there are."""
    if wanted in names:
        return names.index(wanted)
    if wanted.isascii() and wanted.isdigit() and 0 < int(wanted) <= (len(names) or 100):
        return int(wanted) - 1
    if names:
        raise FormatError(f"{where}: no column {wanted!r} ({option}){nearest(wanted, names)}")
    raise FormatError(f"{where}: no line of names; give {option} the number of a column, from 1, not {wanted!r}")


def edge_columns(where: str, names: list[str], count: int, wanted: TableConfig) -> tuple[int, int, int]:
    """Return the places of source, target and weight (-1: none) of tables of so many columns, by options and names."""
    lower = [name.lower() for name in names]
    known = lambda which: next((lower.index(name) for name in which if name in lower), None)
    source = column_of(where, names, wanted.source, "--source") if wanted.source else known(SOURCE_NAMES)
    target = column_of(where, names, wanted.target, "--target") if wanted.target else known(TARGET_NAMES)
    if source is None and target is None and names and (not names[0] or names[0].startswith("Unnamed:")):
        raise FormatError(
            f"{where}: the first column has no name, so it is taken for an index, as pandas writes one; "
            "write the file with index=False, or name the columns: source, target and perhaps weight"
        )
    if count < 2:
        raise FormatError(f"{where}: {count} columns; expected source and target, and perhaps a weight")
    if count > 3 and not names and not wanted.source:
        raise FormatError(
            f"{where}: {count} columns; expected 2 or 3: source, target and perhaps a weight; name them with --source 1 "
            "--target 2 --weight 3 of `spgnn convert`, or in a first line"
        )
    source = (1 if target == 0 else 0) if source is None else source
    target = (1 if source == 0 else 0) if target is None else target
    if wanted.weight == "none":
        weight = None
    elif wanted.weight:
        weight = column_of(where, names, wanted.weight, "--weight")
    else:
        weight = known(WEIGHT_NAMES) if names else 2 if count == 3 and {source, target} == {0, 1} else None
        attributes = ",".join((wanted.edge_features, wanted.edge_labels, wanted.edge_split)).split(",")
        if weight is not None and (names[weight] if names else str(weight + 1)) in attributes:
            weight = None  # a length of 0 is no missing edge
    used = (source, target) if weight is None or weight in (source, target) else (source, target, weight)
    if source == target or max(used) >= count:
        has = f"it has {_list(names)}" if names else f"there are {count}"
        raise FormatError(f"{where}: source, target, weight are columns {', '.join(str(c + 1) for c in used)}; {has}")
    return source, target, used[2] if len(used) == 3 else -1


def _lines(where: str, names: list[str], edge: bytes, separator: str, wanted: TableConfig) -> EdgeLines:
    """Return which columns of lines like the first edge are source, target and weight."""
    cells, count = cells_of(edge, separator), len(words_of(edge))
    if b"{'" in edge:
        raise FormatError(f"{where}: edges have a dict; spgnn.load_graph(networkx.read_edgelist(FILE)) loads them")
    if count < 2 and b"|" in edge:
        raise FormatError(f"{where}: cells are separated by |; expected commas: tr '|' ',' < FILE")
    if names and not names[0] and not cells[0]:  # tabs before each line
        del names[0], cells[0]
    if (names and len(names) == len(cells)) or _has_commas(edge, separator):
        count = len(cells)
    elif names and len(names) != count:
        lower = [name.lower() for name in names]
        if len(names) == 3 and count == 2 and lower[2] in WEIGHT_NAMES:
            raise FormatError(f"{where}: names a third column, {names[2]!r}, which the first edge lacks; fill it")
        if set(lower) & {*SOURCE_NAMES, *TARGET_NAMES}:
            raise FormatError(f"{where}: names {_list(names)}, and the first edge has {count} columns; name each")
        names.clear()
    if count == 3 and not (names or wanted.source or wanted.target or wanted.weight or is_number_text(cells[2])):
        if not all(map(is_number_text, cells[:2])):
            raise FormatError(
                f"{where}: the third column is {cells[2]!r}, no weight: name the columns by --source 1 --target 3, or omit "
                "weights by --weight none of `spgnn convert`"
            )
    return EdgeLines(count, *edge_columns(where, names, count, wanted))


def _is_plain(edge: bytes, lines: EdgeLines | None, wanted: TableConfig) -> bool:
    """Whether lines like the first edge are numbers without quotes and empty cells, or are to be refused as such."""
    words = words_of(edge)
    if lines is None or b'"' in edge or lines.count != len(words):
        return lines is None
    ids = [words[column] for column in (lines.source, lines.target)]
    return all(map(IDS.fullmatch, ids)) or not wanted.relabel


def separator_of(line: bytes) -> str:
    """Return what stands between the cells of a line; "" for blanks. A comma may begin decimals."""
    text = line.decode("utf-8", "replace")
    for mark in (";", "\t", ""):
        cells = [cell.strip() for cell in text.split(mark or None)]
        if len(cells) > 1 + (not mark) and "," not in cells[0] and any(map(DECIMAL_COMMA.fullmatch, cells)):
            return mark
    return next((mark for mark in ",;\t" if mark in text), "")


def _has_commas(line: bytes, separator: str) -> bool:
    """Whether cells of a line are numbers with a decimal comma."""
    return any(map(DECIMAL_COMMA.fullmatch, cells_of(line, separator)))


def cells_of(line: bytes, separator: str) -> list[str]:
    """Return the cells of a line without quotes around them, those at the end only if they are filled."""
    text = line.decode("utf-8", "replace")
    try:
        cells = next(csv.reader([text], delimiter=separator), []) if separator else text.split()
    except csv.Error:  # a carriage return within the line, or a cell of over 128 kB
        cells = text.split(separator)
    cells = [cell.strip().strip("\"'").strip() for cell in cells]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def words_of(line: bytes) -> list[bytes]:
    words = line.replace(b",", b" ").replace(b";", b" ").split()
    return [word for word in words if word != b"{}"]


def is_number_text(cell: str) -> bool:
    """Whether a cell is a number, of the digits 0 to 9."""
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))[:200]
