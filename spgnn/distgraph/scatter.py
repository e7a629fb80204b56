"""Rank 0 has read the graph; every other rank receives its row block and never holds the whole.

Shapes: N nodes, n own rows, F features, P ranks.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..graph import Graph
from ..partition import Partition, RowBlock
from ..spmm.layout import Layout


def scatter_blocks(layout: Layout, graph: Graph | None, part: Partition | None) -> RowBlock:
    """Return this rank's RowBlock of the graph that rank 0 holds; the ranks of a process row get the same. Collective."""
    comm, is_root = layout.comm, layout.comm.rank == 0
    fields = ("X", "y", "split")
    about = None
    if is_root:
        about = {"n_nodes": graph.n_nodes, "n_features": graph.n_features, "sparse": sp.issparse(graph.X)}
        about |= {name: getattr(graph, name) is not None for name in fields}
    about = comm.all_gather_json(about)[0]
    order_N = _once_a_rank(part, layout.grid.c) if is_root else None
    sizes_P = np.repeat(part.sizes_k.astype(np.int64), layout.grid.c) if is_root else np.zeros(comm.size, np.int64)
    comm.broadcast(sizes_P)
    own_n = _scatter_rows(comm, order_N, sizes_P)
    A_nN = _scatter_csr(comm, sp.csr_array(graph.A[order_N]) if is_root else None, sizes_P, about["n_nodes"])
    X_nF = None
    if about["X"] and about["sparse"]:
        X_nF = _scatter_csr(comm, sp.csr_array(graph.X[order_N]) if is_root else None, sizes_P, about["n_features"])
    elif about["X"]:
        X_nF = _scatter_rows(comm, graph.X[order_N] if is_root else None, sizes_P)
    # Labels may have any integer type; these two travel.
    y_N = graph.y[order_N].astype(np.int64 if graph.y.ndim == 1 else np.int8) if is_root and about["y"] else None
    y_n = _scatter_rows(comm, y_N, sizes_P) if about["y"] else None
    split_n = _scatter_rows(comm, graph.split[order_N] if is_root else None, sizes_P) if about["split"] else None
    return RowBlock(own_n, A_nN, X_nF, y_n, split_n, n_nodes=about["n_nodes"], k=layout.grid.rows, rank=layout.block)


def _once_a_rank(part: Partition, c: int) -> np.ndarray:
    """Return the rows of all ranks, part after part, each part c times."""
    if c == 1:
        return part.order_N
    parts = np.split(part.order_N, np.cumsum(part.sizes_k)[:-1])
    return np.concatenate([rows for own in parts for rows in [own] * c])


def _scatter_csr(comm, M, sizes_P, n_columns: int) -> sp.csr_array:
    lengths = _scatter_rows(comm, np.diff(M.indptr).astype(np.int64) if M is not None else None, sizes_P)
    nnz_P = np.zeros(comm.size, np.int64)
    if M is not None:
        ends = np.cumsum(sizes_P)
        nnz_P[:] = np.asarray(M.indptr)[ends] - np.asarray(M.indptr)[ends - sizes_P]
    comm.broadcast(nnz_P)
    indices = _scatter_rows(comm, M.indices if M is not None else None, nnz_P)
    data = _scatter_rows(comm, M.data if M is not None else None, nnz_P)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return sp.csr_array((data, indices, indptr), shape=(len(lengths), n_columns))


def _scatter_rows(comm, rows, rows_P) -> np.ndarray:
    """Return this rank's stretch of the rows that rank 0 holds, rank after rank."""
    is_root = comm.rank == 0
    about = comm.all_gather_json([rows.dtype.str, list(rows.shape[1:])] if is_root else None)[0]
    dtype, shape = np.dtype(about[0]), tuple(about[1])
    send = np.ascontiguousarray(rows) if is_root else np.empty((0, *shape), dtype)
    recv = np.empty((int(rows_P[comm.rank]), *shape), dtype)
    none_P = np.zeros(comm.size, np.int64)
    from_root_P = none_P.copy()
    from_root_P[0] = rows_P[comm.rank]
    return comm.all_to_all(send, rows_P if is_root else none_P, recv, from_root_P)
