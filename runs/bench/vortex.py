"""The vortex: a mesh with the velocity at several steps, read or made, as a graph with attributes of edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import spgnn


def graph_of(mesh: dict) -> spgnn.Graph:
    """Return the mesh with relative position and length of each edge, across the border of the box too."""
    pos, period = mesh["pos"], float(mesh["period"])
    way = pos[mesh["dst"]] - pos[mesh["src"]]
    way -= period * np.round(way / period)
    attributes = np.concatenate([way, np.linalg.norm(way, axis=1, keepdims=True)], 1).astype(np.float32)
    return spgnn.graph_from_coo(mesh["src"], mesh["dst"], len(pos), edge_attr=attributes, name="mesh").with_edges("out")


def read_mesh(data: Path) -> dict:
    """Return the arrays of the vortex."""
    with np.load(data / "mesh" / "tgv_mesh.npz") as arrays:
        return dict(arrays)


def made_mesh(n: int = 6, steps: int = 4) -> dict:
    """Return a periodic grid with a Taylor-Green vortex that decays, at each of some steps."""
    axis, period = np.arange(n) * (2 * np.pi / n), 2 * np.pi
    pos = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    place = np.arange(n**3).reshape(n, n, n)
    ends = [np.roll(place, step, way).ravel() for way in range(3) for step in (1, -1)]
    x, y, z = pos.T
    field = np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * x], 1)
    vel = np.stack([field * np.exp(-0.1 * t) for t in range(steps)])
    return {"pos": pos, "period": period, "src": np.tile(place.ravel(), 6), "dst": np.concatenate(ends), "vel": vel}
