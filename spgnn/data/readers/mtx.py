"""MatrixMarket: coordinate real, integer or pattern, general or symmetric, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...graph import Graph
from ..formats import LISTED, Progress, reader
from .edge_features import listed_graph
from .lines import EdgeLines
from .make_graph import check_node_count
from .text import comments_end, line_blocks, peek, text_bytes_bound, without_packing

BANNER = b"%%matrixmarket"
COMMENTS_END = comments_end("%")
VALUES = ("real", "integer", "pattern", "double")
SYMMETRIES = ("general", "symmetric")
MIN_LINE_BYTES = 4  # "1 1\n"


def is_mtx(path: Path) -> bool:
    """a file .mtx or .mtx.gz, or one that starts with %%MatrixMarket."""
    if not path.is_file():
        return False
    return without_packing(path.name.lower()).endswith(".mtx") or peek(path)[: len(BANNER)].lower() == BANNER


@reader("mtx", detect=is_mtx, takes=LISTED)
def read_mtx(path: Path, progress: Progress = None, **options) -> Graph:
    """Read a MatrixMarket file: entry i j v -> A[i-1, j-1] = v, and A[j-1, i-1] too if it is symmetric.

    The sizes in the header are first compared with the size of the file: scipy.io.mmread allocates what it declares.
    """
    ids: list[np.ndarray] = [np.zeros((0, 2), np.int32)]
    weights = [np.zeros(0)]
    blocks, n_read = line_blocks(path, progress), 0
    is_pattern, is_symmetric, n_nodes, n_entries, rest = _read_header(path, blocks)
    names, what = ("row", "column", "value"), "row, column" + ("" if is_pattern else ", value")
    count, weight = (2, -1) if is_pattern else (3, 2)
    lines = EdgeLines(count, weight=weight, low=1, high=n_nodes, marks="%", names=names, what=what)
    for block, line in chain([rest], blocks):
        entries, values = lines.read(block, path, line)
        ids.append((entries - 1).astype(np.int32 if n_nodes < 2**31 else np.int64))
        weights.append(values)
        n_read += len(entries)
        if n_read > n_entries:
            raise FormatError(f"{path}: more entries than the {n_entries} that its size line declares")
    if n_read < n_entries:
        raise FormatError(f"{path}: {n_read} entries; its size line declares {n_entries}; was the file cut off?")
    weight_E = None if is_pattern else np.concatenate(weights)
    return listed_graph(path, np.concatenate(ids), n_nodes, weight_E, options, is_symmetric)


def _read_header(path: Path, blocks: Iterator[tuple[bytes, int]]) -> tuple[bool, bool, int, int, tuple[bytes, int]]:
    """Return (is_pattern, is_symmetric, n_nodes, n_entries, (rest of the size line's block, its line)), all checked."""
    block, line = next(blocks, (b"", 1))
    banner, _, block = block.partition(b"\n")
    words = banner.decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[0].encode() != BANNER:
        raise FormatError(f"{path}:1: is {banner[:60]!r}; expected %%MatrixMarket matrix coordinate VALUES SYMMETRY")
    _, kind, form, values, symmetry = words
    if (kind, form) != ("matrix", "coordinate") or values not in VALUES or symmetry not in SYMMETRIES:
        raise FormatError(
            f"{path}:1: {kind} {form} {values} {symmetry} is not a graph; expected matrix coordinate, "
            f"one of {', '.join(VALUES)}, and one of {', '.join(SYMMETRIES)}"
        )
    for block, line in chain([(block, line + 1)], blocks):
        at = COMMENTS_END(block)
        if at < len(block):
            break
    else:
        raise FormatError(f"{path}: no size line; expected rows, columns, entries; was the file cut off?")
    line += block.count(b"\n", 0, at)
    sizes, _, rest = block[at:].partition(b"\n")
    words = sizes.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) < 19 for word in words):
        raise FormatError(f"{path}:{line}: {sizes[:60]!r}; expected three integers: rows, columns, entries")
    n_rows, n_columns, n_entries = map(int, words)
    if n_rows != n_columns:
        raise FormatError(f"{path}:{line}: {n_rows} rows and {n_columns} columns; expected as many, the nodes")
    if n_entries * MIN_LINE_BYTES > text_bytes_bound(path):
        raise FormatError(f"{path}:{line}: declares {n_entries} entries, more than {path.stat().st_size} bytes hold")
    check_node_count(path, n_rows, n_entries, f"the size line, {line},")
    return values == "pattern", symmetry == "symmetric", n_rows, n_entries, (rest, line + 1)
