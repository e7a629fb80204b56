"""assembled: from the rows that a rank has to its DistGraph: the operator, features and labels in its types, on its device.

Shapes: N nodes, n rows, g ghost rows, F features, C classes, P ranks, R block rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..config import Distribution
from ..cost.machines import load_machine, this_host
from ..cost.seconds import choose_scheme
from ..dist import Communicator
from ..dist.consistency import check_same
from ..errors import InputError, from_root, together
from ..graph import WITH_LOOPS, ColumnNames, NodeTypes, axis_sums, labelled, lacks_loop, task_of, with_self_loops
from ..graph.edge_attr import numbered
from ..machine import core_ids, give_back_memory
from ..partition import RowBlock
from ..partition.cover import Covers
from ..partition.folder.blocks import EdgeRows, select_rows
from ..partition.locality import in_order, local_order
from ..spmm.edges.edge_table import EdgeTable, NoEdgeTable
from ..spmm.exchange.context import Layout
from ..spmm.exchange.covered import covers_of
from ..spmm.exchange.exchange_plan import ExchangePlan
from ..spmm.exchange.index_map import IndexMap, broadcast_map, columns_map
from ..spmm.exchange.scaling import row_sums
from ..spmm.exchange.stages import Blocks, HostCovers, counts_of_hosts, covers_of_hosts
from ..spmm.kernels.buffers import Pool, sum_dtype
from ..spmm.operator.dist_spmm import DistSpMM
from ..spmm.operator.facts import FixedInput
from ..spmm.operator.features import SparseRows
from ..spmm.operator.norms import Norms, RawBlocks
from .distgraph import DistGraph, label_rows

Features = np.ndarray | sp.csr_array | None


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What a part knows of the whole graph: its own nodes come first, then its halo.

    n_own       own nodes.
    sums_n3     (n, 3) float64: row sum, column sum and diagonal (NaN: none) in the whole graph.
    is_whole_n  (n,) bool: A has all entries of the row; None: of all rows.
    """

    n_own: int
    sums_n3: np.ndarray
    is_whole_n: np.ndarray | None


@dataclass(slots=True, eq=False)
class GraphRows:
    """Rows of A with the features, labels and split of their nodes: a block of a graph, or a part with its halo.

    node_n      (n,) int64, original ids.
    A           (n, N) CSR, columns are original ids; on one rank (n, n), columns in the order of node_n.
    X_nF, y_n, split_n  as in RowBlock, or None.
    n_nodes     N; about: name, method and, of a whole graph, fingerprint, names and links of the DistGraph; its node_types.
    owner_of    original ids -> the block rows that own them; on one rank it is not called.
    edges       attributes of the nonzeros; NoEdgeTable: why they are not here; None: the graph has none.
    known       of a part; None: the rows are complete, and own.
    """

    node_n: np.ndarray
    A: sp.csr_array
    X_nF: Features
    y_n: np.ndarray | None
    split_n: np.ndarray | None
    n_nodes: int
    about: dict[str, Any]
    owner_of: Callable[[np.ndarray], np.ndarray] = np.zeros_like
    edges: EdgeRows | NoEdgeTable | None = None
    known: Known | None = None

    @classmethod
    def of_block(cls, block: RowBlock, about: dict[str, Any], owner_of: Callable) -> GraphRows:
        """Return the rows of a block."""
        arrays = (block.own_n, block.A_nN, block.X_nF, block.y_n, block.split_n)
        return cls(*arrays, block.n_nodes, about, owner_of, block.edges)


