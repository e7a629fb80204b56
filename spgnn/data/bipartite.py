"""Edges between two kinds of nodes: sources are nodes 0 to S - 1, targets the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Graph, graph_from_coo
from .table_columns import Coded


def bipartite_graph(
    source: Coded, target: Coded, names: Sequence[str], weights: np.ndarray | None = None, **fields
) -> Graph:
    """Return the Graph of edges between coded ids of two columns; ids that both have get the name of their column, as user:7."""
    names = [word if name.isdigit() else name for name, word in zip(names, ("source", "target"))]
    (src, _), (dst, _), (sources, targets) = source, target, alike(source[1], target[1])
    if len(np.intersect1d(sources, targets)):
        sources, targets = (f"{name}:" + ids.astype(str).astype(object) for name, ids in zip(names, (sources, targets)))
    S, ids = len(sources), np.concatenate([sources, targets])
    meta = fields.pop("meta", {}) | {"bipartite": {"sources": S, "names": names}}
    return graph_from_coo(src, S + dst, len(ids), weights, ids=ids, meta=meta, **fields)


def shared_note(names: Sequence[str], a: np.ndarray, b: np.ndarray, is_bipartite: bool = False) -> list[str]:
    """Return a note on ids that are in both columns of edges between two kinds of nodes, [] without one."""
    a, b = alike(a, b)
    shared = np.intersect1d(a, b)
    ids = "1 id is" if len(shared) == 1 else f"{len(shared):,} ids are"
    nodes = "two nodes" if is_bipartite else "one node: `spgnn convert --bipartite` makes it two"
    return [f"{ids} in both columns, {' and '.join(names)}, and each is {nodes}"] if len(shared) else []


def alike(*values: np.ndarray) -> list[np.ndarray]:
    """Return ids of two columns as integers, or as text where one has text."""
    has_text = any(ids.dtype.kind == "O" for ids in values)
    return [ids.astype(str).astype(object) if has_text else ids for ids in values]
