"""Planetoid: ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}, Python 2 pickles of scipy CSR.

Source: Yang et al. 2016; the loader of Kipf & Welling 2017 (isolated test nodes of Citeseer, public split).
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...errors import FormatError
from ...graph import TEST, TRAIN, UNLABELLED, VAL, Graph
from ..formats import Progress, reader
from .lines import read_integers
from .make_graph import coo_graph, csr_features, split_of
from .pickles import PickledCsr, load_pickle

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VAL_NODES = 500


def is_planetoid(path: Path) -> bool:
    """files PATH.allx, PATH.graph and so on: PATH is their common prefix, such as planetoid/ind.cora."""
    return path.name not in ("", "..") and _part(path, "graph").is_file() and _part(path, "allx").is_file()


@reader("planetoid", detect=is_planetoid)
def read_planetoid(path: Path, progress: Progress = None) -> Graph:
    """Read the Planetoid files that start with path: test node test.index[i] has row i of tx and ty.

    Returns: Graph with sparse X, and the public split: len(y) train, the next 500 val, test.index test.
             Nodes that test.index leaves out (Citeseer) have no features and no label.
    """
    for name in PARTS:
        if not _part(path, name).is_file():
            raise FormatError(f"{_part(path, name)}: no such file; SRC is the common prefix of {', '.join(PARTS)}")
    X_all, X_test, X_train = (_features(_part(path, name)) for name in ("allx", "tx", "x"))
    y_all, y_test, y_train = (_classes(_part(path, name)) for name in ("ally", "ty", "y"))
    test = read_integers(_part(path, "test.index"), "test node id")
    src, dst, n_keys = _edges(_part(path, "graph"))

    n_all = len(y_all)
    for a, b, rows in (("allx", "ally", n_all), ("tx", "ty", len(y_test)), ("x", "y", len(y_train))):
        have = {"allx": X_all, "tx": X_test, "x": X_train}[a].shape
        if have != (rows, X_all.shape[1]):
            raise FormatError(f"{_part(path, a)}: shape {have}; expected {(rows, X_all.shape[1])} as {b} and allx have")
    if len(test) != len(y_test) or len(np.unique(test)) != len(test):
        raise FormatError(
            f"{_part(path, 'test.index')}: {len(test)} ids; expected {len(y_test)} different ones, one row of tx each"
        )
    n_nodes = max(n_all, int(test.max(initial=-1)) + 1)
    most = max(n_keys, n_all + len(test))  # test.index may leave nodes of the graph out
    if test.min(initial=n_all) < n_all or n_nodes > most:
        raise FormatError(
            f"{_part(path, 'test.index')}: ids {test.min()} to {test.max()}; expected {n_all} to {most - 1}"
        )
    if len(y_train) > n_all:
        raise FormatError(f"{_part(path, 'y')}: {len(y_train)} rows; expected at most the {n_all} of ally")

    rows = np.concatenate([np.arange(n_all), test])
    y = np.full(n_nodes, UNLABELLED, np.int64)
    y[rows] = np.concatenate([y_all, y_test])
    X = sp.vstack([X_all, X_test], format="coo")
    X = sp.csr_array((X.data, (rows[X.row], X.col)), shape=(n_nodes, X.shape[1]))
    X.sort_indices()
    roles = {
        TRAIN: np.arange(len(y_train)),
        VAL: np.arange(len(y_train), min(len(y_train) + VAL_NODES, n_all)),
        TEST: test,
    }
    return coo_graph(path, src, dst, n_nodes, X=X, y=y, split=split_of(path, n_nodes, roles))


def _part(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{name}")


def _features(path: Path) -> sp.csr_array:
    """Return the CSR of x, tx or allx."""
    rows = load_pickle(path)
    if not isinstance(rows, PickledCsr) or rows.parts is None:
        raise FormatError(f"{path}: holds {type(rows).__name__}; expected a scipy CSR matrix")
    return csr_features(path, rows.parts)


def _classes(path: Path) -> np.ndarray:
    """Return the classes of one-hot rows, (n,) int64; -1 for a row of zeros."""
    rows = load_pickle(path)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise FormatError(f"{path}: holds {type(rows).__name__}; expected an array (nodes, classes)")
    is_bad = ((rows != 0) & (rows != 1)).any(axis=1) | ((rows != 0).sum(axis=1) > 1)
    if is_bad.any():
        raise FormatError(f"{path}: row {int(np.argmax(is_bad))} is not one-hot: expected one 1 and zeros")
    if not rows.shape[1]:
        return np.full(len(rows), UNLABELLED, np.int64)
    return np.where(rows.any(axis=1), rows.argmax(axis=1), UNLABELLED).astype(np.int64)


def _edges(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Return src, dst and the number of keys of the dict {node: [neighbours]}, in the order of the lists."""
    lists = load_pickle(path)
    if not isinstance(lists, dict) or not all(type(k) is int and type(v) is list for k, v in lists.items()):
        raise FormatError(f"{path}: holds {type(lists).__name__}; expected a dict of node: [neighbours]")
    n_entries = sum(map(len, lists.values()))
    if n_entries > path.stat().st_size:  # each takes two bytes, unless lists are shared to blow it up
        raise FormatError(f"{path}: {n_entries} neighbours in {path.stat().st_size} bytes; expected one list per node")
    if not all(type(v) is int for v in chain.from_iterable(lists.values())):
        raise FormatError(f"{path}: a neighbour is not an integer")
    try:
        keys = np.fromiter(lists, np.int64, len(lists))
        dst = np.fromiter(chain.from_iterable(lists.values()), np.int64, n_entries)
    except OverflowError:
        raise FormatError(f"{path}: a node id does not fit 64 bits") from None
    return np.repeat(keys, [len(v) for v in lists.values()]), dst, len(keys)
