"""check_parts: every array of a partition folder, and whether the parts and halos make up one graph.

Shapes: N nodes, n own nodes, g nodes of a halo, k parts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...errors import PartitionError
from ...graph import axis_sums
from .blocks import Halo, RowBlock
from .store import PartitionFolder, part_name

Progress = Callable[[int, int], None] | None


def check_parts(path: str | Path, progress: Progress = None) -> dict:
    """Read all arrays of a partition folder and return a report.

    Checked: types, shapes and ranges; the SHA-256 of each file; the owner of each row; sums of rows and columns; that a halo has the nodes that its
    part reads, and the sums and features that their owners have. Takes the memory of the largest part and 32 bytes per node.

    Args:   progress  called with (parts done, parts).
    Raises: PartitionError naming the first file and node that is wrong.
    """
    folder = PartitionFolder(path)
    folder.ids()  # their files are compared with the manifest
    owner_N, k = folder.partition().owner_N, folder.manifest["k"]
    n_nodes = folder.manifest["n_nodes"]
    sums_N3 = np.full((n_nodes, 3), np.nan)
    nnz, columns_N = 0, np.zeros(n_nodes)
    for p in range(k):
        block = folder.block(p)
        folder.check_values(block)
        own_n = np.flatnonzero(owner_N == p)
        if not np.array_equal(own_n, block.own_n):
            raise _wrong(folder, p, "own", "has other nodes than owner.npy")
        nnz += block.A_nN.nnz
        sums_N3[own_n] = _own_sums(folder, block)
        columns_N += axis_sums(block.A_nN, 0)
        if progress is not None:
            progress(p + 1, 2 * k)
    if nnz != folder.manifest.get("nnz", nnz):
        raise PartitionError(f"{folder.path}: the parts have {nnz} nonzeros, the manifest {folder.manifest['nnz']}")
    differs = ~np.isclose(columns_N, sums_N3[:, 1], rtol=1e-9, atol=1e-9)
    if differs.any():
        node = int(np.argmax(differs))
        raise _wrong(
            folder, owner_N[node], "sums", f"node {node}: column sum {sums_N3[node, 1]:g}, A {columns_N[node]:g}"
        )
    halo_nodes = 0
    for p in range(k):
        halo = folder.halo(p)
        if halo is not None:
            _check_halo(folder, halo, owner_N, sums_N3)
            halo_nodes += len(halo.node_g)
        if progress is not None:
            progress(k + p + 1, 2 * k)
    manifest = folder.manifest
    sizes = {"nodes": n_nodes, "nonzeros": nnz, "features": manifest["n_features"], "hops": folder.manifest["hops"]}
    return {"format": "partition", "version": folder.manifest["version"], "k": k} | sizes | {"halo_nodes": halo_nodes}


def _own_sums(folder: PartitionFolder, block: RowBlock) -> np.ndarray:
    """Return the sums of a part; raise PartitionError unless row sums and diagonals are those of its rows."""
    sums_n3, A, own_n = folder.sums(block.rank), block.A_nN, block.own_n
    row_E = np.repeat(np.arange(len(own_n)), np.diff(A.indptr))
    is_loop = own_n[row_E] == A.indices
    diagonal_n = np.full(len(own_n), np.nan)
    diagonal_n[row_E[is_loop]] = 0
    np.add.at(diagonal_n, row_E[is_loop], A.data[is_loop])
    for column, what, found_n in ((0, "row sum", axis_sums(A, 1)), (2, "diagonal", diagonal_n)):
        differs = ~np.isclose(sums_n3[:, column], found_n, rtol=1e-9, atol=1e-9, equal_nan=True)
        if differs.any():
            i = int(np.argmax(differs))
            text = f"node {own_n[i]} has {what} {sums_n3[i, column]:g}, its row {found_n[i]:g}"
            raise _wrong(folder, block.rank, "sums", text)
    return sums_n3


def _check_halo(folder: PartitionFolder, halo: Halo, owner_N: np.ndarray, sums_N3: np.ndarray) -> None:
    """Raise PartitionError unless a halo has the nodes that its part reads, with the rows and sums of their owners."""
    p, node_g = halo.rank, halo.node_g
    folder.check_values(halo)
    if np.any(owner_N[node_g] == p):
        raise _wrong(folder, p, "halo", f"node {node_g[np.argmax(owner_N[node_g] == p)]} is its own")
    read = np.unique(folder.block(p).A_nN.indices).astype(np.int64)
    read = read[owner_N[read] != p]
    for hop in range(1, folder.manifest["hops"] + 1):
        if not np.array_equal(node_g[halo.hop_g == hop], read):
            raise _wrong(folder, p, "halo_hops", f"the nodes of hop {hop} are not those that hop {hop - 1} reads")
        if hop < folder.manifest["hops"]:
            if halo.A_gN is None:
                raise _wrong(folder, p, "halo_indptr", "is missing")
            columns = np.unique(sp.csr_array(halo.A_gN[np.flatnonzero(halo.hop_g == hop)]).indices).astype(np.int64)
            is_new = (owner_N[columns] != p) & ~np.isin(columns, node_g[halo.hop_g <= hop])
            read = columns[is_new]
    if not np.array_equal(halo.sums_g3, sums_N3[node_g], equal_nan=True):
        raise _wrong(folder, p, "halo_sums", "differs from the sums of the parts that own its nodes")
    if halo.A_gN is not None:
        rows_g, is_whole = axis_sums(halo.A_gN, 1), halo.hop_g < folder.manifest["hops"]
        differs = is_whole & ~np.isclose(rows_g, sums_N3[node_g, 0], rtol=1e-9, atol=1e-9)
        if differs.any():
            raise _wrong(
                folder, p, "halo_weights", f"node {node_g[np.argmax(differs)]}: another row sum than its owner's"
            )


def _wrong(folder: PartitionFolder, p: int, name: str, text: str) -> PartitionError:
    return PartitionError(f"{folder.path / part_name(int(p)) / name}.npy: {text}; write the partition again")
