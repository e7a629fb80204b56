"""Binary edge file: pairs (u, v) of little-endian integers, .i32 and .bin of 32 bits, .i64 of 64, no header."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...graph import Graph
from ..formats import LISTED, Progress, reader
from .edge_features import listed_graph
from .make_graph import check_node_count
from .text import opened

DTYPES = {".bin": "<i4", ".i32": "<i4", ".i64": "<i8"}


def is_binary(path: Path) -> bool:
    """a file .i32, .i64 or .bin of integer pairs."""
    return path.is_file() and path.suffix.lower() in DTYPES


@reader("binary", detect=is_binary, takes=LISTED)
def read_binary(path: Path, progress: Progress = None, **options) -> Graph:
    """Read pairs u, v -> A[u, v], memory-mapped; the ending is the type: .i32 and .bin int32, .i64 int64."""
    dtype = np.dtype(DTYPES.get(path.suffix.lower(), "<i4"))
    with opened(path) as file:
        size = path.stat().st_size
        if size % (2 * dtype.itemsize):
            each = f"a multiple of {2 * dtype.itemsize}: two {dtype.name} each"
            raise FormatError(f"{path}: {size} bytes; expected {each}")
        edges = np.memmap(file, dtype, mode="r").reshape(-1, 2)
    n_nodes = 0
    for start in range(0, len(edges), 1 << 22):
        block = edges[start : start + (1 << 22)]
        if block.min() < 0:
            e = start + int(np.argmax((block < 0).any(axis=1)))
            raise FormatError(
                f"{path}: edge {e}, byte {e * 2 * dtype.itemsize}, is {edges[e, 0]} -> {edges[e, 1]}; expected ids from 0"
            )
        n_nodes = max(n_nodes, int(block.max()) + 1)
        if progress:
            progress(min(size, (start + len(block)) * 2 * dtype.itemsize), size)
    check_node_count(path, n_nodes, len(edges), f"node id {n_nodes - 1}")
    return listed_graph(path, edges, n_nodes, None, options)
