"""Graph: a sparse matrix with features, labels and a split; normalise() makes the operator of it.

Shapes: N nodes, E stored nonzeros, F features, C classes, S splits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import scipy.sparse as sp

from .errors import GraphError, UsageError, nearest

Edges = Literal["stored", "undirected", "directed", "reversed"]
Norm = Literal["gcn", "row", "none"]
EDGES = ("undirected", "directed", "reversed")
NORMS = ("gcn", "row", "none")
TRAIN, VAL, TEST, NO_SPLIT = 0, 1, 2, -1
UNLABELLED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A (N, N) CSR with X_NF, y_N and split_N: row i of A holds what node i reads.

    An edge u -> v of a file is the nonzero A[u, v], as it came. `with_edges` chooses how it is used;
    what partitions, measures or trains a graph for which nothing was chosen adds the reverse edges.

    Args:
        A:      (N, N) scipy CSR, indices sorted, no duplicates, finite; weights float32 or float64.
        X:      (N, F) float array, or scipy CSR (N, F), or None.
        y:      (N,) integer classes, -1 where there is none; or (N, C) 0/1 for multi-label; or None.
        split:  (N,) int8, or (N, S) with S splits side by side: 0 train, 1 val, 2 test, -1 none; or None.
        name:   what messages call it.
        edges:  "stored" as it came, nothing chosen; "directed" (as it came), "undirected" or "reversed".
    Raises: GraphError naming the first node that is wrong.
    """

    A: sp.csr_array
    X: np.ndarray | sp.csr_array | None = None
    y: np.ndarray | None = None
    split: np.ndarray | None = None
    name: str = "graph"
    edges: Edges = "stored"
    meta: dict = field(default_factory=dict)

    def __post_init__(self):
        check_graph(self)

    @property
    def n_nodes(self) -> int:
        return self.A.shape[0]

    @property
    def nnz(self) -> int:
        return self.A.nnz

    @property
    def n_features(self) -> int:
        return 0 if self.X is None else self.X.shape[1]

    @property
    def is_multilabel(self) -> bool:
        return self.y is not None and self.y.ndim == 2

    @property
    def n_classes(self) -> int:
        if self.y is None:
            return 0
        if self.is_multilabel:
            return self.y.shape[1]
        return int(self.y.max(initial=-1)) + 1

    @property
    def is_symmetric(self) -> bool:
        """A equals its transpose, weights included."""
        return is_symmetric(self.A)

    def with_edges(self, edges: Edges) -> Graph:
        """Return the graph with its edges used as they came, both ways, or reversed.

        undirected: max(A, A') where both are stored, else the one that is; self-loops stay.
        """
        if edges not in EDGES:
            raise UsageError(f"edges={edges!r} is not known{nearest(edges, EDGES)}")
        if edges == self.edges:
            return self
        if self.edges not in ("stored", "directed"):
            raise UsageError(f"the graph's edges were already made {self.edges!r}; load it again to use them {edges!r}")
        if edges == "directed" or (edges == "undirected" and self.is_symmetric):
            return replace(self, edges=edges)
        A = self.A.T.tocsr() if edges == "reversed" else symmetrised(self.A)
        return replace(self, A=_canonical(A), edges=edges)

    def in_use(self) -> Graph:
        """Return the graph as it is used: with its reverse edges, unless with_edges chose otherwise."""
        return self.with_edges("undirected") if self.edges == "stored" else self

    def normalise(self, how: Norm = "gcn") -> sp.csr_array:
        """Return the operator of this graph, see `normalise`."""
        return normalise(self.A, how)

    def split_N(self, index: int = 0) -> np.ndarray:
        """Return split number index, (N,) int8."""
        if self.split is None:
            raise GraphError(f"{self.name} has no split; use --split random")
        if self.split.ndim == 1:
            if index != 0:
                raise UsageError(f"{self.name} has one split; --split {index} does not exist")
            return self.split
        if not 0 <= index < self.split.shape[1]:
            raise UsageError(f"{self.name} has splits 0 to {self.split.shape[1] - 1}; --split {index} does not exist")
        return np.ascontiguousarray(self.split[:, index])

    def with_random_split(self, seed: int = 0, fractions=(0.6, 0.2, 0.2)) -> Graph:
        """Return the graph with a seeded split of its labelled nodes."""
        return replace(self, split=random_split(self.y, seed, fractions))

    def digest(self) -> str:
        """Return the SHA-256 of the structure (sizes, indptr, indices, weights), 64 hex digits."""
        sha = hashlib.sha256(np.int64([self.n_nodes, self.nnz]).tobytes())
        for array, dtype in ((self.A.indptr, np.int64), (self.A.indices, np.int64), (self.A.data, np.float64)):
            for start in range(0, len(array), 1 << 22):
                sha.update(np.ascontiguousarray(array[start : start + (1 << 22)], dtype=dtype).tobytes())
        return sha.hexdigest()

    def describe(self) -> dict:
        """Return what an import reports: sizes, self-loops, isolated nodes, symmetry, labels, split."""
        A = self.A
        counts_in = np.bincount(A.indices, minlength=self.n_nodes)
        rows = np.repeat(np.arange(self.n_nodes), np.diff(A.indptr))
        loops = rows == A.indices
        degree = np.diff(A.indptr) + counts_in
        loop_count = np.bincount(rows[loops], minlength=self.n_nodes)
        out = {
            "name": self.name,
            "n": self.n_nodes,
            "nnz": self.nnz,
            "self_loops": int(loops.sum()),
            "isolated": int(np.count_nonzero(degree - 2 * loop_count == 0)),
            "symmetric": self.is_symmetric,
            "weighted": bool(self.nnz and np.any(A.data != 1)),
            "features": self.n_features,
            "sparse_features": sp.issparse(self.X),
            "classes": self.n_classes,
            "multilabel": self.is_multilabel,
            "labelled": int(np.count_nonzero(labelled(self.y))) if self.y is not None else 0,
            "splits": 0 if self.split is None else (1 if self.split.ndim == 1 else self.split.shape[1]),
        }
        if self.split is not None:
            first = self.split_N(0)
            out |= {"train": int((first == 0).sum()), "val": int((first == 1).sum()), "test": int((first == 2).sum())}
        return out | {k: v for k, v in self.meta.items() if k in ("duplicates", "dropped_lines", "source", "format")}


