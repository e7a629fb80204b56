"""The rows of the parts of a stream whose edges have attributes: nothing is merged, each nonzero keeps its edge.

Shapes: N nodes, E edges of the stream, k parts, m nonzeros of a part, F attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....atomic import sync
from ....errors import FormatError, InputError, ResourceError
from ....graph.edge_attr import checked_antisymmetric, places_listed
from ...stream.edge_passes import StreamPasses
from ..store import part_name
from . import _pipeline
from .part_tables import Dense, by_part
from .work import WorkFolder, write_npy

ENTRY_BYTES = 24  # row, column and id of a nonzero, int64
SORTED = 5  # times these bytes while a part is sorted


class Attributes(Dense):
    """The table of --edge-features: .npy or an array, (E,) or (E, F), a row for each edge of the stream.

    Args: flipped  numbers of the columns whose sign a reverse edge changes.
    """

    def __init__(self, source, flipped: Sequence[int] = ()):
        super().__init__("edge_features", source, _attributes)
        self.flipped = checked_antisymmetric(flipped, self.tail[0])


def _attributes(table: Dense, start: int, rows: np.ndarray) -> np.ndarray:
    rows = rows[:, None] if rows.ndim == 1 else rows
    rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
    is_finite = np.isfinite(rows)
    if not is_finite.all():
        row, column = np.argwhere(~is_finite)[0]
        raise FormatError(f"{table.where}: edge {start + row}, column {column} is {rows[row, column]}, not finite")
    return rows


def spill_attributed(
    work: WorkFolder, passes: StreamPasses, owner_N: np.ndarray, k: int, edges: str, table: Attributes, most_bytes: int
) -> dict:
    """Pass over the stream and append each nonzero, and its attributes, to the files of the part of its row.

    Writes: edges-* of (row, column, id), id the number of the edge, -1 - number of a reverse edge; attributes-*.
    Args: most_bytes  of entries and attributes at a time.
    """
    work.drop("edges-*", "attributes-*")
    counts_k, at, step = np.zeros(k, np.int64), 0, max(most_bytes // (4 * (ENTRY_BYTES + table.row_bytes)), 1)

    def add(chunk: np.ndarray) -> None:
        nonlocal at
        if len(chunk) and not 0 <= chunk.min() <= chunk.max() < len(owner_N):
            raise ValueError("holds ids that it did not have before")
        for start in range(0, len(chunk), step):
            pairs = chunk[start : start + step].astype(np.int64)
            attributes = table.slice(at, at + len(pairs))
            entries, attributes = _entries(pairs, at, edges, attributes)
            at += len(pairs)
            order, bounds = by_part(owner_N[entries[:, 0]], k)
            for p in np.flatnonzero(np.diff(bounds)).tolist():
                of_p = order[bounds[p] : bounds[p + 1]]
                for path, rows in zip(_paths(work, p), (entries, attributes)):
                    with open(path, "ab") as file:
                        file.write(rows[of_p].data)
            counts_k[:] += np.diff(bounds)

    passes.run("split edges", add)
    for path in (*work.folder.glob("edges-*"), *work.folder.glob("attributes-*")):
        sync(path)
    part_ends = np.cumsum(np.bincount(owner_N, minlength=k)).tolist()
    return {"bounds": [0, *part_ends], "sizes": counts_k.tolist(), "part_ends": part_ends}


def _entries(pairs: np.ndarray, first: int, edges: str, attributes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return row, column and id of the nonzeros of some edges, (m, 3), and the attributes of the same edges."""
    ids = np.arange(first, first + len(pairs))
    u, v = pairs.T[::-1] if edges == "reversed" else pairs.T
    entries = np.stack([u, v, ids], axis=1)
    if edges != "undirected":
        return entries, attributes
    off = u != v
    back = np.stack([v, u, -1 - ids], axis=1)[off]
    return np.concatenate([entries, back]), np.concatenate([attributes, attributes[off]])


def sort_attributed(
    work: WorkFolder,
    spilled: dict,
    part: int,
    owner_N: np.ndarray,
    reads: _pipeline.Reads,
    k: int,
    table: Attributes,
    most_bytes: int,
) -> dict:
    """Write the rows of one part and the attributes of its nonzeros, and the halo of the first hop; see rows.sort_part.

    Reverse edges stay where no edge of the stream has their direction. Raises: ResourceError for a part that is too large.
    """
    folder, m = work.new / part_name(part), spilled["sizes"][part]
    folder.mkdir(exist_ok=True)
    need = m * (SORTED * ENTRY_BYTES + 2 * table.row_bytes)
    if need > most_bytes:
        raise ResourceError(
            f"part {part} has {m:,} edges, whose attributes are sorted in {need / 1e6:,.0f} MB; --memory leaves "
            f"{most_bytes / 1e6:,.0f} MB: give more, or take more parts"
        )
    entries, attributes = (_read(path, m) for path in _paths(work, part))
    entries = entries.view(np.int64).reshape(m, 3)
    attributes = attributes.view(table.dtype).reshape(m, *table.tail)
    order = np.lexsort((places_listed(entries[:, 2]), entries[:, 1], entries[:, 0]))
    rows, columns, ids = entries[order].T
    starts = np.flatnonzero(
        np.concatenate([np.ones(min(m, 1), bool), np.diff(rows).astype(bool) | (np.diff(columns) != 0)])
    )
    has_edge = np.add.reduceat(ids >= 0, starts, dtype=np.int64) > 0 if m else np.zeros(0, bool)
    stays = (ids >= 0) | ~np.repeat(has_edge, np.diff(starts, append=m))
    rows, columns, ids = rows[stays], columns[stays], ids[stays]
    attributes = attributes[order[stays]]
    attributes[np.ix_(ids < 0, table.flipped)] *= -1
    dtype = np.dtype(spilled["index_dtype"])
    own_n = np.flatnonzero(owner_N == part)
    indptr = np.concatenate([[0], np.searchsorted(rows, own_n, side="right")])
    weights = np.ones(len(ids), np.float32)
    arrays = {"indptr": indptr.astype(dtype), "indices": columns.astype(dtype), "weights": weights}
    for name, values in (arrays | {"edge_attr": attributes, "edge_ids": ids}).items():
        write_npy(folder / f"{name}.npy", np.ascontiguousarray(values))
    reads.begin(part)
    reads.add(columns.astype(np.uint32))
    halo_g, sent_k = reads.ids(k)
    write_npy(folder / "halo.npy", halo_g)
    sync(folder)
    return {"nnz": len(ids), "cut": reads.cut, "sent": sent_k.tolist(), "halo": len(halo_g)}


def drop_attributed(work: WorkFolder, part: int) -> None:
    """Remove the files of a part that has been written."""
    for path in _paths(work, part):
        path.unlink(missing_ok=True)


def _read(path: Path, m: int) -> np.ndarray:
    """Return the bytes of a file, none where a part has no nonzeros."""
    if not m:
        return np.zeros(0, np.uint8)
    if not path.is_file():
        raise InputError(f"{path}: is missing; remove {path.parent} and start again")
    return np.fromfile(path, np.uint8)


def _paths(work: WorkFolder, part: int) -> tuple[Path, Path]:
    return work.folder / f"edges-{part:05d}", work.folder / f"attributes-{part:05d}"
