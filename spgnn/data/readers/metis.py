"""METIS .graph: line i lists the neighbours of node i, from 1; edge weights are used, node weights are not.

Source: METIS 5 manual, section 4.1.1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...config.names import Duplicates
from ...errors import FormatError
from ...graph import Graph
from ..formats import Progress, reader
from .lines import read_rows, whole
from .make_graph import coo_graph
from .text import peek, text_bytes_bound, without_packing

ENDINGS = (".graph", ".metis")
PICKLE = b"\x80"


def is_metis(path: Path) -> bool:
    """a text file .graph or .metis."""
    name = without_packing(path.name.lower())
    return path.is_file() and name.endswith(ENDINGS) and peek(path, 1) != PICKLE


@reader("metis", detect=is_metis, takes=("duplicates",))
def read_metis(path: Path, progress: Progress = None, duplicates: Duplicates = "auto") -> Graph:
    """Read a METIS graph: header `n m [fmt [ncon]]`, then a line per node; `%` lines are comments.

    Raises: FormatError with file:line; where the header's counts are not the file's; where u lists v
            and v does not list u.
    """
    header, n_lines, src, dst, weight = None, 0, [], [], []
    for values, counts, line in read_rows(path, "number", "%", progress):
        if header is None:
            if not np.any(counts > 0):
                continue
            first = int(np.argmax(counts > 0))
            header = _header(path, line + first, values[: counts[first]])
            values, counts, line = values[counts[first] :], counts[first + 1 :], line + first + 1
        n_nodes = header[0]
        line_L = line + np.flatnonzero(counts >= 0)  # of the file, without comments
        counts = counts[counts >= 0]
        beyond = np.flatnonzero((counts > 0) & (n_lines + np.arange(len(counts)) >= n_nodes))
        if len(beyond):
            raise FormatError(f"{path}:{line_L[beyond[0]]}: a line for a node after the {n_nodes} of the header")
        rows, ids, weights = _neighbours(path, values, counts, line_L, header)
        dst.append(ids - 1)
        src.append((n_lines + rows).astype(ids.dtype))
        weight.append(weights)
        n_lines += len(counts)
    if header is None:
        raise FormatError(f"{path}: no header line; expected `n m [fmt [ncon]]`")
    n_nodes, n_edges, has_weights, skip = header
    if n_lines < n_nodes:
        raise FormatError(f"{path}: lines for {n_lines} nodes; the header declares {n_nodes}; was the file cut off?")
    src, dst = np.concatenate(src), np.concatenate(dst)
    if len(src) != 2 * n_edges:
        raise FormatError(
            f"{path}: {len(src)} neighbours; expected {2 * n_edges} for {n_edges} edges of the header, as METIS lists each edge "
            "at both of its ends"
        )
    meta = {"node_weights": "ignored"} if skip else {}
    graph = coo_graph(path, src, dst, n_nodes, np.concatenate(weight) if has_weights else None, duplicates, meta=meta)
    if not graph.is_symmetric:
        raise FormatError(f"{path}: {_one_way(graph.A)}; METIS lists an edge at both ends, with one weight")
    return graph


def _header(path: Path, line: int, values: np.ndarray) -> tuple[int, int, bool, int]:
    """Return (nodes, edges, has edge weights, numbers before the neighbours), checked against the file's size."""
    where = f"{path}:{line}"
    if not 2 <= len(values) <= 4:
        raise FormatError(f"{where}: {len(values)} numbers; expected `n m [fmt [ncon]]`")
    counts = np.array([len(values)])
    n_nodes, n_edges, form, n_constraints = [*map(int, whole(values, counts, (path, line), "header")), 0, 0][:4]
    flags = f"{form:03d}"
    if len(flags) > 3 or set(flags) - {"0", "1"}:
        raise FormatError(f"{where}: fmt {form}; expected three digits 0 or 1, such as 0, 1, 10, 11")
    if n_constraints > 1000:
        raise FormatError(f"{where}: {n_constraints} weights per node; expected at most 1000")
    has_sizes, has_node_weights, has_weights = (digit == "1" for digit in flags)
    bound = text_bytes_bound(path)
    if n_nodes > bound or 2 * n_edges > bound:  # a node takes a newline, an end of an edge a number and a blank
        raise FormatError(
            f"{where}: declares {n_nodes} nodes, {n_edges} edges, more than {path.stat().st_size} bytes hold"
        )
    return n_nodes, n_edges, has_weights, has_sizes + has_node_weights * max(n_constraints, 1)


def _neighbours(
    path: Path, values: np.ndarray, counts: np.ndarray, line_L: np.ndarray, header: tuple[int, int, bool, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the row of each neighbour, from 0, its id, from 1, checked, and its weight where the file has weights."""
    n_nodes, _, has_weights, skip = header
    left = counts - skip
    odd = np.flatnonzero((counts > 0) & ((left < 0) | (has_weights & (left % 2 == 1))))
    if len(odd):
        rest = "pairs" if has_weights else "neighbours"
        raise FormatError(f"{path}:{line_L[odd[0]]}: {counts[odd[0]]} numbers; expected {skip} and then {rest}")
    rows = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts) - skip
    is_id = (place >= 0) & ((place % 2 == 0) | (not has_weights))
    ids, rows = values[is_id], rows[is_id]
    bad = np.flatnonzero((ids < 1) | (ids > n_nodes) | (ids != np.floor(ids)))
    if len(bad):
        raise FormatError(f"{path}:{line_L[rows[bad[0]]]}: neighbour {ids[bad[0]]:.17g}; expected 1 to {n_nodes}")
    weights = values[(place >= 0) & (place % 2 == 1)] if has_weights else None
    return rows, ids.astype(np.int32 if n_nodes < 2**31 else np.int64), weights


def _one_way(A: sp.csr_array) -> str:
    """Return the edge that lacks its reverse, with the file's node numbers."""
    rows, columns = (A != A.T).nonzero()
    return f"node {rows[0] + 1} and node {columns[0] + 1} disagree about their edge"
