"""Meshes: points as nodes, edges of cells as edges, coordinates and the boundary as features; files, and meshio's Mesh."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import GraphError, nearest
from ...graph import Graph, both_ways
from ..formats import Progress, reader
from .make_graph import as_float, named_labels, naming, with_components
from .mesh_file import is_mesh_file, mesh_edges, point_columns, read_meshio


@reader("mesh", detect=is_mesh_file)
def read_mesh(path: Path, progress: Progress = None) -> Graph:
    """Read the edges of all cells, once each and both ways, and x, y, z and boundary as features."""
    mesh = read_meshio(path)
    with naming(path):
        return from_meshio(mesh, name=path.stem)


def from_meshio(mesh: Any, features: Sequence[str] = (), label: str | None = None, **fields) -> Graph:
    """Return the Graph of a meshio.Mesh: points are nodes, and edges those of its cells, once each, in both directions.

    Features are x, y, z (not if all are 0), and boundary: 1 for points of a facet of one cell alone.
    Args:   features  names of data of points that are features too; of a vector all components.
            label     a name of data of points, one number or several to predict.
    Raises: GraphError for cells that are not linear, and for names that are not there.
    """
    ends, is_boundary = mesh_edges(mesh)
    columns = point_columns(mesh, is_boundary)
    names = [name for name in ("x", "y", "z", "boundary") if name in columns] + with_components([*features], columns)
    labels = [] if label is None else with_components([label], columns)
    for name in (*names, *labels):
        if name not in columns:
            raise GraphError(f"the points of the mesh have no {name!r}{nearest(name, columns)}")
    if labels:
        fields |= named_labels(f"point_data[{label!r}]", np.stack([columns[name] for name in labels], axis=1))
    X = as_float(np.stack([columns[name] for name in names], axis=1))
    made: dict[str, Any] = {"name": "mesh", "feature_names": tuple(names), "X": X} | fields
    return both_ways(ends[:, 0], ends[:, 1], len(mesh.points), **made)
