"""Predictions as a table, a line per node or edge: its id, its class and, on request, the probability of each class.

Shapes: N nodes, or L edges, C classes.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import new_file
from ..errors import UsageError
from ..graph import Links, NodeTypes

BLOCK = 1 << 16  # lines
Columns = dict[str, np.ndarray]


@dataclass(slots=True)
class Names:
    """What the user calls nodes, (N,) int64 or str, and classes; None: numbers. Filled on rank 0, when a graph is read.

    ends_L2  source and target of the edges that are predicted, numbers of nodes; None: nodes are predicted.
    links    that are ranked; None: labels are predicted.
    rows_n   nodes of which a table has rows; None: all. type_name: what their ids begin with where others have the same,
             as orders:7, and ids of a table do not.
    """

    ids: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    ends_L2: np.ndarray | None = None
    links: Links | None = None
    rows_n: np.ndarray | None = None
    type_name: str = ""

    def keep_types(self, types: NodeTypes, targets: tuple[str, ...] | None) -> None:
        """Give a table the rows of nodes of the types that are predicted; None: of all nodes."""
        starts = dict(zip(types.names, zip(types.starts, types.starts[1:])))
        rows = [np.arange(*starts[name]) for name in targets or () if name in starts]
        self.type_name = targets[0] if targets and len(rows) == 1 else ""
        self.rows_n = np.concatenate(rows) if rows and self.ends_L2 is None and self.links is None else None

    @property
    def has_any(self) -> bool:
        """Whether nodes or classes have names, or edges ends, or links are predicted."""
        return any(of is not None for of in (self.ids, self.classes, self.ends_L2, self.links))

    def of_rows(self, count: int) -> Columns:
        """Return the columns that say what rows are: id; of edges source, target and edge, the number in their list."""
        if self.links is not None:
            return self.of_links(self.links, slice(None))
        if self.ends_L2 is None:
            return {"id": np.arange(count) if self.ids is None else self.ids}
        ends = self.ends_L2 if self.ids is None else self.ids[self.ends_L2]
        return {"source": ends[:, 0], "target": ends[:, 1], "edge": np.arange(count)}

    def of_links(self, links: Links, at) -> Columns:
        """Return source, target and, where links have any, relation of the links at some places."""
        names = EndNames(links, self.ids)
        return names.columns(links.source_T[at], links.target_T[at], links.relation_T[at])


@dataclass(frozen=True, slots=True)
class EndNames:
    """What the user calls the ends of links: names of nodes; of a bipartite graph as its columns have them, user and item.

    ids  (N,) names of nodes, where they are equal in both columns as user:7 and item:7; None: numbers.
    """

    links: Links
    ids: np.ndarray | None

    def of(self, end: int) -> tuple[int, np.ndarray]:
        """Return the first node that may be a source (end 0) or a target (1), and the names of all that may."""
        links = self.links
        first, last = (
            (links.among if end else (0, links.n_sources or links.n_nodes)) if links.n_sources else (0, links.n_nodes)
        )
        if self.ids is None:
            return first, np.arange(last - first) if links.n_sources else np.arange(first, last)
        ids, prefix = self.ids[first:last], f"{links.kinds[end]}:"
        return first, without_prefix(ids, prefix) if links.n_sources else ids

    def columns(self, source: np.ndarray, target: np.ndarray, relation: np.ndarray) -> Columns:
        """Return the columns of sources, relations if links have any, and targets."""
        (first, sources), (begin, targets) = self.of(0), self.of(1)
        columns = {self.links.kinds[0]: sources[source - first]}
        if self.links.relations is not None:
            columns["relation"] = np.array(self.links.relations, object)[relation]
        return columns | {self.links.kinds[1]: targets[target - begin]}

    def places(self, values, end: int, what: str) -> np.ndarray:
        """Return the nodes of names. Raises: UsageError naming the first that no node has."""
        first, ids = self.of(end)
        return first + places(ids, values, what)


def without_prefix(ids: np.ndarray, prefix: str) -> np.ndarray:
    """Return ids without what each of them begins with, or as they are."""
    if ids.dtype.kind not in "OU" or not all(str(name).startswith(prefix) for name in ids.tolist()):
        return ids
    return np.array([str(name)[len(prefix) :] for name in ids.tolist()], object)


def places(ids: np.ndarray, values, what: str) -> np.ndarray:
    """Return where values, or a single name, are in ids, (p,) int64. Raises: UsageError naming the first that is not there."""
    from ..data.table_columns import places_of

    values: Any = [values] if isinstance(values, str) else values
    if ids.dtype.kind in "OU":
        ids, values = ids.astype(object), np.array([str(value) for value in values], object)
    elif (values := np.asarray(values)).dtype.kind not in "iu":  # of text, those that are numbers
        given = [str(value) for value in values.tolist()]
        values = np.array([int(text) if text.isascii() and text.isdigit() else text for text in given], object)
        ids = ids.astype(object)
    found = places_of(ids, values)
    if (found < 0).any():
        at = int(np.argmax(found < 0))
        raise UsageError(f"row {at + 1}: {what} {values.tolist()[at]!r} is not in the graph")
    return found.astype(np.int64)


def prediction_columns(predictions_N: np.ndarray, names: Names, proba_NC: np.ndarray | None = None) -> Columns:
    """Return the columns id, or source, target and edge, then class and p_CLASS ...; several labels are joined by ';'.

    Numbers have a column for each target, by its name, else prediction, or prediction_0, ...
    """
    rows = slice(None) if names.rows_n is None else names.rows_n
    columns = {name: of_rows[rows] for name, of_rows in names.of_rows(len(predictions_N)).items()}
    if names.rows_n is not None:
        columns["id"] = without_prefix(columns["id"], f"{names.type_name}:")
    predictions_N, proba_NC = predictions_N[rows], None if proba_NC is None else proba_NC[rows]
    if names.links is not None:
        columns["split"] = np.array(["message", "train", "val", "test"], object)[names.links.split_T + 1]
        return columns | dict(zip(("rank_of_target", "rank_of_source"), predictions_N.T))
    if predictions_N.dtype.kind == "f":
        of_target = predictions_N.reshape(len(predictions_N), -1).T
        default = ["prediction"] if len(of_target) == 1 else [f"prediction_{c}" for c in range(len(of_target))]
        is_taken = not columns.keys().isdisjoint(names.classes or ())
        return columns | dict(zip(default if is_taken else names.classes or default, of_target))
    columns["class"] = _class_names(predictions_N, names.classes)
    for c, proba_N in enumerate(() if proba_NC is None else proba_NC.T):
        columns[f"p_{c if names.classes is None else names.classes[c]}"] = proba_N
    return columns


def check_table(path: Path, option: str) -> None:
    """Raise UsageError where a file that an option names is .parquet, and pyarrow is absent."""
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise UsageError(f"{option} {path}: Parquet needs pyarrow: pip install 'spgnn[tables]'") from None


def write_table(path: Path, columns: Columns, option: str = "") -> None:
    """Write columns as .parquet or .csv, whole or not at all; option: named in errors."""
    with new_file(path, option) as file:
        if path.suffix == ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()}), file)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(columns)
        for start in range(0, len(next(iter(columns.values()))), BLOCK):
            block = [np.asarray(values[start : start + BLOCK]) for values in columns.values()]
            lines.writerows(zip(*((v.astype(str) if v.dtype.kind == "f" else v).tolist() for v in block)))
        text.flush()
        text.detach()


def _class_names(predictions_N: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
    """Return the class of each node, as a number or name."""
    if predictions_N.ndim == 1:
        return predictions_N if classes is None else np.array(classes, object)[predictions_N]
    names = np.array([str(c) for c in range(predictions_N.shape[1])] if classes is None else classes, object)
    return np.array([";".join(names[row.nonzero()[0]]) for row in predictions_N] + [""], object)[:-1]
