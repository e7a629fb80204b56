"""load_graph: a built-in name, a path, or an object in memory, to a Graph."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import FormatError, GraphError, InputError, UsageError
from ..graph import Graph
from .arrays import from_object
from .formats import Progress, detect_format, known_formats, read_graph
from .gallery import GALLERY, generate
from .readers.make_graph import roles_of, whole_labels
from .readers.npz import is_zip, read_npy
from .readers.scipy_npz import read_csr_features
from .wordnet import load_wordnet

BUILT_IN = ("wordnet", *GALLERY)


def load_graph(
    source, format: str | None = None, features=None, labels=None, split=None, progress: Progress = None
) -> Graph:
    """Return the Graph of source: built-in name, file or folder of a known format, or an object in memory.

    Args:   source    "wordnet"; a gallery spec such as "rmat:scale=10,degree=16,seed=0"; a path ("./wordnet" where a
                      file has a built-in's name); a scipy matrix, (src, dst), NetworkX, PyG or DGL graph.
            format    name of the format, detected when None.
            features  .npy (N, F), a SciPy CSR .npz, or an array; replaces those of source.
            labels    .npy (N,) or (N, classes), or an array.
            split     .npy (N,) or (N, S): 0 train, 1 val, 2 test, -1 none, or an array.
            progress  called with (done_bytes, total_bytes).
    Raises: InputError for a name or path that is not there; FormatError for what its format forbids.
    """
    if isinstance(source, (str, Path)):
        graph = _load_named(source, format, progress)
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


def is_built_in(source) -> bool:
    """source is "wordnet" or a gallery spec, not a path."""
    return isinstance(source, str) and source.partition(":")[0] in BUILT_IN


def _load_named(source: str | Path, format: str | None, progress: Progress) -> Graph:
    if format is None and is_built_in(source):
        graph = load_wordnet() if source == "wordnet" else generate(source)
        return replace(graph, meta=graph.meta | {"source": source, "format": "built-in"})
    path = Path(source)
    known = known_formats()
    if format is None and not path.exists() and not any(f.detect(path) for f in known.values()):
        raise InputError(f"{source}: no such file or folder, and no built-in graph{_suggest(path)}")
    format = format or detect_format(path)
    graph = read_graph(path, format, progress)
    return replace(graph, meta={"source": path.name, "format": format} | graph.meta)


def _suggest(path: Path) -> str:
    near = path.parent if path.parent.is_dir() else Path()
    names = list(BUILT_IN) if path.parent == Path() else []
    names += [entry.name for entry in near.iterdir() if not entry.name.startswith(".")]
    match = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    if match:
        return f"; did you mean {' or '.join(repr(name) for name in match)}?"
    return f"; expected a path or one of: {', '.join(BUILT_IN)}"


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
    """Return (what messages call it, array or CSR) of a path or of an array."""
    if not isinstance(value, (str, Path)):
        return what, value if sp.issparse(value) else np.asarray(value)
    path = Path(value)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the {what} as .npy{' or .npz' if what == 'features' else ''}")
    if not is_zip(path):
        array = read_npy(path, mmap=True)
    elif what == "features":
        array = read_csr_features(path)
    else:
        raise FormatError(f"{path}: is an .npz; expected the {what} as .npy")
    if array.dtype.kind not in "biuf":
        raise FormatError(f"{path}: holds {array.dtype}; expected numbers")
    return str(path), array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _misfit(where: str, array, graph: Graph, expected: str) -> FormatError:
    return FormatError(
        f"{where}: shape {array.shape}, expected {expected}: the graph {graph.name} has {graph.n_nodes} nodes"
    )


def _checked(where: str, graph: Graph, **part):
    """Return the part after Graph's own checks, whose message then names the file."""
    name, value = next(iter(part.items()))
    try:
        Graph(sp.csr_array(graph.A.shape, dtype=np.float32), **part)
    except GraphError as error:
        raise FormatError(f"{where}: {error}") from error
    return value
