"""merge_parts: all parts of a graph over the ranks, for exact passes between those on single parts.

Shapes: N nodes, n own nodes, k parts, P ranks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import scipy.sparse as sp

from ..dist.consistency import digest
from ..errors import together
from ..graph import given_split
from ..partition import RowBlock
from ..partition.folder.blocks import merge_blocks
from ..spmm.exchange.context import Layout
from .distgraph import DistGraph
from .distribute import OwnRows, make_dgraph
from .parts import Parts


def merge_parts(parts: Parts) -> DistGraph:
    """Return the whole graph with each rank holding the rows of its parts, with the split and options of the parts.

    Ranks without a part have no rows. Collective.
    """
    how = replace(parts.how, replication=1)
    dgraph = make_dgraph(parts, parts.comm, None, how, _own_rows)
    if dgraph.y_n is None:
        return dgraph
    if parts.drawn_N is None:
        return replace(dgraph, split_n=given_split(parts.name, dgraph.split_n, parts.split))
    return replace(dgraph, split_n=parts.drawn_N[dgraph.node_n])


def rowless_parts(parts: Parts) -> DistGraph:
    """Return a DistGraph with the sizes of a graph, and no rows on any rank, for trainings that read its parts alone. Collective."""
    how = replace(parts.how, replication=1, scheme="columns", keep=False)
    dgraph = make_dgraph(parts, parts.comm, None, how, partial(_own_rows, has_rows=False))
    return replace(dgraph, n_classes=parts.n_classes, nnz=parts.source.facts.nnz)


def parts_digest(parts: Parts) -> str:
    """Return k and digests of the owners of all nodes and of the edges, on which averaging depends."""
    part = parts.source.partition
    return f"{parts.k}-{digest(part.owner_N)}-{part.graph_digest[:16]}"


def _own_rows(parts: Parts, layout: Layout, *_, has_rows: bool = True) -> OwnRows:
    """Return the rows of the parts of this rank. Collective."""
    P, owner_N = parts.comm.size, parts.source.partition.owner_N
    block = together(layout.comm, _merged, parts, P, has_rows)
    return block, lambda ids: owner_N[ids] % P, parts.name, parts.method


def _merged(parts: Parts, P: int, has_rows: bool) -> RowBlock:
    if parts.own and has_rows:
        return merge_blocks([parts.source.block(p) for p in parts.own], P, parts.comm.rank)
    block = parts.source.block(0)
    arrays = map(_no_rows, (block.own_n, block.A_nN, block.X_nF, block.y_n, block.split_n))
    return RowBlock(*arrays, n_nodes=block.n_nodes, k=P, rank=parts.comm.rank)


def _no_rows(M):
    if M is None:
        return None
    return sp.csr_array((0, M.shape[1]), dtype=M.dtype) if sp.issparse(M) else M[:0]
