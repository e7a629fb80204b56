"""merge_parts: all parts of a graph over the ranks, for exact passes between those on single parts.

Shapes: N nodes, n own nodes, k parts, P ranks.
"""

from __future__ import annotations

from dataclasses import replace

from ..graph import given_split
from .distgraph import DistGraph
from .distribute import make_dgraph
from .parts import Parts


def merge_parts(parts: Parts) -> DistGraph:
    """Return the whole graph with each rank holding the rows of its parts, with the split and options of the parts.

    Ranks without a part have no rows. Collective.
    """
    how = replace(parts.how, replication=1)
    dgraph = make_dgraph(parts.source, parts.comm, None, how)
    if dgraph.y_n is None:
        return dgraph
    if parts.drawn_N is None:
        return replace(dgraph, split_n=given_split(parts.name, dgraph.split_n, parts.split))
    return replace(dgraph, split_n=parts.drawn_N[dgraph.node_n])


def rowless_parts(parts: Parts) -> DistGraph:
    """Return a DistGraph with the sizes of a graph, and no rows on any rank, for trainings that read its parts alone. Collective."""
    how = replace(parts.how, replication=1, scheme="columns", keep=False)
    dgraph = make_dgraph(parts.source, parts.comm, None, how, has_rows=False)
    return replace(dgraph, n_classes=parts.n_classes, nnz=parts.source.facts.nnz)
