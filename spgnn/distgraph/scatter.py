"""Rank 0 has read the graph; every other rank receives its row block and never holds the whole.

Rows are put into the order of the ranks round by round, so that rank 0 holds no second copy of all of them.
Shapes: N nodes, n own rows, F features, P ranks.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from ..graph import Graph
from ..graph.edge_attr import nonzeros_of
from ..partition import Partition, RowBlock
from ..partition.folder.blocks import EdgeRows
from ..spmm.exchange.context import Layout

ROUND_BYTES = 1 << 26  # that are copied at once, or the rows of one rank where they are more


def scatter_blocks(layout: Layout, graph: Graph | None, part: Partition | None) -> RowBlock:
    """Return this rank's RowBlock of the graph that rank 0 holds; the ranks of a process row get the same. Collective."""
    comm, is_root = layout.comm, layout.comm.rank == 0
    fields = ("X", "y", "split", "edge_attr")
    about = None
    if is_root:
        about = {"n_nodes": graph.n_nodes, "n_features": graph.n_features, "sparse": sp.issparse(graph.X)}
        about |= {name: getattr(graph, name) is not None for name in fields}
        about["edges_listed"] = graph.meta.get("edges_listed", 0)
    about = comm.all_gather_json(about)[0]
    order_N = _once_a_rank(part, layout.grid.c) if is_root else None
    sizes_P = np.repeat(part.sizes_k.astype(np.int64), layout.grid.c) if is_root else np.zeros(comm.size, np.int64)
    comm.broadcast(sizes_P)
    own_n = _scatter_rows(comm, order_N, sizes_P)
    A_nN = _scatter_csr(comm, graph.A if is_root else None, order_N, sizes_P, about["n_nodes"])
    X_nF = None
    if about["X"] and about["sparse"]:
        X_nF = _scatter_csr(comm, graph.X if is_root else None, order_N, sizes_P, about["n_features"])
    elif about["X"]:
        X_nF = _scatter_rows(comm, graph.X if is_root else None, sizes_P, order_N)
    # Labels may have any integer type; these travel, and numbers as they are.
    y_N = graph.y if is_root else None
    if is_root and about["y"] and graph.task != "numbers":
        y_N = y_N.astype(np.int64 if y_N.ndim == 1 else np.int8, copy=False)
    y_n = _scatter_rows(comm, y_N, sizes_P, order_N) if about["y"] else None
    split_n = _scatter_rows(comm, graph.split if is_root else None, sizes_P, order_N) if about["split"] else None
    edges = _scatter_edges(comm, graph, order_N, A_nN.nnz, about["edges_listed"]) if about["edge_attr"] else None
    of = {"n_nodes": about["n_nodes"], "k": layout.grid.rows, "rank": layout.block}
    return RowBlock(own_n, A_nN, X_nF, y_n, split_n, **of, edges=edges)


def _once_a_rank(part: Partition, c: int) -> np.ndarray:
    """Return the rows of all ranks, part after part, each part c times."""
    if c == 1:
        return part.order_N
    parts = np.split(part.order_N, np.cumsum(part.sizes_k)[:-1])
    return np.concatenate([rows for own in parts for rows in [own] * c])


def _scatter_csr(comm, M, order_R, sizes_P, n_columns: int) -> sp.csr_array:
    """Return this rank's stretch of the rows M[order] that rank 0 holds."""
    is_root = comm.rank == 0
    lengths_N = np.diff(M.indptr).astype(np.int64) if is_root else None
    lengths = _scatter_rows(comm, lengths_N, sizes_P, order_R)
    nnz_P = np.zeros(comm.size, np.int64)
    if is_root:
        nnz_P[:] = np.diff(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N[order_R])])[
                np.concatenate([[0], np.cumsum(sizes_P)])
            ]
        )
    comm.broadcast(nnz_P)
    dtypes = comm.all_gather_json([M.indices.dtype.str, M.data.dtype.str] if is_root else None)[0]
    indices, data = (np.empty(nnz_P[comm.rank], np.dtype(name)) for name in dtypes)
    for ranks, rows in _rounds(nnz_P * (indices.itemsize + data.itemsize), sizes_P):
        block = sp.csr_array(M[order_R[rows]]) if is_root else None
        for name, recv in (("indices", indices), ("data", data)):
            # Of the type that all ranks expect: scipy may take a narrower one for the indices of a block.
            _send(
                comm, getattr(block, name).astype(recv.dtype, copy=False) if is_root else recv[:0], recv, nnz_P, ranks
            )
        del block  # before the next is made
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return sp.csr_array((data, indices, indptr), shape=(len(lengths), n_columns))


def _scatter_edges(comm, graph: Graph | None, order_R, nnz: int, n_listed: int) -> EdgeRows:
    """Return the attributes of this rank's nnz nonzeros of the graph that rank 0 holds."""
    nnz_P = comm.all_gather(np.array([nnz], np.int64))
    is_root = comm.rank == 0
    order_E = nonzeros_of(graph.A.indptr, order_R) if is_root else None
    arrays = (graph.edge_attr, graph.edge_ids) if is_root else (None, None)
    return EdgeRows(*(_scatter_rows(comm, rows, nnz_P, order_E) for rows in arrays), n_listed)


def _scatter_rows(comm, rows, rows_P, order_R=None) -> np.ndarray:
    """Return this rank's stretch of rows, or of rows[order], that rank 0 holds, rank after rank; rows_P on all ranks."""
    is_root = comm.rank == 0
    about = comm.all_gather_json([rows.dtype.str, list(rows.shape[1:])] if is_root else None)[0]
    dtype, shape = np.dtype(about[0]), tuple(about[1])
    recv = np.empty((int(rows_P[comm.rank]), *shape), dtype)
    row_bytes = dtype.itemsize * math.prod(shape)
    for ranks, stretch in _rounds(rows_P * row_bytes, rows_P):
        send = (rows[stretch] if order_R is None else rows[order_R[stretch]]) if is_root else recv[:0]
        _send(comm, send, recv, rows_P, ranks)
        del send
    return recv


def _rounds(bytes_P, rows_P) -> list[tuple[slice, slice]]:
    """Return (ranks, rows) of each round: ranks one after the other up to ROUND_BYTES, or one with more."""
    ends, rounds, first = np.concatenate([[0], np.cumsum(rows_P)]), [], 0
    while first < len(rows_P):
        last = max(first + 1, first + int(np.searchsorted(np.cumsum(bytes_P[first:]), ROUND_BYTES, side="right")))
        rounds.append((slice(first, last), slice(int(ends[first]), int(ends[last]))))
        first = last
    return rounds


def _send(comm, send, recv, rows_P, ranks: slice) -> None:
    """Send each rank of a round its stretch of what rank 0 holds; the others get nothing yet. Collective."""
    send_P, recv_P = np.zeros(comm.size, np.int64), np.zeros(comm.size, np.int64)
    if comm.rank == 0:
        send_P[ranks] = rows_P[ranks]
    is_mine = ranks.start <= comm.rank < ranks.stop
    recv_P[0] = rows_P[comm.rank] if is_mine else 0
    comm.all_to_all(np.ascontiguousarray(send), send_P, recv if is_mine else recv[:0], recv_P)
