"""Graphs in .npz files: scipy.sparse.save_npz, gnn-benchmark, and the heterophilous graphs; A[u, v] is the edge u -> v.

Sources: Shchur et al. 2018, Pitfalls of graph neural network evaluation: adj_*, attr_* in CSR parts, and labels; pickled
         names are skipped, never loaded.
         Platonov et al. 2023, A critical look at the evaluation of GNNs under heterophily: node_features, node_labels,
         edges, and {train,val,test}_masks of 10 splits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...config.names import Duplicates
from ...errors import FormatError
from ...graph import NO_SPLIT, TEST, TRAIN, VAL, Graph
from ...graph.structure import as_weights
from ..formats import Progress, reader
from .make_graph import CsrParts, as_float, check_array, checked_parts, coo_graph, csr_features, csr_graph
from .npz import Archive, member_names, open_npz, shape_of

MASKS = {"train_masks": TRAIN, "val_masks": VAL, "test_masks": TEST}


def is_scipy_npz(path: Path) -> bool:
    """an .npz with the arrays format, shape and data, as scipy.sparse.save_npz writes."""
    return path.is_file() and {"format", "shape", "data"} <= member_names(path)


@reader("scipy", detect=is_scipy_npz, takes=("duplicates",))
def read_scipy_npz(path: Path, progress: Progress = None, duplicates: Duplicates = "auto") -> Graph:
    """Read a SciPy .npz as a graph; its indices are checked, which scipy.sparse.load_npz does not do."""
    with open_npz(path) as arrays:
        form = _form(arrays)
        if form == "csr":
            return csr_graph(path, _compressed_parts(arrays), duplicates)
        return _other_graph(path, arrays, form, duplicates)


def read_csr_features(path: Path) -> sp.csr_array:
    """Return the (N, F) CSR of a SciPy .npz: the features of `--features F.npz`."""
    return csr_features(path, csr_parts(path, "features are"))


def csr_parts(path: Path, what: str) -> CsrParts:
    """Return data, indices, indptr and shape of a SciPy .npz, which must be CSR."""
    with open_npz(path) as arrays:
        if (form := _form(arrays)) != "csr":
            raise FormatError(f"{path}: {what} {form}; expected csr")
        return _compressed_parts(arrays)


def _other_graph(path: Path, arrays: Archive, form: str, duplicates: Duplicates) -> Graph:
    shape = shape_of(arrays["shape"], path)
    if shape[0] != shape[1]:
        raise FormatError(f"{path}: the matrix has shape {shape}; expected as many rows as columns")
    if form == "coo":
        row, col, data = arrays["row"], arrays["col"], arrays["data"]
        check_array(f"{path}: data", data, "biuf", (None,), "numbers (entries,)")
        for name, ids in (("row", row), ("col", col)):
            check_array(f"{path}: {name}", ids, "iu", (len(data),), f"integers ({len(data)},)")
        return coo_graph(path, row, col, shape[0], as_weights(data), duplicates)
    data, indices, indptr, _ = _compressed_parts(arrays)
    data, row, indptr, _ = checked_parts(path, data, indices, indptr, shape[::-1], what="adjacency, by columns")
    column = np.repeat(np.arange(shape[1], dtype=row.dtype), np.diff(indptr))
    return coo_graph(path, row, column, shape[0], as_weights(data), duplicates)


def _form(arrays: Archive) -> str:
    raw = arrays["format"]
    form = raw.item() if raw.shape == () else None
    form = form.decode("latin-1") if isinstance(form, bytes) else form
    if form not in ("csr", "csc", "coo"):
        raise FormatError(f"{arrays.path}: sparse format {form!r}; expected csr, csc or coo")
    return form


def _compressed_parts(arrays: Archive, prefix: str = "") -> CsrParts:
    data, indices, indptr, shape = (arrays[f"{prefix}{name}"] for name in ("data", "indices", "indptr", "shape"))
    return data, indices, indptr, shape_of(shape, arrays.path)


def is_gnn_benchmark(path: Path) -> bool:
    """an .npz with the arrays adj_data, adj_indices, adj_indptr and adj_shape."""
    return path.is_file() and {"adj_data", "adj_indices", "adj_indptr", "adj_shape"} <= member_names(path)


@reader("gnn-benchmark", detect=is_gnn_benchmark)
def read_gnn_benchmark(path: Path, progress: Progress = None) -> Graph:
    """Read a gnn-benchmark .npz: edges as they came, sparse or dense features and labels where it has them."""
    with open_npz(path) as arrays:
        adjacency, X, y = _compressed_parts(arrays, "adj_"), None, None
        if "attr_data" in arrays:
            X = csr_features(path, _compressed_parts(arrays, "attr_"))
        elif "attr_matrix" in arrays:
            X = arrays["attr_matrix"]
        if "labels" in arrays:
            y = arrays["labels"]
            if y.dtype.kind not in "iub":
                raise FormatError(f"{path}: labels are {y.dtype}; expected integers")
    return csr_graph(path, adjacency, X=X, y=None if y is None else y.astype(np.int64))


def is_heterophilous(path: Path) -> bool:
    """an .npz with the arrays node_features, node_labels and edges."""
    return path.is_file() and {"node_features", "node_labels", "edges"} <= member_names(path)


@reader("heterophilous", detect=is_heterophilous)
def read_heterophilous(path: Path, progress: Progress = None) -> Graph:
    """Read a heterophilous .npz: edges as listed, dense X, y, and the splits side by side, (N, S) int8."""
    with open_npz(path) as arrays:
        X, y, edges = arrays["node_features"], arrays["node_labels"], arrays["edges"]
        check_array(f"{path}: node_features", X, "biuf", (None, None), "numbers (nodes, features)")
        check_array(f"{path}: edges", edges, "iu", (None, 2), "integers (edges, 2)")
        check_array(f"{path}: node_labels", y, "iub", (len(X),), f"integers ({len(X)},)")
        split = _splits(arrays, len(X)) if MASKS.keys() <= arrays.names else None
    return coo_graph(path, edges[:, 0], edges[:, 1], len(X), X=as_float(X), y=y.astype(np.int64), split=split)


def _splits(arrays: Archive, n_nodes: int) -> np.ndarray:
    masks = {role: arrays[name] for name, role in MASKS.items()}
    n_splits = len(masks[TRAIN]) if masks[TRAIN].ndim else 0
    for name, role in MASKS.items():
        check_array(f"{arrays.path}: {name}", masks[role], "b", (n_splits, n_nodes), f"bool (splits, {n_nodes})")
    split = np.full((n_nodes, n_splits), NO_SPLIT, np.int8)
    for role, mask in masks.items():
        taken = mask.T & (split != NO_SPLIT)
        if taken.any():
            node, number = np.argwhere(taken)[0]
            raise FormatError(f"{arrays.path}: node {node} is in two parts of split {number}; expected one at most")
        split[mask.T] = role
    return split
