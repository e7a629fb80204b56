"""assemble: from a row block to the operator of this rank, with its ghosts, its scaling and its scheme.

Shapes: N nodes, n own rows, g ghost rows, P ranks, R block rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from ..graph import WITH_LOOPS, lacks_loop, with_self_loops
from ..graph.edge_attr import numbered
from ..partition.folder.blocks import EdgeRows
from ..partition.locality import in_order, local_order
from ..spmm.edges.edge_table import EdgeTable
from ..spmm.exchange.context import Layout
from ..spmm.exchange.exchange_plan import ExchangePlan
from ..spmm.exchange.index_map import IndexMap, broadcast_map, columns_map
from ..spmm.exchange.scaling import row_sums
from ..spmm.exchange.stages import Blocks
from ..spmm.kernels.buffers import sum_dtype
from ..spmm.operator.dist_spmm import DistSpMM
from ..spmm.operator.norms import Norms, RawBlocks
from .choice import decide_scheme


def assemble(
    edges: list[sp.csr_array],
    own_n: np.ndarray,
    owner_of,
    layout: Layout,
    operator: str,
    machine: str,
    locality: bool,
    edge_rows: EdgeRows | None = None,
) -> tuple[DistSpMM, np.ndarray | None]:
    """Return the normalised operator of the block row that this rank holds, and the order of its rows. Collective.

    Scheme auto is decided here. The order is new to old, (n,), or None for the block's.

    Args: edges     the rows A_nN of this rank alone, which are taken out: they are no longer needed once they are split.
          own_n     their original ids, (n,).
          owner_of  function of original ids to their block rows; operator: the normalisation of A.
          machine   of the cost model, for scheme auto.
          locality  own rows may be reordered.
          edge_rows attributes of the nonzeros.
    """
    A_nN = sp.csr_array(edges.pop())
    weights_E, A_nN = A_nN.data, A_nN if edge_rows is None else numbered(A_nN)
    if layout.comm.size == 1:
        index = IndexMap(own_n, np.empty(0, np.int64), np.zeros(1, np.int64))
        A_oo, A_og = A_nN, sp.csr_array((A_nN.shape[0], 0), dtype=A_nN.dtype)
    else:
        index = _index(own_n, A_nN, owner_of, layout)
        A_oo, A_og = index.split(A_nN)
    del A_nN
    order_n = local_order(A_oo, layout.threads) if locality else None
    if order_n is not None:
        A_oo, A_og = in_order(A_oo, order_n), sp.csr_array(A_og[order_n])
        index = replace(index, own_n=index.own_n[order_n])
    of_oo, of_og = A_oo, A_og  # where there are attributes, their data are the numbers of the nonzeros
    if edge_rows is not None:
        A_oo, A_og = (sp.csr_array((weights_E[of.data], of.indices, of.indptr), of.shape) for of in (of_oo, of_og))
    has_loops, holds_own, loopless_n, sums_n = operator in WITH_LOOPS, True, lacks_loop(A_oo), row_sums(A_oo, A_og)
    A_oo = with_self_loops(A_oo) if has_loops else A_oo
    looped_n = row_sums(A_oo, A_og) if has_loops else sums_n + loopless_n
    if layout.row_sum is not None:  # 1.5D: this process column multiplies some blocks of the row
        holds_own = layout.block in layout.owners
        A_oo = A_oo if holds_own else sp.csr_array(A_oo.shape, dtype=A_oo.dtype)
        part = Blocks(A_oo, A_og, index).of_owners(layout.owners)
        of_og = Blocks(of_oo, of_og, index).of_owners(layout.owners).A_og
        A_og, index = part.A_og, part.index
    # Degrees and masks travel as they are, whatever the wire.
    base = None if layout.comm.size == 1 else ExchangePlan(layout.column, index, layout.pool, layout.threads)
    raw = RawBlocks(Blocks(A_oo, A_og, index), sums_n, looped_n, loopless_n, has_loops, holds_own)
    covers = None
    del A_oo, A_og
    if layout.scheme in ("auto", "flat"):
        layout.scheme, layout.why, covers = decide_scheme(raw.blocks, layout, machine)
    norms = Norms(raw, base, layout, covers)
    if edge_rows is not None:
        norms.edges = _table(edge_rows, of_oo.data if holds_own else of_oo.data[:0], of_og.data, loopless_n, layout)
    return norms.make(operator), order_n


def _table(rows: EdgeRows, of_oo: np.ndarray, of_og: np.ndarray, loopless_n: np.ndarray, layout: Layout) -> EdgeTable:
    """Return the table of the edges of the own and ghost blocks, whose numbers among the rows are given."""
    rows = rows.select(np.concatenate([of_oo, of_og]))
    attr_EF = torch.from_numpy(rows.attr_EF).to(layout.pool.device, sum_dtype(layout.dtype))
    return EdgeTable(attr_EF, rows.ids_E, rows.n_listed, loopless_n)


def _index(own_n: np.ndarray, A_nN: sp.csr_array, owner_of, layout: Layout) -> IndexMap:
    if layout.scheme == "broadcast":
        ids_N = layout.column.all_gather(own_n)
        rows_R = layout.column.all_gather(np.array([len(own_n)], np.int64))
        return broadcast_map(own_n, ids_N, rows_R, layout.block)
    return columns_map(own_n, A_nN, owner_of, layout.block, layout.grid.rows)
