"""Names of columns of features, labels and attributes of edges; where the columns of a model are in another graph.

Shapes: N nodes, E nonzeros, F columns, C classes, or columns of labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..config.names import On, Task
from ..errors import GraphError
from .node_types import NodeTypes
from .split import count_classes, task_of

Names = tuple[str, ...] | None
SHOWN = 5  # names in a message


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """What the user calls the columns of a graph; None: their numbers.

    features  of X, a value of text as color=red; edge_features: of edge_attr.
    classes   of classes, or the columns of several labels or of numbers; edge_classes: of edges.
    node_types  of types of nodes; target_types: of those with labels, where a DistGraph or a run is described.
    """

    features: Names = None
    classes: Names = None
    edge_features: Names = None
    edge_classes: Names = None
    node_types: Names = None
    target_types: Names = None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> ColumnNames:
        """Return the names in a JSON object, in which others may be; `written` makes one."""
        found = {one.name: values.get(one.name) for one in fields(cls)}
        return cls(
            **{name: tuple(map(str, names)) for name, names in found.items() if isinstance(names, (list, tuple))}
        )

    def written(self) -> dict[str, list[str]]:
        """Return the names as a JSON object, without those that are None."""
        return {one.name: list(names) for one in fields(self) if (names := getattr(self, one.name)) is not None}

    def difference(self, here: ColumnNames) -> str:
        """Return the first column that has another name here, "" without one; what has no names has all."""
        for what, ours in self.written().items():
            theirs = here.written().get(what, ours)
            if ours != theirs:
                at = next((c for c, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
                a, b = (repr(names[at]) if at < len(names) else "missing" for names in (ours, theirs))
                return f"number {at + 1} of {what.replace('_', ' ')} is {a}, here {b}"
        return ""


@dataclass(frozen=True, slots=True)
class GraphColumns:
    """What a graph has, or what a model was trained on: names of columns, and how many there are.

    name  in messages.
    """

    name: str
    names: ColumnNames
    n_features: int
    n_edge_features: int
    n_classes: int
    task: Task

    @classmethod
    def of(cls, graph, on: On = "nodes") -> GraphColumns:
        """Return the columns of a Graph; on: what classes are of."""
        y, classes = (graph.y, graph.classes) if on == "nodes" else (graph.edge_y, graph.edge_classes)
        named = {"features": graph.feature_names, "classes": classes, "edge_classes": graph.edge_classes}
        named["edge_features"] = None if graph.edge_attr is None else graph.meta.get("edge_features")
        named["node_types"] = NodeTypes.read(graph.meta).names or None
        sizes = graph.n_features, graph.n_edge_features, count_classes(y)
        return cls(graph.name, ColumnNames.read(named), *sizes, task_of(y))


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Where the columns of a model are in a graph; None: as they are.

    features, edge_features  (F,) the column of the graph for each one of the model, -1 for a value of text that no row
               has, whose column is 0.
    labels     of classes: the model's number of each, its own first; else the columns of the graph that are compared.
    scored     of several labels or of numbers: the columns of the model that are compared with `labels`.
    classes    names of the numbers that `labels` has.
    notes      what was dropped, filled or assumed, a sentence each; label_notes: of what scores are of.
    """

    features: np.ndarray | None = None
    edge_features: np.ndarray | None = None
    labels: np.ndarray | None = None
    scored: list[int] | None = None
    classes: Names = None
    notes: list[str] = field(default_factory=list)
    label_notes: list[str] = field(default_factory=list)

    def labels_of(self, y: np.ndarray | None) -> np.ndarray | None:
        """Return labels as the model numbers them."""
        if y is None or self.labels is None or (y.ndim == 1 and self.scored is not None):
            return y
        return y[:, self.labels] if self.scored is not None else np.where(y < 0, y, self.labels[y])


def taken(M: Any, take: np.ndarray | None) -> Any:
    """Return columns of a matrix, dense or CSR, zeros for -1; itself where take or M is None."""
    if take is None or M is None:
        return M
    if sp.issparse(M):
        wider = sp.csr_array((M.data, M.indices, M.indptr), shape=(M.shape[0], M.shape[1] + 1))
        rows = sp.csr_array(wider[:, np.where(take < 0, M.shape[1], take)])
        rows.sort_indices()
        return rows
    rows = M[:, take]
    rows[:, take < 0] = 0
    return rows


def matched(ours: GraphColumns, theirs: GraphColumns) -> ColumnMap:
    """Return where the columns of a model are in a graph.

    Raises: GraphError naming a column that is on one side alone, and is no value of a column of text on both.
    """
    found = ColumnMap()
    changed: dict[str, Any] = {
        name: _matched(name, ours, theirs, found.notes)
        for name in ("features", "edge_features")
        if getattr(ours, f"n_{name}") and getattr(theirs, f"n_{name}")
    }
    if theirs.n_classes and ours.task != theirs.task:
        changed["scored"] = []
        found.label_notes.append(
            f"{theirs.name} has {theirs.task}, {ours.name} predicts {ours.task}: nothing is scored"
        )
    elif theirs.n_classes:
        match = _matched_classes if ours.task == "classes" else _matched_targets
        changed |= match(ours, theirs, found.label_notes)
    return replace(found, **changed)


