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
from .readers.make_graph import roles_of, whole_labels
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
    parts = {}
    if features is not None:
        parts["X"] = _features(features, graph)
    if labels is not None:
        parts["y"] = _labels(labels, graph)
    if split is not None:
        parts["split"] = _split(split, graph)
    return replace(graph, **parts) if parts else graph


def _features(features, graph: Graph):
    where, X = _opened("features", features)
    if X.ndim != 2 or X.shape[0] != graph.n_nodes:
        raise _misfit(where, X, graph, f"({graph.n_nodes}, F)")
    if not sp.issparse(X) and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float32)
    return _checked(where, graph, X=X)


def _labels(labels, graph: Graph) -> np.ndarray:
    where, y = _opened("labels", labels)
    if sp.issparse(y) or y.ndim not in (1, 2) or y.shape[0] != graph.n_nodes:
        raise _misfit(where, y, graph, f"({graph.n_nodes},) or ({graph.n_nodes}, classes)")
    return _checked(where, graph, y=whole_labels(where, y))


def _split(split, graph: Graph) -> np.ndarray:
    where, values = _opened("split", split)
    if sp.issparse(values) or values.ndim not in (1, 2) or values.shape[0] != graph.n_nodes:
        raise _misfit(where, values, graph, f"({graph.n_nodes},) or ({graph.n_nodes}, S)")
    return _checked(where, graph, split=roles_of(where, values))


def _opened(what: str, value) -> tuple[str, Any]:
    """Return (name for messages, array or CSR) of a path or of an array."""
    if not isinstance(value, (str, Path)):
        return what, _numbers(what, value if sp.issparse(value) else _array(what, value))
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


def _array(what: str, value) -> np.ndarray:
    try:
        return as_array(value)
    except GraphError as error:
        raise FormatError(f"{what}: {error}") from None


def _numbers(where: str, array):
    """Return an array or CSR of real numbers. Raises: FormatError for other types."""
    if array.dtype.kind not in "biuf":
        raise FormatError(f"{where}: holds {array.dtype}; expected numbers")
    return array


def _misfit(where: str, array, graph: Graph, expected: str) -> FormatError:
    return FormatError(
        f"{where}: shape {array.shape}, expected {expected}: the graph {graph.name} has {graph.n_nodes} nodes"
    )


def _checked(where: str, graph: Graph, **part):
    """Return the part, checked by Graph; the message of an error names the file."""
    name, value = next(iter(part.items()))
    try:
        Graph(sp.csr_array(graph.A.shape, dtype=np.float32), **part)
    except GraphError as error:
        raise FormatError(f"{where}: {error}") from error
    return value
