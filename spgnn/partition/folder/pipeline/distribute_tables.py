"""Distribute the rows of a table to the parts: one pass over its file, the rows of each part appended to its own.

Shapes: N nodes, m rows of a block, k parts.
"""

from __future__ import annotations

import numpy as np

from ....graph.digest import RowsDigest
from ...metrics import rows_in_order
from ..store import part_name
from .npy import NpyFile, header_bytes, read_slice
from .part_tables import Dense, Sparse
from .work import WorkFolder

ID_ROWS = 1 << 20


def write_own_ids(work: WorkFolder, owner_N: np.ndarray, k: int) -> dict:
    """Write own.npy of each part: its nodes, rising, int64."""
    files = [NpyFile(work.new / part_name(p) / "own.npy", np.int64) for p in range(k)]
    for start in range(0, len(owner_N), ID_ROWS):
        order, bounds = by_part(owner_N[start : start + ID_ROWS], k)
        for p in np.flatnonzero(np.diff(bounds)):
            files[p].append(start + order[bounds[p] : bounds[p + 1]])
    for file in files:
        file.finish()
    return {}


def distribute_table(
    work: WorkFolder,
    table: Dense | Sparse,
    name: str,
    owner_N: np.ndarray,
    k: int,
    block_bytes: int,
    with_halo: bool,
    progress,
) -> dict:
    """Write NAME.npy of each part, or NAME_{indptr,indices,data}.npy; with_halo: also halo_NAME, in the order of halo.npy.

    Returns: {digest: table_digest of the whole table}.
    """
    folders = [work.new / part_name(p) for p in range(k)]
    own = [_open(folder, name, table) for folder in folders]
    halo = [_open(folder, f"halo_{name}", table) for folder in folders] if with_halo else []
    halo_files = [folder / "halo.npy" for folder in folders[: len(halo)]]
    offset = header_bytes(halo_files[0]) if halo else 0
    at_k, digest = [0] * k, RowsDigest()
    for start, rows in table.blocks(block_bytes):
        stop = start + rows.shape[0]
        digest.add(rows)
        order, bounds = by_part(owner_N[start:stop], k)
        for p in np.flatnonzero(np.diff(bounds)):
            own[p].append(rows[order[bounds[p] : bounds[p + 1]]])
        for p, path in enumerate(halo_files):
            ids = read_slice(path, np.int64, at_k[p], stop - start, offset)
            ids = ids[: np.searchsorted(ids, stop)]
            at_k[p] += len(ids)
            if len(ids):
                halo[p].append(rows[ids - start])
        progress(name, stop, table.rows)
    for files in (*own, *halo):
        files.finish()
    return {"digest": digest.hexdigest()}


def by_part(owner_m: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a block by part, and where each part's start, (k + 1,)."""
    return rows_in_order(owner_m), np.concatenate([[0], np.cumsum(np.bincount(owner_m, minlength=k))])


def _open(folder, name: str, table: Dense | Sparse) -> NpyFile | _SparseFiles:
    if isinstance(table, Sparse):
        return _SparseFiles(folder, name, table)
    return NpyFile(folder / f"{name}.npy", table.dtype, table.tail)


class _SparseFiles:
    def __init__(self, folder, name: str, table: Sparse):
        kinds = {"indptr": table.index_dtype, "indices": table.index_dtype, "data": table.dtype}
        self._files = [NpyFile(folder / f"{name}_{part}.npy", kind) for part, kind in kinds.items()]
        self._files[0].append(np.zeros(1, table.index_dtype))

    def append(self, rows) -> None:
        indptr, indices, data = self._files
        indptr.append((indices.rows + rows.indptr[1:].astype(np.int64)).astype(indptr.dtype))
        indices.append(rows.indices.astype(indices.dtype, copy=False))
        data.append(rows.data)

    def finish(self) -> None:
        for file in self._files:
            file.finish()
