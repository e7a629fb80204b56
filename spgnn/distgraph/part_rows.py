"""The rows that a part knows, own and of its halo, as a graph of their own with the operators of the whole one.

Shapes: N nodes, n own nodes, g nodes of the halo, m = n + g rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..config.names import Norm
from ..errors import PartitionError
from ..graph import WITH_LOOPS, lacks_loop, with_self_loops
from ..partition import RowBlock
from ..partition.folder.blocks import Halo
from ..spmm.edges.edge_table import NoEdgeTable
from ..spmm.exchange.context import Layout
from ..spmm.exchange.index_map import IndexMap, make_csr, places_of
from ..spmm.exchange.stages import Blocks
from ..spmm.operator.dist_spmm import DistSpMM
from ..spmm.operator.norms import Norms, RawBlocks

NO_ATTRIBUTES = "a part and its halo have no attributes of edges; distribute the folder or the graph to all ranks"


@dataclass(frozen=True, slots=True, eq=False)
class PartRows:
    """The rows of a part: own ones first, then the halo's, each by rising id.

    node_m      (m,) int64, original ids; the first n_own are own.
    A_mm        (m, m) CSR of the known entries, columns in the order of node_m.
    sums_m3     (m, 3) float64: row sum, column sum and diagonal (NaN: none) in the whole graph.
    is_whole_m  (m,) bool: A_mm has all entries of the row.
    X_mF        features, or None.
    """

    node_m: np.ndarray
    n_own: int
    A_mm: sp.csr_array
    sums_m3: np.ndarray
    is_whole_m: np.ndarray
    X_mF: np.ndarray | sp.csr_array | None


def part_rows(block: RowBlock, sums_n3: np.ndarray, halo: Halo | None, hops: int, is_symmetric: bool) -> PartRows:
    """Return the rows of a part with the nodes of its halo within some hops.

    A row of the last hop has the mirror images of the entries of whole rows, if A is symmetric, and its own diagonal.
    Args: sums_n3  of own nodes; halo: of as many hops or more, None for hops = 0.
          hops     of the halo that are used; 0: own rows lose the columns of other parts.
    """
    chosen_g = np.flatnonzero(halo.hop_g <= hops) if hops else np.empty(0, np.int64)
    node_g = halo.node_g[chosen_g] if hops else np.empty(0, np.int64)
    node_m = np.concatenate([block.own_n, node_g])
    n, m = len(block.own_n), len(node_m)
    sums_m3 = np.concatenate([sums_n3, halo.sums_g3[chosen_g]]) if hops else np.array(sums_n3)
    is_whole_m = np.ones(m, bool)
    rows, columns, data = _entries(block.A_nN, np.arange(n))
    if hops:
        is_whole_m[n:] = halo.hop_g[chosen_g] < hops
        if hops > 1:
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
    return PartRows(node_m, n, A_mm, sums_m3, is_whole_m, joined(block.X_nF, halo, chosen_g))


def part_operator(part: PartRows, layout: Layout, operator: Norm, has_edges: bool = False) -> DistSpMM:
    """Return the operator of a part on one rank, from which `with_norm` gets the others.

    Whole rows equal the rows of the operator of the whole graph, as their sums are; bitwise, unless weights have sums that
    float64 rounds.
    Args: has_edges  edges of the graph have attributes, which the operator has not.
    """
    index = IndexMap(part.node_m, np.empty(0, np.int64), np.zeros(1, np.int64))
    has_loops = operator in WITH_LOOPS
    loopless_m = lacks_loop(part.A_mm)
    A_oo = with_self_loops(part.A_mm) if has_loops else part.A_mm
    A_og = sp.csr_array((len(part.node_m), 0), dtype=A_oo.dtype)
    sums_m, (looped_m, columns_m) = part.sums_m3[:, 0], (part.sums_m3[:, axis] + loopless_m for axis in (0, 1))
    is_whole_m = None if part.is_whole_m.all() else part.is_whole_m
    blocks = Blocks(A_oo, A_og, index)
    raw = RawBlocks(blocks, sums_m, looped_m, loopless_m, has_loops, True, columns_m, is_whole_m)
    norms = Norms(raw, None, layout)
    norms.edges = NoEdgeTable(NO_ATTRIBUTES) if has_edges else None
    return norms.make(operator)


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


def joined(X_nF, halo: Halo | None, chosen_g: np.ndarray):
    """Return the features of own nodes, then those of chosen nodes of the halo."""
    if X_nF is None or not len(chosen_g):
        return X_nF
    X_gF = halo.X_gF[chosen_g]
    if sp.issparse(X_nF):
        return sp.csr_array(sp.vstack([X_nF, X_gF], format="csr"))
    return np.concatenate([X_nF, X_gF])
