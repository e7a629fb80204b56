"""distribute: from a graph, or a partition folder, to the rows, the operator and the plan of each rank.

Shapes: N nodes, n own rows, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..config import Distribution, Training, build
from ..cost.grid import ProcessGrid
from ..dist import Communicator, SelfCommunicator
from ..dist.consistency import check_same
from ..dist.job.protect import find_launcher
from ..dist.launch import find_hosts, share_of_threads
from ..errors import InputError, PartitionError, UsageError, agree, nearest, together
from ..graph import Graph, fingerprint, task_of
from ..machine import give_back_memory
from ..partition import PARTITIONERS, Partition, PartitionFolder, RowBlock, part_graph, partition_of
from ..partition.checks import count_parts
from ..partition.folder.blocks import edges_of, merge_blocks, no_rows, row_block, select_rows
from ..partition.hosts import equal_hosts
from ..spmm.exchange.context import Layout, make_layout
from ..spmm.exchange.wire import Wire
from ..spmm.kernels.buffers import make_pool
from ..spmm.kernels.cuda.placement import device_communicator, place
from ..spmm.operator.fixed_input import FixedInput
from .assemble import assemble
from .consistency import check_block, check_folder, check_options, graph_facts, partition_facts
from .distgraph import DistGraph
from .part_sources import FolderSource, GraphSource
from .scatter import scatter_blocks
from .tensors import check_fits, check_sums, features, labels, negative_sums

# The block of a rank, the function from nodes to the blocks that own them, name and fingerprint of the graph, the method of the parts.
OwnRows = tuple[RowBlock, Callable[[np.ndarray], np.ndarray], str, str, str]


def distribute(
    source: Graph | Callable[[], Graph] | PartitionFolder | str | Path | None,
    comm: Communicator | None = None,
    partition: Partition | np.ndarray | PartitionFolder | str | Path | None = None,
    **options,
) -> DistGraph:
    """Give each rank its rows of the graph and make the operator and its exchange plan.

    Args:
        source       one of: a Graph on all ranks, each keeps its rows; a Graph on rank 0 and None on the others,
                     rank 0 sends them their rows; a function that returns a Graph, called on rank 0 alone, which
                     frees the graph when its rows are sent; a partition folder, each rank maps its own part.
        comm         of spgnn.world() or run_threads; None: this process is the only rank.
        partition    Partition, owner array (N,) or partition folder; None: `method` makes it on rank 0. If it has more
                     than P/c parts, part p belongs to block row p mod P/c.
    Options, the fields of spgnn.config.Distribution:
        scheme       cover, columns, broadcast, two-tier; auto: the fastest by the cost model; flat: the faster of cover
                     and columns.
        replication  c of 1.5D: the partition has P/c parts or more, each held by c ranks.
        operator     of the layers that do not name theirs. gcn: D^-1/2 (A + I) D^-1/2; row: D^-1 A; none: A; row_loops:
                     D^-1 (A + I); loops: the pattern of A + I, all ones.
        feature_norm row: the features of a node are divided by their sum; none.
        dtype        torch.float32, torch.float64 or torch.bfloat16, or its name.
        method, seed, balance  of the partitioner, see `part_graph`.
        keep         compute A X once, in set-up of the training or the first product with X, and cache it: X must
                     then never change.
        order        of every chain A H W: auto, or spmm_first.
        locality     reorder own rows, so that products read X from caches more often (`partition.local_order`);
                     node_n has the order. A copy of the rows is made.
        wire, wire_gradients  types of the rows sent forward and backward: float32 (unchanged), bfloat16 or
                     float16. All but the first are not exact.
        hosts        of two-tier. H: plan for H hosts with equal blocks of ranks; 0: the hosts that ranks run on.
        machine      name or file of the cost model that scheme auto uses.
        threads      threads of this rank, torch's too; 0: OMP_NUM_THREADS, else its share of the host's cores.
        device       cpu, or cuda: the rank's products, activations and exchanges are on a device of its host.
    Raises: PartitionError where partition and graph or ranks do not fit; UsageError for unknown names,
            for a source or communicator of another type; ResourceError without a device.
    Collective.
    """
    comm = the_only_rank() if comm is None else comm
    if not hasattr(comm, "all_gather_json"):
        raise UsageError(
            f"got a {type(comm).__name__} instead of a communicator: with spgnn.world() as comm: spgnn.distribute(graph, comm)"
        )
    how = together(comm, built, options, "distribute")
    source, partition = together(comm, _opened, source, partition)
    check_options(comm, source, partition, how)
    threads = how.threads or min(share_of_threads(comm), torch.get_num_threads())  # fewer if the user told torch so
    dgraph = make_dgraph(source, comm, partition, replace(how, threads=threads))
    if isinstance(source, Graph):
        return replace(dgraph, ids=source.ids, classes=source.classes)
    if isinstance(source, PartitionFolder):
        return replace(dgraph, ids=together(comm, source.ids), classes=source.classes)
    return dgraph


def the_only_rank() -> SelfCommunicator:
    """Return the communicator of one rank. Raises: UsageError where a launcher has started several."""
    launcher = find_launcher(os.environ)
    if launcher is not None and launcher.size > 1:
        raise UsageError(
            f"{launcher.name} started {launcher.size} ranks, which would each train alone: with spgnn.world() as comm: "
            "spgnn.distribute(graph, comm)"
        )
    return SelfCommunicator()


def make_dgraph(source, comm: Communicator, partition, how: Distribution, has_rows: bool = True) -> DistGraph:
    """Return the DistGraph of `distribute`, for options that are the same on all ranks and name the threads.

    Args: source    of distribute, or a PartSource: rank p has parts p, p + P, ...
          has_rows  False: of a PartSource, no rank has rows.
    Collective.
    """
    torch.set_num_threads(how.threads)
    dtype = getattr(torch, how.dtype)
    placement = place(comm, how.device)
    comm, pool = device_communicator(comm, placement), make_pool(placement.device)
    wires = Wire(how.wire), Wire(how.wire_gradients)
    grid = ProcessGrid(comm.size, how.replication, tuple(find_hosts(comm, how.hosts).tolist()))
    layout = make_layout(comm, grid, how.scheme, dtype, pool, how.threads, how.order, wires)
    comm.phase = "partition and load"
    if isinstance(source, (FolderSource, GraphSource)):
        facts = source.facts
        block, owner_of, name, made_of, method = together(
            comm, lambda: _of_parts(source.block, source.partition, layout, facts.name, facts.fingerprint, has_rows)
        )
    else:
        block, owner_of, name, made_of, method = _own_rows(source, layout, partition, how)
    check_block(comm, block)
    give_back_memory()  # what reading and partitioning took
    if how.feature_norm == "none":
        together(comm, check_fits, block.own_n, block.X_nF, dtype)
    else:
        found = together(comm, negative_sums, block.own_n, block.X_nF)
        check_sums(dict(comm.all_gather_json([layout.block, found])).values())  # several ranks may have a block
    comm.phase = "distribute"
    edges, own_n, n_nodes, rows = [block.A_nN], block.own_n, block.n_nodes, (block.X_nF, block.y_n, block.split_n)
    edge_rows = block.edges
    del block
    A, order_n = assemble(edges, own_n, owner_of, layout, how.operator, how.machine, how.locality, edge_rows)
    X_nF, y_n, split_n = rows if order_n is None else (select_rows(of_nodes, order_n) for of_nodes in rows)
    del rows, edge_rows
    X = features(X_nF, how.feature_norm, pool, dtype, how.threads)
    y, task = labels(y_n, dtype), task_of(y_n)
    C = 0 if y is None else y.shape[1] if y.ndim == 2 else int(y.max()) + 1 if len(y) else 0
    nnz, n_classes = np.array([A.nnz]), np.array([C])
    comm.all_reduce(nnz)
    comm.all_reduce(n_classes, "max")
    dgraph = DistGraph(
        comm=comm, A=A, X=X, y_n=y, split_n=split_n, n_nodes=n_nodes, n_classes=int(n_classes[0]), task=task,
        name=name, scheme=layout.scheme, method=method, nnz=int(nnz[0]), replication=how.replication,
        feature_norm=how.feature_norm, fingerprint=made_of,
    )  # fmt: skip
    if how.keep and X is not None:
        A.fixed_input = FixedInput(X)
    give_back_memory()
    return dgraph


def built(options: dict, where: str) -> Distribution:
    """Return options, whose dtype may be torch's, as a Distribution; where: what errors call them. Raises: UsageError."""
    if "dtype" in options:
        options = options | {"dtype": str(options["dtype"]).removeprefix("torch.")}
    own, of_training = (cls.__dataclass_fields__ for cls in (Distribution, Training))
    for name in options:
        here, there = nearest(name, own), nearest(name, of_training)
        if name not in own and "did you mean" not in here and "did you mean" in there:
            raise UsageError(f"{where}: {name!r} is an option of spgnn.train{there}")
    return build(Distribution, options, where)


