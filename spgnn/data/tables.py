"""Tables of edges and of nodes to a Graph that keeps the users' ids: pyarrow Tables, which pandas and polars become.

Shapes: N nodes, m rows of a table, F features, C classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..config import TableConfig, build
from ..errors import FormatError, GraphError, UsageError, nearest
from ..graph import NO_SPLIT, Graph, graph_from_coo
from ..graph.loaded import degrees, read_notes
from ..graph.structure import as_weights, with_reverse
from ..terminal import say
from .bipartite import bipartite_graph, shared_note
from .readers.edge_features import Places, attributes_of_columns, places_of_columns, rows_of_files
from .readers.heads import IDS, SOURCE_NAMES, TARGET_NAMES, edge_columns, kinds_of
from .readers.make_graph import check_node_count, no_label_notes, with_components
from .table_columns import (
    APART,
    ID_NAMES,
    Coded,
    as_table,
    coded,
    coded_texts,
    has_numbers,
    id_column,
    known_columns,
    labels_of,
    numbers_of,
    odd_value,
    places_of,
    split_of_columns,
    texts_of,
)

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table

ZEROS = re.compile(r"[0-9]{1,18}")  # the number of a node, perhaps with zeros before it
MOST_VALUES = 10_000  # of a text column that becomes features


def from_pandas(
    edges, nodes=None, *, label=None, features: Sequence[str] | None = None, split=None, name="tables", **options
) -> Graph:
    """Return the Graph of a table of edges and perhaps one of nodes, of pandas, polars or pyarrow.

    Args:   edges     columns source and target (or src, dst, from, to), weight, and those of edge_features, edge_labels, edge_split.
            nodes     node i is row i; its column id has what edges name. Without it, ids that are text are numbered in
                      their order, and integers are the numbers of nodes.
            label     column of nodes with classes; text becomes named classes, a missing value is no label.
            features  columns of nodes; None: all numbers but id, label and split.
            split     column of nodes: train, val, test or 0, 1, 2; others are in none. Or three columns of masks.
            options   source, target, weight, id, relabel, one_hot, missing, duplicates, combine, edge_features,
                      antisymmetric, edge_labels, edge_split, bipartite as of `load_graph`; columns may be lists.
    Returns: Graph with ids, the names of columns, and with classes where labels are text.
    Raises:  FormatError or GraphError with what is missing, and how often.
    """
    wanted = build(TableConfig, {key: value for key, value in options.items() if value is not None}, "from_pandas")
    labels, splits = _column_names("label", label), _column_names("split", split)
    edges = as_table(edges, "edges", (wanted.source, wanted.target, *SOURCE_NAMES, *TARGET_NAMES))
    names = edges.column_names
    used = [names[place] for place in edge_columns("edges", names, len(names), wanted) if place >= 0]
    fields = {"name": name} | fields_of_table("edges", edges, names, used, wanted)
    table = None if nodes is None else _node_table(nodes, [edges.column(name) for name in used[:2]], wanted)
    columns, kinds = [edges.column(name) for name in used], kinds_of(used[:2], wanted.bipartite)
    graph = graph_of_columns("edges", columns, wanted, table or "text", kinds=kinds, **fields)
    if table is not None:
        given = table.feature_columns(
            None if features is None else _column_names("features", features), labels + splits
        )
        for what, columns in (("features", given), ("labels", labels), ("split", splits)):
            graph = table.join(graph, what, columns)
        left = graph.meta.get("unread", []) + table.unread(*given, *labels, *splits)
        graph = replace(graph, meta=graph.meta | ({"unread": left} if left else {}))
    for note in read_notes(graph):
        say(note)
    return combined(graph, wanted)


def _node_table(nodes, ends: list[ChunkedArray], wanted: TableConfig) -> NodeTable:
    """Return the table of nodes of from_pandas; where no column has the name of ids, of its index, first column or rows."""
    kind = str(getattr(getattr(nodes, "index", None), "dtype", ""))
    if kind in ("object", "str", "string") and nodes.index.is_unique:
        if not wanted.id and not {str(name).lower() for name in nodes.columns} & {*ID_NAMES}:
            nodes = nodes.rename_axis("id")
    frame = as_table(nodes, "nodes", (wanted.id, *ID_NAMES))
    if wanted.id or id_column(frame.column_names, wanted).lower() in ID_NAMES:
        return NodeTable(frame, "nodes", wanted)
    numbers = [coded(column, f"edges: {what}")[1] for column, what in zip(ends, ("source", "target"))]
    is_place = all(ids.dtype.kind == "i" and ids.max(initial=-1) < frame.num_rows for ids in numbers)
    if is_place and not _are_ids(frame.column(0), np.concatenate(numbers)):
        found = NodeTable(frame.add_column(0, "id", [np.arange(frame.num_rows)]), "nodes", wanted)
        found.notes.append("nodes: no column has the name of ids, so row i is node i: --id COLUMN names one")
        return found
    return NodeTable(frame, "nodes", wanted)


def _are_ids(column: ChunkedArray, used: np.ndarray) -> bool:
    """Whether a column has integers, each once, all that are used, and no permutation of the rows' numbers."""
    if not str(column.type).lstrip("u").startswith("int") or column.null_count:
        return False
    ids = np.unique(column.to_numpy())
    return len(ids) == len(column) and bool(np.isin(used, ids).all()) and ids.tolist() != [*range(len(ids))]


