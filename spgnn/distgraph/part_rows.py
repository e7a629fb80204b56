"""The rows that a part knows, own and of its halo, as a graph of their own with the operators of the whole one.

Shapes: N nodes, n own nodes, g nodes of the halo, m = n + g rows.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..errors import PartitionError
from ..machine import drop_pages
from ..partition import RowBlock
from ..partition.folder.blocks import Halo
from ..spmm.edges.edge_table import NoEdgeTable
from ..spmm.exchange.index_map import make_csr, places_of
from .assemble import Features, GraphRows, Known

BLOCK = 1 << 14  # rows of features that are read at once
NO_ATTRIBUTES = "a part and its halo have no attributes of edges; distribute the folder or the graph to all ranks"


def part_rows(block: RowBlock, sums_n3: np.ndarray, halo: Halo | None, hops: int, is_symmetric: bool) -> GraphRows:
    """Return the rows of a part with the nodes of its halo within some hops.

    A row of the last hop has the mirror images of the entries of whole rows, if A is symmetric, and its own diagonal.
    Args: sums_n3  of own nodes; halo: of as many hops or more, None for hops = 0.
          hops     of the halo that are used; 0: own rows lose the columns of other parts.
    """
    no_nodes, n = np.empty(0, np.int64), len(block.own_n)
    chosen_g = no_nodes if halo is None else np.flatnonzero(halo.hop_g <= hops)
    node_m = np.concatenate([block.own_n, no_nodes if halo is None else halo.node_g[chosen_g]])
    m, sums_m3, is_whole_m = len(node_m), np.array(sums_n3), np.ones(len(node_m), bool)
    rows, columns, data = _entries(block.A_nN, np.arange(n))
    if halo is not None:
        sums_m3 = np.concatenate([sums_n3, halo.sums_g3[chosen_g]])
        is_whole_m[n:] = halo.hop_g[chosen_g] < hops
        if halo.A_gN is not None and hops > 1:
            whole_g = chosen_g[is_whole_m[n:]]
            more = _entries(halo.A_gN[whole_g], n + np.flatnonzero(is_whole_m[n:]))
            rows, columns, data = (np.concatenate(pair) for pair in zip((rows, columns, data), more))
    places = places_of(node_m, columns, block.n_nodes)
    is_known = places >= 0
    if hops and not is_known.all():
        lacking = columns[~is_known][0]
        raise PartitionError(f"part {block.rank}: its halo lacks node {lacking}, which its rows read; partition again")
    if not is_known.all():
        is_whole_m[rows[~is_known]] = False
        rows, places, data = rows[is_known], places[is_known], data[is_known]
    if hops:
        rows, places, data = _with_last_hop(rows, places, data, sums_m3, is_whole_m, is_symmetric)
    A_mm = make_csr(data, rows, places, (m, m))
    return _rows(block, node_m, A_mm, sums_m3, is_whole_m, joined(block.X_nF, halo, chosen_g))


def own_part_rows(
    block: RowBlock, sums_n3: np.ndarray, halo: Halo, near_g: np.ndarray, input_hops: int | None = None
) -> GraphRows:
    """Return the own rows of a part, complete, and of nodes of the halo the diagonal alone, which sums of A + I need.

    Args: near_g      which nodes of the halo own rows read, in the order of the columns after the own ones.
          input_hops  0: X is of own nodes; 1: and of the halo after them; None: no X.
    """
    no_nodes = np.empty(0, np.int64)
    node_m = np.concatenate([block.own_n, halo.node_g[near_g]])
    sums_m3 = np.concatenate([sums_n3, halo.sums_g3[near_g]])
    n, m, A = len(block.own_n), len(node_m), block.A_nN
    loops = n + np.flatnonzero(~np.isnan(sums_m3[n:, 2]))
    index = np.int64 if A.nnz + m >= 2**31 else np.int32
    indices = np.concatenate([places_of(node_m, A.indices, block.n_nodes), loops]).astype(index, copy=False)
    data = np.concatenate([A.data, sums_m3[loops, 2].astype(A.data.dtype)])
    per_m = np.zeros(m + 1, np.int64)
    per_m[1 : n + 1] = np.diff(A.indptr)
    per_m[loops + 1] = 1
    A_mm = sp.csr_array((data, indices, np.cumsum(per_m).astype(index)), shape=(m, m))
    A_mm.sort_indices()
    is_whole_m = np.arange(m) < n
    X = None if input_hops is None else joined(block.X_nF, halo, near_g if input_hops else no_nodes)
    return _rows(block, node_m, A_mm, sums_m3, is_whole_m, X)


def _rows(
    block: RowBlock, node_m: np.ndarray, A_mm: sp.csr_array, sums_m3: np.ndarray, is_whole_m: np.ndarray, X_mF: Features
) -> GraphRows:
    """Return the rows of a part without labels, which Parts has."""
    edges = None if block.edges is None else NoEdgeTable(NO_ATTRIBUTES)
    about = {"name": f"part {block.rank}", "method": "none"}
    known = Known(len(block.own_n), sums_m3, None if is_whole_m.all() else is_whole_m)
    return GraphRows(node_m, A_mm, X_mF, None, None, block.n_nodes, about, edges=edges, known=known)


def _entries(A: sp.csr_array, row_n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row, the original column and the value of each nonzero; row_n: what the rows are numbered."""
    return np.repeat(row_n, np.diff(A.indptr)), A.indices, A.data


def _with_last_hop(rows, places, data, sums_m3, is_whole_m, is_symmetric: bool) -> tuple:
    """Return the entries together with those that are known of rows that are not whole."""
    last = np.flatnonzero(~is_whole_m & ~np.isnan(sums_m3[:, 2]))
    found = [(rows, places, data), (last, last, sums_m3[last, 2].astype(data.dtype))]
    if is_symmetric:
        to_last = ~is_whole_m[places]
        found.append((places[to_last], rows[to_last], data[to_last]))
    return tuple(np.concatenate(arrays) for arrays in zip(*found))


def joined(X_nF: Features, halo: Halo | None, chosen_g: np.ndarray) -> Features:
    """Return the features of own nodes, then those of chosen nodes of the halo."""
    if X_nF is None or halo is None or halo.X_gF is None or not len(chosen_g):
        return X_nF
    if sp.issparse(X_nF):
        return sp.csr_array(sp.vstack([X_nF, halo.X_gF[chosen_g]], format="csr"))
    n, m = len(X_nF), len(X_nF) + len(chosen_g)
    X_mF = np.empty((m, X_nF.shape[1]), np.result_type(X_nF, halo.X_gF))
    X_mF[:n] = X_nF
    for start in range(n, m, BLOCK):  # so that few pages of the file are in memory beside their copy
        end = min(start + BLOCK, m)
        X_mF[start:end] = halo.X_gF[chosen_g[start - n : end - n]]
        drop_pages(halo.X_gF)
    return X_mF
