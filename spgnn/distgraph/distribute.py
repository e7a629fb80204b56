"""distribute: from a graph, or a folder of parts, to the rows, the operator and the plan of each rank.

Shapes: N nodes, n own rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from ..config import MOST_THREADS
from ..dist import Communicator
from ..dist.consistency import check_same
from ..dist.launch import share_of_threads
from ..errors import InputError, PartitionError, UsageError, agree, is_integer, nearest, together
from ..graph import NORMS, Graph, axis_sums
from ..machine import give_back_memory
from ..partition import PARTITIONERS, Partition, PartitionFolder, RowBlock, part_graph, partition_of
from ..partition.folder.blocks import row_block, select_rows
from ..spmm.exchange.context import Layout, make_layout
from ..spmm.exchange.wire import Wire
from ..spmm.features import SparseRows
from ..spmm.fixed_input import FixedInput
from ..spmm.kernels.buffers import make_pool, sum_dtype
from ..spmm.kernels.cuda.placement import device_communicator, place
from .assemble import assemble
from .consistency import block_facts, folder_facts, graph_facts, option_facts, partition_facts
from .distgraph import DistGraph
from .scatter import scatter_blocks

SCHEMES = ("cover", "columns", "broadcast")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def distribute(
    source: Graph | Callable[[], Graph] | str | Path | None,
    comm: Communicator,
    partition: Partition | np.ndarray | str | Path | None = None,
    *,
    scheme: str = "auto",
    replication: int = 1,
    operator: str = "gcn",
    feature_norm: str = "none",
    dtype: torch.dtype = torch.float32,
    method: str = "metis",
    seed: int = 0,
    balance: float = 1.03,
    keep: bool = True,
    order: str = "auto",
    locality: bool = True,
    wire: str = "float32",
    wire_gradients: str = "float32",
    machine: str = "laptop",
    threads: int = 0,
    device: str = "cpu",
) -> DistGraph:
    """Give each rank its rows of the graph and make the operator and its exchange plan.

    Args:
        source       a Graph on all ranks, of which each keeps its rows; or on rank 0 alone (None on the
                     others), which sends each rank its rows; or a function that returns it, called on rank 0
                     alone, whose graph takes no memory any more when its rows are sent; or a folder that
                     `save_partition` wrote, of which each rank maps its own part only.
        partition    Partition, owner array (N,), or such a folder; without one `method` makes it on rank 0.
        scheme       cover, columns, broadcast, or auto: what the cost model finds faster.
        replication  c of 1.5D: the partition has P/c parts, each held by c ranks.
        operator     gcn: D^-1/2 (A + I) D^-1/2; row: D^-1 A; none: A.
        feature_norm row: the features of a node are divided by their sum; none.
        dtype        torch.float32, torch.float64 or torch.bfloat16.
        keep         compute A X once, in set-up of the training or the first product with X, and cache it: X must
                     then never change.
        order        of every chain A H W: auto, or spmm_first.
        locality     own rows may stand in another order than by id, where products then read X from caches more
                     often (`partition.local_order`); node_n tells which. A copy of the rows is made.
        wire, wire_gradients  types of the rows that travel forward and backward: float32 (as they are),
                     bfloat16, float16 or int8. All but the first are not exact.
        machine      name or file of the cost model that scheme auto asks.
        threads      kernel threads of this rank; 0: its share of the host's cores, which torch keeps to as well.
        device       cpu, or cuda: the rank's products, activations and exchanges are on a device of its host.
    Raises: PartitionError where partition and graph or ranks do not fit; UsageError for unknown names,
            and for what is no graph or communicator; ResourceError where there is no device.
    Collective.
    """
    if not hasattr(comm, "all_gather_json"):
        raise UsageError(
            f"got a {type(comm).__name__} in place of a communicator: with spgnn.world() as comm: spgnn.distribute(graph, comm)"
        )
    options = dict(
        scheme=scheme,
        replication=replication,
        operator=operator,
        feature_norm=feature_norm,
        dtype=dtype,
        method=method,
        seed=seed,
    )
    check_same(
        comm,
        option_facts(
            source,
            partition,
            options
            | dict(
                balance=balance,
                keep=keep,
                order=order,
                locality=locality,
                wire=wire,
                wire_gradients=wire_gradients,
                machine=machine,
                device=device,
            ),
        ),
    )
    if scheme != "auto" and scheme not in SCHEMES:
        raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, ('auto', *SCHEMES))}")
    if operator not in NORMS:
        raise UsageError(f"operator {operator!r} is not known{nearest(operator, NORMS)}")
    for option, value, known in (
        ("order", order, ("auto", "spmm_first")),
        ("feature_norm", feature_norm, ("none", "row")),
    ):
        if value not in known:
            raise UsageError(f"{option} {value!r} is not known{nearest(str(value), known)}")
    if not is_integer(threads) or not 0 <= threads <= MOST_THREADS:
        raise UsageError(f"threads = {threads!r}; expected an integer from 0 to {MOST_THREADS}")
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype} is not there; expected {' or '.join(map(str, DTYPES))}")
    share = share_of_threads(comm)
    threads = threads or min(share, torch.get_num_threads())  # fewer, where a user has told torch so
    torch.set_num_threads(threads)
    placement = place(comm, device)
    comm, pool = device_communicator(comm, placement), make_pool(placement.device)
    layout = make_layout(comm, replication, scheme, dtype, pool, threads, (Wire(wire), Wire(wire_gradients)), order)
    source = together(comm, _read, source, comm.rank)
    comm.phase = "partition and load"
    block, owner_of, name, method = _own_block(source, layout, partition, method, seed, balance)
    del source  # and with it the graph, where no caller has it
    check_same(comm, block_facts(block))
    give_back_memory()  # what reading and partitioning took
    if feature_norm == "none":
        together(comm, _check_fits, block, dtype)
    comm.phase = "distribute"
    edges, own_n, n_nodes, rows = [block.A_nN], block.own_n, block.n_nodes, (block.X_nF, block.y_n, block.split_n)
    del block
    A, order_n = assemble(edges, own_n, owner_of, layout, operator, machine, locality)
    X_nF, y_n, split_n = rows if order_n is None else (select_rows(of_nodes, order_n) for of_nodes in rows)
    del rows
    X = _features(X_nF, feature_norm, pool, dtype, threads)
    nnz = np.array([A.nnz])
    comm.all_reduce(nnz)
    dgraph = DistGraph(
        comm=comm,
        A=A,
        X=X,
        y_n=_labels(y_n, dtype),
        split_n=split_n,
        n_nodes=n_nodes,
        n_classes=_class_count(y_n, comm),
        name=name,
        scheme=layout.scheme,
        method=method,
        nnz=int(nnz[0]),
        replication=replication,
    )
    if keep and X is not None:
        A.fixed_input = FixedInput(X)
    give_back_memory()
    return dgraph


def _read(source, rank: int):
    """Return what a function given as source returns, None on other ranks than 0; else the source itself."""
    known, said = (Graph, str, Path), ""
    if callable(source):
        if rank != 0:
            return None
        source, known, said = source(), Graph, "a function that returns "
    if source is not None and not isinstance(source, known):
        expected = "a Graph, as spgnn.load_graph returns, a function that returns one, or a folder of parts"
        raise UsageError(f"distribute got {said}a {type(source).__name__}; expected {expected}")
    return source


def _own_block(source, layout: Layout, partition, method, seed, balance):
    """Return this rank's RowBlock, the function id -> block, the graph's name and the method."""
    comm, k = layout.comm, layout.grid.rows
    folder = partition if isinstance(partition, (str, Path)) else source if isinstance(source, (str, Path)) else None
    if folder is not None:
        check_same(comm, together(comm, folder_facts, folder))
        return together(comm, _from_folder, folder, source, layout)
    has_graph = comm.all_gather_json(source is not None)
    if not has_graph[0]:
        agree(comm, InputError("distribute needs the graph on rank 0") if comm.rank == 0 else None)
    if comm.size > 1:
        check_same(
            comm,
            (graph_facts(source) if all(has_graph) else {}) | together(comm, partition_facts, partition, comm.rank),
        )
    graph, part = together(comm, _partitioned, source, layout, partition, method, seed, balance)
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


def _partitioned(source, layout: Layout, partition, method, seed, balance):
    """Return the graph as it is used and its partition; on rank 0 alone where a partitioner has to run."""
    comm, k = layout.comm, layout.grid.rows
    graph = None if source is None else source.in_use()
    if partition is not None and graph is not None:
        part = partition if isinstance(partition, Partition) else partition_of(graph, partition, k=k)
        _check_ranks(part.k, layout)
        part.check_length(graph)
        return graph, part
    if method not in PARTITIONERS:  # also where one rank needs none
        raise UsageError(f"partitioner {method!r} is not known{nearest(method, PARTITIONERS)}")
    if comm.rank != 0:
        return graph, None  # one rank computes it: the others would only do the same work again
    if k == 1:
        return graph, Partition(np.zeros(graph.n_nodes, np.int32), 1, method="none")
    part = part_graph(graph, k, method=method, seed=seed, balance=balance)
    give_back_memory()  # what partitioning took, before rows are handed out
    return graph, part


def _owner_of_root(part, comm) -> np.ndarray:
    n_nodes = comm.all_gather_json(None if part is None else part.n_nodes)[0]
    owner_N = np.empty(n_nodes, np.int32)
    if comm.rank == 0:
        owner_N[:] = part.owner_N
    return comm.broadcast(owner_N)


def _from_folder(folder, source, layout: Layout):
    parts = PartitionFolder(folder)
    part = parts.partition()
    _check_ranks(part.k, layout)
    if isinstance(source, Graph):
        part.check_graph(source.in_use())
    block = parts.block(layout.block)
    parts.check_values(block)
    return block, lambda ids: part.owner_N[ids], part.graph_name or Path(folder).name, part.method


def _check_ranks(k: int, layout: Layout) -> None:
    P, c = layout.comm.size, layout.grid.c
    if k != layout.grid.rows:
        fits = f"start {k * c} or make a partition with k = {P // c}"
        copies = f", {c} to a part" if c > 1 else ""
        fits = fits if k % c == 0 else f"make a partition with k = {P // c}"
        raise PartitionError(f"the partition has k = {k} parts, the job {P} rank(s){copies}; {fits}")


def _check_fits(block: RowBlock, dtype: torch.dtype) -> None:
    """Raise InputError for a feature of float64 that float32, and so dtype, does not hold."""
    values = block.X_nF.data if sp.issparse(block.X_nF) else block.X_nF
    if values is None or dtype == torch.float64 or values.dtype != np.float64 or not values.size:
        return
    most = np.finfo(np.float32).max
    if max(values.max(), -values.min()) > most:
        at = np.argwhere(np.abs(values) > most)[0]
        row = np.searchsorted(block.X_nF.indptr, at[0], side="right") - 1 if values.ndim == 1 else at[0]
        raise InputError(
            f"node {block.own_n[row]} has the feature {values[tuple(at)]:g}, which {str(dtype).removeprefix('torch.')} does not hold; scale the features, or take float64"
        )


def _features(X_nF, feature_norm, pool, dtype, threads):
    if X_nF is None:
        return None
    X_nF = X_nF.astype(X_nF.dtype.newbyteorder("="), copy=False)
    if feature_norm == "row":
        sums_n = axis_sums(X_nF, 1) if sp.issparse(X_nF) else X_nF.sum(axis=1, dtype=np.float64)
        scale_n = np.divide(1.0, sums_n, out=np.zeros_like(sums_n), where=sums_n != 0)
        if sp.issparse(X_nF):
            scaled = X_nF.data * np.repeat(scale_n, np.diff(X_nF.indptr))
            X_nF = sp.csr_array((scaled, X_nF.indices, X_nF.indptr), shape=X_nF.shape)
        else:
            X_nF = X_nF * scale_n[:, None]
    if sp.issparse(X_nF):
        return SparseRows(sp.csr_array(X_nF), pool, dtype, threads)
    X_nF = X_nF.view()
    with suppress(ValueError):  # the memory of a mapped file stays read-only, and torch takes none that is
        X_nF.flags.writeable = True
    if pool.device.type != "cpu":
        return torch.from_numpy(np.require(X_nF, requirements=("C", "W"))).to(pool.device, dtype)
    if X_nF.dtype.name == str(dtype).removeprefix("torch.") and X_nF.flags.c_contiguous and X_nF.flags.writeable:
        return torch.from_numpy(X_nF)  # the caller's memory: X may not change anyway
    X = pool.empty(*X_nF.shape, dtype=dtype)
    if dtype == torch.bfloat16:
        return X.copy_(torch.from_numpy(np.array(X_nF, dtype=np.float32)))
    X.numpy()[:] = X_nF
    return X


def _labels(y_n, dtype):
    if y_n is None:
        return None
    return (
        torch.from_numpy(np.array(y_n, dtype=np.int64))
        if y_n.ndim == 1
        else torch.from_numpy(np.array(y_n)).to(sum_dtype(dtype))
    )


def _class_count(y_n, comm) -> int:
    if y_n is None:
        return 0
    count = np.array([y_n.shape[1] if y_n.ndim == 2 else int(y_n.max()) + 1 if len(y_n) else 0], np.int64)
    comm.all_reduce(count, "max")
    return int(count[0])
