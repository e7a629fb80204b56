"""Edge lists as those of SNAP: `u v` or `u v weight` per line, `#` and `%` comments, plain or gzip."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import FormatError
from .. import _text
from ..formats import reader
from .make_graph import check_node_count, coo_graph
from .text import comment_lines, line_blocks, peek
from .tokens import tokenise

ENDINGS = (".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist", ".wel")
OTHER_ENDINGS = (".graph", ".metis", ".mtx", ".npz", ".npy", ".bin", ".i32", ".i64", ".json", ".index")
COMMENTS = b"#%"
COMMENT_LINES = comment_lines("#%")
BOM = b"\xef\xbb\xbf"
HEADER = re.compile(rb"nodes:?\s*(\d{1,18})[\s,|]+edges:?\s*(\d{1,18})", re.IGNORECASE)
COLUMNS = "source, target and perhaps a weight"
SOURCE_NAMES, TARGET_NAMES = ("source", "src", "from"), ("target", "dst", "destination", "to")
THIRD_COLUMN = re.compile(rb"^B*+\d++B++\d++B++[^\n]".replace(b"B", rb"[ \t,\r\v\f]"), re.MULTILINE)
WEIGHT_NAMES = ("weight", "weights", "edge_weight", "w", "value", "val")  # of a third column


@dataclass(frozen=True, slots=True)
class Head:
    """The part before the first edge: a byte order mark, comments, blank lines, names of columns.

    Args:
        n_bytes:           of it, unpacked.
        has_title:         one line of it is the names of columns.
        n_nodes, n_edges:  what a comment `# Nodes: N Edges: E` declares; 0 without one.
        n_columns:         of the first edge; 0 where there is none.
    """

    n_bytes: int
    has_title: bool
    n_nodes: int
    n_edges: int
    n_columns: int

    def check_edges(self, path, n_read: int) -> None:
        """Raise FormatError if the file has fewer edges than it declares."""
        if n_read < self.n_edges:
            raise FormatError(
                f"{path}: its header declares {self.n_edges} edges, it holds {n_read}; get the file again, or delete the header line if it is wrong"
            )


def read_head(path: Path) -> Head:
    """Read a text file up to its first edge.

    Raises: FormatError if the third column is not named as a weight, or the first has no name.
    """
    n_bytes, names, title_line, header, words = 0, [], 0, None, []
    for block, line in line_blocks(path):
        at = len(BOM) if line == 1 and block.startswith(BOM) else 0
        while True:
            start, at = at, COMMENT_LINES.match(block, at).end()
            header = header or HEADER.search(block, start, at)
            end = block.find(b"\n", at) + 1 or len(block)
            words = block[at:end].replace(b",", b" ").split()
            if names or not (names := _names_of_columns(block[at:end])):
                break
            title_line, at = line + block.count(b"\n", 0, at), end
        n_bytes += at
        if words:
            break
    if names and words:
        _check_names(f"{path}:{title_line}", names, len(words))
    n_nodes, n_edges = map(int, header.groups()) if header else (0, 0)
    return Head(n_bytes, bool(names), n_nodes, n_edges, len(words))


def edge_blocks(path: Path, head: Head, progress=None) -> Iterator[tuple[bytes, int]]:
    """Yield line_blocks from the first edge on."""
    skip = head.n_bytes
    for block, line in line_blocks(path, progress):
        if skip < len(block):
            yield block[skip:], line + block.count(b"\n", 0, skip)
        skip = max(skip - len(block), 0)


def edge_chunks(path: Path, size: int) -> Iterator[np.ndarray]:
    """Yield the ids of the edges, (m, 2) int64, at most size at a time; a third column is not read.

    Raises: FormatError with file:line.
    """
    head = read_head(path)
    for block, line in edge_blocks(path, head):
        ids, bad_line, expected, start, stop = _text.read_lines(block)
        if bad_line >= 0:
            text = block[start : min(stop, start + 60)].decode("utf-8", "replace").strip()
            raise FormatError(f"{path}:{line + bad_line}: {text!r}; expected {expected}")
        edges = np.frombuffer(ids, np.int64).reshape(-1, 2)
        # With one separator per edge no line has a third column.
        if head.n_columns == 2 and _separators(block) != len(edges) and (third := THIRD_COLUMN.search(block)):
            at = line + block.count(b"\n", 0, third.start())
            raise FormatError(f"{path}:{at}: 3 columns; expected 2 as in the lines before: {COLUMNS}")
        for start in range(0, len(edges), size):
            yield edges[start : start + size]


def is_edge_list(path: Path) -> bool:
    """a text file .txt, .tsv, .csv, .el, .edges (or .gz of it), or one whose first line is two or three numbers."""
    name = path.name.lower().removesuffix(".gz")
    if not path.is_file() or name.endswith(OTHER_ENDINGS):
        return False
    head = peek(path).removeprefix(BOM)
    if head.startswith(b"%%MatrixMarket"):
        return False
    if name.endswith(ENDINGS):
        return True
    line, end, _ = head[COMMENT_LINES.match(head).end() :].partition(b"\n")
    words = line.replace(b",", b" ").split()
    return bool(end) and len(words) in (2, 3) and all(word.isdigit() for word in words[:2])


@reader("edges", detect=is_edge_list)
def read_edges(path: Path, progress=None):
    """Read an edge list in blocks: u v -> A[u, v], the third column its weight; ids stay what they are.

    Returns: Graph with 1 + the largest id nodes, or as many as a header `# Nodes: N Edges: E` declares if
             that is more.
    Raises:  FormatError with file:line; where the ids have absurd gaps; where the header declares
             more edges than there are lines.
    """
    head = read_head(path)
    blocks, width = [], 0
    for block, line in edge_blocks(path, head, progress):
        tokens = tokenise(block, path, line)
        tokens = tokens.keep(~tokens.comment_lines(COMMENTS)[tokens.line_T])
        columns = tokens.columns((width,) if width else (2, 3), COLUMNS)
        if columns:
            width = len(columns)
            weight = columns[2].numbers("weight") if width == 3 else None
            blocks.append((columns[0].ids("source"), columns[1].ids("target"), weight))
    n_read = sum(len(src) for src, _, _ in blocks)
    head.check_edges(path, n_read)
    if not n_read and not head.n_nodes:
        raise FormatError(f"{path}: holds no edge; expected lines of {COLUMNS}")
    src, dst, weight = (_joined([block[i] for block in blocks]) for i in range(3))
    blocks.clear()
    n_nodes = max(head.n_nodes, int(src.max(initial=-1)) + 1, int(dst.max(initial=-1)) + 1)
    check_node_count(path, n_nodes, n_read, "the header" if n_nodes == head.n_nodes else f"node id {n_nodes - 1}")
    return coo_graph(
        path, src, dst, n_nodes, weight if width == 3 else None, meta={"dropped_lines": int(head.has_title)}
    )


def _separators(block: bytes) -> int:
    """Return how many blanks, tabs and commas a block has."""
    return sum(np.count_nonzero(np.frombuffer(block, np.uint8) == ord(c)) for c in " \t,")


def _names_of_columns(line: bytes) -> list[str]:
    """Return the names of columns in a line, of which the first may be empty; [] for a line of values."""
    separator = next((mark for mark in (b",", b"\t") if mark in line), None)
    cells = [cell.strip().decode("utf-8", "replace") for cell in line.split(separator)]
    names = [cell.strip("\"'").strip() for cell in cells]
    is_title = any(names) and all(not cell or cell[0].isalpha() or cell[0] in "\"'_" for cell in cells)
    return names[:1] + [name for name in names[1:] if name] if is_title else []


def _check_names(where: str, names: list[str], n_columns: int) -> None:
    """Raise FormatError unless the names fit n_columns: source, target and perhaps a weight."""
    is_unnamed = names[0].startswith("Unnamed:") or (not names[0] and n_columns == len(names))
    if is_unnamed:
        raise FormatError(
            f"{where}: the first column has no name, so it is taken for an index, as pandas writes one; "
            f"write the file with index=False, or name the columns: {COLUMNS}"
        )
    names = [name for name in names if name]
    first, second, third = (name.lower() for name in (*names, "", "", "")[:3])
    if first in TARGET_NAMES and second in SOURCE_NAMES:
        raise FormatError(
            f"{where}: names {names[0]!r} before {names[1]!r}, but the first column is read as source, the second as "
            "target; swap the columns, or the names"
        )
    if n_columns == 2 and third in WEIGHT_NAMES:
        raise FormatError(
            f"{where}: names a third column, {names[2]!r}, but the first edge has none; fill or remove it"
        )
    if n_columns == 3 and (len(names) != 3 or names[2].lower() not in WEIGHT_NAMES):
        raise FormatError(
            f"{where}: names {', '.join(map(repr, names))[:200]}, and the edges have 3 columns; the third is read as weight "
            f"if it is named {', '.join(WEIGHT_NAMES[:-1])} or {WEIGHT_NAMES[-1]}: rename it, or remove it"
        )


def _joined(arrays: list) -> np.ndarray | None:
    if not arrays:
        return np.zeros(0, np.int64)
    return None if arrays[0] is None else np.concatenate(arrays)
