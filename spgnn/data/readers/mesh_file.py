"""Meshes by meshio: cells to edges, boundary and columns of points.

Shapes: N points, m cells of one type, E edges.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ...atomic import new_file, open_regular
from ...errors import FormatError, GraphError, InputError

KINDS = {  # ending -> the module of meshio that reads it; those whose files name no others
    ".vtu": "vtu", ".vtk": "vtk", ".msh": "gmsh", ".mesh": "medit", ".off": "off", ".obj": "obj", ".stl": "stl", ".ply": "ply",
}  # fmt: skip


WITH_DATA = (".vtu", ".vtk")  # to whose points predictions are added


class Cell(NamedTuple):
    """A type of cells: its dimension, and the corners of its edges and facets, those of Cell dimension - 1."""

    dimension: int
    edges: list[tuple[int, int]]
    facets: list[tuple[int, ...]]


LINE, TRIANGLE = [(0, 1)], [(0, 1), (1, 2), (2, 0)]
QUAD = [(0, 1), (1, 2), (2, 3), (3, 0)]
CELLS = {  # meshio's types, whose corners are numbered as VTK's
    "vertex": Cell(0, [], []), "line": Cell(1, LINE, [(0,), (1,)]), "triangle": Cell(2, TRIANGLE, [*TRIANGLE]),
    "quad": Cell(2, QUAD, [*QUAD]),
    "tetra": Cell(3, [*TRIANGLE, (0, 3), (1, 3), (2, 3)], [(0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3)]),
    "pyramid": Cell(3, [*QUAD, (0, 4), (1, 4), (2, 4), (3, 4)], [(0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]),
    "wedge": Cell(
        3, [*TRIANGLE, (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)],
        [(0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)],
    ),
    "hexahedron": Cell(
        3, [*QUAD, (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)],
        [(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)],
    ),
}  # fmt: skip


def is_mesh_file(path: Path) -> bool:
    """a mesh that meshio reads: .vtu, .vtk, .msh, .mesh, .off, .obj, .stl or .ply."""
    return path.suffix.lower() in KINDS and path.is_file()


def read_meshio(path: Path) -> Any:
    """Return the meshio.Mesh of a file. Raises: InputError without meshio; FormatError for what it raises."""
    try:
        import meshio
    except ImportError:
        raise InputError(f"{path}: meshes need meshio: pip install 'spgnn[mesh]'") from None
    if (kind := KINDS.get(path.suffix.lower())) is None:
        raise FormatError(f"{path}: expected a file {' '.join(KINDS)}; from_meshio takes what meshio reads of others")
    try:
        if path.stat().st_size:
            return getattr(meshio, kind).read(path)  # meshio.read would end the process
    except MemoryError:
        raise
    except Exception as error:  # whatever its parsers meet
        raise FormatError(
            f"{path}: meshio cannot read it as {kind}: {type(error).__name__}: {str(error)[:200]}"
        ) from None
    raise FormatError(f"{path}: is empty")


def add_to_mesh(path: Path, n_nodes: int, option: str, columns: Mapping[str, np.ndarray]) -> None:
    """Write data of points into a file, whole or not at all; what has the same name is replaced.

    Args:   n_nodes  points that the file has to have; columns: numbers, (N,) or (N, C) each; option: named in errors.
    Raises: GraphError where the file has other points.
    """
    import meshio

    mesh = read_meshio(path)
    if len(mesh.points) != n_nodes:
        raise GraphError(
            f"{option} {path}: has {len(mesh.points):,} points; expected {n_nodes:,}, as the graph has nodes"
        )
    mesh.point_data |= columns
    with TemporaryDirectory(prefix="spgnn-mesh-") as folder, new_file(path, option) as new:
        made = Path(folder, f"new{path.suffix}")
        getattr(meshio, KINDS[path.suffix]).write(made, mesh)
        with open_regular(made) as file:
            shutil.copyfileobj(file, new)


def mesh_edges(mesh: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of all cells, once each, (E, 2), and which points are on the boundary, (N,) bool.

    A facet of one cell alone, of the largest dimension that there is, is boundary. Raises: GraphError naming the type of a
    cell that is not known, and a corner that is no point.
    """
    n, blocks = len(mesh.points), [(block.type, np.asarray(block.data)) for block in mesh.cells]
    edges, facets = [np.empty((0, 2), np.int64)], []
    top = max((CELLS[kind].dimension for kind, _ in blocks if kind in CELLS), default=0)
    for kind, corners in blocks:
        if kind not in CELLS:
            raise GraphError(
                f"the mesh has cells of type {kind}; expected {', '.join(CELLS)}: convert it to linear cells"
            )
        if len(corners) and not (corners.dtype.kind in "iu" and 0 <= corners.min() <= corners.max() < n):
            raise GraphError(f"a {kind} has the corner {corners.max()}; expected points 0 to {n - 1}")
        cell = CELLS[kind]
        edges += [corners[:, list(pair)].astype(np.int64) for pair in cell.edges]
        if cell.dimension == top:
            facets += [corners[:, list(facet)].astype(np.int64) for facet in cell.facets]
    ends = np.sort(np.concatenate(edges), axis=1)
    pair = np.unique(ends[:, 0] * n + ends[:, 1])
    is_boundary = np.zeros(n, bool)
    for width in {facet.shape[1] for facet in facets}:
        same = np.sort(np.concatenate([facet for facet in facets if facet.shape[1] == width]), axis=1)
        found, counts = np.unique(same, axis=0, return_counts=True)
        is_boundary[found[counts == 1]] = True
    return np.stack([pair // max(n, 1), pair % max(n, 1)], axis=1), is_boundary


def point_columns(mesh: Any, is_boundary: np.ndarray) -> dict[str, np.ndarray]:
    """Return x, y, z (not if all are 0), boundary, and the data of points, (N,) each; of vectors U_0, U_1, ..."""
    native = lambda values: np.asarray(values).astype(np.asarray(values).dtype.newbyteorder("="))
    points = native(mesh.points)
    if points.shape[1] == 3 and not points[:, 2].any():
        points = points[:, :2]
    columns: dict[str, np.ndarray] = dict(zip(("x", "y", "z"), points.T)) | {"boundary": is_boundary.astype(np.float32)}
    for name, values in mesh.point_data.items():
        values = native(values)
        if name in columns:
            raise GraphError(f"data of points are called {name!r}, as a coordinate or the boundary is; rename them")
        if values.ndim == 1 or values[0:1].size == 1:
            columns[name] = values.reshape(len(points))
        else:
            columns |= {f"{name}_{c}": column for c, column in enumerate(values.reshape(len(points), -1).T)}
    return columns


def mesh_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of the points of a file: id and point_columns."""
    mesh = read_meshio(path)
    return {"id": np.arange(len(mesh.points))} | point_columns(mesh, mesh_edges(mesh)[1])
