"""RowBlock: what one rank loads, and its Halo. Columns keep their original ids; no rank needs the whole graph.

Shapes: N nodes, n own rows, g nodes of a halo, F features, S splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...errors import GraphError, PartitionError, UsageError
from ...graph import NO_SPLIT, Graph, axis_sums, check_csr, lacks_loop, task_of
from ...graph.checks import check_labels, check_split, most_classes
from ...graph.edge_attr import checked_attributes, checked_edge_ids, nonzeros_of, places_listed
from ..partition import Partition

VALUES_AT_A_TIME = 1 << 16  # rows of features
ROWS_OF_EDGES = {"attr_EF": "attributes", "ids_E": "ids", "y_E": "labels", "split_E": "roles"}


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRows:
    """Attributes (E, F) of the nonzeros of a row block, and ids_E, see Graph: places in a list of n_listed edges.

    y_E, split_E  labels (E,) or (E, C) and split (E,) or (E, S), or None; a reverse edge that was added is in no split.
    is_reversed   row v has the edge u -> v.
    """

    attr_EF: np.ndarray
    ids_E: np.ndarray
    n_listed: int
    y_E: np.ndarray | None = None
    split_E: np.ndarray | None = None
    is_reversed: bool = False

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Those that are there, by name."""
        found = {name: getattr(self, name) for name in ("attr_EF", "ids_E", "y_E", "split_E")}
        return {name: rows for name, rows in found.items() if rows is not None}

    def select(self, indices: np.ndarray | slice) -> EdgeRows:
        """Return some of the rows."""
        return replace(self, **{name: rows[indices] for name, rows in self.arrays.items()})

    def listed(self, name: str) -> np.ndarray | None:
        """Return y_E or split_E of all nonzeros in the order of the list, (L, ...); None without it."""
        if (rows_E := getattr(self, name)) is None:
            return None
        out = np.full((self.n_listed, *rows_E.shape[1:]), np.nan if rows_E.dtype.kind == "f" else -1, rows_E.dtype)
        out[self.ids_E[self.ids_E >= 0]] = rows_E[self.ids_E >= 0]
        return out


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Rows A[own_n, :] of a graph with the features, labels and split of the own nodes.

    Args:
        own_n:    (n,) int64, original ids, rising.
        A_nN:     (n, N) CSR; columns are ORIGINAL ids.
        X_nF:     (n, F) dense or CSR, or None; y_n: (n,) or (n, C), or None; split_n: (n,) or (n, S) int8, or None.
        n_nodes:  N; k: parts; rank: this one.
        edges:    attributes of the nonzeros, which may then be several in one place; or None.
    Raises: PartitionError if the arrays do not fit each other.
    """

    own_n: np.ndarray
    A_nN: sp.csr_array
    X_nF: np.ndarray | sp.csr_array | None
    y_n: np.ndarray | None
    split_n: np.ndarray | None
    n_nodes: int
    k: int
    rank: int
    edges: EdgeRows | None = None

    def __post_init__(self):
        who, edges = f"part {self.rank}", self.edges
        tables = {"A": self.A_nN, "features": self.X_nF, "labels": self.y_n, "split": self.split_n}
        _check_rows(who, self.own_n, self.n_nodes, tables, is_multi=edges is not None)
        if edges is not None and {len(rows) for rows in edges.arrays.values()} != {self.A_nN.nnz}:
            found = " and ".join(f"{len(rows)} {ROWS_OF_EDGES[name]}" for name, rows in edges.arrays.items())
            raise PartitionError(f"{who}: {found} of edges; expected {self.A_nN.nnz} of each")
        if self.A_nN.shape[1] != self.n_nodes:
            raise PartitionError(f"{who}: A has shape {self.A_nN.shape}; expected {self.n_nodes} columns")


@dataclass(frozen=True, slots=True, eq=False)
class Halo:
    """Nodes of other parts within some hops of the own ones.

    Args:
        node_g:   (g,) int64, original ids, rising; hop_g: (g,) int8, 1 and more.
        A_gN:     (g, N) CSR, original ids: the rows of nodes before the last hop, others empty; None for one hop.
        X_gF:     (g, F) dense or CSR, or None.
        sums_g3:  (g, 3) float64, row sum, column sum and diagonal in the whole graph.
    Raises: PartitionError if the arrays do not fit each other.
    """

    node_g: np.ndarray
    hop_g: np.ndarray
    A_gN: sp.csr_array | None
    X_gF: np.ndarray | sp.csr_array | None
    n_nodes: int
    rank: int
    sums_g3: np.ndarray

    def __post_init__(self):
        who = f"halo of part {self.rank}"
        tables = {"hops": self.hop_g, "A": self.A_gN, "features": self.X_gF, "sums": self.sums_g3}
        _check_rows(who, self.node_g, self.n_nodes, tables, is_multi=True)
        if len(self.hop_g) and self.hop_g.min() < 1:
            raise PartitionError(f"{who}: hops must be 1 or more, got {self.hop_g.min()}")


def _check_rows(who: str, node_n: np.ndarray, n_nodes: int, tables: dict, is_multi: bool = False) -> None:
    """Raise PartitionError unless ids rise within 0 to N - 1, and each table has a row per id and is CSR if it is sparse.

    Args: is_multi  the rows of A may have several entries in one column.
    """
    n = len(node_n)
    if n and (np.any(np.diff(node_n) <= 0) or node_n[0] < 0 or node_n[-1] >= n_nodes):
        raise PartitionError(f"{who}: ids must rise and lie in 0 to {n_nodes - 1}")
    for what, rows in tables.items():
        if rows is not None and rows.shape[0] != n:
            raise PartitionError(f"{who}: {what} has {rows.shape[0]} rows; expected {n}")
    try:
        for what, rows in tables.items():
            if sp.issparse(rows):
                check_csr(rows, f"{who}: {what}", is_multi and what == "A")
    except GraphError as error:
        raise PartitionError(str(error)) from None


def row_block(graph: Graph, partition: Partition, rank: int) -> RowBlock:
    """Return the rows of one part of a graph in memory; only the size of the graph is checked."""
    check_rank(rank, partition.k)
    partition.check_length(graph)
    own_n, graph = partition.own(rank), graph.in_use()
    rows = (select_rows(M, own_n) for M in (graph.A, graph.X, graph.y, graph.split))
    edges = edges_of(graph)
    edges = None if edges is None else edges.select(nonzeros_of(graph.A.indptr, own_n))
    return RowBlock(own_n, *rows, n_nodes=graph.n_nodes, k=partition.k, rank=rank, edges=edges)


def edges_of(graph: Graph) -> EdgeRows | None:
    """Return the attributes of all nonzeros of a graph, None where it has none."""
    if graph.edge_attr is None or graph.edge_ids is None:
        return None
    y_L, of = graph.edge_y, places_listed(graph.edge_ids)
    y_L = (
        y_L if y_L is None or y_L.dtype.kind == "f" else y_L.astype(np.int64 if y_L.ndim == 1 else np.int8, copy=False)
    )
    y_E, split_E = (None if rows_L is None else rows_L[of] for rows_L in (y_L, graph.edge_split))
    if split_E is not None:
        split_E[graph.edge_ids < 0] = NO_SPLIT
    listed, is_reversed = graph.meta["edges_listed"], graph.edges == "reversed"
    return EdgeRows(graph.edge_attr, graph.edge_ids, listed, y_E, split_E, is_reversed)


def merge_blocks(blocks: list[RowBlock], k: int, rank: int) -> RowBlock:
    """Return the rows of several parts as those of one, block `rank` of k; a single one keeps its arrays."""
    if len(blocks) == 1:
        return replace(blocks[0], k=k, rank=rank)
    own_n = np.concatenate([block.own_n for block in blocks])
    order_n = np.argsort(own_n, kind="stable")
    merged = []
    for name in ("A_nN", "X_nF", "y_n", "split_n"):
        rows = [getattr(block, name) for block in blocks]
        merged.append(None if rows[0] is None else _merged(rows, order_n))
    edges, parts = None, [block.edges for block in blocks if block.edges is not None]
    if parts:
        ends_n = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(block.A_nN.indptr) for block in blocks]))])
        all_rows: dict[str, Any] = {n: np.concatenate([part.arrays[n] for part in parts]) for n in parts[0].arrays}
        edges = replace(parts[0], **all_rows).select(nonzeros_of(ends_n, order_n))
    return RowBlock(own_n[order_n], *merged, n_nodes=blocks[0].n_nodes, k=k, rank=rank, edges=edges)


def no_rows(block: RowBlock, k: int, rank: int) -> RowBlock:
    """Return block `rank` of k, of the graph of another one, without rows."""
    arrays = (select_rows(M, np.empty(0, np.int64)) for M in (block.A_nN, block.X_nF, block.y_n, block.split_n))
    edges = None if block.edges is None else block.edges.select(slice(0, 0))
    return RowBlock(block.own_n[:0], *arrays, n_nodes=block.n_nodes, k=k, rank=rank, edges=edges)


def _merged(rows: list, order_n: np.ndarray) -> np.ndarray | sp.csr_array:
    """Return the rows of several matrices or vectors, one after the other, in an order."""
    if not sp.issparse(rows[0]):
        merged = np.empty((len(order_n), *rows[0].shape[1:]), np.result_type(*rows))
        place_n = np.empty_like(order_n)
        place_n[order_n] = np.arange(len(order_n))
        start = 0
        for values in rows:  # each row is copied once, to its place
            merged[place_n[start : start + len(values)]] = values
            start += len(values)
        return merged
    return sp.csr_array(sp.vstack(rows, format="csr")[order_n])


def select_rows(M: np.ndarray | sp.csr_array | None, nodes: np.ndarray) -> Any:
    """Return rows of a matrix or vector, dense or CSR, or None for None."""
    if M is None:
        return None
    rows = M[nodes]
    return sp.csr_array(rows) if sp.issparse(rows) else np.ascontiguousarray(rows)


def check_rank(rank: int, k: int) -> None:
    """Raise UsageError unless part number rank exists."""
    if not 0 <= rank < k:
        raise UsageError(
            f"part {rank} does not exist: the partition has {k} parts, 0 to {k - 1}; "
            f"start {k} ranks, or partition the graph again with the k you want"
        )


def check_halo_values(part: Path, halo: Halo) -> None:
    """Raise PartitionError naming file and node if a weight, feature or sum is invalid; reads all of them."""
    _check_no_zeros(part / "halo_weights.npy", halo.A_gN, halo.node_g)
    _check_finite(part / "halo_features.npy", halo.X_gF, halo.node_g, "a feature")
    _check_finite(part / "halo_sums.npy", halo.sums_g3[:, :2], halo.node_g, "a sum")


def check_values(part: Path, block: RowBlock, n_nodes: int, sums_n3: np.ndarray) -> None:
    """Raise PartitionError naming file and node if a feature, label, split or sum is invalid; reads all of them."""
    _check_no_zeros(part / "weights.npy", block.A_nN, block.own_n)
    _check_finite(part / "features.npy", block.X_nF, block.own_n, "a feature")
    _check_finite(part / "sums.npy", sums_n3[:, :2], block.own_n, "a sum")
    if block.edges is not None:
        _check_edges(part, block.edges, block.A_nN.nnz)
    y_n, split_n = block.y_n, block.split_n
    if y_n is not None:
        low, high = (0, 1) if y_n.ndim == 2 else (-1, most_classes(n_nodes))
        if task_of(y_n) == "numbers":
            low, high = np.finfo(y_n.dtype).min, np.finfo(y_n.dtype).max
        _check_bounds(part / "labels.npy", y_n, block.own_n, low, high)
    if split_n is not None:
        _check_bounds(part / "split.npy", split_n, block.own_n, -1, 2)


def _check_bounds(path: Path, values_n: np.ndarray, node_n: np.ndarray, low: float, high: float) -> None:
    bad = (values_n < low) | (values_n > high)
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        raise PartitionError(f"{path}: node {node_n[at[0]]} has {values_n[at]}, not {low} to {high}")


def _check_finite(path: Path, values_nF: np.ndarray | sp.csr_array | None, node_n: np.ndarray, what: str) -> None:
    if values_nF is None or sp.issparse(values_nF):  # RowBlock and Halo have checked a CSR
        return
    for start in range(0, len(values_nF), VALUES_AT_A_TIME):
        is_finite = np.isfinite(values_nF[start : start + VALUES_AT_A_TIME]).all(1)
        if not is_finite.all():
            node = node_n[start + int(np.argmin(is_finite))]
            raise PartitionError(f"{path}: node {node} has {what} that is not finite; write the partition again")


def _check_edges(part: Path, edges: EdgeRows, nnz: int) -> None:
    try:
        checked_attributes(edges.attr_EF, nnz, str(part / "edge_attr.npy"))
        checked_edge_ids(edges.ids_E, nnz, edges.n_listed)
        if edges.y_E is not None:
            check_labels(edges.y_E, "edge")
        if edges.split_E is not None:
            check_split(edges.split_E, nnz, "edge")
    except GraphError as error:
        raise PartitionError(f"{part}: {error}; write the partition again") from None


def _check_no_zeros(path: Path, A: sp.csr_array | None, node_n: np.ndarray) -> None:
    if A is not None and not A.data.all():
        row = int(np.searchsorted(A.indptr, np.argmin(A.data != 0), side="right")) - 1
        raise PartitionError(f"{path}: node {node_n[row]} has an edge of weight 0, which is none; partition again")


def matrix_sums(A: sp.csr_array) -> np.ndarray:
    """Return the row sum, the column sum and the diagonal entry of each node, (N, 3) float64.

    The diagonal is NaN where no entry is stored: A + I has a self-loop of weight 1 there.
    """
    sums_N3 = np.empty((A.shape[0], 3))
    sums_N3[:, 0], sums_N3[:, 1], sums_N3[:, 2] = axis_sums(A, 1), axis_sums(A, 0), A.diagonal()
    sums_N3[lacks_loop(A), 2] = np.nan
    return sums_N3


class HaloFinder:
    """Finds the nodes within some hops of a part, one part after another.

    A hop goes from a row to the columns that it reads. Takes 4 bytes per node, and time by the edges of the part.
    """

    def __init__(self, A: sp.csr_array, hops: int):
        self.A, self.hops = A, hops
        self._seen_N, self._number = np.zeros(A.shape[0], np.int32), 0

    def halo(self, own_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes of the halo of own_n, (g,) int64, rising, and the hop of each, (g,) int8, 1 and more."""
        self._number += 1
        self._seen_N[own_n] = self._number
        node_g, hop_g, last = [np.empty(0, np.int64)], [np.empty(0, np.int8)], own_n
        for hop in range(1, self.hops + 1):
            columns = np.concatenate([np.empty(0, np.int64), *self._read_by(last)])
            last = np.unique(columns).astype(np.int64)
            self._seen_N[last] = self._number
            node_g.append(last)
            hop_g.append(np.full(len(last), hop, np.int8))
        nodes = np.concatenate(node_g)
        order = np.argsort(nodes, kind="stable")
        return nodes[order], np.concatenate(hop_g)[order]

    def rows(self, node_g: np.ndarray, hop_g: np.ndarray) -> sp.csr_array:
        """Return the rows of a halo before its last hop, (g, N); the others are empty."""
        A, is_whole = self.A, hop_g < self.hops
        whole = sp.csr_array(A[node_g[is_whole]])
        lengths = np.zeros(len(node_g), np.int64)
        lengths[is_whole] = np.diff(whole.indptr)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        index = A.indices.dtype
        return sp.csr_array(
            (whole.data, whole.indices.astype(index, copy=False), indptr.astype(index)), shape=(len(node_g), A.shape[1])
        )

    def _read_by(self, nodes: np.ndarray, at_once: int = 1 << 16) -> Iterator[np.ndarray]:
        """Yield the distinct columns of some rows that were not seen yet, a stretch of rows at a time."""
        for start in range(0, len(nodes), at_once):
            columns = sp.csr_array(self.A[nodes[start : start + at_once]]).indices
            yield np.unique(columns[self._seen_N[columns] != self._number])
