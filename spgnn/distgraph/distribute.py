"""distribute: from a graph, or a partition folder, to the rows, the operator and the plan of each rank.

Shapes: N nodes, n own rows, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..config import Distribution, Training, build, shared_values
from ..config.names import SHORT_EDGES
from ..cost.pairs import ProcessGrid
from ..data.arrays import FROM_LIBRARY
from ..dist import Communicator, SelfCommunicator
from ..dist.consistency import check_same, digest, versions
from ..dist.job.protect import find_launcher
from ..dist.launch import communicator_of, find_hosts, share_of_threads
from ..errors import InputError, PartitionError, UsageError, agree, from_root, nearest, together
from ..graph import Graph, GraphColumns, fingerprint
from ..graph.links import shared_links
from ..machine import give_back_memory
from ..partition import PARTITIONERS, Partition, PartitionFolder, RowBlock, part_graph, partition_of
from ..partition.checks import count_parts
from ..partition.folder.blocks import edges_of, merge_blocks, no_rows, row_block
from ..partition.hosts import equal_hosts
from ..spmm.exchange.context import Layout, make_layout
from ..spmm.exchange.wire import Wire
from ..spmm.kernels.buffers import make_pool
from ..spmm.kernels.cuda.placement import Placement, device_communicator, place
from .assemble import GraphRows, assembled
from .distgraph import DistGraph
from .scatter import scatter_blocks


def distribute(
    source: Graph | Callable[[], Graph] | PartitionFolder | str | Path | None,
    comm: Communicator | Any = None,
    partition: Partition | np.ndarray | PartitionFolder | str | Path | None = None,
    **options,
) -> DistGraph:
    """Give each rank its rows of the graph and make the operator and its exchange plan.

    Args:
        source       one of: a Graph on all ranks, each keeps its rows; a Graph on rank 0 and None on the others,
                     rank 0 sends them their rows; a function that returns a Graph, called on rank 0 alone, which
                     frees the graph when its rows are sent; a partition folder, each rank maps its own part.
        comm         of spgnn.world(), run_threads or mpi4py; None: this process is the only rank.
        partition    Partition, owner array (N,) or partition folder; None: `method` makes it on rank 0. If it has more
                     than P/c parts, part p belongs to block row p mod P/c.
    Options, the fields of spgnn.config.Distribution:
        scheme       cover, columns, broadcast, two-tier; auto: the fastest by the cost model; flat: the faster of cover
                     and columns.
        replication  c of 1.5D: the partition has P/c parts or more, each held by c ranks.
        operator     of the layers that do not name theirs. gcn: D^-1/2 (A + I) D^-1/2; sym: D^-1/2 A D^-1/2; row: D^-1 A;
                     none: A; row_loops: D^-1 (A + I); loops: the pattern of A + I, all ones.
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
    comm = ranks_of(comm)
    how = together(comm, built, options, "distribute")
    source, partition = together(comm, _opened, source, partition)
    check_options(comm, source, partition, how)
    threads = how.threads or min(share_of_threads(comm), torch.get_num_threads())  # fewer if the user told torch so
    dgraph = make_dgraph(source, comm, partition, replace(how, threads=threads))
    if isinstance(source, Graph):
        return replace(dgraph, ids=source.ids)
    if isinstance(source, PartitionFolder):
        return replace(dgraph, ids=together(comm, source.ids))
    return dgraph


def ranks_of(comm: Communicator | Any) -> Communicator:
    """Return the communicator of comm, see communicator_of; of None one rank alone, where no launcher has started several."""
    if comm is not None:
        return communicator_of(comm)
    launcher = find_launcher(os.environ)
    if launcher is not None and launcher.size > 1:
        raise UsageError(
            f"{launcher.name} started {launcher.size} ranks, which would each train alone: with spgnn.world() as comm: "
            "spgnn.distribute(graph, comm)"
        )
    return SelfCommunicator()


def make_dgraph(source, comm: Communicator, partition, how: Distribution) -> DistGraph:
    """Return the DistGraph of `distribute`, for options that are the same on all ranks and name the threads. Collective."""
    layout = layout_of(comm, how)
    layout.comm.phase = "partition and load"
    return assembled(_own_rows(source, layout, partition, how), layout, how)


