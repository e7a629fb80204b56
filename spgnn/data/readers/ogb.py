"""OGB's raw folder of one node-level graph: raw/*.csv.gz and split/*/{train,valid,test}.csv.gz, without ogb.

Source: Hu et al. 2020, Open Graph Benchmark, the layout of its node property prediction data sets.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...graph import TEST, TRAIN, VAL, Graph
from ..formats import Progress, reader
from .lines import read_rows, whole
from .make_graph import check_node_count, coo_graph, split_of

SPLIT_FILES = {"train": TRAIN, "valid": VAL, "test": TEST}


def is_ogb(path: Path) -> bool:
    """a folder with raw/edge.csv.gz."""
    return path.is_dir() and _table(path / "raw", "edge") is not None


@reader("ogb", detect=is_ogb)
def read_ogb(path: Path, progress: Progress = None) -> Graph:
    """Read an OGB raw folder: edges as listed, the first split in alphabetical order, features and labels if present.

    Raises: FormatError for a table without one row per node, or with other counts than num-*-list.
    """
    if (edge_path := _table(path / "raw", "edge")) is None:
        raise FormatError(f"{path / 'raw' / 'edge.csv.gz'}: no such file; expected a folder with raw/ and split/")
    n_nodes, n_edges = (_count(path, name) for name in ("num-node-list", "num-edge-list"))
    if n_nodes is None:
        raise FormatError(f"{path / 'raw' / 'num-node-list.csv.gz'}: no such file; it has the number of nodes")
    y = _node_rows(path, "node-label", n_nodes, is_integer=True)
    X = _node_rows(path, "node-feat", n_nodes, is_integer=False)
    edges = _read_table(edge_path, progress, width=2)
    if n_edges not in (None, len(edges)):
        raise FormatError(f"{edge_path}: {len(edges)} edges; num-edge-list declares {n_edges}")
    check_node_count(path, n_nodes, len(edges), "num-node-list")
    src, dst = (edges[:, 0], edges[:, 1]) if len(edges) else (np.zeros(0, np.int64),) * 2
    if y is not None and y.shape[1] == 1:
        y = y[:, 0]
    return coo_graph(path, src, dst, n_nodes, X=X, y=y, split=_split(path, n_nodes))


def _table(folder: Path, name: str) -> Path | None:
    """Return folder/name.csv.gz or folder/name.csv, whichever is there."""
    return next((p for p in (folder / f"{name}.csv.gz", folder / f"{name}.csv") if p.is_file()), None)


def _read_table(path: Path, progress: Progress = None, width: int = 0, is_integer: bool = True) -> np.ndarray:
    """Return a table of numbers, (rows, columns): int64, or float32; width: columns, 0: as the first row has."""
    blocks = []
    for values, counts, line in read_rows(path, "entry", progress=progress):
        filled = np.flatnonzero(counts)
        width = width or int(counts[filled[0]] if len(filled) else 0)
        odd = filled[counts[filled] != width]
        if len(odd):
            raise FormatError(f"{path}:{line + odd[0]}: {counts[odd[0]]} columns; expected {width} as in other lines")
        rows = whole(values, counts, (path, line), "entry") if is_integer else values.astype(np.float32)
        blocks.append(rows.reshape(len(filled), -1) if len(filled) else rows[:0].reshape(0, max(width, 1)))
    return np.concatenate(blocks) if blocks else np.zeros((0, 1), np.int64)


def _count(path: Path, name: str) -> int | None:
    if (table := _table(path / "raw", name)) is None:
        return None
    counts = _read_table(table)
    if counts.shape != (1, 1):
        raise FormatError(f"{table}: {counts.shape[0]} rows; expected one number: a folder of one graph")
    return int(counts[0, 0])


def _node_rows(path: Path, name: str, n_nodes: int, is_integer: bool) -> np.ndarray | None:
    if (table := _table(path / "raw", name)) is None:
        return None
    rows = _read_table(table, is_integer=is_integer)
    if len(rows) != n_nodes:
        raise FormatError(f"{table}: {len(rows)} rows; expected {n_nodes}, one per node as num-node-list declares")
    return rows


def _split(path: Path, n_nodes: int) -> np.ndarray | None:
    """Return the split of the first folder in split/ that has its three tables."""
    for folder in sorted((path / "split").glob("*/")):
        tables = {role: table for name, role in SPLIT_FILES.items() if (table := _table(folder, name))}
        if len(tables) == len(SPLIT_FILES):
            nodes = {role: _read_table(table, width=1).ravel() for role, table in tables.items()}
            return split_of(folder, n_nodes, nodes)
    return None
