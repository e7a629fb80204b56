"""Edge lists as those of SNAP, and tables of edges: source, target and perhaps a weight; Parquet files and folders.

Lines of numbers are read in blocks, in C++; names, quotes, empty cells and Parquet by pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...config import TableConfig
from ...errors import FormatError
from ...graph import Graph
from ..bipartite import shared_note
from ..formats import OF_EDGES, Progress, reader
from ..tables import columns_of_edges, fields_of_table, graph_of_columns, with_notes
from .edge_features import Places, places_of_columns, rows_of_files
from .frames import is_parquet, open_parquet, read_edge_columns
from .heads import (
    BOM,
    COMMENTS_END,
    ENDINGS,
    Head,
    edge_columns,
    has_names,
    kinds_of,
    read_head,
    words_of,
)
from .lines import EmptyCell
from .make_graph import check_node_count, coo_graph, graph_name, naming
from .text import peek, without_packing

REREAD = ": --source 1 --target 2 of `spgnn convert` reads it as an edge"
OTHER_ENDINGS = tuple(".graph .metis .mtx .npz .npy .bin .i32 .i64 .json .index .parquet .pq".split())


def is_edge_list(path: Path) -> bool:
    """a text file .txt, .tsv, .csv, .el, .edges, out.* (or .gz, .xz, .bz2 of it), or one whose first line is two or three numbers."""
    name = without_packing(path.name.lower())
    if not path.is_file() or name.endswith(OTHER_ENDINGS):
        return False
    head = peek(path).removeprefix(BOM)
    if head.startswith(b"%%MatrixMarket"):
        return False
    if name.endswith(ENDINGS) or name.startswith("out."):  # of KONECT
        return True
    line, end, _ = head[COMMENTS_END(head) :].partition(b"\n")
    words = words_of(line)
    return bool(end) and len(words) in (2, 3) and all(word.isdigit() for word in words[:2])


@reader("edges", detect=is_edge_list, takes=OF_EDGES)
def read_edges(path: Path, progress: Progress = None, **options) -> Graph:
    """Read an edge list in blocks: u v -> A[u, v], the third column its weight; ids stay what they are.

    Returns: Graph with 1 + the largest id nodes, or as many as a header `# Nodes: N Edges: E` declares if
             that is more; with relabel one node per id, in ascending order.
    Raises:  FormatError with file:line; where the ids have absurd gaps; where the header declares
             more edges than there are lines.
    """
    wanted = TableConfig(**options)
    head = read_head(path, wanted)
    found = places_of_columns(str(path), head.names, wanted) if head.lines else {}
    unread = [name for name in head.unread if not name or not any(name in of for of in found.values())]
    meta = {"dropped_lines": int(head.has_title)} | ({"unread": unread} if unread else {})
    meta = with_notes(meta, [f"{head.taken}{REREAD if head.has_title else ''}"] if head.taken else [])
    if any(found.values()) or not head.is_plain or wanted.bipartite or (wanted.relabel and has_names(path, head)):
        return _read_words(path, head, found, wanted, meta, progress)
    try:
        (src, dst), weights = _read_numbers(path, head, progress)
    except EmptyCell:  # of a column that is not read
        return _read_words(path, head, found, wanted, meta, progress)
    fields: dict[str, Any] = rows_of_files(wanted, found) if head.lines else {}
    meta |= fields.pop("meta", {})
    if kinds_of(head.ends, head.is_bipartite):
        meta = with_notes(meta, shared_note(head.ends, np.unique(src), np.unique(dst)))
    if wanted.relabel:
        ids_N = np.union1d(np.unique(src), np.unique(dst))
        src, dst = (np.searchsorted(ids_N, end) for end in (src, dst))
        return coo_graph(path, src, dst, len(ids_N), weights, wanted.duplicates, meta=meta, ids=ids_N, **fields)
    top = max(int(src.max(initial=-1)), int(dst.max(initial=-1)))
    n_nodes = max(head.n_nodes, top + 1)
    check_node_count(path, n_nodes, len(src), "the header" if n_nodes == head.n_nodes else f"node id {top}")
    return coo_graph(path, src, dst, n_nodes, weights, wanted.duplicates, meta=meta, **fields)


def _read_words(path: Path, head: Head, found: Places, wanted: TableConfig, meta: dict, progress: Progress) -> Graph:
    """Return the Graph of lines with names, quotes, empty cells or columns of attributes and labels."""
    extra = {place: option == "edge_features" for option, of in found.items() for place in of.values()}
    frame = read_edge_columns(path, head, extra, progress)
    columns = [frame.column(str(place)) for place in head.used]
    fields = columns_of_edges(path, found, lambda place: frame.column(str(place)), wanted)
    meta |= fields.pop("meta", {})
    kinds = kinds_of(head.ends, head.is_bipartite or wanted.bipartite)
    with naming(path):
        return graph_of_columns(path, columns, wanted, kinds=kinds, name=graph_name(path), meta=meta, **fields)


def _read_numbers(
    path: Path, head: Head, progress: Progress
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray | None]:
    """Return the ids of sources and of targets of lines of numbers, and weights."""
    ids, weights, n_read, top = [np.zeros((0, 2), np.int32)], [np.zeros(0)], 0, -1
    for edges, values in head.edges(path, progress):
        top, n_read = max(top, int(edges.max(initial=-1))), n_read + len(edges)
        ids.append(edges.astype(np.int32) if top < 2**31 - 1 else edges)
        weights.append(values)
    head.check_edges(path, n_read)
    if not n_read and not head.n_nodes:
        raise FormatError(f"{path}: holds no edge; expected lines of source, target and perhaps a weight")
    src, dst = (np.concatenate([block[:, column] for block in ids]) for column in (0, 1))
    return (src, dst), np.concatenate(weights) if head.has_weights else None


@reader("parquet", detect=is_parquet, takes=OF_EDGES)
def read_parquet(path: Path, progress: Progress = None, **options) -> Graph:
    """Read the edges of a Parquet file, or a folder of parts: columns source, target and perhaps weight."""
    wanted = TableConfig(**options)
    with open_parquet(path, words=True) as parts:
        names = parts.schema.names
        used = [names[place] for place in edge_columns(str(path), names, len(names), wanted) if place >= 0]
        extra = [name for of in places_of_columns(str(path), names, wanted).values() for name in of]
        frame = parts.to_table(columns=list(dict.fromkeys([*used, *extra])))
    with naming(path):
        fields = fields_of_table(path, frame, names, used, wanted)
        kinds = kinds_of(used[:2], wanted.bipartite)
        columns = [frame.column(name) for name in used]
        return graph_of_columns(path, columns, wanted, kinds=kinds, name=graph_name(path), **fields)