def layout_of(comm: Communicator, how: Distribution, placement: Placement | None = None) -> Layout:
    """Return what the operators of a graph share, and give this rank its threads and its device. Collective.

    Args: placement  of a rank that has a graph of its own; None: chosen for the ranks of comm.
    """
    torch.set_num_threads(how.threads)
    placement = place(comm, how.device) if placement is None else placement
    comm, pool = device_communicator(comm, placement), make_pool(placement.device)
    grid = ProcessGrid(comm.size, how.replication, tuple(find_hosts(comm, how.hosts).tolist()))
    wires = Wire(how.wire), Wire(how.wire_gradients)
    return make_layout(comm, grid, how.scheme, getattr(torch, how.dtype), pool, how.threads, how.order, wires)


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
    for base in type(source).__mro__:  # a Data of PyG is callable
        if (name := base.__module__.partition(".")[0]) in FROM_LIBRARY:
            raise UsageError(
                f"distribute got a {type(source).__name__}; give spgnn.{FROM_LIBRARY[name].__name__}(...) of it, a Graph"
            )
    if not (source is None or callable(source) or isinstance(source, (Graph, PartitionFolder))):
        expected = "a Graph, as spgnn.load_graph returns, a function that returns one, or a partition folder"
        raise UsageError(f"distribute got a {type(source).__name__}; expected {expected}")
    return source, partition


def _own_rows(source, layout: Layout, partition, how: Distribution) -> GraphRows:
    """Return this rank's rows of a graph or folder. If source is a function, its graph is freed. Collective."""
    comm, k = layout.comm, layout.grid.rows

    def read():
        if not callable(source):
            return source
        graph = source() if comm.rank == 0 else None
        if comm.rank == 0 and not isinstance(graph, Graph):
            raise UsageError(f"distribute got a function that returns a {type(graph).__name__}; expected a Graph")
        return graph

    def of_folder(folder: PartitionFolder) -> GraphRows:
        part = folder.partition()
        _check_ranks(part.k, layout)
        if isinstance(graph, Graph):
            part.check_graph(graph.in_use())
        about = {"name": part.graph_name or folder.path.name, "fingerprint": folder.manifest["fingerprint"]}
        about |= {"names": folder.names.written(), "node_types": folder.manifest.get("node_types")}
        about["read"] = {"graph": str(folder.path.absolute())}
        return rows_of_parts(folder.checked_block, part, layout, about)

    graph = together(comm, read)  # also where rank 0 alone has a source
    folder = next((given for given in (partition, source) if isinstance(given, PartitionFolder)), None)
    if folder is not None:
        check_folder(comm, folder)
        return together(comm, of_folder, folder)
    has_graph = comm.all_gather_json(graph is not None)
    if not has_graph[0]:
        agree(comm, InputError("distribute needs the graph on rank 0") if comm.rank == 0 else None)
    if comm.size > 1:
        own = together(comm, partition_facts, partition, comm.rank)
        check_same(comm, (graph_facts(graph) if graph is not None and all(has_graph) else {}) | own)
    graph, part = together(comm, _partitioned, graph, layout, partition, how)

    def describe() -> dict[str, Any]:
        assert graph is not None and part is not None
        names, types = GraphColumns.of(graph).names.written(), graph.meta.get("node_types")
        about = {"name": graph.name, "method": part.method, "fingerprint": fingerprint(graph)}
        read = graph.meta.get("read", {})
        about["read"] = read and read | {"edges": SHORT_EDGES.get(graph.edges, "auto")}
        return about | {"names": names, "node_types": types}

    about = from_root(comm, describe)
    about["links"] = shared_links(comm, None if graph is None else graph.links)
    if comm.size == 1 and graph is not None:
        arrays = (np.arange(graph.n_nodes), graph.A, graph.X, graph.y, graph.split)
        return GraphRows(*arrays, graph.n_nodes, about, edges=edges_of(graph))
    owner_N = np.empty(comm.all_gather_json(None if part is None else part.n_nodes)[0], np.int32)
    if comm.rank == 0 and part is not None:
        owner_N[:] = part.owner_N
    comm.broadcast(owner_N)
    if graph is not None and all(has_graph):
        block = together(comm, row_block, graph, part or Partition(owner_N, k), layout.block)
    else:
        block = scatter_blocks(layout, *((graph, part) if comm.rank == 0 else (None, None)))
    return GraphRows.of_block(block, about, lambda ids: owner_N[ids])