def _opened(source, partition) -> tuple:
    """Return source and partition, their paths as partition folders. Raises: UsageError for a source of another type."""
    source, partition = (PartitionFolder(x) if isinstance(x, (str, Path)) else x for x in (source, partition))
    if not (source is None or callable(source) or isinstance(source, (Graph, PartitionFolder))):
        expected = "a Graph, as spgnn.load_graph returns, a function that returns one, or a partition folder"
        raise UsageError(f"distribute got a {type(source).__name__}; expected {expected}")
    return source, partition


def _own_rows(source, layout: Layout, partition, how: Distribution) -> OwnRows:
    """Return this rank's rows of a graph or folder. If source is a function, its graph is freed. Collective."""
    comm, k = layout.comm, layout.grid.rows

    def read():
        if not callable(source):
            return source
        graph = source() if comm.rank == 0 else None
        if comm.rank == 0 and not isinstance(graph, Graph):
            raise UsageError(f"distribute got a function that returns a {type(graph).__name__}; expected a Graph")
        return graph

    graph = together(comm, read)  # also where rank 0 alone has a source
    folder = next((given for given in (partition, source) if isinstance(given, PartitionFolder)), None)
    if folder is not None:
        check_folder(comm, folder)
        return together(comm, _of_folder, folder, graph, layout)
    has_graph = comm.all_gather_json(graph is not None)
    if not has_graph[0]:
        agree(comm, InputError("distribute needs the graph on rank 0") if comm.rank == 0 else None)
    if comm.size > 1:
        own = together(comm, partition_facts, partition, comm.rank)
        check_same(comm, (graph_facts(graph) if all(has_graph) else {}) | own)
    graph, part = together(comm, _partitioned, graph, layout, partition, how)
    about = together(comm, lambda: (graph.name, fingerprint(graph), part.method), root=0)
    name, made_of, method = comm.all_gather_json(about)[0]
    owner_N = np.empty(comm.all_gather_json(None if part is None else part.n_nodes)[0], np.int32)
    if comm.rank == 0:
        owner_N[:] = part.owner_N
    comm.broadcast(owner_N)
    if comm.size == 1:
        own_N = np.arange(graph.n_nodes)
        rows = (graph.A, graph.X, graph.y, graph.split)
        block = RowBlock(own_N, *rows, n_nodes=graph.n_nodes, k=1, rank=0, edges=edges_of(graph))
    elif all(has_graph):
        block = together(comm, row_block, graph, part or Partition(owner_N, k), layout.block)
    else:
        block = scatter_blocks(layout, graph, part)
    return block, lambda ids: owner_N[ids], name, made_of, method