def labelled(y: np.ndarray) -> np.ndarray:
    """Return which nodes have a label, (N,) bool; every row of a multi-label array counts as one."""
    return y >= 0 if y.ndim == 1 else np.ones(len(y), bool)


def random_split(y: np.ndarray | None, seed: int = 0, fractions=(0.6, 0.2, 0.2)) -> np.ndarray:
    """Return a seeded split of the labelled nodes, (N,) int8."""
    if y is None:
        raise GraphError("a split needs labels; this graph has none")
    nodes = np.flatnonzero(labelled(y))
    nodes = np.random.default_rng(seed).permutation(nodes)
    n_train, n_val = (int(round(f * len(nodes))) for f in fractions[:2])
    split = np.full(len(y), NO_SPLIT, np.int8)
    split[nodes[:n_train]] = TRAIN
    split[nodes[n_train : n_train + n_val]] = VAL
    split[nodes[n_train + n_val :]] = TEST
    return split


def graph_from_coo(src, dst, n_nodes: int | None = None, weights=None, **fields) -> Graph:
    """Return the Graph of the edges src[e] -> dst[e]; duplicates become one edge.

    Args:   src, dst (E,) integer node ids; n_nodes, or 1 + the largest id; weights (E,), of which
            the largest counts where an edge stands several times; fields: X, y, split, name, meta.
    Raises: GraphError naming the first edge that is wrong.
    """
    src, dst = np.asarray(src), np.asarray(dst)
    if src.ndim != 1 or src.shape != dst.shape:
        raise GraphError(f"src and dst must be two arrays of one length, got shapes {src.shape} and {dst.shape}")
    for what, ids in (("src", src), ("dst", dst)):
        if len(ids) and ids.dtype.kind not in "iu":
            raise GraphError(f"{what} must hold integers, got {ids.dtype}")
    top = max(int(src.max(initial=-1)), int(dst.max(initial=-1)))
    n = top + 1 if n_nodes is None else int(n_nodes)
    bad = (src < 0) | (dst < 0) | (src >= n) | (dst >= n)
    if bad.any():
        e = int(np.argmax(bad))
        raise GraphError(f"edge {e} is {src[e]} -> {dst[e]}; node ids must be 0 to {n - 1}")
    # bincount takes signed ids only; no edges at all may come as an empty float array.
    src, dst = (ids if ids.dtype.kind == "i" else ids.astype(np.int64) for ids in (src, dst))
    if weights is None:
        data = np.ones(len(src), np.float32)
    else:
        data = np.asarray(weights)
        if data.shape != src.shape:
            raise GraphError(f"weights has shape {data.shape}, expected {src.shape}")
        data = data if data.dtype == np.float64 else data.astype(np.float32)
    order = np.lexsort((dst, src))
    src, dst, data = src[order], dst[order], data[order]
    first = np.ones(len(src), bool)
    first[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    starts = np.flatnonzero(first)
    if len(starts) < len(src):
        data = np.maximum.reduceat(data, starts)
    index = _index_dtype(max(n, len(starts)))  # one dtype for both: scipy would widen the narrower
    indptr = np.zeros(n + 1, index)
    np.cumsum(np.bincount(src[starts], minlength=n), out=indptr[1:])
    A = sp.csr_array((data, dst[starts].astype(index), indptr), shape=(n, n))
    meta = {"duplicates": int(len(src) - len(starts))} | fields.pop("meta", {})
    return Graph(A, meta=meta, **fields)


def normalise(A: sp.csr_array, how: Norm = "gcn") -> sp.csr_array:
    """Return the operator: gcn: Dr^-1/2 (A + I) Dc^-1/2; row: D^-1 A, the mean over a row; none: A.

    gcn adds a self-loop of weight 1 where a node has none. Dr and Dc are the row and column sums
    of A + I: they are equal when A is symmetric, which gives Kipf & Welling's operator, and keep the
    norm at most 1 when A is not. A row without nonzeros stays zero.
    Source: Kipf & Welling 2017, eq. (2); directed form: Tong et al. 2020 use the same two-sided scaling.
    """
    if how not in NORMS:
        raise UsageError(f"normalisation {how!r} is not known{nearest(how, NORMS)}")
    if how == "none":
        return A
    dtype = A.data.dtype if A.data.dtype == np.float64 else np.float32
    if how == "row":
        sums = np.asarray(A.sum(axis=1, dtype=np.float64)).ravel()
        left, right = inverse_or_zero(sums), None
    else:
        A = with_self_loops(A)
        left = inverse_or_zero(np.sqrt(np.maximum(np.asarray(A.sum(axis=1, dtype=np.float64)).ravel(), 0)))
        right = inverse_or_zero(np.sqrt(np.maximum(np.asarray(A.sum(axis=0, dtype=np.float64)).ravel(), 0)))
    data = A.data * np.repeat(left, np.diff(A.indptr))
    if right is not None:
        data *= right[A.indices]
    return sp.csr_array((data.astype(dtype), A.indices, A.indptr), shape=A.shape)


def with_self_loops(A: sp.csr_array) -> sp.csr_array:
    """Return A with a diagonal entry of 1 in every row that has none."""
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    missing = np.ones(A.shape[0], A.data.dtype)
    missing[rows[rows == A.indices]] = 0
    loops = sp.dia_array((missing[None, :], [0]), shape=A.shape).tocsr()
    loops.eliminate_zeros()
    return _canonical(A + loops) if loops.nnz else A


def symmetrised(A: sp.csr_array) -> sp.csr_array:
    """Return A where stored both ways max(A_ij, A_ji), else whichever is stored."""
    T = A.T.tocsr()
    T.sort_indices()
    rows = lambda M: np.repeat(np.arange(M.shape[0]), np.diff(M.indptr))
    src = np.concatenate([rows(A), rows(T)])
    dst = np.concatenate([A.indices, T.indices])
    return graph_from_coo(src, dst, A.shape[0], np.concatenate([A.data, T.data])).A


def is_symmetric(A: sp.csr_array) -> bool:
    """A equals its transpose exactly, stored zeros included."""
    T = A.T.tocsr()
    T.sort_indices()
    return np.array_equal(T.indptr, A.indptr) and np.array_equal(T.indices, A.indices) and np.array_equal(T.data, A.data)


def check_graph(graph: Graph) -> None:
    """Raise GraphError unless the arrays make a graph: O(E + size of X), no copy."""
    A = graph.A
    if not (sp.issparse(A) and A.format == "csr"):
        raise GraphError(f"A must be a scipy CSR, got {type(A).__name__}; see spgnn.load_graph and graph_from_coo")
    check_csr(A, "A")
    if A.shape[0] != A.shape[1]:
        raise GraphError(f"A must be square, got {A.shape}")
    n = A.shape[0]
    if sp.issparse(graph.X):
        check_csr(graph.X, "X")
    if graph.X is not None:
        if graph.X.ndim != 2 or graph.X.shape[0] != n:
            raise GraphError(f"features have shape {graph.X.shape}, the graph has {n} nodes; expected ({n}, F)")
        if not sp.issparse(graph.X):
            _check_finite(graph.X, "features")
    if graph.y is not None:
        if graph.y.ndim not in (1, 2) or graph.y.shape[0] != n:
            raise GraphError(f"labels have shape {graph.y.shape}, the graph has {n} nodes; expected ({n},) or ({n}, classes)")
        _check_labels(graph.y)
    if graph.split is not None:
        s = graph.split
        if s.ndim not in (1, 2) or s.shape[0] != n or s.dtype != np.int8:
            raise GraphError(f"split is {s.dtype} of shape {s.shape}; expected int8 ({n},) or ({n}, S)")
        bad = (s < -1) | (s > 2)
        if bad.any():
            raise GraphError(f"node {int(np.argwhere(bad)[0][0])} has split {int(s[bad][0])}; expected 0 train, 1 val, 2 test, -1 none")


def check_csr(A, what: str) -> None:
    """Raise GraphError unless indptr rises from 0 to nnz, indices are in range and sorted, data finite.

    scipy itself does not check: a product with a bad index reads outside its arrays.
    """
    indptr, indices, (rows, cols) = A.indptr, A.indices, A.shape
    if len(indptr) != rows + 1:
        raise GraphError(f"{what}: indptr has {len(indptr)} entries, expected rows + 1 = {rows + 1}")
    if len(indices) != len(A.data):
        raise GraphError(f"{what}: {len(indices)} indices and {len(A.data)} values; expected as many of each")
    if rows == 0:
        return
    if indptr[0] != 0 or indptr[-1] != len(indices) or (rows and np.any(np.diff(indptr) < 0)):
        raise GraphError(f"{what}: indptr must rise from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}")
    if len(indices):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= cols:
            e = int(np.argmax((indices < 0) | (indices >= cols)))
            row = int(np.searchsorted(indptr, e, side="right")) - 1
            raise GraphError(f"{what}: row {row} has column {int(indices[e])}; expected 0 to {cols - 1}")
        falls = np.diff(indices.astype(np.int64, copy=False)) <= 0
        ends = indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(indices))] - 1
        falls[ends] = False
        if falls.any():
            row = int(np.searchsorted(indptr, int(np.argmax(falls)), side="right")) - 1
            raise GraphError(f"{what}: row {row} has columns out of order or twice; use sort_indices and sum_duplicates")
        _check_finite(A.data, f"{what}: weights")


