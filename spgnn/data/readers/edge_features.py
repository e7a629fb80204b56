"""--edge-features: attributes of edges, from columns of a table of edges, or from a .npy with a row for each edge.

Shapes: E edges as they are listed, F attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...config import TableConfig
from ...errors import FormatError, UsageError, nearest
from ...graph import Graph
from .heads import column_of
from .make_graph import coo_graph
from .npz import read_npy


def wants_columns(wanted: TableConfig) -> bool:
    """Whether attributes are columns of the table that has the edges."""
    return bool(wanted.edge_features) and not wanted.edge_features.endswith(".npy")


def attributes_of_file(wanted: TableConfig) -> dict[str, Any]:
    """Return the fields edge_attr and meta of graph_from_coo for a .npy (E, F) in the order of the edges; {} without one.

    Raises: UsageError for columns of a format that has none, and for numbers of columns that are none.
    """
    if not wanted.edge_features:
        if wanted.antisymmetric:
            raise UsageError(f"--antisymmetric {wanted.antisymmetric} requires --edge-features")
        return {}
    if wants_columns(wanted):
        raise UsageError(
            f"--edge-features {wanted.edge_features}: columns are those of tables of edges; expected a .npy with a row for "
            "each edge"
        )
    rows = read_npy(Path(wanted.edge_features), mmap=True)
    flipped = column_numbers(wanted.antisymmetric)
    return {"edge_attr": rows, "meta": {"antisymmetric": flipped} if flipped else {}}


def listed_graph(
    path: Path,
    edges_E2: np.ndarray,
    n_nodes: int,
    weights: np.ndarray | None,
    options: dict,
    is_symmetric: bool = False,
) -> Graph:
    """Return the Graph of edges as a file lists them, with the attributes of --edge-features; options: of the reader."""
    wanted = TableConfig(**options)
    return coo_graph(
        path,
        edges_E2[:, 0],
        edges_E2[:, 1],
        n_nodes,
        weights,
        wanted.duplicates,
        is_symmetric,
        **attributes_of_file(wanted),
    )


def column_numbers(text: str) -> list[int]:
    """Return the numbers of --antisymmetric for a .npy. Raises: UsageError for names."""
    words = [word for word in text.split(",") if word]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise UsageError(f"--antisymmetric {text}: expected numbers of columns of the .npy, from 0")
    return [int(word) for word in words]


def places_of_columns(where: str, names: Sequence[str], wanted: TableConfig) -> list[int]:
    """Return the places of the columns that --edge-features names; FormatError for one that is not there."""
    if not wants_columns(wanted):
        return []
    return [column_of(where, list(names), name, "--edge-features") for name in wanted.edge_features.split(",") if name]


def attributes_of_columns(where: Path | str, columns: dict[str, np.ndarray], wanted: TableConfig) -> dict[str, Any]:
    """Return the fields edge_attr and meta of columns of numbers, by their names.

    Raises: FormatError naming the column and the first row without a value.
    """
    for name, values in columns.items():
        if np.isnan(values).any():
            lost, row = np.count_nonzero(np.isnan(values)), int(np.argmax(np.isnan(values))) + 1
            raise FormatError(f"{where}: column {name!r} has no value for {lost:,} edges, the first in row {row}")
    flipped = [name for name in wanted.antisymmetric.split(",") if name]
    for name in flipped:
        if name not in columns:
            raise FormatError(f"{where}: --antisymmetric {name!r} is no --edge-features{nearest(name, columns)}")
    names = list(columns)
    meta = {"edge_features": names} | ({"antisymmetric": [names.index(name) for name in flipped]} if flipped else {})
    rows = np.stack(list(columns.values()), axis=1)
    is_wide = any(values.dtype == np.float64 for values in columns.values()) and np.any(rows != rows.astype(np.float32))
    return {"edge_attr": rows if is_wide else rows.astype(np.float32), "meta": meta}
