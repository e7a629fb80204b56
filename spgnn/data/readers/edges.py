"""Edge lists as SNAP and others have them: `u v` or `u v weight` a line, `#` and `%` comments, plain or gzip."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ...errors import FormatError
from ..formats import reader
from .assemble import check_node_count, coo_graph
from .text import line_blocks, peek
from .tokens import Tokens, tokenise

ENDINGS = (".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist", ".wel")
OTHER_ENDINGS = (".graph", ".metis", ".mtx", ".npz", ".npy", ".bin", ".i32", ".i64", ".json", ".index")
COMMENTS = b"#%"
BOM = b"\xef\xbb\xbf"
HEADER = re.compile(rb"nodes:?\s*(\d{1,18})[\s,|]+edges:?\s*(\d{1,18})", re.IGNORECASE)
COLUMNS = "source, target and perhaps a weight"


def is_edge_list(path: Path) -> bool:
    """a text file .txt, .tsv, .csv, .el, .edges (or .gz of it), or one whose first line is two or three numbers."""
    name = path.name.lower().removesuffix(".gz")
    if not path.is_file() or name.endswith(OTHER_ENDINGS):
        return False
    head = peek(path)
    if head.startswith(b"%%MatrixMarket"):
        return False
    if name.endswith(ENDINGS):
        return True
    lines = [line.split() for line in head.replace(b",", b" ").splitlines()[:-1] if line.strip() and line[:1] not in b"#%"]
    return bool(lines) and len(lines[0]) in (2, 3) and all(token.isdigit() for token in lines[0][:2])


@reader("edges", detect=is_edge_list)
def read_edges(path: Path, progress=None):
    """Read an edge list in blocks: u v -> A[u, v], the third column its weight; ids stay what they are.

    Returns: Graph with 1 + the largest id nodes, or as many as a header `# Nodes: N Edges: E` says if
             that is more.
    Raises:  FormatError with file:line; where the ids have absurd gaps; where the header declares
             more edges than there are lines.
    """
    blocks, width, dropped, header = [], 0, 0, None
    for block, line in line_blocks(path, progress):
        if line == 1:
            block = block.removeprefix(BOM)
        tokens = tokenise(block, path, line)
        is_comment = tokens.comment_lines(COMMENTS)
        if header is None and is_comment.any():
            header = HEADER.search(_comment_text(block, is_comment))
        tokens = tokens.keep(~is_comment[tokens.line_T])
        if not blocks and _is_title(tokens):
            tokens, dropped = tokens.keep(tokens.line_T != tokens.line_T[0]), 1
        columns = tokens.columns((width,) if width else (2, 3), COLUMNS)
        if columns:
            width = len(columns)
            weight = columns[2].numbers("weight") if width == 3 else None
            blocks.append((columns[0].ids("source"), columns[1].ids("target"), weight))
    n_declared, n_edges = map(int, header.groups()) if header else (0, 0)
    n_read = sum(len(src) for src, _, _ in blocks)
    if n_read < n_edges:
        raise FormatError(
            f"{path}: its header declares {n_edges} edges, it holds {n_read}; get the file again, or delete the header line if it is wrong"
        )
    if not n_read and not n_declared:
        raise FormatError(f"{path}: holds no edge; expected lines of {COLUMNS}")
    src, dst, weight = (_joined([block[i] for block in blocks]) for i in range(3))
    blocks.clear()
    n_nodes = max(n_declared, int(src.max(initial=-1)) + 1, int(dst.max(initial=-1)) + 1)
    check_node_count(path, n_nodes, n_read, "the header" if n_nodes == n_declared else f"node id {n_nodes - 1}")
    return coo_graph(path, src, dst, n_nodes, weight if width == 3 else None, meta={"dropped_lines": dropped})


def declared_sizes(path: Path) -> tuple[int, int]:
    """Return the nodes and edges that the head of a text file declares; 0 where it does not."""
    comments = b"\n".join(line for line in peek(path).splitlines() if line[:1] in (b"#", b"%"))
    header = HEADER.search(comments)
    return tuple(map(int, header.groups())) if header else (0, 0)


def _comment_text(block: bytes, is_comment: np.ndarray) -> bytes:
    """Return the first 100 comment lines of a block."""
    last = int(np.flatnonzero(is_comment)[:100][-1])
    lines = block.split(b"\n", last + 1)
    return b"\n".join(lines[l] for l in np.flatnonzero(is_comment)[:100])


def _is_title(tokens: Tokens) -> bool:
    """The first line is the names of columns: each token starts with a letter or a quote."""
    if not len(tokens.line_T):
        return False
    starts = tokens.buffer[tokens.start_T[tokens.line_T == tokens.line_T[0]]].tobytes()
    return all(chr(c).isalpha() or chr(c) in "\"'_" for c in starts)


def _joined(arrays: list) -> np.ndarray | None:
    if not arrays:
        return np.zeros(0, np.int64)
    return None if arrays[0] is None else np.concatenate(arrays)
