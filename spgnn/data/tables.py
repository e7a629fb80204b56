"""Tables of edges and of nodes to a Graph that keeps the users' ids; of pandas, polars or pyarrow, none imported here.

Shapes: N nodes, m rows of a table, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..config import TableConfig, build
from ..errors import FormatError, GraphError, InputError, nearest
from ..graph import NO_SPLIT, TEST, TRAIN, VAL, Graph, graph_from_coo
from ..graph.structure import as_weights, with_reverse
from .readers.heads import IDS, edge_columns
from .readers.make_graph import check_node_count, named_labels, roles_of

ID_NAMES = ("id", "node", "node_id", "nodeid", "name")
LABEL_NAMES = ("label", "labels", "class", "classes", "y", "target")
SPLIT_NAMES = ("split", "role", "fold", "train_mask", "val_mask", "test_mask")
ROLES = {"train": TRAIN, "training": TRAIN, "val": VAL, "valid": VAL, "validation": VAL, "dev": VAL, "test": TEST}
MOST_VALUES = 10_000  # of a text column that becomes features


def from_pandas(
    edges, nodes=None, *, label=None, features: Sequence[str] | None = None, split=None, name="tables", **options
) -> Graph:
    """Return the Graph of a table of edges and perhaps one of nodes, of pandas, polars or pyarrow.

    Args:   edges     columns source and target (or src, dst, from, to), and weight.
            nodes     node i is row i; its column id has what edges name. Without it, ids that are text are numbered in
                      their order, and integers are the numbers of nodes.
            label     column of nodes with classes; text becomes named classes, a missing value is no label.
            features  columns of nodes; None: all numbers but id, label and split.
            split     column of nodes: train, val, test or 0, 1, 2; others are in none.
            options   source, target, weight, id, relabel, one_hot, missing, duplicates, combine as of `load_graph`;
                      one_hot may be a list.
    Returns: Graph with ids, and with classes where labels are text.
    Raises:  FormatError or GraphError with what is missing, and how often.
    """
    if isinstance(options.get("one_hot"), (list, tuple)):
        options["one_hot"] = ",".join(options["one_hot"])
    wanted = build(TableConfig, options, "from_pandas")
    names = columns_of(edges)
    places = edge_columns("edges", names, len(names), wanted)
    ends = [coded(edges[names[place]], f"edges: column {names[place]!r}") for place in places[:2]]
    weights = None if places[2] < 0 else numbers(edges[names[places[2]]], f"edges: column {names[places[2]]!r}")
    if nodes is None:
        is_text = any(values.dtype.kind == "O" for _, values in ends)
        ids, wanted = None, replace(wanted, relabel=wanted.relabel or is_text)
    else:
        codes, values = coded(nodes[id_column(nodes, wanted.id, "nodes")], "nodes: ids")
        _check_once(codes, values, "nodes")
        ids = values[codes]
    unread = [n for place, n in enumerate(names) if place not in places]
    graph = edge_graph("edges", *ends, weights, wanted, ids, name=name, meta={"unread": unread} if unread else {})
    if nodes is not None:
        known = [c for c in (label, split) if c]
        columns = feature_columns(nodes, wanted, features, known, "nodes")
        if columns is not None:
            graph = with_nodes(graph, nodes, "features", columns, wanted, "nodes")
        for what, column in (("labels", label), ("split", split)):
            if column is not None:
                graph = with_nodes(graph, nodes, what, [column], wanted, "nodes")
    return combined(graph, wanted)


def edge_graph(where, source, target, weights, wanted: TableConfig, ids=None, **fields) -> Graph:
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
            raise FormatError(
                f"{where}: ids are names, such as {first!r}; number and keep them with --relabel of `spgnn convert`"
            )
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


def with_nodes(graph: Graph, frame, what: str, columns: list[str], wanted: TableConfig, where: str) -> Graph:
    """Return graph with features, labels or split of a table of nodes, by its ids; ids without an edge are new nodes."""
    codes, values = coded(frame[id_column(frame, wanted.id, where)], f"{where}: ids")
    _check_once(codes, values, where)
    graph, place = _with_ids(graph, values, where)
    row_N = np.full(graph.n_nodes, -1)
    row_N[place[codes]] = np.arange(len(codes))
    if what == "features":
        return replace(graph, X=_features(frame, columns, row_N, wanted, where))
    picked = [_picked(frame[column], row_N) for column in columns]
    where = f"{where}: column {columns[0]!r}"
    if what == "split":
        return replace(graph, split=_roles(where, picked[0]))
    if len(columns) > 1:
        return replace(graph, y=np.stack([_filled(y).astype(np.int64) for y in picked], axis=1), classes=columns)
    return replace(graph, **{"classes": None} | _classes(where, picked[0]))


def combined(graph: Graph, wanted: TableConfig) -> Graph:
    """Return graph with both directions of an edge of one weight, as --combine says."""
    if wanted.combine == "refuse":
        return graph
    return replace(graph, A=with_reverse(graph.A, wanted.combine), meta=graph.meta | {"combined": wanted.combine})


def columns_of(frame) -> list[str]:
    """Return the names of the columns of a table."""
    if not (hasattr(frame, "column_names") or hasattr(frame, "columns")):
        raise InputError(
            f"got a {type(frame).__name__}; expected a table with columns, as of pandas, polars or pyarrow"
        )
    return [str(name) for name in getattr(frame, "column_names", None) or frame.columns]


def id_column(frame, wanted: str, where: str) -> str:
    """Return the column of ids: the one that --id names, else id, node, node_id or name, else the first."""
    names = columns_of(frame)
    if wanted and wanted not in names:
        raise FormatError(f"{where}: no column {wanted!r} (--id){nearest(wanted, names)}")
    return wanted or next((name for name in names if name.lower() in ID_NAMES), names[0])


def feature_columns(frame, wanted: TableConfig, given, known: Sequence[str], where: str) -> list[str] | None:
    """Return the columns that are features: those given, else numbers and one_hot, without ids, labels and splits."""
    one_hot, names = [name for name in wanted.one_hot.split(",") if name], columns_of(frame)
    for name in [*(given or ()), *one_hot, *known]:
        if name not in names:
            raise FormatError(f"{where}: no column {name!r}{nearest(name, names)}")
    if given is not None:
        return [*given, *(name for name in one_hot if name not in given)] or None
    apart = {id_column(frame, wanted.id, where), *known}
    apart |= {name for name in names if name.lower() in (*ID_NAMES, *LABEL_NAMES, *SPLIT_NAMES)}
    return [n for n in names if n not in apart and (n in one_hot or _values(frame[n]).dtype.kind in "biuf")] or None


def label_column(frame, wanted: TableConfig, where: str, option: str) -> str:
    """Return the column of labels or of the split: of a known name, or the only one that has no ids."""
    names, apart = columns_of(frame), id_column(frame, wanted.id, where)
    known = LABEL_NAMES if option == "labels" else SPLIT_NAMES
    others = [name for name in names if name != apart]
    found = next((name for name in others if name.lower() in known), others[0] if len(others) == 1 else None)
    if found is None:
        raise FormatError(
            f"{where}: which column? name it as --{option} {where}:COLUMN; it has {', '.join(others)[:200]}"
        )
    return found


def coded(column, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes (m,), ids (k,) int64 or str objects) of a column of ids, each once; FormatError where one is missing."""
    if hasattr(column, "dictionary_encode"):  # pyarrow: no object per row
        words = column if hasattr(column.type, "index_type") else column.dictionary_encode()
        words = words.unify_dictionaries().combine_chunks() if hasattr(words, "unify_dictionaries") else words
        if words.null_count:
            row = int(np.argmax(words.is_null().to_numpy(zero_copy_only=False)))
            raise FormatError(
                f"{where}: {words.null_count:,} ids are missing, the first in row {row + 1}; drop these rows"
            )
        codes, values = words.indices.to_numpy(), words.dictionary.to_numpy(zero_copy_only=False)
    else:
        rows = _values(column)
        if rows.dtype.kind in "iu":
            values, codes = np.unique(rows, return_inverse=True)
            return codes, values.astype(np.int64)
        if (lost := _is_missing(rows)).any():
            raise FormatError(
                f"{where}: {lost.sum():,} ids are missing, the first in row {int(np.argmax(lost)) + 1}; drop these rows"
            )
        number: dict[Any, int] = {}
        codes = np.fromiter((number.setdefault(v, len(number)) for v in rows.tolist()), np.int64, len(rows))
        values = np.empty(len(number), object)
        values[:] = list(number)
    texts = [str(value).strip() for value in values.tolist()]
    if all(IDS.fullmatch(text.encode()) for text in texts):
        values = np.array([int(text.partition(".")[0]) for text in texts], np.int64)
    else:
        values = np.array(texts, object)
    values, again = np.unique(values, return_inverse=True)
    return again[codes], values