def _matched(name: str, our: GraphColumns, their: GraphColumns, notes: list[str]) -> np.ndarray | None:
    """Return the column of theirs for each of ours, None where they are the same."""
    what, ours, theirs = name.replace("_", " "), getattr(our.names, name), getattr(their.names, name)
    if _lacks_names(f"{what}: their order is taken to be the same", our, their, ours, theirs, notes) or ours == theirs:
        return None
    lacking, absent = _apart(ours, theirs)
    unknown, dropped = _apart(theirs, ours)
    if lacking or unknown:
        problems = [f"lacks {_listed(lacking)}"] * bool(lacking) + [f"has {_listed(unknown)} too"] * bool(unknown)
        raise GraphError(
            f"{their.name} {' and '.join(problems)}; {our.name} was trained on the {what} {_listed(ours)}: give these"
        )
    for names, text in (
        (absent, f"{what} of {our.name} that {their.name} has not are 0 in all rows"),
        (dropped, f"{what} of {their.name} that {our.name} has not are dropped"),
    ):
        notes += [f"{text}: {len(names):,}, {names[0]} first"] if names else []
    place = {name: at for at, name in enumerate(theirs)}
    return np.array([place.get(name, -1) for name in ours], np.int64)


def _lacks_names(
    what: str, our: GraphColumns, their: GraphColumns, ours: Names, theirs: Names, notes: list[str]
) -> bool:
    """Return whether names are not on both sides; a note says it where they are on one. what: "columns: what is done"."""
    if (ours is None) != (theirs is None):
        named, other = (our, their) if theirs is None else (their, our)
        what, _, done = what.partition(":")
        notes.append(f"{named.name} names its {what}, {other.name} does not:{done}")
    return ours is None or theirs is None


def _apart(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our names that they lack: columns, and values, color=red, of columns of text that both have."""
    column = lambda name: name.partition("=")[0] if "=" in name else None
    known, of_text = set(theirs), {column(name) for name in theirs} - {None}
    lacking = [name for name in ours if name not in known]
    return [n for n in lacking if column(n) not in of_text], [n for n in lacking if column(n) in of_text]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (f", ... ({len(names):,})" if len(names) > SHOWN else "")


def _matched_classes(ours: GraphColumns, theirs: GraphColumns, notes: list[str]) -> dict[str, Any]:
    """Return the numbers of their classes in a model, whose own come first; numbers are names where others are."""
    a, b = ours.names.classes, theirs.names.classes
    if all(name.isdecimal() for name in (a or b or ("",))):
        a, b = (names or tuple(map(str, range(of.n_classes))) for names, of in ((a, ours), (b, theirs)))
    if _lacks_names("classes: they are compared by number", ours, theirs, a, b, notes) or a is None or b is None:
        return {"classes": a or b}
    number = {name: c for c, name in enumerate(dict.fromkeys((*a, *b)))}
    is_same = b == tuple(number)[: len(b)]
    return {"labels": None if is_same else np.array([number[name] for name in b]), "classes": tuple(number)}


def _matched_targets(ours: GraphColumns, theirs: GraphColumns, notes: list[str]) -> dict[str, Any]:
    """Return which columns of several labels, or of numbers, are compared with which."""
    a, b = ours.names.classes, theirs.names.classes
    if (
        _lacks_names("columns of labels: they are compared by number", ours, theirs, a, b, notes)
        or a is None
        or b is None
    ):
        if ours.n_classes == theirs.n_classes:
            return {}
        notes[:] = [
            f"{theirs.name} has {theirs.n_classes} columns of labels, {ours.name} predicts {ours.n_classes}: nothing is scored"
        ]
        return {"scored": []}
    for one, names, others in ((ours, a, b), (theirs, b, a)):
        if alone := [name for name in names if name not in others]:
            notes.append(
                f"columns of labels that {one.name} alone has are not scored: {len(alone):,}, {alone[0]} first"
            )
    scored = [c for c, name in enumerate(a) if name in b]
    return {"scored": scored} | ({"labels": np.array([b.index(a[c]) for c in scored])} if scored and a != b else {})


def checked_names(names: Iterable[object] | None, what: str, width: int, field: str) -> Names:
    """Return the names of columns as text; GraphError unless each of them has one of its own."""
    if names is None:
        return None
    texts = tuple(map(str, names))
    if len(texts) != width:
        raise GraphError(f"{len(texts)} names of {what}, which has {width} columns: name each in {field}, or none")
    if len(set(texts)) < width:
        twice = next(name for at, name in enumerate(texts) if name in texts[:at])
        raise GraphError(f"two columns of {what} are called {twice!r}; give each a name of its own")
    return texts