def _of_folder(folder: PartitionFolder, graph, layout: Layout) -> OwnRows:
    part = folder.partition()
    _check_ranks(part.k, layout)
    if isinstance(graph, Graph):
        part.check_graph(graph.in_use())
    name = part.graph_name or folder.path.name
    return _of_parts(folder.checked_block, part, layout, name, folder.manifest["fingerprint"])


def _of_parts(
    block_of: Callable[[int], RowBlock],
    part: Partition,
    layout: Layout,
    name: str,
    made_of: str,
    has_rows: bool = True,
) -> OwnRows:
    """Return the rows of parts p, p + R, ... of block row p of R; none where there is no such part."""
    R, r = layout.grid.rows, layout.block
    blocks = [block_of(p) for p in range(r, part.k, R) if has_rows]
    block = merge_blocks(blocks, R, r) if blocks else no_rows(block_of(0), R, r)
    return block, lambda ids: part.owner_N[ids] % R, name, made_of, part.method


def _partitioned(graph: Graph | None, layout: Layout, partition, how: Distribution):
    """Return the graph as it is used and its partition; on rank 0 alone where a partitioner has to run."""
    k = layout.grid.rows
    graph = None if graph is None else graph.in_use()
    if partition is not None and graph is not None:
        is_made = isinstance(partition, Partition)
        part = partition if is_made else partition_of(graph, partition, k=max(k, count_parts(partition)))
        _check_ranks(part.k, layout)
        part.check_length(graph)
        return graph, part.dealt(k)
    PARTITIONERS.find(how.method)  # also where one rank needs none
    if layout.comm.rank != 0:
        return graph, None  # one rank computes it: the others would only do the same work again
    if k == 1:
        return graph, Partition(np.zeros(graph.n_nodes, np.int32), 1, method="none")
    hosts = equal_hosts(layout.grid.host_P, k)
    part = part_graph(graph, k, method=how.method, seed=how.seed, balance=how.balance, scheme=how.scheme, hosts=hosts)
    give_back_memory()  # what partitioning took, before rows are handed out
    return graph, part


def _check_ranks(k: int, layout: Layout) -> None:
    """Raise PartitionError where there are fewer parts than block rows."""
    P, c = layout.comm.size, layout.grid.c
    if k < layout.grid.rows:
        fits = f"start {k * c} or make a partition with k = {P // c}"
        copies = f", {c} to a part" if c > 1 else ""
        fits = fits if k % c == 0 else f"make a partition with k = {P // c}"
        raise PartitionError(f"the partition has k = {k} parts, the job {P} rank(s){copies}; {fits}")