def _column_names(what: str, given) -> list[str]:
    """Return the names of columns, given as one or several; UsageError for a column itself."""
    names = [] if given is None else [given] if isinstance(given, str) else list(given)
    if hasattr(given, "iloc") or not all(isinstance(name, str) for name in names):
        kind = type(given).__name__
        raise UsageError(
            f"from_pandas: {what} is a {kind}; expected names of columns of nodes, such as {what}='{what}'"
        )
    return names


def fields_of_table(
    where: Path | str, frame: Table, names: list[str], used: list[str], wanted: TableConfig
) -> dict[str, Any]:
    """Return what a table of edges has beside its ends and weights: see columns_of_edges, and the names of unread columns.

    Args: names  of its columns, of which frame has those that are used and those of --edge-features.
    """
    found = places_of_columns(str(where), names, wanted)
    unread = [name for name in names if not any(name in of for of in (used, *found.values()))]
    fields = columns_of_edges(where, found, lambda place: frame.column(names[place]), wanted)
    return fields | {"meta": ({"unread": unread} if unread else {}) | fields.get("meta", {})}


def columns_of_edges(
    where: Path | str, found: Places, column_at: Callable[[int], ChunkedArray], wanted: TableConfig
) -> dict[str, Any]:
    """Return the fields of graph_from_coo of attributes, labels and split of edges, of columns or a .npy each.

    Raises: FormatError naming the column.
    """
    fields = rows_of_files(wanted, found)
    columns = {option: {name: column_at(place) for name, place in of.items()} for option, of in found.items()}
    where_of = lambda name: f"{where}: column {name!r}"
    if features := columns["edge_features"]:
        numbers = {name: numbers_of(column, where_of(name)) for name, column in features.items()}
        fields |= attributes_of_columns(where, numbers, wanted)
    for name, column in columns["edge_labels"].items():
        labels = labels_of(where_of(name), column)
        is_number = labels["y"].dtype.kind == "f"
        fields |= {"edge_y": labels["y"], "edge_classes": (name,) if is_number else labels.get("classes")}
        fields["meta"] = fields.get("meta", {}) | {"edge_label": name}  # integers may be taken for numbers
    if columns["edge_split"]:
        fields["edge_split"] = split_of_columns(str(where), columns["edge_split"])
    return fields


