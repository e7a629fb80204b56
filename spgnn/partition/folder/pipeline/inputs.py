"""Inputs and disk space of a run, checked before it starts."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ....errors import ResourceError
from ....graph import Graph
from .part_tables import Sparse


def identity(source) -> list | str | None:
    """Return what identifies a source: path, size and time of a file, the hash of an array.

    An iterator has none: every run starts from the beginning.
    """
    if isinstance(source, (str, Path)):
        path = Path(source).absolute()
        if not path.exists():
            return str(path)
        found = path.stat()
        return [str(path), found.st_size, found.st_mtime_ns]
    if isinstance(source, Graph):
        return source.in_use().digest()
    if sp.issparse(source):
        arrays = source.indptr, source.indices, source.data
    elif isinstance(source, np.ndarray) and source.ndim:
        arrays = (source,)
    else:
        return None if source is None else secrets.token_hex()
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str} {array.shape}".encode())
        for start in range(0, len(array), 1 << 18):
            sha.update(np.ascontiguousarray(array[start : start + (1 << 18)]).data)
    return sha.hexdigest()


def identity_of_option(value) -> list | str:
    """Return what identifies the value of an option: its text, or the hash of an array, whose text is abbreviated."""
    array = np.asarray(value) if hasattr(value, "__array__") else None
    return repr(value) if array is None or array.ndim == 0 or array.dtype.hasobject else identity(array)


def check_disk(folder: Path, entries: int, n_nodes: int, tables: dict, halo: int) -> None:
    """Raise ResourceError, with the arithmetic, if the disk has too little space for the rest of the run.

    Args: entries  nonzeros that are spilled and sorted, 8 bytes each, those of a part twice; halo: copied rows of features.
    """
    table_bytes = 0
    for name, table in tables.items():
        row = table.nnz / max(table.rows, 1) * 12 + 4 if isinstance(table, Sparse) else table.row_bytes
        table_bytes += int(row * (n_nodes + (halo if name == "features" else 0)))
    need = 8 * entries + 16 * n_nodes * (entries > 0) + table_bytes
    free = shutil.disk_usage(folder).free
    if need > free:
        spilled = f"{entries:,} nonzeros 8 bytes each, {8 * entries / 1e6:,.0f} MB, " if entries else ""
        raise ResourceError(
            f"{folder.parent}: {free / 1e6:,.0f} MB are free; {spilled}the rows of nodes and copies {table_bytes / 1e6:,.0f} MB, "
            f"in all {need / 1e6:,.0f} MB are needed"
        )