def assembled(rows: GraphRows, layout: Layout, how: Distribution) -> DistGraph:
    """Return the DistGraph of the rows of this rank, of whose A the memory is freed. Collective.

    Raises: InputError, on all ranks, for features that the dtype or feature_norm = row cannot take.
    """
    comm, pool, dtype = layout.comm, layout.pool, layout.dtype
    check_rows(comm, rows)
    give_back_memory()  # what reading and partitioning took
    if how.feature_norm == "none":
        together(comm, check_fits, rows.node_n, rows.X_nF, dtype)
    else:
        found = together(comm, negative_sums, rows.node_n[: rows.known and rows.known.n_own], rows.X_nF)
        check_sums(dict(comm.all_gather_json([layout.block, found])).values())  # several ranks may have a block
    comm.phase = "distribute"
    A, order_n = _operator(rows, layout, how)
    if order_n is not None:
        rows.X_nF, rows.y_n, rows.split_n = (select_rows(M, order_n) for M in (rows.X_nF, rows.y_n, rows.split_n))
    X = features(rows.X_nF, how.feature_norm, pool, dtype, how.threads)
    y, n_classes = label_rows(rows.y_n, comm, dtype)
    names = ColumnNames.read(rows.about.get("names", {}))
    if names.node_types and rows.y_n is not None:
        names = replace(names, target_types=_labelled_types(names.node_types, rows.y_n, A))
    nnz = np.array([A.nnz])
    comm.all_reduce(nnz)
    if how.keep and X is not None:
        A.fixed_input = FixedInput(X)
    give_back_memory()
    return DistGraph(
        comm=comm, A=A, X=X, y_n=y, split_n=rows.split_n, n_nodes=rows.n_nodes, n_classes=n_classes,
        task=task_of(rows.y_n), scheme=layout.scheme, nnz=int(nnz[0]), replication=how.replication,
        feature_norm=how.feature_norm, name=rows.about["name"], method=rows.about["method"],
        fingerprint=rows.about.get("fingerprint", ""), names=names,
        links=rows.about.get("links"), read=rows.about.get("read", {}),
    )  # fmt: skip


def _labelled_types(types: tuple[str, ...], y_n: np.ndarray, A: DistSpMM) -> tuple[str, ...]:
    """Return the types of nodes that have labels. Collective."""
    has_y_n = y_n.any(axis=1) if task_of(y_n) == "labels" else labelled(y_n)
    counts = np.bincount(A.node_types.of(A.node_n[: len(y_n)][has_y_n]), minlength=len(types))
    A.comm.all_reduce(counts)
    return tuple(types[t] for t in np.flatnonzero(counts))


def _operator(rows: GraphRows, layout: Layout, how: Distribution) -> tuple[DistSpMM, np.ndarray | None]:
    """Return the operator of these rows, and their order, new to old, (n,), None for the one that they have. Collective.

    Scheme auto is decided here. Whole rows of a part equal the rows of the operator of the whole graph, as their sums do;
    bitwise, unless weights have sums that float64 rounds.
    """
    A_nN, edge_rows = sp.csr_array(rows.A), rows.edges if isinstance(rows.edges, EdgeRows) else None
    rows.A = sp.csr_array((0, 0))  # not needed once it is split
    weights_E, A_nN = A_nN.data, A_nN if edge_rows is None else numbered(A_nN)
    if layout.comm.size == 1:
        index = IndexMap(rows.node_n, np.empty(0, np.int64), np.zeros(1, np.int64))
        A_oo, A_og = A_nN, sp.csr_array((A_nN.shape[0], 0), dtype=A_nN.dtype)
    else:
        index = _index(rows, A_nN, layout)
        A_oo, A_og = index.split(A_nN)
    index = replace(index, types=NodeTypes.read(rows.about))
    del A_nN
    order_n = local_order(A_oo, layout.threads) if how.locality else None
    if order_n is not None:
        A_oo, A_og = in_order(A_oo, order_n), sp.csr_array(A_og[order_n])
        index = replace(index, own_n=index.own_n[order_n])
    of_oo, of_og = A_oo, A_og  # where there are attributes, their data are the numbers of the nonzeros
    if edge_rows is not None:
        A_oo, A_og = (sp.csr_array((weights_E[of.data], of.indices, of.indptr), of.shape) for of in (of_oo, of_og))
    has_loops, holds_own, loopless_n, known = how.operator in WITH_LOOPS, True, lacks_loop(A_oo), rows.known
    sums_n = row_sums(A_oo, A_og) if known is None else known.sums_n3[:, 0]
    A_oo = with_self_loops(A_oo) if has_loops else A_oo
    looped_n = row_sums(A_oo, A_og) if has_loops and known is None else sums_n + loopless_n
    of_part = () if known is None else (known.sums_n3[:, 1], known.is_whole_n)
    if layout.row_sum is not None:  # 1.5D: this process column multiplies some blocks of the row
        holds_own = layout.block in layout.owners
        A_oo = A_oo if holds_own else sp.csr_array(A_oo.shape, dtype=A_oo.dtype)
        part = Blocks(A_oo, A_og, index).of_owners(layout.owners)
        of_og = Blocks(of_oo, of_og, index).of_owners(layout.owners).A_og
        A_og, index = part.A_og, part.index
    # Degrees and masks travel as they are, whatever the wire.
    base = None if layout.comm.size == 1 else ExchangePlan(layout.column, index, layout.pool, layout.threads)
    blocks = Blocks(A_oo, A_og, index)
    raw = RawBlocks(blocks, sums_n, looped_n, loopless_n, has_loops, holds_own, *of_part)
    covers = None
    del A_oo, A_og, blocks
    if layout.scheme in ("auto", "flat"):
        layout.scheme, layout.why, covers = decide_scheme(raw.blocks, layout, how.machine)
    norms = Norms(raw, base, layout, covers)
    if edge_rows is None:
        norms.edges = None if isinstance(rows.edges, EdgeRows) else rows.edges
    else:
        norms.edges = _table(edge_rows, of_oo.data if holds_own else of_oo.data[:0], of_og.data, loopless_n, layout)
        norms.edges = _with_relations(norms.edges, ColumnNames.read(rows.about.get("names", {})), layout)
    return norms.make(how.operator), order_n