def rows_of_parts(
    block_of: Callable[[int], RowBlock], part: Partition, layout: Layout, about: dict[str, Any], has_rows: bool = True
) -> GraphRows:
    """Return the rows of parts r, r + R, ... for block row r of R; none where there is no such part.

    Args: about  name, fingerprint and names of columns of the graph; has_rows: False for no rows on any rank.
    """
    R, r = layout.grid.rows, layout.block
    blocks = [block_of(p) for p in range(r, part.k, R) if has_rows]
    block = merge_blocks(blocks, R, r) if blocks else no_rows(block_of(0), R, r)
    return GraphRows.of_block(block, about | {"method": part.method}, lambda ids: part.owner_N[ids] % R)


def _partitioned(
    graph: Graph | None, layout: Layout, partition: Partition | np.ndarray | None, how: Distribution
) -> tuple[Graph | None, Partition | None]:
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
    if layout.comm.rank != 0 or graph is None:
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


def check_options(comm: Communicator, source, partition, how: Distribution, **options) -> None:
    """Raise, on all ranks, where options, kinds of sources, or versions differ between ranks; options: more of them. Collective."""
    is_folder = lambda given: isinstance(given, PartitionFolder)
    kinds = {"option.source": "folder" if is_folder(source) else "graph"}
    kinds["option.partition"] = "folder" if is_folder(partition) else "array or method"
    given = {f"option.{name}": value for name, value in options.items()}
    check_same(comm, kinds | shared_values(how) | versions() | given)


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return sizes and digests of a graph that every rank holds."""
    A, X = graph.A, graph.X
    facts = {"graph.name": graph.name, "graph.edges": graph.edges, "graph.nodes": graph.n_nodes, "graph.nnz": graph.nnz}
    facts["graph.A"] = digest(A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data)
    facts["graph.X"] = _described(X) + digest(
        *((X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data) if isinstance(X, sp.csr_array) else (X,))
    )
    facts["graph.y"] = _described(graph.y) + digest(graph.y)
    facts["graph.split"] = _described(graph.split) + digest(graph.split)
    facts["graph.edge_attr"] = _described(graph.edge_attr) + digest(graph.edge_attr, graph.edge_ids)
    facts["graph.edge_y"] = _described(graph.edge_y) + digest(graph.edge_y, graph.edge_split)
    return facts


def partition_facts(partition: Partition | np.ndarray | None, rank: int) -> dict[str, Any]:
    """Return the digest of the partition in memory; ranks other than 0 need not be given it, and then say nothing of it."""
    nothing = None if rank else "none"
    facts = {"partition.k": getattr(partition, "k", nothing), "partition.owner": nothing}
    if partition is None:
        return facts
    try:
        owner_N = np.asarray(getattr(partition, "owner_N", partition))
    except ValueError:
        return facts | {"partition.owner": "unlike things"}
    has_integers = owner_N.dtype.kind in "iu"  # the gate refuses the rest
    return facts | {"partition.owner": digest(owner_N.astype(np.int64)) if has_integers else str(owner_N.dtype)}


def check_folder(comm: Communicator, folder: PartitionFolder) -> None:
    """Raise, on all ranks, where they see different partition folders; a manifest has the digests of the rest. Collective."""
    is_there = lambda: (folder.path / "manifest.json").is_file()
    manifest = together(comm, lambda: folder.hash[:16] if is_there() else "missing")
    check_same(comm, {"partition.manifest": manifest})


def _described(array) -> str:
    return "" if array is None else f"{array.dtype} {'x'.join(map(str, array.shape))} "
