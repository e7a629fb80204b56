"""MatrixMarket: coordinate real, integer or pattern, general or symmetric, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from ...errors import FormatError
from ..formats import reader
from .make_graph import check_node_count, coo_graph
from .text import comment_lines, line_blocks, peek, text_bytes_bound
from .tokens import Tokens, tokenise

BANNER = b"%%matrixmarket"
COMMENT_LINES = comment_lines("%")
VALUES = ("real", "integer", "pattern", "double")
SYMMETRIES = ("general", "symmetric")
MIN_LINE_BYTES = 4  # "1 1\n"


def is_mtx(path: Path) -> bool:
    """a file .mtx or .mtx.gz, or one that starts with %%MatrixMarket."""
    if not path.is_file():
        return False
    return path.name.lower().removesuffix(".gz").endswith(".mtx") or peek(path)[: len(BANNER)].lower() == BANNER


@reader("mtx", detect=is_mtx)
def read_mtx(path: Path, progress=None):
    """Read a MatrixMarket file: entry i j v -> A[i-1, j-1] = v, and A[j-1, i-1] too if it is symmetric.

    The header is held against the size of the file first: scipy.io.mmread allocates what it declares.
    """
    src, dst, weight, n_read = [], [], [], 0
    blocks = line_blocks(path, progress)
    is_pattern, is_symmetric, n_nodes, n_entries, *rest = _read_header(path, blocks)
    for block, line in chain([rest], blocks):
        columns = tokenise(block, path, line).columns(
            (2,) if is_pattern else (3,), "row, column" + ("" if is_pattern else ", value")
        )
        if not columns:
            continue
        src.append(_node_ids(columns[0], n_nodes, "row"))
        dst.append(_node_ids(columns[1], n_nodes, "column"))
        weight.append(np.ones(len(src[-1]), np.float32) if is_pattern else columns[2].numbers("value"))
        n_read += len(src[-1])
        if n_read > n_entries:
            raise FormatError(f"{path}: more entries than the {n_entries} that its size line declares")
    if n_read < n_entries:
        raise FormatError(f"{path}: {n_read} entries; its size line declares {n_entries}; was the file cut off?")
    src, dst, weight = (
        np.concatenate([np.zeros(0, kind), *x]) for x, kind in ((src, np.int32), (dst, np.int32), (weight, np.float32))
    )
    if is_symmetric:
        off = src != dst
        src, dst, weight = (np.concatenate([a, b[off]]) for a, b in ((src, dst), (dst, src), (weight, weight)))
    return coo_graph(path, src, dst, n_nodes, None if is_pattern else weight)


def _read_header(path: Path, blocks: Iterator[tuple[bytes, int]]) -> tuple:
    """Return (is_pattern, is_symmetric, n_nodes, n_entries, rest of the size line's block, its line), all checked."""
    block, line = next(blocks, (b"", 1))
    banner, _, block = block.partition(b"\n")
    words = banner.decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[0].encode() != BANNER:
        raise FormatError(
            f"{path}:1: starts with {banner[:60]!r}; expected %%MatrixMarket matrix coordinate VALUES SYMMETRY"
        )
    _, kind, form, values, symmetry = words
    if (kind, form) != ("matrix", "coordinate") or values not in VALUES or symmetry not in SYMMETRIES:
        raise FormatError(
            f"{path}:1: {kind} {form} {values} {symmetry} is not a graph; expected matrix coordinate, "
            f"one of {', '.join(VALUES)}, and one of {', '.join(SYMMETRIES)}"
        )
    for block, line in chain([(block, line + 1)], blocks):
        at = COMMENT_LINES.match(block).end()
        if at < len(block):
            break
    else:
        raise FormatError(f"{path}: no size line; expected rows, columns, entries; was the file cut off?")
    line += block.count(b"\n", 0, at)
    sizes, _, rest = block[at:].partition(b"\n")
    columns = tokenise(sizes, path, line).columns((3,), "rows, columns, entries")
    n_rows, n_columns, n_entries = (int(c.integers("size")[0]) for c in columns)
    if n_rows != n_columns:
        raise FormatError(
            f"{path}:{line}: {n_rows} rows and {n_columns} columns; expected equal numbers: both are the nodes"
        )
    if n_entries * MIN_LINE_BYTES > text_bytes_bound(path):
        raise FormatError(
            f"{path}:{line}: declares {n_entries} entries, more than its {path.stat().st_size} bytes can hold"
        )
    check_node_count(path, n_rows, n_entries, f"the size line, {line},")
    return values == "pattern", symmetry == "symmetric", n_rows, n_entries, rest, line + 1


def _node_ids(tokens: Tokens, n_nodes: int, what: str) -> np.ndarray:
    """Return the 1-based tokens as 0-based ids."""
    ids = tokens.ids(what) - 1
    bad = (ids < 0) | (ids >= n_nodes)
    if bad.any():
        t = int(np.argmax(bad))
        raise FormatError(f"{tokens.where(t)}: {what} {ids[t] + 1}; expected 1 to {n_nodes}")
    return ids
