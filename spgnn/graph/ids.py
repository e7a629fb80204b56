"""Names of nodes and classes, checked, and packed as arrays of numbers for files.

Shapes: N nodes, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from ..errors import GraphError


def checked_ids(ids: ArrayLike | None, n_nodes: int) -> np.ndarray | None:
    """Return the ids of nodes as (N,) int64, or (N,) str objects, also integers from 2^63 on; GraphError for other types and lengths."""
    if ids is None:
        return None
    ids = np.asarray(ids)
    if ids.shape != (n_nodes,):
        raise GraphError(f"ids have shape {ids.shape}, the graph has {n_nodes} nodes; expected ({n_nodes},)")
    is_large = ids.dtype.kind == "u" and np.any(ids >= 2**63)
    if ids.dtype.kind in "iu" and not is_large:
        return ids.astype(np.int64, copy=False)
    if ids.dtype.kind == "U" or is_large:
        ids = ids.astype(str).astype(object)
    if ids.dtype.kind != "O" or not all(type(name) is str for name in ids):
        raise GraphError(f"ids hold {ids.dtype}; expected integers or text")
    return ids


def checked_classes(classes: Iterable[object] | None, n_classes: int) -> tuple[str, ...] | None:
    """Return the names of classes as text; GraphError unless there are as many as classes, or more."""
    if classes is None:
        return None
    names = tuple(map(str, classes))
    if len(names) < n_classes:
        raise GraphError(f"{len(names)} names of classes; the labels have {n_classes}")
    return names


def packed_ids(ids: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the arrays of a file for ids: ids int64, or the UTF-8 of names one after another and where each starts."""
    if ids is None:
        return {}
    if ids.dtype.kind == "i":
        return {"ids": ids}
    names = [name.encode("utf-8", "surrogatepass") for name in ids]
    starts = np.concatenate([[0], np.cumsum([len(name) for name in names], dtype=np.int64)]).astype(np.int64)
    return {"ids_bytes": np.frombuffer(b"".join(names), np.uint8), "ids_indptr": starts}


def unpacked_ids(arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the ids of packed_ids; GraphError where the arrays do not fit."""
    if "ids_bytes" not in arrays:
        return arrays.get("ids")
    raw, starts = arrays["ids_bytes"].tobytes(), arrays["ids_indptr"]
    if not len(starts) or starts[0] != 0 or starts[-1] != len(raw) or np.any(starts[1:] < starts[:-1]):
        raise GraphError(f"ids_indptr must rise from 0 to {len(raw)}")
    ids = np.empty(len(starts) - 1, object)
    try:
        ids[:] = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts.tolist(), starts[1:].tolist())]
    except UnicodeDecodeError as error:
        raise GraphError(f"ids_bytes is not UTF-8: {error}") from None
    return ids