def _check_finite(values: np.ndarray, what: str) -> None:
    for start in range(0, len(values), 1 << 20):
        chunk = values[start : start + (1 << 20)]
        if chunk.dtype.kind not in "fiub":
            raise GraphError(f"{what} are {chunk.dtype}; expected numbers")
        if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
            where = np.argwhere(~np.isfinite(chunk))[0]
            raise GraphError(f"{what}: entry {start + int(where[0])} is {chunk[tuple(where)]}; expected finite numbers")


def _check_labels(y: np.ndarray) -> None:
    if y.dtype.kind not in "iub":
        raise GraphError(f"labels are {y.dtype}; expected integers")
    low, high = (-1, max(len(y), 2) * 1000) if y.ndim == 1 else (0, 1)
    bad = (y < low) | (y > high)
    if bad.any():
        where = np.argwhere(bad)[0]
        raise GraphError(f"node {int(where[0])} has label {int(y[tuple(where)])}; expected {low} to {high}")


def _canonical(A) -> sp.csr_array:
    A = sp.csr_array(A)
    A.sum_duplicates()
    A.sort_indices()
    return A


def _index_dtype(n: int):
    return np.int32 if n < 2**31 else np.int64


def inverse_or_zero(x: np.ndarray) -> np.ndarray:
    return np.divide(1.0, x, out=np.zeros_like(x), where=x > 0)
