"""distribute: from a graph, or a partition folder, to the rows, the operator and the plan of each rank.

Shapes: N nodes, n own rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from ..config import Distribution, build
from ..dist import Communicator
from ..dist.consistency import check_same
from ..dist.launch import share_of_threads
from ..errors import InputError, UsageError, together
from ..graph import Graph, axis_sums
from ..machine import give_back_memory
from ..partition import Partition, PartitionFolder, RowBlock
from ..partition.folder.blocks import select_rows
from ..spmm.exchange.context import make_layout
from ..spmm.exchange.wire import Wire
from ..spmm.features import SparseRows
from ..spmm.fixed_input import FixedInput
from ..spmm.kernels.buffers import make_pool, sum_dtype
from ..spmm.kernels.cuda.placement import device_communicator, place
from .assemble import assemble
from .consistency import block_facts, option_facts
from .distgraph import DistGraph
from .own_rows import own_rows


def distribute(
    source: Graph | Callable[[], Graph] | PartitionFolder | str | Path | None,
    comm: Communicator,
    partition: Partition | np.ndarray | PartitionFolder | str | Path | None = None,
    **options,
) -> DistGraph:
    """Give each rank its rows of the graph and make the operator and its exchange plan.

    Args:
        source       a Graph on all ranks, of which each keeps its rows; or on rank 0 alone (None on the
                     others), which sends each rank its rows; or a function that returns it, called on rank 0
                     alone, whose graph takes no memory any more when its rows are sent; or a partition folder,
                     of which each rank maps its own part only.
        partition    Partition, owner array (N,), or such a folder; without one `method` makes it on rank 0.
    Options, the fields of spgnn.config.Distribution:
        scheme       cover, columns, broadcast, or auto: what the cost model finds faster.
        replication  c of 1.5D: the partition has P/c parts, each held by c ranks.
        operator     gcn: D^-1/2 (A + I) D^-1/2; row: D^-1 A; none: A.
        feature_norm row: the features of a node are divided by their sum; none.
        dtype        torch.float32, torch.float64 or torch.bfloat16, or its name.
        method, seed, balance  of the partitioner, see `part_graph`.
        keep         compute A X once, in set-up of the training or the first product with X, and cache it: X must
                     then never change.
        order        of every chain A H W: auto, or spmm_first.
        locality     reorder own rows, so that products read X from caches more often (`partition.local_order`);
                     node_n has the order. A copy of the rows is made.
        wire, wire_gradients  types of the rows sent forward and backward: float32 (unchanged), bfloat16, float16
                     or int8. All but the first are not exact.
        machine      name or file of the cost model that scheme auto uses.
        threads      kernel threads of this rank; 0: its share of the host's cores. torch uses as many.
        device       cpu, or cuda: the rank's products, activations and exchanges are on a device of its host.
    Raises: PartitionError where partition and graph or ranks do not fit; UsageError for unknown names,
            and for what is no graph or communicator; ResourceError where there is no device.
    Collective.
    """
    if not hasattr(comm, "all_gather_json"):
        raise UsageError(
            f"got a {type(comm).__name__} instead of a communicator: with spgnn.world() as comm: spgnn.distribute(graph, comm)"
        )
    how = together(comm, _built, options)
    check_same(comm, option_facts(source, partition, how))
    threads = how.threads or min(share_of_threads(comm), torch.get_num_threads())  # fewer if the user told torch so
    return make_dgraph(source, comm, partition, replace(how, threads=threads))


def make_dgraph(source, comm: Communicator, partition, how: Distribution) -> DistGraph:
    """Return the DistGraph of `distribute`, for options that are the same on all ranks and name the threads. Collective."""
    torch.set_num_threads(how.threads)
    dtype = getattr(torch, how.dtype)
    placement = place(comm, how.device)
    comm, pool = device_communicator(comm, placement), make_pool(placement.device)
    wires = Wire(how.wire), Wire(how.wire_gradients)
    layout = make_layout(comm, how.replication, how.scheme, dtype, pool, how.threads, wires, how.order)
    comm.phase = "partition and load"
    block, owner_of, name, method = own_rows(source, layout, partition, how)
    check_same(comm, block_facts(block))
    give_back_memory()  # what reading and partitioning took
    if how.feature_norm == "none":
        together(comm, _check_fits, block, dtype)
    comm.phase = "distribute"
    edges, own_n, n_nodes, rows = [block.A_nN], block.own_n, block.n_nodes, (block.X_nF, block.y_n, block.split_n)
    del block
    A, order_n = assemble(edges, own_n, owner_of, layout, how.operator, how.machine, how.locality)
    X_nF, y_n, split_n = rows if order_n is None else (select_rows(of_nodes, order_n) for of_nodes in rows)
    del rows
    X = _features(X_nF, how.feature_norm, pool, dtype, how.threads)
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
        replication=how.replication,
    )
    if how.keep and X is not None:
        A.fixed_input = FixedInput(X)
    give_back_memory()
    return dgraph


def _built(options: dict) -> Distribution:
    if "dtype" in options:
        options = options | {"dtype": str(options["dtype"]).removeprefix("torch.")}
    return build(Distribution, options, "distribute")


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
