"""DIMACS .gr (arcs `a u v weight`, or edges `u v` of PACE) and .col (edges `e u v`), ids from 1."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...graph import Graph
from ..formats import LISTED, Progress, reader
from .edge_features import listed_graph
from .lines import EdgeLines
from .make_graph import check_node_count
from .text import line_blocks, text_bytes_bound, without_packing

PROBLEM = re.compile(rb"^p +(\w+) +(\d{1,18}) +(\d{1,18})\s*$", re.MULTILINE)
LINES = {"sp": (4, 1, 2, 3), "edge": (3, 1, 2, -1), "col": (3, 1, 2, -1), "tw": (2, 0, 1, -1)}  # count and columns


def is_dimacs(path: Path) -> bool:
    """a text file .gr or .col."""
    return path.is_file() and without_packing(path.name.lower()).endswith((".gr", ".col"))


@reader("dimacs", detect=is_dimacs, takes=LISTED)
def read_dimacs(path: Path, progress: Progress = None, **options) -> Graph:
    """Read a DIMACS graph: the arc u v w of `p sp` is A[u-1, v-1] = w; edges of `p edge` and `p tw` are both ways.

    Raises: FormatError with file:line; where the problem line declares more than the file can hold.
    """
    ids, weights = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    lines, kind, n_nodes, n_edges = None, "", 0, 0
    for block, line in line_blocks(path, progress):
        if lines is None:
            if (found := PROBLEM.search(block)) is None:
                continue
            kind, n_nodes, n_edges = found[1].decode("ascii", "replace"), int(found[2]), int(found[3])
            at = line + block.count(b"\n", 0, found.start())
            where = f"{path}:{at}"
            if kind not in LINES:
                raise FormatError(f"{where}: a problem {kind!r}; expected {', '.join(LINES)}")
            if 4 * n_edges > text_bytes_bound(path):
                raise FormatError(f"{where}: declares {n_edges} edges, more than {path.stat().st_size} bytes can hold")
            check_node_count(path, n_nodes, n_edges, "the problem line")
            lines = EdgeLines(*LINES[kind], low=1, high=n_nodes, marks="cpn#", what="as its problem line says")
        edges, values = lines.read(block, path, line)
        ids.append(edges - 1)
        weights.append(values)
    if lines is None:
        raise FormatError(f"{path}: no problem line; expected `p sp NODES EDGES`, or edge, col or tw for sp")
    ids_E2 = np.concatenate(ids)
    if kind == "sp" and len(ids_E2) < n_edges:
        raise FormatError(f"{path}: {len(ids_E2)} arcs; its problem line declares {n_edges}; was the file cut off?")
    weight_E = np.concatenate(weights) if kind == "sp" else None
    return listed_graph(path, ids_E2, n_nodes, weight_E, options, is_symmetric=kind != "sp")
