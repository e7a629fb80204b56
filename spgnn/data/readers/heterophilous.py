"""Heterophilous .npz: node_features, node_labels, edges, {train,val,test}_masks of 10 splits.

Source: Platonov et al. 2023, A critical look at the evaluation of GNNs under heterophily.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...graph import NO_SPLIT, TEST, TRAIN, VAL
from ..formats import reader
from .make_graph import as_float, check_array, coo_graph
from .npz import Archive, member_names, open_npz

MASKS = {"train_masks": TRAIN, "val_masks": VAL, "test_masks": TEST}


def is_heterophilous(path: Path) -> bool:
    """an .npz with the arrays node_features, node_labels and edges."""
    return path.is_file() and {"node_features", "node_labels", "edges"} <= member_names(path)


@reader("heterophilous", detect=is_heterophilous)
def read_heterophilous(path: Path, progress=None):
    """Read a heterophilous .npz: edges as listed, dense X, y, and the splits side by side, (N, S) int8."""
    with open_npz(path) as arrays:
        X, y, edges = arrays["node_features"], arrays["node_labels"], arrays["edges"]
        check_array(f"{path}: node_features", X, "biuf", (None, None), "numbers (nodes, features)")
        check_array(f"{path}: edges", edges, "iu", (None, 2), "integers (edges, 2)")
        check_array(f"{path}: node_labels", y, "iub", (len(X),), f"integers ({len(X)},)")
        split = _splits(arrays, len(X)) if MASKS.keys() <= arrays.names else None
    return coo_graph(path, edges[:, 0], edges[:, 1], len(X), X=as_float(X), y=y.astype(np.int64), split=split)


def _splits(arrays: Archive, n_nodes: int) -> np.ndarray:
    n_splits = split = None
    for name, role in MASKS.items():
        mask = arrays[name]
        check_array(f"{arrays.path}: {name}", mask, "b", (n_splits, n_nodes), f"bool (splits, {n_nodes})")
        if split is None:
            n_splits, split = len(mask), np.full((n_nodes, len(mask)), NO_SPLIT, np.int8)
        taken = mask.T & (split != NO_SPLIT)
        if taken.any():
            node, number = np.argwhere(taken)[0]
            raise FormatError(f"{arrays.path}: node {node} is in two parts of split {number}; expected one at most")
        split[mask.T] = role
    return split
