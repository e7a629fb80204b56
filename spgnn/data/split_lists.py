"""A split as lists of nodes or masks, {"train": ..., "val": ..., "test": ...}: .npz, .json, or a dict of arrays.

Shapes: N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError
from .arrays import as_array
from .readers import graphsaint
from .readers.make_graph import split_of
from .readers.npz import is_zip, open_npz
from .readers.text import read_json
from .tables import ROLES

NAMES = ROLES | graphsaint.ROLES
ENDINGS = ("_mask", "_idx", "_nodes", "_index")


def is_lists(value) -> bool:
    """Whether a split is a dict, or a file of lists: .npz or .json."""
    if isinstance(value, (str, Path)):
        path = Path(value)
        return path.is_file() and (path.suffix.lower() == ".json" or is_zip(path))
    return isinstance(value, Mapping)


def split_of_lists(value, n_nodes: int) -> np.ndarray:
    """Return the split (N,) int8 of node ids, or of masks (N,) bool, of each role; other nodes are in none."""
    where, lists = ("split", value) if isinstance(value, Mapping) else (str(value), _read(Path(value)))
    expected = "expected train, val and test, each a list of node ids or a mask"
    if not isinstance(lists, Mapping) or not lists:
        raise FormatError(f"{where}: is no object of lists; {expected}")
    nodes_by_role = {}
    for name, values in lists.items():
        role = NAMES.get(next((str(name).removesuffix(e) for e in ENDINGS if str(name).endswith(e)), str(name)))
        if role is None or role in nodes_by_role:
            raise FormatError(f"{where}: {name!r} is no part of a split, or there twice; {expected}")
        nodes_by_role[role] = _nodes(f"{where}: {name}", values, n_nodes)
    return split_of(Path(where), n_nodes, nodes_by_role)


def _read(path: Path) -> Any:
    """Return what a .json or .npz holds."""
    if path.suffix.lower() == ".json":
        return read_json(path)
    with open_npz(path) as archive:
        return {name: archive[name] for name in archive.names}


def _nodes(where: str, values: Any, n_nodes: int) -> np.ndarray:
    """Return node ids, (k,) int64, of a list of them or of a mask."""
    array = as_array(values) if len(values) else np.zeros(0, np.int64)
    if array.dtype.kind in "biu" and array.shape == (n_nodes,) and n_nodes > 2 and np.isin(array, (0, 1)).all():
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise FormatError(f"{where}: is {array.dtype} of shape {array.shape}; expected ids, or a mask ({n_nodes},)")
    return array.astype(np.int64)
