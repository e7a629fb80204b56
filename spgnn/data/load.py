"""load_graph: a built-in name, a path, or an object in memory, to a Graph; resolve: what a name or path is.

Shapes: N nodes, F features, S splits.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import scipy.sparse as sp

from ..config import TableConfig, build
from ..errors import FormatError, GraphError, InputError, SpgnnError, UsageError, check_keywords
from ..graph import Graph, graph_from_coo, lacks_node_0
from ..graph.loaded import read_notes
from ..terminal import say
from .arrays import as_array, from_object
from .formats import ATTRIBUTES, DEFAULTS, Progress, detect_format, known_formats, read_graph
from .gallery import GALLERY, generate
from .readers import graphsaint
from .readers.frames import is_table, read_frame
from .readers.make_graph import as_float, named_labels, no_label_notes, split_of, split_of_array
from .readers.npz import NPY, is_zip, open_npz, read_npy
from .readers.npz_graphs import read_csr_features
from .readers.text import peek, read_json
from .table_columns import APART, ROLES, id_column, known_columns, split_of_words
from .tables import NodeTable, combined, with_notes
from .wordnet import load_wordnet

if TYPE_CHECKING:
    from pyarrow import Table

BUILT_IN = ("wordnet", *GALLERY)
PARTS_OF_SPLIT = ROLES | graphsaint.ROLES
ENDINGS_OF_PARTS = ("_mask", "_idx", "_nodes", "_index")


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
                      antisymmetric, edge_labels, edge_split, bipartite, cutoff: see `spgnn convert --help`, and docs/formats.md.
    Raises: InputError for a name or path that does not exist; FormatError for a damaged file.
    """
    known = ("features", "labels", "split", *TableConfig.__dataclass_fields__)
    check_keywords("load_graph", options, known)
    wanted = build(TableConfig, {key: value for key, value in options.items() if value is not None}, "load_graph")
    is_file = isinstance(source, (str, Path, File)) and not is_built_in(source)
    given = [name for name in (*ATTRIBUTES, "bipartite", "cutoff") if getattr(wanted, name)]
    if not is_file and given:
        raise UsageError(f"{given[0]} is an option of files; see edge_attr, edge_y of graph_from_coo, and from_pandas")
    if (source is None) == (pairs is None):
        raise UsageError("load_graph takes a source, or pairs=[(u, v), ...]")
    if isinstance(source, (str, Path, Named, File)):
        found = source if isinstance(source, (Named, File)) else resolve(source, format)
        graph = found.read(progress, wanted)
    elif format is not None:
        raise UsageError(f"format={format!r} goes with a path; the source is a {type(source).__name__}")
    elif pairs is not None:
        edges_E2 = as_array(list(pairs) or np.zeros((0, 2), np.int64))
        if edges_E2.ndim != 2 or edges_E2.shape[1] != 2:
            raise InputError(f"pairs have shape {edges_E2.shape}; expected (E, 2)")
        graph = graph_from_coo(edges_E2[:, 0], edges_E2[:, 1], duplicates=wanted.duplicates)
    else:
        graph = from_object(source, wanted.duplicates)
    values = {"labels": labels, "split": split, "features": features}  # features last: their gaps can be filled
    tables = {what: table for what, value in values.items() if (table := _table(value)) is not None}
    for what, (path, columns) in tables.items():
        graph = _with_table(graph, what, path, columns, wanted, tables)
    for what, value in values.items():  # their rows are those of all nodes
        if value is not None and what not in tables:
            graph = replace(graph, **_part(what, value, graph))
    for note in () if SpgnnError.is_of_main else read_notes(graph):  # a command shows all notes
        say(note)
    read = {} if options else _named(source, {"format": format} | values)
    return combined(replace(graph, meta=graph.meta | read), wanted)


