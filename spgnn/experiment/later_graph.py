"""Give a later graph the columns of a run, found by name, and its numbers of classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..config.names import MODELS, On, Task
from ..distgraph import DistGraph
from ..errors import GraphError
from ..graph import ColumnMap, ColumnNames, Graph, GraphColumns, matched, taken, targets_of
from ..layers.registry import ModelSpec


def columns_of_run(spec: ModelSpec, names: ColumnNames, task: Task) -> GraphColumns:
    """Return what the model of a run was trained on; attributes of edges only where it may read them."""
    known = spec.arguments
    width = known.get("f_edge", 0) if spec.family in MODELS else len(names.edge_features or ())
    return GraphColumns("the run", names, known["f_in"], width, known["n_classes"], task)


def matched_graph(graph: Graph, ours: GraphColumns, on: On = "nodes") -> tuple[Graph, ColumnMap]:
    """Return a graph, as it is used, with the columns of a run on nodes or edges and its numbers of classes.

    Raises: as graph.matched.
    """
    found = matched(ours, GraphColumns.of(graph, on))
    changed: dict[str, Any] = {
        "X": taken(graph.X, found.features),
        "edge_attr": taken(graph.edge_attr, found.edge_features),
        ("y" if on == "nodes" else "edge_y"): found.labels_of(targets_of(graph, on)),
    }
    if all(value is getattr(graph, name) for name, value in changed.items()):
        return graph, found
    meta = {name: value for name, value in graph.meta.items() if name not in ("edge_features", "antisymmetric")}
    return replace(graph, **changed, feature_names=None, classes=None, edge_classes=None, meta=meta), found


def check_related(graph: Graph | DistGraph, spec: ModelSpec, names: ColumnNames) -> None:
    """Raise GraphError where a later graph, as it is used, has other relations or types than a run that reads them by number."""
    R = spec.arguments.get("message_relations")
    there = graph.names if isinstance(graph, DistGraph) else GraphColumns.of(graph).names
    if R is None and (graph.links is None or graph.links.relations is None):
        return
    relations = there.edge_classes if graph.links is None else graph.links.relations
    types = (there.node_types, names.node_types) if R is not None else (None, None)
    for what, theirs, ours in (("relations", relations, names.edge_classes), ("types of nodes", *types)):
        if theirs and ours and tuple(theirs) != tuple(ours):
            first = next((name for name in theirs if name not in ours), theirs[0])
            raise GraphError(
                f"{graph.name} has {len(theirs)} {what}, of which {first!r} is not the run's or has another place; expected, "
                f"in this order: {', '.join(ours[:8])}{', ...' if len(ours) > 8 else ''}"
            )
    if R is not None and graph.typed_sizes[0] != R:
        raise GraphError(
            f"messages of {graph.name} have {graph.typed_sizes[0]} relations, and the run's {R}, with inverses where edges are "
            "used both ways: predict on a graph that has all of them"
        )


def unknown_classes(counts: np.ndarray, n_classes: int, names: tuple[str, ...] | None, graph: str, on: On) -> list[str]:
    """Return a line on the nodes, or edges, whose class a model does not have, none without any; counts: as metrics.count has them."""
    per_class = counts[:, n_classes:, 2].sum(0)
    found = np.flatnonzero(per_class)
    if not len(found):
        return []
    first = n_classes + int(found[0])
    name = first if names is None or first >= len(names) else repr(names[first])
    return [f"{on} of {graph} of classes that the run has not count as wrong: {per_class.sum():,}, class {name} first"]