def _index(rows: GraphRows, A_nN: sp.csr_array, layout: Layout) -> IndexMap:
    if layout.scheme == "broadcast":
        ids_N = layout.column.all_gather(rows.node_n)
        rows_R = layout.column.all_gather(np.array([len(rows.node_n)], np.int64))
        return broadcast_map(rows.node_n, ids_N, rows_R, layout.block)
    return columns_map(rows.node_n, A_nN, rows.owner_of, layout.block, layout.grid.rows)


def _table(rows: EdgeRows, of_oo: np.ndarray, of_og: np.ndarray, loopless_n: np.ndarray, layout: Layout) -> EdgeTable:
    """Return the table of the edges of the own and ghost blocks, whose numbers among the rows are given."""
    rows = rows.select(np.concatenate([of_oo, of_og]))
    attr_EF = torch.from_numpy(rows.attr_EF).to(layout.pool.device, sum_dtype(layout.dtype))
    return EdgeTable(attr_EF, rows.ids_E, rows.n_listed, loopless_n, rows.y_E, rows.split_E, rows.is_reversed)


def _with_relations(table: EdgeTable, names: ColumnNames, layout: Layout) -> EdgeTable:
    """Return a table with the relations of the whole graph, of which some or all have a name. Collective."""
    y_E = table.y_E
    if y_E is None or task_of(y_E) != "classes":
        return table
    most_3 = np.array([y_E.max(initial=-1) + 1, (table.ids_E < 0).any(), (y_E < 0).any()], np.int64)
    layout.comm.all_reduce(most_3, "max")
    R, has_reverse = max(len(names.edge_classes or ()), int(most_3[0])), bool(most_3[1])
    R = 0 if most_3[2] else R  # an edge without a class has no relation
    return replace(table, n_relations=R * (1 + has_reverse), has_reverse=has_reverse, names=names)


def check_rows(comm: Communicator, rows: GraphRows) -> None:
    """Raise, on all ranks, where rows are not of one graph. Collective."""
    widths = {"y": rows.y_n, "split": rows.split_n}
    facts = {f"graph.columns of {name}": "none" if M is None else M.shape[1:] for name, M in widths.items()}
    edges, X = rows.edges, rows.X_nF
    facts["graph.edge_attr"] = f"{edges.attr_EF.shape[1]} columns" if isinstance(edges, EdgeRows) else "none"
    y_E = edges.y_E if isinstance(edges, EdgeRows) else None
    facts["graph.task"] = f"{task_of(rows.y_n)}, of edges {'none' if y_E is None else task_of(y_E)}"
    facts["graph.features"] = (
        "none" if X is None else f"{'sparse' if sp.issparse(X) else 'dense'}, {X.shape[1]} columns"
    )
    check_same(comm, facts | {"graph.nodes": rows.n_nodes})


def check_fits(node_n: np.ndarray, X_nF: Features, dtype: torch.dtype) -> None:
    """Raise InputError for a feature of float64 that float32, and so dtype, does not hold; node_n: ids of the rows."""
    values = X_nF.data if sp.issparse(X_nF) else X_nF
    if values is None or dtype == torch.float64 or values.dtype != np.float64 or not values.size:
        return
    most = np.finfo(np.float32).max
    if max(values.max(), -values.min()) > most:
        at = np.argwhere(np.abs(values) > most)[0]
        row = np.searchsorted(X_nF.indptr, at[0], side="right") - 1 if values.ndim == 1 else at[0]
        raise InputError(
            f"node {node_n[row]} has the feature {values[tuple(at)]:g}, which {str(dtype).removeprefix('torch.')} does not hold; scale the features, or take float64"
        )


