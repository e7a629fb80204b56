"""METIS .graph: line i lists the neighbours of node i, from 1; edge weights are used, node weights are not.

Source: METIS 5 manual, section 4.1.1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import FormatError
from ..formats import reader
from .make_graph import coo_graph
from .text import line_blocks, peek, text_bytes_bound
from .tokens import Tokens, tokenise

ENDINGS = (".graph", ".metis")
PICKLE = b"\x80"


def is_metis(path: Path) -> bool:
    """a text file .graph or .metis."""
    name = path.name.lower().removesuffix(".gz")
    return path.is_file() and name.endswith(ENDINGS) and peek(path, 1) != PICKLE


@reader("metis", detect=is_metis)
def read_metis(path: Path, progress=None):
    """Read a METIS graph: header `n m [fmt [ncon]]`, then a line per node; `%` lines are comments.

    Raises: FormatError with file:line; where the header's counts are not the file's; where u lists v
            and v does not list u.
    """
    header, n_lines, src, dst, weight = None, 0, [], [], []
    for block, line in line_blocks(path, progress):
        tokens = tokenise(block, path, line)
        is_comment = tokens.comment_lines(b"%")
        tokens = tokens.keep(~is_comment[tokens.line_T])
        if header is None:
            if not len(tokens.line_T):
                continue
            l = int(tokens.line_T[0])
            header = _header(path, tokens.keep(tokens.line_T == l))
            is_comment[: l + 1] = True
            tokens = tokens.keep(tokens.line_T > l)
        n_nodes, n_edges, has_weights, skip = header
        node_L = n_lines + np.cumsum(~is_comment) - 1
        n_lines += int(np.count_nonzero(~is_comment))
        beyond = node_L[tokens.line_T] >= n_nodes
        if beyond.any():
            raise FormatError(
                f"{tokens.where(int(np.argmax(beyond)))}: a line for a node after the {n_nodes} that the header declares"
            )
        ids, values = _neighbours(tokens, n_nodes, skip, has_weights)
        dst.append(ids.ids("neighbour") - 1)
        src.append(node_L[ids.line_T].astype(dst[-1].dtype if n_nodes < 2**31 else np.int64))
        if has_weights:
            weight.append(values.numbers("edge weight"))
    if header is None:
        raise FormatError(f"{path}: no header line; expected `n m [fmt [ncon]]`")
    if n_lines < n_nodes:
        raise FormatError(f"{path}: lines for {n_lines} nodes; the header declares {n_nodes}; was the file cut off?")
    src, dst = np.concatenate(src), np.concatenate(dst)
    if len(src) != 2 * n_edges:
        raise FormatError(
            f"{path}: {len(src)} neighbours; the header declares {n_edges} edges, so {2 * n_edges} were expected"
        )
    meta = {"node_weights": "ignored"} if skip else {}
    graph = coo_graph(path, src, dst, n_nodes, np.concatenate(weight) if has_weights else None, meta=meta)
    if not graph.is_symmetric:
        raise FormatError(f"{path}: {_one_way(graph.A)}; METIS lists an edge at both ends, with one weight")
    return graph


def _header(path: Path, tokens: Tokens) -> tuple:
    """Return (nodes, edges, has edge weights, numbers before the neighbours), checked against the file's size."""
    where = tokens.where(0)
    if not 2 <= len(tokens.line_T) <= 4:
        raise FormatError(f"{where}: {len(tokens.line_T)} numbers; expected `n m [fmt [ncon]]`")
    n_nodes, n_edges, form, n_constraints = [*map(int, tokens.integers("header")), 0, 0][:4]
    flags = f"{form:03d}"
    if len(flags) > 3 or set(flags) - {"0", "1"}:
        raise FormatError(f"{where}: fmt {form}; expected three digits 0 or 1, such as 0, 1, 10, 11")
    if n_constraints > 1000:
        raise FormatError(f"{where}: {n_constraints} weights per node; expected at most 1000")
    has_sizes, has_node_weights, has_weights = (digit == "1" for digit in flags)
    bound = text_bytes_bound(path)
    if n_nodes > bound or 4 * n_edges > bound:  # a node takes a newline, an edge two numbers and two blanks
        raise FormatError(
            f"{where}: declares {n_nodes} nodes and {n_edges} edges, more than {path.stat().st_size} bytes can hold"
        )
    return n_nodes, n_edges, has_weights, has_sizes + has_node_weights * max(n_constraints, 1)


def _neighbours(tokens: Tokens, n_nodes: int, skip: int, has_weights: bool) -> tuple[Tokens, Tokens | None]:
    """Return the tokens of the neighbours, checked, and those of their weights."""
    left_L = tokens.count_L - skip
    is_odd = (tokens.count_L > 0) & ((left_L < 0) | (has_weights & (left_L % 2 == 1)))
    if is_odd.any():
        l = int(np.argmax(is_odd))
        rest = "pairs" if has_weights else "neighbours"
        raise FormatError(f"{tokens.where_line(l)}: {tokens.count_L[l]} numbers; expected {skip} and then {rest}")
    place_T = tokens.place_T - skip
    ids = tokens.keep((place_T >= 0) & ((place_T % 2 == 0) | (not has_weights)))
    neighbour = ids.integers("neighbour")
    bad = (neighbour < 1) | (neighbour > n_nodes)
    if bad.any():
        t = int(np.argmax(bad))
        raise FormatError(f"{ids.where(t)}: neighbour {neighbour[t]}; expected 1 to {n_nodes}")
    return ids, tokens.keep((place_T >= 0) & (place_T % 2 == 1)) if has_weights else None


def _one_way(A) -> str:
    """Return the edge that lacks its reverse, with the file's node numbers."""
    rows, columns = (A != A.T).nonzero()
    return f"node {rows[0] + 1} and node {columns[0] + 1} disagree about their edge"
