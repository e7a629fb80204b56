"""Rank 0 has read the graph; every other rank receives its row block and never holds the whole.

Rows are put into the order of the ranks round by round, so that rank 0 holds no second copy of all of them.
Shapes: N nodes, n own rows, F features, P ranks.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from ..dist import Communicator
from ..graph import Graph
from ..graph.edge_attr import nonzeros_of
from ..partition import Partition, RowBlock
from ..partition.folder.blocks import EdgeRows, edges_of
from ..spmm.exchange.context import Layout

ROUND_BYTES = 1 << 26  # that are copied at once, or the rows of one rank where they are more


def scatter_blocks(layout: Layout, graph: Graph | None, part: Partition | None) -> RowBlock:
    """Return this rank's RowBlock of the graph of rank 0; the ranks of a process row get the same.

    Args: graph, part  of rank 0; None on the others.
    Collective.
    """
    comm, about, edges = layout.comm, None, None
    if graph is not None:
        about = {"n_nodes": graph.n_nodes, "n_features": graph.n_features, "sparse": sp.issparse(graph.X)}
        about |= {name: getattr(graph, name) is not None for name in ("X", "y", "split")}
        edges = edges_of(graph)
        about["edges"] = [] if edges is None else [edges.n_listed, edges.is_reversed, *edges.arrays]
    about = comm.all_gather_json(about)[0]
    sizes_P = np.zeros(comm.size, np.int64) if part is None else np.repeat(part.sizes_k.astype(np.int64), layout.grid.c)
    comm.broadcast(sizes_P)
    order_N = None if part is None else _once_a_rank(part, layout.grid.c)
    of_graph = lambda name: None if graph is None else getattr(graph, name)
    rows = lambda name: _scatter_rows(comm, of_graph(name), sizes_P, order_N) if about[name] else None
    own_n = _scatter_rows(comm, order_N, sizes_P)
    A_nN = _scatter_csr(comm, of_graph("A"), order_N, sizes_P, about["n_nodes"])
    is_sparse = about["X"] and about["sparse"]
    X_nF = _scatter_csr(comm, of_graph("X"), order_N, sizes_P, about["n_features"]) if is_sparse else rows("X")
    # Labels may have any integer type; these travel, and numbers as they are.
    y_N = of_graph("y")
    if y_N is not None and of_graph("task") != "numbers":
        y_N = y_N.astype(np.int64 if y_N.ndim == 1 else np.int8, copy=False)
    y_n = _scatter_rows(comm, y_N, sizes_P, order_N) if about["y"] else None
    split_n = rows("split")
    if about["edges"]:
        nnz_P = comm.all_gather(np.array([A_nN.nnz], np.int64))
        order_E = None if graph is None or order_N is None else nonzeros_of(graph.A.indptr, order_N)
        listed, is_reversed, *names = about["edges"]
        arrays = {} if edges is None else edges.arrays
        found = {name: _scatter_rows(comm, arrays.get(name), nnz_P, order_E) for name in names}
        edges = EdgeRows(**found, n_listed=listed, is_reversed=is_reversed)
    of = {"n_nodes": about["n_nodes"], "k": layout.grid.rows, "rank": layout.block}
    return RowBlock(own_n, A_nN, X_nF, y_n, split_n, **of, edges=edges)


def _once_a_rank(part: Partition, c: int) -> np.ndarray:
    """Return the rows of all ranks, part after part, each part c times."""
    if c == 1:
        return part.order_N
    parts = np.split(part.order_N, np.cumsum(part.sizes_k)[:-1])
    return np.concatenate([rows for own in parts for rows in [own] * c])


def _scatter_csr(
    comm: Communicator, M: sp.csr_array | None, order_R: np.ndarray | None, sizes_P: np.ndarray, n_columns: int
) -> sp.csr_array:
    """Return this rank's stretch of the rows M[order] that rank 0 holds."""
    lengths_N = None if M is None else np.diff(M.indptr).astype(np.int64)
    lengths = _scatter_rows(comm, lengths_N, sizes_P, order_R)
    nnz_P = np.zeros(comm.size, np.int64)
    if lengths_N is not None:
        nnz_P[:] = np.diff(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N[order_R])])[
                np.concatenate([[0], np.cumsum(sizes_P)])
            ]
        )
    comm.broadcast(nnz_P)
    dtypes = comm.all_gather_json(None if M is None else [M.indices.dtype.str, M.data.dtype.str])[0]
    indices, data = (np.empty(nnz_P[comm.rank], np.dtype(name)) for name in dtypes)
    for ranks, rows in _rounds(nnz_P * (indices.itemsize + data.itemsize), sizes_P):
        block = None if M is None else sp.csr_array(M[order_R[rows]])
        for name, recv in (("indices", indices), ("data", data)):
            # Of the type that all ranks expect: scipy may take a narrower one for the indices of a block.
            _send(
                comm,
                recv[:0] if block is None else getattr(block, name).astype(recv.dtype, copy=False),
                recv,
                nnz_P,
                ranks,
            )
        del block  # before the next is made
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return sp.csr_array((data, indices, indptr), shape=(len(lengths), n_columns))


def _scatter_rows(
    comm: Communicator, rows: np.ndarray | None, rows_P: np.ndarray, order_R: np.ndarray | None = None
) -> np.ndarray:
    """Return this rank's stretch of rows, or of rows[order], that rank 0 holds, rank after rank; rows_P on all ranks."""
    about = comm.all_gather_json(None if rows is None else [rows.dtype.str, list(rows.shape[1:])])[0]
    dtype, shape = np.dtype(about[0]), tuple(about[1])
    recv = np.empty((int(rows_P[comm.rank]), *shape), dtype)
    row_bytes = dtype.itemsize * math.prod(shape)
    for ranks, stretch in _rounds(rows_P * row_bytes, rows_P):
        send = recv[:0] if rows is None else rows[stretch] if order_R is None else rows[order_R[stretch]]
        _send(comm, send, recv, rows_P, ranks)
        del send
    return recv


def _rounds(bytes_P: np.ndarray, rows_P: np.ndarray) -> list[tuple[slice, slice]]:
    """Return (ranks, rows) of each round: ranks one after the other up to ROUND_BYTES, or one with more."""
    ends, rounds, first = np.concatenate([[0], np.cumsum(rows_P)]), [], 0
    while first < len(rows_P):
        last = max(first + 1, first + int(np.searchsorted(np.cumsum(bytes_P[first:]), ROUND_BYTES, side="right")))
        rounds.append((slice(first, last), slice(int(ends[first]), int(ends[last]))))
        first = last
    return rounds


def _send(comm: Communicator, send: np.ndarray, recv: np.ndarray, rows_P: np.ndarray, ranks: slice) -> None:
    """Send each rank of a round its stretch of what rank 0 holds; the others get nothing yet. Collective."""
    send_P, recv_P = np.zeros(comm.size, np.int64), np.zeros(comm.size, np.int64)
    if comm.rank == 0:
        send_P[ranks] = rows_P[ranks]
    is_mine = ranks.start <= comm.rank < ranks.stop
    recv_P[0] = rows_P[comm.rank] if is_mine else 0
    comm.all_to_all(np.ascontiguousarray(send), send_P, recv if is_mine else recv[:0], recv_P)