def numbers(column, where: str) -> np.ndarray:
    """Return a column of weights as float64; FormatError where one is missing or no number."""
    values = _values(column)
    if values.dtype.kind == "O":
        raise FormatError(f"{where} holds text, such as {values[0]!r}; expected numbers")
    if (lost := _is_missing(values)).any():
        raise FormatError(f"{where}: {lost.sum():,} weights are missing, the first in row {int(np.argmax(lost)) + 1}")
    return values.astype(np.float64) if values.dtype.kind == "b" else values


def places_of(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return where each value is in ids, -1 where it is not."""
    if ids.dtype.kind == "O":
        number = {name: place for place, name in enumerate(ids.tolist())}
        return np.fromiter((number.get(value, -1) for value in values.tolist()), np.int64, len(values))
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], values), len(ids) - 1)
    return np.where(ids[order[at]] == values, order[at], -1) if len(ids) else np.full(len(values), -1)


def _with_ids(graph: Graph, values: np.ndarray, where: str) -> tuple[Graph, np.ndarray]:
    """Return the graph with nodes for ids that it has not, and the node of each id."""
    ids = np.arange(graph.n_nodes) if graph.ids is None else graph.ids
    if (ids.dtype.kind == "O") != (values.dtype.kind == "O"):
        if graph.ids is None:
            raise FormatError(
                f"{where}: ids are names, such as {values[0]!r}, and the graph {graph.name} has nodes 0 to {graph.n_nodes - 1}; name the column of ids with --id"
            )
        ids, values = ids.astype(str).astype(object), values.astype(str).astype(object)
    new = values[places_of(ids, values) < 0]
    if not len(new):
        return graph, places_of(ids, values)
    if graph.ids is None:
        check_node_count(where, int(new.max()) + 1, graph.nnz + len(values), f"node id {new.max()}")
        ids = np.arange(int(new.max()) + 1)
    else:
        ids = np.concatenate([ids, new])
    A, n = graph.A, len(ids)
    indptr = np.concatenate([A.indptr, np.full(n - graph.n_nodes, A.indptr[-1], A.indptr.dtype)])
    fields: dict[str, Any] = {"ids": None if graph.ids is None else ids}
    for what, empty in (("X", np.nan), ("y", -1), ("split", NO_SPLIT)):
        if (old := getattr(graph, what)) is not None:
            fields[what] = _longer(old, n, empty, where)
    return replace(graph, A=sp.csr_array((A.data, A.indices, indptr), shape=(n, n)), **fields), places_of(ids, values)


def _longer(old, n: int, empty, where: str):
    if sp.issparse(old) or empty is np.nan or (old.ndim == 2 and old.dtype != np.int8):
        raise FormatError(
            f"{where}: {n - old.shape[0]:,} of its ids have no features or labels in the tables before; add their rows"
        )
    more = np.full((n - len(old), *old.shape[1:]), empty, old.dtype)
    return np.concatenate([old, more])


def _check_once(codes: np.ndarray, values: np.ndarray, where: str) -> None:
    counts = np.bincount(codes, minlength=len(values))
    if np.any(counts > 1):
        first = int(np.argmax(counts > 1))
        raise FormatError(
            f"{where}: {np.count_nonzero(counts > 1):,} ids are there more than once, {values.tolist()[first]!r} first, {counts[first]} times; keep one row of each"
        )


def _features(frame, columns: list[str], row_N: np.ndarray, wanted: TableConfig, where: str) -> np.ndarray:
    """Return X (N, F) of some columns: numbers as they are, True as 1, text as a feature for each value."""
    absent = np.flatnonzero(row_N < 0)
    if len(absent) and wanted.missing == "refuse":
        raise FormatError(
            f"{where}: {len(absent):,} of {len(row_N):,} nodes have no row, node {absent[0]} first; add them, or fill with --missing zero or mean"
        )
    one_hot, made = wanted.one_hot.split(","), []
    for name in columns:
        values = _picked(frame[name], row_N)
        if name in one_hot:
            made += _one_hot(values, name, wanted, where)
            continue
        if values.dtype.kind == "O":
            raise FormatError(
                f"{where}: column {name!r} is text; omit it, or make features of it with --one-hot {name}"
            )
        made.append(_without_gaps(values.astype(np.float64), name, wanted, where))
    is_wide = any(_values(frame[name]).dtype == np.float64 for name in columns if name not in one_hot)
    X = np.stack(made, axis=1)
    return X if is_wide or np.any(np.abs(X) > 2**24) else X.astype(np.float32)


def _without_gaps(values: np.ndarray, name: str, wanted: TableConfig, where: str) -> np.ndarray:
    lost = np.isnan(values)
    if not lost.any():
        return values
    if wanted.missing == "refuse":
        raise FormatError(
            f"{where}: column {name!r} has no value for {lost.sum():,} nodes; fill them with --missing zero or mean"
        )
    return np.where(lost, 0.0 if wanted.missing == "zero" or lost.all() else values[~lost].mean(), values)


def _one_hot(values: np.ndarray, name: str, wanted: TableConfig, where: str) -> list[np.ndarray]:
    lost = _is_missing(values)
    if lost.any() and wanted.missing != "zero":
        raise FormatError(
            f"{where}: column {name!r} has no value for {lost.sum():,} nodes; --missing zero makes all its features 0 there"
        )
    text = np.array(["" if gone else str(value) for value, gone in zip(values.tolist(), lost.tolist())], object)
    found = sorted(set(text[~lost]))
    if len(found) > MOST_VALUES:
        raise FormatError(
            f"{where}: column {name!r} has {len(found):,} values; expected at most {MOST_VALUES:,} (--one-hot)"
        )
    return [((text == value) & ~lost).astype(np.float64) for value in found]


def _classes(where: str, values: np.ndarray) -> dict[str, Any]:
    """Return y and classes of a column of labels; a missing one is -1."""
    lost = _is_missing(values)
    if values.dtype.kind == "b" or (values.dtype.kind == "O" and not lost.all()):
        text = np.array(["" if gone else str(value) for value, gone in zip(values.tolist(), lost.tolist())], object)
        return named_labels(where, text)
    return named_labels(where, np.where(lost, -1, _filled(values)))


def _roles(where: str, values: np.ndarray) -> np.ndarray:
    lost = _is_missing(values)
    if values.dtype.kind in "iuf":
        return roles_of(where, np.where(lost, NO_SPLIT, _filled(values)).astype(np.int64))
    words = ["" if gone else str(value).strip().lower() for value, gone in zip(values.tolist(), lost.tolist())]
    unknown = next(
        (word for word in words if word not in ROLES and word not in ("", "none", "unlabelled", "unlabeled")), None
    )
    if unknown is not None:
        raise FormatError(f"{where}: {unknown!r} is no part of a split; expected train, val or test, or nothing")
    return np.array([ROLES.get(word, NO_SPLIT) for word in words], np.int8)


def _picked(column, row_N: np.ndarray) -> np.ndarray:
    """Return the value of each node, NaN or None where it has no row."""
    values, absent = _values(column), row_N < 0
    if not absent.any():
        return values[row_N]
    values = values if values.dtype.kind in "fO" else values.astype(object if values.dtype.kind == "b" else np.float64)
    if not len(values):
        return np.full(len(row_N), np.nan)
    picked = values[np.maximum(row_N, 0)]
    picked[absent] = None if values.dtype.kind == "O" else np.nan
    return picked


def _values(column) -> np.ndarray:
    """Return a column as an array of numbers, booleans or objects; numbers with gaps as float64 with NaN."""
    values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if values.dtype.kind in "biuf":
        return values
    values = values.astype(object)
    lost = _is_missing(values)
    kinds = {type(value) for value in values[~lost].tolist()}
    if kinds and kinds <= {int, float} or not kinds:
        return np.array([np.nan if gone else float(value) for value, gone in zip(values.tolist(), lost.tolist())])
    return values


def _filled(values: np.ndarray) -> np.ndarray:
    return np.where(_is_missing(values), -1, values) if values.dtype.kind == "f" else values


def _is_missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "O":
        return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    nothing = lambda v: (
        v is None or v == ""
        if isinstance(v, (str, type(None)))
        else type(v).__name__ in ("NAType", "NaTType") or v != v
    )
    return np.fromiter(map(bool, map(nothing, values.tolist())), bool, len(values))
