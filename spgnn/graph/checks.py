"""Checks that arrays make a graph: each takes O(size) time and at most one byte per nonzero; names of nodes and
classes, checked, and packed as arrays of numbers for files.

Shapes: N nodes, E nonzeros, F features, C classes, S splits.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..errors import GraphError, is_integer


def check_graph(graph, is_new: bool = True) -> None:
    """Raise GraphError unless the arrays make a graph: O(E + size of X), no copy.

    Args: is_new  also check that dense features are finite, the only check that reads all of a dense X.
    """
    A = graph.A
    if not (sp.issparse(A) and A.format == "csr"):
        raise GraphError(f"A must be a scipy CSR, got {type(A).__name__}; see spgnn.load_graph and graph_from_coo")
    check_csr(A, "A", is_multi=graph.edge_attr is not None)
    if A.shape[0] != A.shape[1]:
        raise GraphError(f"A must be square, got {A.shape}")
    n = A.shape[0]
    if sp.issparse(graph.X):
        if graph.X.format != "csr":
            raise GraphError(f"sparse features are {graph.X.format}; expected CSR, see .tocsr()")
        check_csr(graph.X, "X")
    for what, values in (("features", graph.X), ("labels", graph.y), ("split", graph.split)):
        if not (values is None or isinstance(values, np.ndarray) or (what == "features" and sp.issparse(values))):
            kind = "a numpy array or a scipy CSR" if what == "features" else "a numpy array"
            raise GraphError(
                f"{what}: got a {type(values).__module__}.{type(values).__name__}; expected {kind}, see .numpy() of a tensor"
            )
    if graph.X is not None:
        if graph.X.ndim != 2 or graph.X.shape[0] != n:
            raise GraphError(f"features have shape {graph.X.shape}, the graph has {n} nodes; expected ({n}, F)")
        if is_new and not sp.issparse(graph.X):
            _check_finite(graph.X, "features")
    if graph.y is not None:
        if graph.y.ndim not in (1, 2) or graph.y.shape[0] != n:
            raise GraphError(f"labels have shape {graph.y.shape}; expected ({n},) or ({n}, classes), for {n} nodes")
        if graph.y.ndim == 2 and graph.y.shape[1] == 0:
            raise GraphError(f"labels have shape {graph.y.shape}; expected at least one class")
        check_labels(graph.y)
    if graph.edge_attr is not None and len(graph.edge_attr) != A.nnz:
        raise GraphError(f"edge_attr has {len(graph.edge_attr)} rows; A has {A.nnz} nonzeros")
    if graph.split is not None:
        check_split(graph.split, n)
    listed = graph.meta.get("edges_listed")
    if graph.edge_y is not None:
        if graph.edge_y.ndim not in (1, 2) or len(graph.edge_y) != listed or 0 in graph.edge_y.shape[1:]:
            raise GraphError(
                f"edge_y has shape {graph.edge_y.shape}; expected ({listed},), a label for each listed edge"
            )
        check_labels(graph.edge_y, "edge")
    if graph.edge_split is not None:
        check_split(graph.edge_split, listed, "edge")


def check_bipartite(graph) -> None:
    """Raise GraphError unless each edge joins a node below S, a source, and another one: S of meta["bipartite"]. O(E)."""
    A, of = graph.A, graph.meta["bipartite"]
    S, names = (of.get("sources"), of.get("names")) if isinstance(of, dict) else (None, None)
    if not (is_integer(S) and 0 <= S <= graph.n_nodes and isinstance(names, (list, tuple)) and len(names) == 2):
        raise GraphError(f"meta['bipartite'] is {of!r}; expected {{'sources': 0 to {graph.n_nodes}, 'names': [a, b]}}")
    is_inside_E, at = A.indices < S, A.indptr[S]
    np.logical_not(is_inside_E[at:], out=is_inside_E[at:])
    if is_inside_E.any():
        e = int(np.argmax(is_inside_E))
        row = int(np.searchsorted(A.indptr, e, side="right")) - 1
        u, v = (node if graph.ids is None else graph.ids[node] for node in (row, A.indices[e]))
        kinds = f"nodes 0 to {S - 1} are of {names[0]}, the others of {names[1]}"
        raise GraphError(f"edge {u} -> {v} joins two nodes of {names[row >= S]}; in a bipartite graph {kinds}")


def check_unchanged(graph) -> None:
    """Raise GraphError unless the arrays still make a graph: compiled code would read outside of others.

    Cheap next to any use of a graph: O(E), and no dense X is read.
    """
    try:
        check_graph(graph, is_new=False)
        if not graph.A.data.all():
            raise GraphError(f"A: the weight of entry {int(np.argmin(graph.A.data != 0))} is 0; expected edges alone")
    except GraphError as error:
        raise GraphError(
            f"{graph.name} was changed in place after it was made: {error}. Copy the arrays, change the copies, make a new Graph"
        ) from None


def read_only(M: Any) -> Any:
    """Return read-only views of M's memory, an array or CSR or None; M itself does not change."""
    if not sp.issparse(M):
        if isinstance(M, np.ndarray) and M.flags.writeable:
            M = M.view()
            M.flags.writeable = False
        return M
    arrays = {name: read_only(getattr(M, name)) for name in ("data", "indices", "indptr")}
    if any(array is not getattr(M, name) for name, array in arrays.items()):
        M = copy(M)  # shares the arrays
        for name, array in arrays.items():
            setattr(M, name, array)
    return M


