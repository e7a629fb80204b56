"""NodeTypes: the types of the nodes of a typed graph, and what its relations join.

Shapes: N nodes, n of them, E nonzeros, T types, R relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GraphError, is_integer


@dataclass(frozen=True, slots=True)
class NodeTypes:
    """Nodes starts[t] to starts[t + 1] - 1 are of type t, called names[t]. Without names all nodes are of type 0."""

    names: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()

    @classmethod
    def read(cls, meta: Mapping[str, Any]) -> NodeTypes:
        """Return the types in the meta of a Graph, or in another object that has its node_types or none."""
        of = meta.get("node_types")
        return cls() if of is None else cls(tuple(of["names"]), tuple(of["starts"]))

    def of(self, node_n: np.ndarray) -> np.ndarray:
        """Return the type of nodes, (n,) int64."""
        return np.searchsorted(np.array(self.starts[1:-1], np.int64), node_n, side="right")

    def times(self, B: int) -> NodeTypes:
        """Return the types where node i is i B to i B + B - 1."""
        return NodeTypes(self.names, tuple(start * B for start in self.starts))

    def rows(self, name: str) -> slice:
        """Return the nodes of a type."""
        at = self.names.index(name)
        return slice(self.starts[at], self.starts[at + 1])

    def ends_of(self, relation: str) -> tuple[int, int] | None:
        """Return the types of source and target of a relation named "author writes paper"; None of other names."""
        source, *_, target = relation.split(" ")
        is_triple = relation.count(" ") > 1 and source in self.names and target in self.names
        return (self.names.index(source), self.names.index(target)) if is_triple else None


def checked_node_types(value: Any, n_nodes: int) -> dict[str, list]:
    """Return meta["node_types"] as JSON has it; GraphError unless its starts rise from 0 to N, one for each name, and N."""
    names, starts = (value.get("names"), value.get("starts")) if isinstance(value, Mapping) else (None, None)
    names, starts = (list(x) if isinstance(x, (Sequence, np.ndarray)) else [] for x in (names, starts))
    is_named = all(isinstance(name, str) and name and not set(" .") & set(name) for name in names)
    is_range = all(map(is_integer, starts)) and starts[:1] + starts[-1:] == [0, n_nodes] and starts == sorted(starts)
    if not (is_named and is_range and 0 < len(names) == len(set(names)) == len(starts) - 1):
        raise GraphError(
            f"meta['node_types'] is {value!r}; expected {{'names': [a, b], 'starts': [0, i, {n_nodes}]}}, names without "
            f"blanks and dots and starts that rise from 0 to the {n_nodes} nodes"
        )
    return {"names": names, "starts": list(map(int, starts))}


def check_relations(graph) -> None:
    """Raise GraphError unless each edge of a relation such as "author writes paper" joins nodes of these types. O(E)."""
    types, y_L = NodeTypes.read(graph.meta), graph.edge_y
    if not types.names or y_L is None or y_L.ndim > 1 or y_L.dtype.kind not in "iu" or not graph.edge_classes:
        return
    ends_R2 = np.array([types.ends_of(name) or (-1, -1) for name in graph.edge_classes])
    row_E, is_added_E = np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr)), graph.edge_ids < 0
    swapped_E = is_added_E ^ (graph.edges == "reversed")
    r_E = y_L[np.where(is_added_E, -1 - graph.edge_ids, graph.edge_ids)]
    ends_2E = np.where(swapped_E, [graph.A.indices, row_E], [row_E, graph.A.indices])
    expected_2E = ends_R2[r_E].T
    is_wrong_E = (types.of(ends_2E) != expected_2E).any(axis=0) & (expected_2E[0] >= 0) & (r_E >= 0)
    if is_wrong_E.any():
        e = int(np.argmax(is_wrong_E))
        u, v = ends_2E[:, e]
        name = lambda node: node if graph.ids is None else graph.ids[node]
        a, b = (types.names[t] for t in types.of(np.array([u, v])))
        raise GraphError(
            f"edge {name(u)} -> {name(v)} of relation {graph.edge_classes[r_E[e]]!r} joins types {a} and {b}; give each relation "
            "the types in its name"
        )
