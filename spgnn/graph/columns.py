"""Names of columns: of features, of classes or of what is predicted, and of attributes of edges.

Shapes: F columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import GraphError


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """What the user calls the columns of a graph; None: their numbers.

    features  of X, a value of text as color=red; edge_features: of edge_attr.
    classes   of classes, or the columns of several labels or of numbers.
    """

    features: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    edge_features: tuple[str, ...] | None = None

    @classmethod
    def of(cls, graph) -> ColumnNames:
        """Return the names that a Graph has."""
        edge_features = None if graph.edge_attr is None else graph.meta.get("edge_features")
        return cls.read({"features": graph.feature_names, "classes": graph.classes, "edge_features": edge_features})

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> ColumnNames:
        """Return the names in a JSON object, in which others may be; `written` makes one."""
        found = {name: values.get(name) for name in cls.__slots__}
        return cls(
            **{name: tuple(map(str, names)) for name, names in found.items() if isinstance(names, (list, tuple))}
        )

    def written(self) -> dict[str, list[str]]:
        """Return the names as a JSON object, without those that are None."""
        return {one.name: list(names) for one in fields(self) if (names := getattr(self, one.name)) is not None}


def checked_names(names: Iterable[object] | None, what: str, width: int, field: str) -> tuple[str, ...] | None:
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