def negative_sums(node_n: np.ndarray, X_nF: Features) -> tuple[int, int]:
    """Return how many rows of features have a negative sum, and the smallest id of these, -1 without any.

    Args: node_n  ids of the first rows, which are looked at.
    """
    rows = np.empty(0, np.int64) if X_nF is None else np.flatnonzero(_sums(X_nF)[: len(node_n)] < 0)
    return len(rows), int(node_n[rows].min()) if len(rows) else -1


def check_sums(found: Collection[tuple[int, int]]) -> None:
    """Raise InputError unless no row has a negative sum, by which feature_norm row would change the signs of its features.

    Args: found  the negative_sums of all rows.
    """
    rows = sum(number for number, _ in found)
    if rows:
        node = min(first for _, first in found if first >= 0)
        raise InputError(
            f"--feature-norm row divides by the sum of a row, which is negative in {rows:,} rows of the features, node {node} "
            "first: all their signs would change; omit it, or give features without negative values (X - X.min())"
        )


def _sums(X_nF: np.ndarray | sp.csr_array) -> np.ndarray:
    return axis_sums(X_nF, 1) if sp.issparse(X_nF) else X_nF.sum(axis=1, dtype=np.float64)


def features(
    X_nF: Features, feature_norm: str, pool: Pool, dtype: torch.dtype, threads: int
) -> torch.Tensor | SparseRows | None:
    """Return the features of rows as layers read them; feature_norm row: divided by their sum."""
    if X_nF is None:
        return None
    X_nF = X_nF.astype(X_nF.dtype.newbyteorder("="), copy=False)
    if feature_norm == "row":
        sums_n = _sums(X_nF)
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


def decide_scheme(blocks: Blocks, layout: Layout, machine: str) -> tuple[str, str, Covers | HostCovers | None]:
    """Return the fastest scheme, why in a sentence, and the covers that were made for it, on several ranks. Collective.

    Hosts are equal in the cost model: each has as many ranks as the fullest, and by default the cores of the one with
    the fewest.
    Args: machine  a name or file of the cost model, read on rank 0.
    """
    covers = covers_of(blocks.A_og, blocks.index, layout.threads)
    tables = {"columns_PP": blocks.index.ghosts_P, "cover_PP": covers.sizes_B, "moved_PP": covers.moved_B}
    counts = {name: _sent_table(counts_R, layout) for name, counts_R in tables.items()}
    own = np.array([[blocks.A_oo.nnz, blocks.A_og.nnz, blocks.A_oo.shape[0]]], np.int64)
    counts |= dict(zip(("own_nnz", "ghost_nnz", "n"), layout.comm.all_gather(own).T))
    host_P, of_hosts = layout.grid.host_P, None
    if layout.grid.is_tiered and layout.scheme == "auto":
        layout.use_hosts()
        of_hosts = covers_of_hosts(blocks, layout)
        tables = counts_of_hosts(blocks, layout, of_hosts)
        counts |= {name: layout.comm.all_gather(row_P[None]) for name, row_P in tables.items()}
        counts["two_tier_moved_PP"] = counts["two_tier_moved_PP"].T
        order = np.argsort(host_P, kind="stable")  # the machine's ranks are placed in blocks
        counts = {name: of[order][:, order] if of.ndim == 2 else of[order] for name, of in counts.items()}
    cores = fewest_cores(layout.comm, host_P)

    def choose() -> tuple[str, str]:
        here = this_host(cores) if machine == Distribution.machine else load_machine(machine)
        return choose_scheme(counts, here.placed(int(np.bincount(host_P).max())), layout.dtype.itemsize)

    name, why = from_root(layout.comm, choose)  # another host may have another file of that name
    return name, why, covers if of_hosts is None or name != "two-tier" else of_hosts


def fewest_cores(comm: Communicator, host_P: np.ndarray) -> int:
    """Return the cores that the ranks of a host may use, of the host with the fewest. Collective."""
    masks = comm.all_gather_json(f"{sum(1 << core for core in core_ids()):x}")
    cores: dict[int, int] = {}
    for host, mask in zip(host_P.tolist(), masks):
        cores[host] = cores.get(host, 0) | int(mask, 16)
    return min(mask.bit_count() for mask in cores.values())


def _sent_table(from_R: np.ndarray, layout: Layout) -> np.ndarray:
    """Return what rank q sends rank p, (P, P), of what each rank gets from the blocks of its process column."""
    P, c = layout.comm.size, layout.grid.c
    own = np.zeros((1, P), np.int64)
    own[0, layout.column_number :: c] = from_R
    return layout.comm.all_gather(own).T