def graph_of_columns(
    where: Path | str,
    columns: list[ChunkedArray],
    wanted: TableConfig,
    nodes: NodeTable | str | None = None,
    kinds: Sequence[str] = (),
    **fields,
) -> Graph:
    """Return the Graph of pyarrow columns source, target and perhaps weight.

    Args: nodes  a NodeTable, whose rows are the nodes; "text": ids that are text are numbered; None: if --relabel says so.
          kinds  the names of both columns where they are two kinds of nodes, see heads.kinds_of.
    """
    ends = [coded(column, f"{where}: {what}") for column, what in zip(columns, ("source", "target"))]
    if not len(columns[0]) and nodes is None:
        raise FormatError(f"{where}: holds no edge; expected rows of source, target and perhaps a weight")
    weights = numbers_of(columns[2], f"{where}: weight") if len(columns) == 3 else None
    if weights is not None and np.isnan(weights).any():
        row = int(np.argmax(np.isnan(weights))) + 1
        raise FormatError(f"{where}: {np.count_nonzero(np.isnan(weights)):,} weights are missing, first in row {row}")
    if kinds:
        note = shared_note(kinds, ends[0][1], ends[1][1], wanted.bipartite)
        fields["meta"] = with_notes(fields.get("meta", {}), note)
    if wanted.bipartite:
        weights = None if weights is None else as_weights(weights)
        return bipartite_graph(ends[0], ends[1], kinds, weights, duplicates=wanted.duplicates, **fields)
    if nodes == "text" and any(values.dtype.kind == "O" for _, values in ends):
        wanted = replace(wanted, relabel=True)
    ids = nodes.ids if isinstance(nodes, NodeTable) else None
    return edge_graph(where, ends[0], ends[1], weights, wanted, ids, **fields)