def check_csr(A: sp.csr_array, what: str, is_multi: bool = False) -> None:
    """Raise GraphError unless indptr rises from 0 to nnz, indices are in range and sorted, data finite.

    Args: is_multi  a row may have several entries in one column.
    scipy itself does not check: a product with a bad index reads outside its arrays.
    """
    indptr, indices, (rows, cols) = A.indptr, A.indices, A.shape
    if len(indptr) != rows + 1:
        raise GraphError(f"{what}: indptr has {len(indptr)} entries, expected rows + 1 = {rows + 1}")
    if len(indices) != len(A.data):
        raise GraphError(f"{what}: {len(indices)} indices and {len(A.data)} values; expected equal numbers")
    if rows == 0:
        return
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise GraphError(f"{what}: indptr must rise from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        row = int(np.argmax(falls))
        raise GraphError(f"{what}: indptr must rise; in row {row} it falls from {indptr[row]} to {indptr[row + 1]}")
    if len(indices):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= cols:
            e = int(np.argmax((indices < 0) | (indices >= cols)))
            row = int(np.searchsorted(indptr, e, side="right")) - 1
            raise GraphError(f"{what}: row {row} has column {int(indices[e])}; expected 0 to {cols - 1}")
        falls = indices[1:] < indices[:-1] if is_multi else indices[1:] <= indices[:-1]
        ends = indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(indices))] - 1
        falls[ends] = False
        if falls.any():
            row = int(np.searchsorted(indptr, int(np.argmax(falls)), side="right")) - 1
            how = "columns out of order; use" if is_multi else "columns out of order or twice; use sum_duplicates and"
            raise GraphError(f"{what}: row {row} has {how} sort_indices")
        _check_finite(A.data, f"{what}: weights")


def _check_finite(values: np.ndarray, what: str) -> None:
    for start in range(0, len(values), 1 << 20):
        chunk = values[start : start + (1 << 20)]
        if chunk.dtype.kind not in "fiub":
            raise GraphError(f"{what} are {chunk.dtype}; expected numbers")
        if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
            where = np.argwhere(~np.isfinite(chunk))[0]
            raise GraphError(f"{what}: entry {start + int(where[0])} is {chunk[tuple(where)]}; expected finite numbers")


def most_classes(n_nodes: int) -> int:
    """Return the largest label that is no mistake: logits of as many columns have to fit."""
    return max(n_nodes, 2) * 1000