def _named(source, given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return as `read` of meta the options of a command that reads the same graph; {} of what is in memory."""
    read = {"graph": source} | {name: value for name, value in given.items() if value is not None}
    if not all(isinstance(value, (str, Path)) for value in read.values()):
        return {}
    names = {"format"} | ({"features"} if read.get("features") in MADE else set())
    names |= {"graph"} if is_built_in(source) and "format" not in read else set()
    texts = {name: str(value) if name in names else os.path.abspath(value) for name, value in read.items()}
    return {"read": texts}


def _table(value: object) -> tuple[Path, list[str]] | None:
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
    frame, notes = read_frame(
        path, (*APART, wanted.id, *given), lambda names: [id_column(names, wanted)], names_of_labels
    )
    if what != "features" and frame.num_columns == 1:
        frame = _with_ids(frame, graph, path)
    nodes = NodeTable(frame, str(path), wanted)
    nodes.notes = notes + nodes.notes
    if what != "features":
        return nodes.join(graph, what, nodes.columns(what, given))
    others = [other for other in ("labels", "split") if tables.get(other, ("",))[0] == path]
    known = [name for other in others for name in nodes.columns(other, tables[other][1])]
    columns = nodes.feature_columns(given or None, known)
    if not columns:
        unread = "; ".join(nodes.unread(*known))
        raise FormatError(
            f"{path}: no column of numbers beside ids ({nodes.id!r}), labels and split{unread and f': {unread}'[:200]}; name text "
            "with --one-hot, or the ids with --id"
        )
    graph = nodes.join(graph, what, columns)
    left = nodes.unread(*columns, *known)
    return replace(graph, meta=graph.meta | {"unread": graph.meta.get("unread", []) + left}) if left else graph


def _with_ids(frame: Table, graph: Graph, path: Path) -> Table:
    """Return a table of one column, a line per node, with the ids of the nodes before it."""
    if frame.num_rows != graph.n_nodes:
        raise FormatError(f"{path}: has {frame.num_rows} lines without ids; {graph.name} has {graph.n_nodes} nodes")
    return frame.add_column(0, "id", [np.arange(graph.n_nodes) if graph.ids is None else graph.ids.tolist()])


def _part(what: str, value: object, graph: Graph) -> dict[str, Any]:
    """Return the fields of Graph of features, labels or a split, checked; the message of an error names the file."""
    if what == "features" and isinstance(value, str) and value in MADE:
        return {"X": MADE[value](graph), "feature_names": None}
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
        names = getattr(value, "columns", ())  # of a table of pandas
        names = names if len(names) and all(isinstance(name, str) for name in names) else None
        fields: dict[str, Any] = {"X": rows if sp.issparse(rows) else as_float(rows), "feature_names": names}
    elif what == "labels":
        fields = named_labels(where, rows) | {"meta": with_notes(graph.meta, no_label_notes(where, rows))}
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


MADE: dict[str, Callable[[Graph], np.ndarray | sp.csr_array]] = {
    "degree": _degree,
    "ones": lambda graph: np.ones((graph.n_nodes, 1), np.float32),
    "identity": lambda graph: sp.csr_array(sp.eye_array(graph.n_nodes, dtype=np.float32, format="csr")),
}


def _opened(what: str, value: object) -> tuple[str, np.ndarray | sp.csr_array]:
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


def _numbers(where: str, array: np.ndarray | sp.csr_array, or_text: bool) -> np.ndarray | sp.csr_array:
    """Return an array or CSR of real numbers, or of text. Raises: FormatError for other types."""
    if array.dtype.kind not in ("biufUOT" if or_text else "biuf"):
        raise FormatError(f"{where}: holds {array.dtype}; expected numbers")
    return array


@dataclass(frozen=True, slots=True)
class Named:
    """A built-in graph: wordnet, or a generated one such as rmat:scale=10,degree=16,seed=0."""

    spec: str

    def read(self, progress: Progress = None, options: TableConfig = DEFAULTS) -> Graph:
        graph = load_wordnet() if self.spec == "wordnet" else generate(self.spec)
        return replace(graph, meta=graph.meta | {"source": self.spec, "format": "built-in"})


@dataclass(frozen=True, slots=True)
class File:
    """A file, a folder, or the common prefix of Planetoid's files, and the name of its format."""

    path: Path
    format: str

    def read(self, progress: Progress = None, options: TableConfig = DEFAULTS) -> Graph:
        graph = read_graph(self.path, self.format, progress, options)
        return replace(graph, meta={"source": self.path.name, "format": self.format} | graph.meta)


def resolve(source: str | Path, format: str | None = None) -> Named | File:
    """Return what a name or path is; with a format it is a path. Reads no more than detecting the format takes.

    Raises: InputError for a name or path that does not exist; FormatError where the format is not clear.
    """
    if format is None and is_built_in(source):
        return Named(source)
    path = Path(source)
    try:
        str(source).encode()
    except UnicodeEncodeError:  # no config.toml could hold it
        raise InputError(f"{source!r}: the name is not valid UTF-8; rename the file") from None
    if format is not None:
        return File(path, format)
    if not path.exists() and not any(known.detect(path) for known in known_formats().values()):
        raise InputError(f"{source}: no such file or folder, and no built-in graph{_suggest(path)}")
    return File(path, detect_format(path))


def is_built_in(source: object) -> TypeGuard[str]:
    """source is "wordnet" or the spec of a generated graph, not a path."""
    return isinstance(source, str) and source.partition(":")[0] in BUILT_IN


def _suggest(path: Path) -> str:
    """Return how a message about a missing file ends: with names like it, or what is expected."""
    if path.name.startswith("sizes:"):
        return "; sizes: is a GRAPH of `spgnn plan` alone"
    near = path.parent if path.parent.is_dir() else Path()
    names = list(BUILT_IN) if path.parent == Path() else []
    names += [entry.name for entry in near.iterdir() if not entry.name.startswith(".")]
    match = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    if match:
        return f"; did you mean {' or '.join(repr(name) for name in match)}?"
    return f"; expected a path or one of: {', '.join(BUILT_IN)}"


def is_lists(value: object) -> TypeGuard[str | Path | Mapping]:
    """Whether a split is a dict, or a file of lists: .npz or .json."""
    if isinstance(value, (str, Path)):
        path = Path(value)
        return path.is_file() and (path.suffix.lower() == ".json" or is_zip(path))
    return isinstance(value, Mapping)


def split_of_lists(value: str | Path | Mapping, n_nodes: int) -> np.ndarray:
    """Return the split (N,) int8 of node ids, or of masks (N,) bool, of each role; other nodes are in none."""
    where, lists = ("split", value) if isinstance(value, Mapping) else (str(value), _read_lists(Path(value)))
    expected = "expected train, val and test, each a list of node ids or a mask"
    if not isinstance(lists, Mapping) or not lists:
        raise FormatError(f"{where}: is no object of lists; {expected}")
    nodes_by_role = {}
    for name, values in lists.items():
        role = PARTS_OF_SPLIT.get(
            next((str(name).removesuffix(e) for e in ENDINGS_OF_PARTS if str(name).endswith(e)), str(name))
        )
        if role is None or role in nodes_by_role:
            raise FormatError(f"{where}: {name!r} is no part of a split, or there twice; {expected}")
        nodes_by_role[role] = _nodes(f"{where}: {name}", values, n_nodes)
    return split_of(where, n_nodes, nodes_by_role)


def _read_lists(path: Path) -> Any:
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
