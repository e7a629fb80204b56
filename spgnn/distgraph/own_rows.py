"""own_rows: from a graph, or a partition folder, to the row block of each rank.

Shapes: N nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..config import Distribution
from ..dist.consistency import check_same
from ..errors import InputError, PartitionError, UsageError, agree, nearest, together
from ..graph import Graph
from ..machine import give_back_memory
from ..partition import PARTITIONERS, Partition, PartitionFolder, RowBlock, part_graph, partition_of
from ..partition.folder.blocks import row_block
from ..spmm.exchange.context import Layout
from .consistency import folder_facts, graph_facts, partition_facts
from .scatter import scatter_blocks

# The block of a rank, the function from nodes to the blocks that own them, the name of the graph, the method of the parts.
OwnRows = tuple[RowBlock, Callable[[np.ndarray], np.ndarray], str, str]


def own_rows(source, layout: Layout, partition, how: Distribution) -> OwnRows:
    """Return this rank's rows of a graph; source and partition as `distribute` has them. Collective.

    A graph that source, a function, returns is freed on return.
    """
    source = together(layout.comm, _read, source, layout.comm.rank)
    folder = _folder_of(partition) or _folder_of(source)
    if folder is not None:
        check_same(layout.comm, together(layout.comm, folder_facts, folder))
        return together(layout.comm, _of_folder, folder, source, layout)
    return _of_graph(source, layout, partition, how)


def _read(source, rank: int):
    """Return what a function given as source returns, None on other ranks than 0; else the source itself."""
    known, said = (Graph, PartitionFolder, str, Path), ""
    if callable(source):
        if rank != 0:
            return None
        source, known, said = source(), Graph, "a function that returns "
    if source is not None and not isinstance(source, known):
        expected = "a Graph, as spgnn.load_graph returns, a function that returns one, or a partition folder"
        raise UsageError(f"distribute got {said}a {type(source).__name__}; expected {expected}")
    return source


def _folder_of(given) -> PartitionFolder | None:
    if isinstance(given, (str, Path)):
        return PartitionFolder(given)
    return given if isinstance(given, PartitionFolder) else None


def _of_folder(folder: PartitionFolder, source, layout: Layout) -> OwnRows:
    part = folder.partition()
    _check_ranks(part.k, layout)
    if isinstance(source, Graph):
        part.check_graph(source.in_use())
    block = folder.block(layout.block)
    folder.check_values(block)
    return block, lambda ids: part.owner_N[ids], part.graph_name or folder.path.name, part.method


def _of_graph(graph: Graph | None, layout: Layout, partition, how: Distribution) -> OwnRows:
    comm, k = layout.comm, layout.grid.rows
    has_graph = comm.all_gather_json(graph is not None)
    if not has_graph[0]:
        agree(comm, InputError("distribute needs the graph on rank 0") if comm.rank == 0 else None)
    if comm.size > 1:
        own = together(comm, partition_facts, partition, comm.rank)
        check_same(comm, (graph_facts(graph) if all(has_graph) else {}) | own)
    graph, part = together(comm, _partitioned, graph, layout, partition, how)
    name, method = comm.all_gather_json([graph.name, part.method] if comm.rank == 0 else None)[0]
    owner_N = _owner_of_root(part, comm)
    if comm.size == 1:
        own_N = np.arange(graph.n_nodes)
        block = RowBlock(own_N, graph.A, graph.X, graph.y, graph.split, n_nodes=graph.n_nodes, k=1, rank=0)
    elif all(has_graph):
        block = together(comm, row_block, graph, part or Partition(owner_N, k), layout.block)
    else:
        block = scatter_blocks(layout, graph, part)
    return block, lambda ids: owner_N[ids], name, method


def _partitioned(graph: Graph | None, layout: Layout, partition, how: Distribution):
    """Return the graph as it is used and its partition; on rank 0 alone where a partitioner has to run."""
    k = layout.grid.rows
    graph = None if graph is None else graph.in_use()
    if partition is not None and graph is not None:
        part = partition if isinstance(partition, Partition) else partition_of(graph, partition, k=k)
        _check_ranks(part.k, layout)
        part.check_length(graph)
        return graph, part
    if how.method not in PARTITIONERS:  # also where one rank needs none
        raise UsageError(f"partitioner {how.method!r} is not known{nearest(how.method, PARTITIONERS)}")
    if layout.comm.rank != 0:
        return graph, None  # one rank computes it: the others would only do the same work again
    if k == 1:
        return graph, Partition(np.zeros(graph.n_nodes, np.int32), 1, method="none")
    part = part_graph(graph, k, method=how.method, seed=how.seed, balance=how.balance, scheme=how.scheme)
    give_back_memory()  # what partitioning took, before rows are handed out
    return graph, part


def _owner_of_root(part: Partition | None, comm) -> np.ndarray:
    n_nodes = comm.all_gather_json(None if part is None else part.n_nodes)[0]
    owner_N = np.empty(n_nodes, np.int32)
    if comm.rank == 0:
        owner_N[:] = part.owner_N
    return comm.broadcast(owner_N)


def _check_ranks(k: int, layout: Layout) -> None:
    P, c = layout.comm.size, layout.grid.c
    if k != layout.grid.rows:
        fits = f"start {k * c} or make a partition with k = {P // c}"
        copies = f", {c} to a part" if c > 1 else ""
        fits = fits if k % c == 0 else f"make a partition with k = {P // c}"
        raise PartitionError(f"the partition has k = {k} parts, the job {P} rank(s){copies}; {fits}")
