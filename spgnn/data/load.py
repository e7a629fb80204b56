"""load_graph: a built-in name, a path, or an object in memory, to a Graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..config import TableConfig, build
from ..errors import FormatError, GraphError, InputError, UsageError, check_keywords
from ..graph import Graph, graph_from_coo, lacks_node_0
from .arrays import as_array, from_object
from .formats import Progress
from .readers.frames import is_table, read_frame
from .readers.make_graph import as_float, named_labels, split_of_array
from .readers.npz import NPY, is_zip, read_npy
from .readers.scipy_npz import read_csr_features
from .readers.text import peek
from .source import File, Named, is_built_in, resolve
from .split_lists import is_lists, split_of_lists
from .tables import APART, NodeTable, combined, id_column, known_columns, split_of_words


def load_graph(
    source=None,
    /,
    format: str | None = None,
    features=None,
    labels=None,
    split=None,
    progress: Progress = None,
    pairs=None,
    **options,
) -> Graph:
    """Return the Graph of source: built-in name, file or folder of a known format, or an object in memory.

    Args:   source    "wordnet"; a gallery spec such as "rmat:scale=10,degree=16,seed=0"; a path ("./wordnet" where a
                      file has a built-in's name); a scipy matrix, (src, dst), an array (2, E) or (N, N), a NetworkX,
                      PyG or DGL graph.
            format    name of the format, detected when None.
            features  .npy (N, F), a SciPy CSR .npz, a table, or an array; replaces those of source; or "degree", "ones"
                      or "identity". A table, here and below, is "FILE" or "FILE:COLUMN,COLUMN", read by its ids.
            labels    .npy (N,) or (N, classes), a table, or an array; text becomes named classes.
            split     .npy (N,) or (N, S): 0 train, 1 val, 2 test, -1 none, or (N, 3) masks of the three; a table; .npz or
                      .json with lists of nodes, or masks, train, val and test; or an array or dict of these.
            progress  called with (done_bytes, total_bytes).
            pairs     edges as a list [(u, v), ...], if there is no source.
            options   source, target, weight, relabel, id, one_hot, missing, duplicates, combine, edge_features,
                      antisymmetric: see `spgnn convert --help`, and docs/formats.md.
    Raises: InputError for a name or path that does not exist; FormatError for a damaged file.
    """
    known = ("features", "labels", "split", *TableConfig.__dataclass_fields__)
    check_keywords("load_graph", options, known)
    wanted = build(TableConfig, options, "load_graph")
    is_file = isinstance(source, (str, Path, File)) and not is_built_in(source)
    if not is_file and (wanted.edge_features or wanted.antisymmetric):
        raise UsageError("edge_features is an option of files; see edge_attr of graph_from_coo, and from_pandas")
    if (source is None) == (pairs is None):
        raise UsageError("load_graph takes a source, or pairs=[(u, v), ...]")
    if isinstance(source, (str, Path)):
        graph = resolve(source, format).read(progress, wanted)
    elif isinstance(source, (Named, File)):
        graph = source.read(progress, wanted)
    elif format is not None:
        raise UsageError(f"format={format!r} goes with a path; the source is a {type(source).__name__}")
    elif pairs is not None:
        edges_E2 = as_array(list(pairs) or np.zeros((0, 2), np.int64))
        if edges_E2.ndim != 2 or edges_E2.shape[1] != 2:
            raise InputError(f"pairs have shape {edges_E2.shape}; expected (E, 2)")
        graph = graph_from_coo(*edges_E2.T, duplicates=wanted.duplicates)
    else:
        graph = from_object(source, wanted.duplicates)
    given = {"labels": labels, "split": split, "features": features}  # features last: their gaps can be filled
    tables = {what: table for what, value in given.items() if (table := _table(value)) is not None}
    for what, (path, columns) in tables.items():
        graph = _with_table(graph, what, path, columns, wanted, tables)
    for what, value in given.items():  # their rows are those of all nodes
        if value is not None and what not in tables:
            graph = replace(graph, **_part(what, value, graph))
    return combined(graph, wanted)


def _table(value) -> tuple[Path, list[str]] | None:
    """Return (path, columns) of FILE or FILE:COLUMN,COLUMN where FILE is a table; None for anything else."""
    if not isinstance(value, (str, Path)):
        return None
    if is_table(Path(value)):
        return Path(value), []
    file, colon, columns = str(value).rpartition(":")
    return (Path(file), columns.split(",")) if colon and columns and is_table(Path(file)) else None


def _with_table(graph: Graph, what: str, path: Path, given: list[str], wanted: TableConfig, tables: dict) -> Graph:
    """Return graph with features, labels or split of a table of nodes, whose columns are given, or found by their names.

    Args: tables  (path, columns) of all that come from tables.
    """
    names_of_labels = lambda names: (
        given or known_columns("labels", names, id_column(names, wanted)) if what == "labels" else []
    )
    frame = read_frame(path, (*APART, wanted.id, *given), lambda names: id_column(names, wanted), names_of_labels)
    if what != "features" and frame.num_columns == 1:
        frame = _with_ids(frame, graph, path)
    nodes = NodeTable(frame, str(path), wanted)
    if what != "features":
        return nodes.join(graph, what, nodes.columns(what, given))
    others = [other for other in ("labels", "split") if tables.get(other, ("",))[0] == path]
    known = [name for other in others for name in nodes.columns(other, tables[other][1])]
    columns = nodes.feature_columns(given or None, known)
    if not columns:
        text = next(({name: nodes.no_number(name)[0]} for name in nodes.names if name not in (*known, nodes.id)), {})
        such = "".join(f"; {name!r} is text, such as {value!r}" for name, value in text.items())
        raise FormatError(
            f"{path}: no column of numbers beside ids ({nodes.id!r}), labels and split{such}: name text with --one-hot, "
            "or the ids with --id"
        )
    left = [name for name in nodes.names if name not in (*columns, *known, nodes.id)]
    left = [
        f"{name} ({value!r} is no number)" if most else name for name in left for value, most in [nodes.no_number(name)]
    ]
    graph = nodes.join(graph, what, columns)
    return replace(graph, meta=graph.meta | {"unread": graph.meta.get("unread", []) + left}) if left else graph


def _with_ids(frame, graph: Graph, path: Path):
    """Return a table of one column, a line per node, with the ids of the nodes before it."""
    if frame.num_rows != graph.n_nodes:
        raise FormatError(f"{path}: has {frame.num_rows} lines without ids; {graph.name} has {graph.n_nodes} nodes")
    return frame.add_column(0, "id", [np.arange(graph.n_nodes) if graph.ids is None else graph.ids.tolist()])


def _part(what: str, value, graph: Graph) -> dict[str, Any]:
    """Return the fields of Graph of features, labels or a split, checked; the message of an error names the file."""
    if what == "features" and isinstance(value, str) and value in MADE:
        return {"X": MADE[value](graph)}
    if what == "split" and is_lists(value):
        return {"split": split_of_lists(value, graph.n_nodes)}
    n, (where, rows) = graph.n_nodes, _opened(what, value)
    if what == "features":
        is_table, expected = rows.ndim == 2, f"({n}, F)"
    else:
        is_table = rows.ndim in (1, 2) and not sp.issparse(rows)
        expected = f"({n},) or ({n}, {'classes' if what == 'labels' else 'S'})"
    if not is_table or rows.shape[0] != n:
        named = np.count_nonzero(np.bincount(graph.A.indices, minlength=n) + np.diff(graph.A.indptr))
        why = "no edge names node 0: are its ids from 1?" if lacks_node_0(graph) else f"{named:,} of them have an edge:"
        why = f", and {why} see --relabel of `spgnn convert`" if rows.shape[0] == named < n else ""
        raise FormatError(f"{where}: shape {rows.shape}, expected {expected}: {graph.name} has {n} nodes{why}")
    if what == "features":
        fields = {"X": rows if sp.issparse(rows) else as_float(rows)}
    elif what == "labels":
        fields = named_labels(where, rows)
        if graph.classes is not None and "classes" not in fields:
            fields["classes"] = None
    else:
        fields = {"split": split_of_words(where, rows) if rows.dtype.kind in "UOT" else split_of_array(where, rows)}
    try:
        Graph(sp.csr_array(graph.A.shape, dtype=np.float32), **fields)
    except GraphError as error:
        raise FormatError(f"{where}: {error}") from error
    return fields


def _degree(graph: Graph) -> np.ndarray:
    """How many neighbours each node has, in any direction, without itself, (N, 1)."""
    A = sp.csr_array((np.ones(graph.nnz, np.int8), graph.A.indices, graph.A.indptr), shape=graph.A.shape)
    both = A.maximum(A.T.tocsr())
    return (np.diff(both.indptr) - both.diagonal()).astype(np.float32)[:, None]


MADE = {
    "degree": _degree,
    "ones": lambda graph: np.ones((graph.n_nodes, 1), np.float32),
    "identity": lambda graph: sp.csr_array(sp.eye_array(graph.n_nodes, dtype=np.float32, format="csr")),
}


def _opened(what: str, value) -> tuple[str, Any]:
    """Return (name for messages, array or CSR) of a path or of an array."""
    if not isinstance(value, (str, Path)):
        try:
            return what, _numbers(what, value if sp.issparse(value) else as_array(value), what != "features")
        except GraphError as error:
            raise FormatError(f"{what}: {error}") from None
    path = Path(value)
    if not path.exists():
        raise InputError(f"{path}: no such file; expected the {what} as .npy{' or .npz' if what == 'features' else ''}")
    if not is_zip(path):
        if path.suffix.lower() != ".npy" and not peek(path, 6).startswith(NPY):
            raise FormatError(f"{path}: is no .npy; expected the {what} as .npy, .csv, .tsv, .txt or .parquet")
        array = read_npy(path, mmap=True)
    elif what == "features":
        array = read_csr_features(path)
    else:
        raise FormatError(f"{path}: is an .npz; expected the {what} as .npy")
    array = _numbers(str(path), array, what != "features")
    return str(path), array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _numbers(where: str, array, or_text: bool):
    """Return an array or CSR of real numbers, or of text. Raises: FormatError for other types."""
    if array.dtype.kind not in ("biufUOT" if or_text else "biuf"):
        raise FormatError(f"{where}: holds {array.dtype}; expected numbers")
    return array
