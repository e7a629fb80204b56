"""GraphSAINT folder: adj_full.npz, role.json, class_map.json, and feats.npy or feats_csr.npz where it has features.

Source: Zeng et al. 2020, the layout of their data sets.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...errors import FormatError
from ...graph import TEST, TRAIN, VAL, Graph
from ..formats import Progress, reader
from .make_graph import as_float, check_array, csr_graph, graph_name, naming, split_of
from .npz import read_npy
from .npz_graphs import csr_parts, read_csr_features
from .text import read_json

ROLES = {"tr": TRAIN, "va": VAL, "te": TEST}


def is_graphsaint(path: Path) -> bool:
    """a folder with adj_full.npz."""
    return path.is_dir() and (path / "adj_full.npz").is_file()


@reader("graphsaint", detect=is_graphsaint)
def read_graphsaint(path: Path, progress: Progress = None) -> Graph:
    """Read a GraphSAINT folder: all edges of adj_full, labels of class_map (ints, or lists of 0/1), roles as split."""
    for name in ("adj_full.npz", "role.json", "class_map.json"):
        if not (path / name).is_file():
            raise FormatError(f"{path / name}: no such file; GraphSAINT has adj_full.npz, role.json, class_map.json")
    graph = csr_graph(path / "adj_full.npz", csr_parts(path / "adj_full.npz", "the adjacency is"))
    n_nodes = graph.n_nodes
    y = _labels(path / "class_map.json", n_nodes)
    split = split_of(path / "role.json", n_nodes, _roles(path / "role.json"))
    X = _features(path, n_nodes)
    with naming(path):
        return replace(graph, X=X, y=y, split=split, name=graph_name(path))


def _features(path: Path, n_nodes: int) -> np.ndarray | sp.csr_array | None:
    if (path / "feats.npy").is_file():
        X = read_npy(path / "feats.npy", mmap=True)
        check_array(path / "feats.npy", X, "biuf", (None, None), f"numbers ({n_nodes}, features)")
        X = as_float(X)
    elif (path / "feats_csr.npz").is_file():
        X = read_csr_features(path / "feats_csr.npz")
    else:
        return None
    if X.shape[0] != n_nodes:
        raise FormatError(f"{path}: features have {X.shape[0]} rows; expected {n_nodes}, one per node")
    return X


def _roles(path: Path) -> dict[int, np.ndarray]:
    roles = read_json(path)
    if not isinstance(roles, dict) or not ROLES.keys() <= roles.keys():
        raise FormatError(f"{path}: expected an object with the lists tr, va and te")
    return {role: _integers(path, roles[name], f"role {name}") for name, role in ROLES.items()}


def _labels(path: Path, n_nodes: int) -> np.ndarray:
    """Return y (N,), or (N, classes) where the map holds lists."""
    classes = read_json(path)
    if not isinstance(classes, dict):
        raise FormatError(f"{path}: expected an object of node: class")
    try:
        nodes = np.fromiter(map(int, classes), np.int64, len(classes))
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{path}: a key is not a node id: {error}") from None
    if len(nodes) != n_nodes or not np.array_equal(np.sort(nodes), np.arange(n_nodes)):
        raise FormatError(f"{path}: labels of {len(nodes)} nodes; expected each of the nodes 0 to {n_nodes - 1} once")
    values = list(classes.values())
    if values and all(isinstance(v, list) for v in values):
        widths = {len(v) for v in values}
        if len(widths) > 1:
            raise FormatError(f"{path}: labels of {min(widths)} to {max(widths)} classes; expected one number")
        rows = _integers(path, list(chain.from_iterable(values)), "label").reshape(n_nodes, widths.pop())
    else:
        rows = _integers(path, values, "label")
    y = np.empty_like(rows)
    y[nodes] = rows
    return y


def _integers(path: Path, values: object, what: str) -> np.ndarray:
    """Return a list of JSON integers, (len,) int64."""
    if not isinstance(values, list) or not all(type(v) is int for v in values):
        raise FormatError(f"{path}: {what} is not a list of integers")
    try:
        return np.fromiter(values, np.int64, len(values))
    except OverflowError:
        raise FormatError(f"{path}: {what}: an integer does not fit 64 bits") from None
