"""Attributes, labels and split of edges, from columns of a table of edges, or from a .npy with a row for each edge.

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
from .make_graph import coo_graph, named_labels, split_of_array
from .npz import read_npy

WANTED = ("edge_features", "edge_labels", "edge_split")
Places = dict[str, dict[str, int]]


def rows_of_files(wanted: TableConfig, found: Places | None = None) -> dict[str, Any]:
    """Return the fields of graph_from_coo for each .npy with a row for each edge, in their order; {} without one.

    Args:   found  columns of the table that has the edges, see places_of_columns; None: the format has none.
    Raises: UsageError for columns of a format that has none, and for numbers of columns that are none.
    """
    if wanted.antisymmetric and not wanted.edge_features:
        raise UsageError(f"--antisymmetric {wanted.antisymmetric} requires --edge-features")
    if wanted.cutoff:
        raise UsageError(f"--cutoff {wanted.cutoff} is for folders of tables; omit it, and the edges after it")
    fields: dict[str, Any] = {}
    for option in WANTED:
        file = getattr(wanted, option)
        if not file or (found and found[option]):
            continue
        if not file.endswith(".npy"):
            flag = "--" + option.replace("_", "-")
            raise UsageError(
                f"{flag} {file}: columns are those of tables of edges; expected a .npy, a row for each edge"
            )
        rows = read_npy(Path(file), mmap=True)
        if option == "edge_features":
            flipped = column_numbers(wanted.antisymmetric)
            fields |= {"edge_attr": rows, "meta": {"antisymmetric": flipped} if flipped else {}}
        elif option == "edge_labels":
            fields |= {f"edge_{name}": value for name, value in named_labels(file, rows).items()}
        else:
            fields["edge_split"] = split_of_array(file, rows)
    return fields


def listed_graph(
    path: Path,
    edges_E2: np.ndarray,
    n_nodes: int,
    weights: np.ndarray | None,
    options: dict,
    is_symmetric: bool = False,
) -> Graph:
    """Return the Graph of edges as a file lists them, with their attributes and labels; options: of the reader."""
    wanted = TableConfig(**options)
    return coo_graph(
        path,
        edges_E2[:, 0],
        edges_E2[:, 1],
        n_nodes,
        weights,
        wanted.duplicates,
        is_symmetric,
        **rows_of_files(wanted),
    )


def column_numbers(text: str) -> list[int]:
    """Return the numbers of --antisymmetric for a .npy. Raises: UsageError for names."""
    words = [word for word in text.split(",") if word]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise UsageError(f"--antisymmetric {text}: expected numbers of columns of the .npy, from 0")
    return [int(word) for word in words]


def places_of_columns(where: str, names: Sequence[str], wanted: TableConfig) -> Places:
    """Return the names, or numbers from 1, and the places of the columns that each option of WANTED names.

    Raises: FormatError for one that is not there; UsageError for labels, or a split, that are another thing too.
    """
    found: Places = {}
    for option in WANTED:
        flag, given = "--" + option.replace("_", "-"), getattr(wanted, option)
        words = [] if given.endswith(".npy") else [word for word in given.split(",") if word]
        if len(words) > 1 and option == "edge_labels":
            raise UsageError(f"{flag} {given}: expected one column; give several numbers as a .npy")
        places = [column_of(where, list(names), word, flag) for word in words]
        found[option] = {names[place] if names else str(place + 1): place for place in places}
    label = next(
        (name for name in found["edge_labels"] if name in found["edge_features"] or name in found["edge_split"]), ""
    )
    if label:
        raise UsageError(f"--edge-labels {label!r} is an attribute or the split too; omit it there")
    return found


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