def with_notes(meta: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """Return the meta of a graph with notes on what was read, each once."""
    return meta | ({"notes": [*dict.fromkeys([*meta.get("notes", ()), *notes])]} if notes else {})


def edge_graph(
    where: Path | str,
    source: Coded,
    target: Coded,
    weights: np.ndarray | None,
    wanted: TableConfig,
    ids: np.ndarray | None,
    **fields,
) -> Graph:
    """Return the Graph of edges between coded ids: (codes, values) of source and of target.

    Args: ids  of the nodes in their order, which all ids have to be; None: with relabel all ids in order, else numbers.
    """
    (src, src_values), (dst, dst_values) = source, target
    is_text = any(values.dtype.kind == "O" for values in (src_values, dst_values, *([] if ids is None else [ids])))
    if is_text:
        src_values, dst_values = (values.astype(str).astype(object) for values in (src_values, dst_values))
        ids = None if ids is None else ids.astype(str).astype(object)
    if ids is None and not wanted.relabel:
        if is_text:
            first = next(v for v in [*src_values, *dst_values] if not IDS.fullmatch(v.encode()))
            raise FormatError(f"{where}: ids are names, such as {first!r}; number them by `spgnn convert --relabel`")
        top = max(int(src_values.max(initial=-1)), int(dst_values.max(initial=-1)))
        check_node_count(where, top + 1, len(src), f"node id {top}")
        src, dst, n_nodes = src_values[src], dst_values[dst], top + 1
    else:
        ids = np.unique(np.concatenate([src_values, dst_values])) if ids is None else ids
        found = [places_of(ids, values) for values in (src_values, dst_values)]
        absent = [value for place, values in zip(found, (src_values, dst_values)) for value in values[place < 0]]
        if absent:
            raise GraphError(
                f"{where}: {len(set(absent)):,} ids are no rows of nodes, {absent[0]} first; add them, or drop their edges"
            )
        src, dst, n_nodes = found[0][src], found[1][dst], len(ids)
    weights = None if weights is None else as_weights(weights)
    return graph_from_coo(src, dst, n_nodes, weights, wanted.duplicates, ids=ids, **fields)


def combined(graph: Graph, wanted: TableConfig) -> Graph:
    """Return graph with both directions of an edge of one weight, as --combine says."""
    if wanted.combine == "refuse":
        return graph
    if graph.edge_attr is not None:
        raise UsageError(f"--combine {wanted.combine} makes one of several edges, which keep their attributes; omit it")
    return replace(graph, A=with_reverse(graph.A, wanted.combine), meta=graph.meta | {"combined": wanted.combine})


class NodeTable:
    """A pyarrow Table of nodes, whose rows are found by their ids.

    Args: where  its name, for messages; ids: of its rows, where they are known.
    Raises: FormatError where ids are missing, or there more than once.
    """

    def __init__(self, table: Table, where: str, wanted: TableConfig, ids: np.ndarray | None = None):
        self.table, self.where, self.wanted, self.names = table, where, wanted, table.column_names
        self.notes: list[str] = []  # on what was filled, and taken for something
        self.one_hot = [name for name in wanted.one_hot.split(",") if name]
        if ids is not None:
            self.id, self.ids = wanted.id, ids
            return
        if wanted.id and wanted.id not in self.names:
            raise FormatError(f"{where}: no column {wanted.id!r} (--id){nearest(wanted.id, self.names)}")
        self.id = id_column(self.names, wanted)
        if not wanted.id and self.id.lower() not in ID_NAMES and self.id != "1":
            self.notes.append(f"{where}: column {self.id!r} was taken for ids: --id COLUMN names another")
        codes, values = coded(table.column(self.id), f"{where}: ids")
        self.ids = values[codes]
        counts = np.bincount(codes, minlength=len(values))
        if np.any(counts > 1):
            first, twice = int(np.argmax(counts > 1)), np.count_nonzero(counts > 1)
            raise FormatError(
                f"{where}: {twice:,} ids are there more than once, {values.tolist()[first]!r} first, {counts[first]} times; "
                "keep one row of each"
            )

    def columns(self, what: str, given: Sequence[str] = ()) -> list[str]:
        """Return the columns of labels or of the split: those given, else of a known name, or the only one without ids."""
        known = known_columns(what, self.names, self.id)
        if not given and not known:
            others = ", ".join(name for name in self.names if name != self.id)[:200]
            raise FormatError(f"{self.where}: which column? give --{what} {self.where}:COLUMN of {others}")
        return self._checked(given) or known

    def feature_columns(self, given: Sequence[str] | None, known: Sequence[str]) -> list[str]:
        """Return the columns of features: those given, else numbers and --one-hot, without ids, labels and splits."""
        self._checked([*self.one_hot, *known])
        if given is not None:
            return [*self._checked(given), *(name for name in self.one_hot if name not in given)]
        others = [n for n in self.names if n not in (self.id, *known) and n.lower() not in APART]
        return [name for name in others if name in self.one_hot or has_numbers(self.table.column(name))]

    def join(self, graph: Graph, what: str, columns: list[str]) -> Graph:
        """Return graph with features, labels or split of some columns, by ids; ids without an edge are new nodes."""
        graph, place = _with_ids(graph, self.ids, self.where)
        row_N = np.full(graph.n_nodes, -1)
        row_N[place] = np.arange(len(place))
        if graph.nnz and (lonely := np.count_nonzero((row_N >= 0) & (degrees(graph.A) == 0))):
            self.notes.append(f"{lonely:,} of {graph.n_nodes:,} nodes have no edge: they are rows of {self.where}")
        graph = replace(graph, **self.fields(graph, what, columns, row_N)) if columns else graph
        return replace(graph, meta=with_notes(graph.meta, self.notes))

    def fields(self, graph: Graph, what: str, columns: list[str], row_N: np.ndarray) -> dict[str, Any]:
        """Return the fields of Graph of some columns; row_N: of the table, -1 where a node has none."""
        import pyarrow

        rows = pyarrow.array(row_N, mask=row_N < 0)
        picked = {name: self.table.column(name).take(rows) for name in columns}  # null where there is no row
        if what == "features":
            X, names = self._features(graph, picked, row_N)
            return {"X": X, "feature_names": tuple(names)}
        if what == "split":
            return {"split": split_of_columns(self.where, picked)}
        if len(columns) > 1:
            y = [numbers_of(column, f"{self.where}: column {name!r}") for name, column in picked.items()]
            y = np.stack(y, axis=1).astype(np.float64)
            is_number = not np.isin(y[~np.isnan(y)], (0, 1)).all()
            return {"y": y if is_number else np.nan_to_num(y).astype(np.int64), "classes": tuple(columns)}
        where = f"{self.where}: column {columns[0]!r}"
        fields = labels_of(where, picked[columns[0]])
        self.notes += no_label_notes(where, texts_of(picked[columns[0]])) if "classes" in fields else []
        names = fields.get("classes", tuple(columns) if fields["y"].dtype.kind == "f" else None)
        meta = graph.meta | {"label": columns[0]}  # integers may be taken for numbers
        return {"y": fields["y"], "classes": names, "meta": meta}

    def _features(self, graph: Graph, picked: dict, row_N: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Return X (N, F) and names: numbers as they are, True as 1, text as a feature NAME=VALUE for each value."""
        absent = int(np.count_nonzero(row_N < 0))
        if absent and self.wanted.missing == "refuse":
            raise FormatError(
                f"{self.where}: {absent:,} of {len(row_N):,} nodes have no row, node {_name(graph, row_N < 0)} first; add "
                "them, or fill with --missing zero or mean"
            )
        made, names, is_wide, lost_of = [], [], False, {}
        for name, column in picked.items():
            where = f"{self.where}: column {name!r}"
            if name in self.one_hot:
                by_value, lost_N = self._one_hot(where, column)
                made += by_value.values()
                names += [f"{name}={value}" for value in by_value]
            elif not has_numbers(column):
                odd = odd_value(self.table.column(name))
                text = f" is text, such as {odd.text!r}; omit it, or make features of it with --one-hot {name}"
                said = odd.said if odd.is_alone else text if odd.text else f" holds {column.type}; expected numbers"
                raise FormatError(f"{where}{said}")
            else:
                values_N = numbers_of(column, where)
                lost_N = np.isnan(values_N)
                made.append(self._filled(where, graph, values_N, lost_N))
                names.append(name)
                is_wide |= str(column.type) == "double"
            lost_of[name] = int(np.count_nonzero(lost_N & (row_N >= 0)))
        self._note_filled({name: count for name, count in lost_of.items() if count}, absent)
        X = np.stack(made, axis=1) if made else np.zeros((len(row_N), 0))
        return X if is_wide or np.any(np.abs(X) > 2**24) else X.astype(np.float32), names

    def _note_filled(self, lost_of: dict[str, int], absent: int) -> None:
        count, fill = sum(lost_of.values()), "the mean of the column" if self.wanted.missing == "mean" else "0"
        values = f"{count:,} missing value{'s' * (count != 1)} of {', '.join(lost_of)[:80]}"
        nodes = f"{absent:,} node{'s' * (absent != 1)} without a row"
        said = " and ".join([values] * bool(lost_of) + [nodes] * bool(absent))
        self.notes += [f"{self.where}: features of {said} are {fill}"] if said else []

    def _filled(self, where: str, graph: Graph, values_N: np.ndarray, lost_N: np.ndarray) -> np.ndarray:
        if lost_N.any() and self.wanted.missing == "refuse":
            raise FormatError(
                f"{where} has no value for {lost_N.sum():,} nodes, node {_name(graph, lost_N)} first; fill them with "
                "--missing zero or mean"
            )
        if (odd_N := np.isinf(values_N)).any():
            raise FormatError(f"{where} is inf for node {_name(graph, odd_N)}; expected finite numbers")
        mean = values_N[~lost_N].mean() if self.wanted.missing == "mean" and not lost_N.all() else 0.0
        return np.where(lost_N, mean, values_N)

    def _one_hot(self, where: str, column: ChunkedArray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the features of each value of a column of text, and where it has none."""
        codes_N, texts = coded_texts(column)
        lost_N = (texts == "")[codes_N]
        if lost_N.any() and self.wanted.missing != "zero":
            raise FormatError(f"{where} has no value for {lost_N.sum():,} nodes; --missing zero makes them 0")
        found = sorted({*texts[codes_N[~lost_N]]})
        if len(found) > MOST_VALUES:
            raise FormatError(f"{where} has {len(found):,} values; expected at most {MOST_VALUES:,} (--one-hot)")
        return {value: (texts == value)[codes_N].astype(np.float32) for value in found}, lost_N

    def unread(self, *used: str) -> list[str]:
        """Return the columns that are not used, with what keeps one from being features."""
        left = [name for name in self.names if name not in (self.id, *used)]
        odd = {name: odd_value(self.table.column(name)) for name in left}
        return [f"{name} ({odd[name].said.strip(': ')})" if odd[name].is_alone else name for name in left]

    def _checked(self, given: Sequence[str]) -> list[str]:
        names = with_components(given, self.names)
        for name in names:
            if name not in self.names:
                raise FormatError(f"{self.where}: no column {name!r}{nearest(name, self.names)}")
        return names


def _name(graph: Graph, is_lost_N: np.ndarray) -> object:
    """Return what the user calls the first of some nodes."""
    first = int(np.argmax(is_lost_N))
    return first if graph.ids is None else graph.ids[first]


def _with_ids(graph: Graph, values: np.ndarray, where: str) -> tuple[Graph, np.ndarray]:
    """Return the graph with nodes for ids that it has not, and the node of each id."""
    ids = np.arange(graph.n_nodes) if graph.ids is None else graph.ids
    if graph.ids is None and values.dtype.kind == "O" and all(map(ZEROS.fullmatch, values)):  # 007 is node 7
        values = values.astype(np.int64)
        if len(np.unique(values)) < len(values):
            raise FormatError(f"{where}: two ids are one number, such as 7 and 007; keep them apart with --relabel")
    if (ids.dtype.kind == "O") != (values.dtype.kind == "O"):
        if graph.ids is None:
            raise FormatError(
                f"{where}: ids are names, such as {values[0]!r}, and the graph {graph.name} has nodes 0 to {graph.n_nodes - 1}; name the column of ids with --id"
            )
        ids, values = ids.astype(str).astype(object), values.astype(str).astype(object)
    new = values[places_of(ids, values) < 0]
    if not len(new):
        return graph, places_of(ids, values)
    if "bipartite" in graph.meta:
        kinds = f"of which kind is not known; ids are such as {ids.tolist()[0]!r} and {ids.tolist()[-1]!r}"
        raise FormatError(f"{where}: {len(new):,} of its ids are new, {new.tolist()[0]!r} first, {kinds}")
    if graph.ids is not None and len(new) == len(values) and graph.nnz:
        raise FormatError(
            f"{where}: none of its ids, such as {new.tolist()[0]!r}, is an id of the edges, such as {ids.tolist()[0]!r}; "
            "name the column of ids with --id"
        )
    if graph.ids is None:
        check_node_count(where, int(new.max()) + 1, graph.nnz + len(values), f"node id {new.max()}")
        ids = np.arange(int(new.max()) + 1)
    else:
        ids = np.concatenate([ids, new])
    A, n = graph.A, len(ids)
    indptr = np.concatenate([A.indptr, np.full(n - graph.n_nodes, A.indptr[-1], A.indptr.dtype)])
    fields: dict[str, Any] = {"ids": None if graph.ids is None else ids}
    had = {what: rows for what in ("X", "y", "split") if (rows := getattr(graph, what)) is not None}
    fields |= {what: _longer(old, n, what, where) for what, old in had.items()}
    return replace(graph, A=sp.csr_array((A.data, A.indices, indptr), shape=(n, n)), **fields), places_of(ids, values)


def _longer(old: np.ndarray, n: int, what: str, where: str) -> np.ndarray:
    """Return labels or a split with more nodes that have none."""
    is_number = old.dtype.kind == "f"
    if what == "X" or (old.ndim == 2 and what == "y" and not is_number):
        raise FormatError(
            f"{where}: {n - old.shape[0]:,} of its ids lack features or labels in earlier tables; add them"
        )
    more = np.full((n - len(old), *old.shape[1:]), np.nan if is_number else NO_SPLIT, old.dtype)
    return np.concatenate([old, more])
