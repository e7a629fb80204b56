"""load_graph: a built-in name, a path, or an object in memory, to a Graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import FormatError, GraphError, InputError, UsageError
from ..graph import Graph
from .arrays import as_array, from_object
from .formats import Progress
from .readers.make_graph import as_float, roles_of, whole_labels
from .readers.npz import is_zip, read_npy
from .readers.scipy_npz import read_csr_features
from .source import File, Named, resolve


def load_graph(
    source, format: str | None = None, features=None, labels=None, split=None, progress: Progress = None
) -> Graph:
    """Return the Graph of source: built-in name, file or folder of a known format, or an object in memory.

    Args:   source    "wordnet"; a gallery spec such as "rmat:scale=10,degree=16,seed=0"; a path ("./wordnet" where a
                      file has a built-in's name); a scipy matrix, (src, dst) or an array (2, E), a NetworkX, PyG or DGL graph.
            format    name of the format, detected when None.
            features  .npy (N, F), a SciPy CSR .npz, or an array; replaces those of source.
            labels    .npy (N,) or (N, classes), or an array.
            split     .npy (N,) or (N, S): 0 train, 1 val, 2 test, -1 none, or an array.
            progress  called with (done_bytes, total_bytes).
    Raises: InputError for a name or path that does not exist; FormatError for a damaged file.
    """
    if isinstance(source, (str, Path)):
        graph = resolve(source, format).read(progress)
    elif isinstance(source, (Named, File)):
        graph = source.read(progress)
    elif format is not None:
        raise UsageError(f"format={format!r} goes with a path; the source is a {type(source).__name__}")
    else:
        graph = from_object(source)
    given = {"features": features, "labels": labels, "split": split}
    parts = dict(_part(what, value, graph) for what, value in given.items() if value is not None)
    return replace(graph, **parts) if parts else graph


def _part(what: str, value, graph: Graph) -> tuple[str, Any]:
    """Return (field of Graph, its value) of features, labels or a split, checked; the message of an error names the file."""
    n, (where, rows) = graph.n_nodes, _opened(what, value)
    if what == "features":
        is_table, expected = rows.ndim == 2, f"({n}, F)"
    else:
        is_table = rows.ndim in (1, 2) and not sp.issparse(rows)
        expected = f"({n},) or ({n}, {'classes' if what == 'labels' else 'S'})"
    if not is_table or rows.shape[0] != n:
        raise FormatError(f"{where}: shape {rows.shape}, expected {expected}: the graph {graph.name} has {n} nodes")
    field = {"features": "X", "labels": "y", "split": "split"}[what]
    if what == "features":
        rows = rows if sp.issparse(rows) else as_float(rows)
    else:
        rows = whole_labels(where, rows) if what == "labels" else roles_of(where, rows)
    try:
        Graph(sp.csr_array(graph.A.shape, dtype=np.float32), **{field: rows})
    except GraphError as error:
        raise FormatError(f"{where}: {error}") from error
    return field, rows


def _opened(what: str, value) -> tuple[str, Any]:
    """Return (name for messages, array or CSR) of a path or of an array."""
    if not isinstance(value, (str, Path)):
        try:
            return what, _numbers(what, value if sp.issparse(value) else as_array(value))
        except GraphError as error:
            raise FormatError(f"{what}: {error}") from None
    path = Path(value)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the {what} as .npy{' or .npz' if what == 'features' else ''}")
    if not is_zip(path):
        array = read_npy(path, mmap=True)
    elif what == "features":
        array = read_csr_features(path)
    else:
        raise FormatError(f"{path}: is an .npz; expected the {what} as .npy")
    array = _numbers(str(path), array)
    return str(path), array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _numbers(where: str, array):
    """Return an array or CSR of real numbers. Raises: FormatError for other types."""
    if array.dtype.kind not in "biuf":
        raise FormatError(f"{where}: holds {array.dtype}; expected numbers")
    return array