def check_split(s: np.ndarray, n: int, noun: str = "node") -> None:
    if s.ndim not in (1, 2) or s.shape[0] != n or s.dtype != np.int8 or (s.ndim == 2 and not s.shape[1]):
        name = "split" if noun == "node" else f"{noun}_split"
        raise GraphError(f"{name} is {s.dtype} of shape {s.shape}; expected int8 ({n},) or ({n}, S), of {n} {noun}s")
    bad = (s < -1) | (s > 2)
    if bad.any():
        raise GraphError(
            f"{noun} {int(np.argwhere(bad)[0][0])} has split {int(s[bad][0])}; expected 0 train, 1 val, 2 test, -1 none"
        )


def check_labels(y: np.ndarray, noun: str = "node") -> None:
    if y.dtype.kind == "f":
        if np.isinf(y).any():
            where = np.argwhere(np.isinf(y))[0]
            raise GraphError(f"{noun} {int(where[0])} has the target {y[tuple(where)]}; expected finite, NaN for none")
        return
    if y.dtype.kind not in "iub":
        raise GraphError(f"labels are {y.dtype}; expected integers, or float for numbers")
    low, high = (-1, most_classes(len(y))) if y.ndim == 1 else (0, 1)
    bad = (y < low) | (y > high)
    if bad.any():
        where = np.argwhere(bad)[0]
        raise GraphError(f"{noun} {int(where[0])} has label {int(y[tuple(where)])}; expected {low} to {high}")


def checked_ids(ids: ArrayLike | None, n_nodes: int) -> np.ndarray | None:
    """Return the ids of nodes as (N,) int64, or (N,) str objects, also integers from 2^63 on; GraphError for other types and lengths."""
    if ids is None:
        return None
    ids = np.asarray(ids)
    if ids.shape != (n_nodes,):
        raise GraphError(f"ids have shape {ids.shape}, the graph has {n_nodes} nodes; expected ({n_nodes},)")
    is_large = ids.dtype.kind == "u" and np.any(ids >= 2**63)
    if ids.dtype.kind in "iu" and not is_large:
        return ids.astype(np.int64, copy=False)
    if ids.dtype.kind == "U" or is_large:
        ids = ids.astype(str).astype(object)
    if ids.dtype.kind != "O" or not all(type(name) is str for name in ids):
        raise GraphError(f"ids hold {ids.dtype}; expected integers or text")
    return ids


def checked_classes(classes: Iterable[object] | None, n_classes: int) -> tuple[str, ...] | None:
    """Return the names of classes as text; GraphError unless there are as many as classes, or more."""
    if classes is None:
        return None
    names = tuple(map(str, classes))
    if len(names) < n_classes:
        raise GraphError(f"{len(names)} names of classes; the labels have {n_classes}")
    return names


def packed_ids(ids: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the arrays of a file for ids: ids int64, or the UTF-8 of names one after another and where each starts."""
    if ids is None:
        return {}
    if ids.dtype.kind == "i":
        return {"ids": ids}
    names = [name.encode("utf-8", "surrogatepass") for name in ids]
    starts = np.concatenate([[0], np.cumsum([len(name) for name in names], dtype=np.int64)]).astype(np.int64)
    return {"ids_bytes": np.frombuffer(b"".join(names), np.uint8), "ids_indptr": starts}


def unpacked_ids(arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the ids of packed_ids; GraphError where the arrays do not fit."""
    if "ids_bytes" not in arrays:
        return arrays.get("ids")
    raw, starts = arrays["ids_bytes"].tobytes(), arrays["ids_indptr"]
    if not len(starts) or starts[0] != 0 or starts[-1] != len(raw) or np.any(starts[1:] < starts[:-1]):
        raise GraphError(f"ids_indptr must rise from 0 to {len(raw)}")
    ids = np.empty(len(starts) - 1, object)
    try:
        ids[:] = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts.tolist(), starts[1:].tolist())]
    except UnicodeDecodeError as error:
        raise GraphError(f"ids_bytes is not UTF-8: {error}") from None
    return ids
