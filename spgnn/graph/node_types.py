"""NodeTypes: the types of the nodes of a typed graph, and what its relations join.

Shapes: N nodes, n of them, E nonzeros, T types, R relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GraphError, is_integer
from .split import TEST, TRAIN, VAL, count_classes, task_of


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

    def counts(self) -> str:
        """Return how many nodes each type has: 4,057 authors, 14,328 papers."""
        sizes = zip(self.names, np.diff(self.starts).tolist())
        plural = lambda name: name if name.endswith("s") else name[:-1] + "ies" if name.endswith("y") else name + "s"
        return ", ".join(f"{n:,} {name if n == 1 else plural(name)}" for name, n in sizes)

    def ends_of(self, relation: str) -> tuple[int, int] | None:
        """Return the types of source and target of a relation named "author writes paper"; None of other names."""
        words, names = relation.split(" "), self.names
        is_triple = len(words) > 2 and words[0] in names and words[-1] in names
        return (names.index(words[0]), names.index(words[-1])) if is_triple else None


def types_line(graph) -> str:
    """Return the types of a typed graph: 4,057 authors, 14,328 papers; 2 relations. "" of another graph."""
    R = max(len(graph.edge_classes or ()), count_classes(graph.edge_y)) if graph.meta.get("typed") else 0
    relations = f"{R:,} relation{'s' * (R > 1)}" if R else ""
    return "; ".join(filter(None, (NodeTypes.read(graph.meta).counts(), relations)))


def type_notes(graph) -> list[str]:
    """Return notes on types of nodes that no edge reaches, and on relations without edges, a sentence each."""
    A, types, notes = graph.A, NodeTypes.read(graph.meta), []
    is_stored, is_in = graph.edges == "stored", graph.edges == "stored" and graph.meta.get("edges") == "in"
    reads_N = np.zeros(graph.n_nodes, np.int64) if is_in else np.diff(A.indptr)
    reads_N = reads_N + np.bincount(A.indices, minlength=graph.n_nodes) if is_stored else reads_N
    for name, start, end in zip(types.names, types.starts, types.starts[1:]):
        if not reads_N[start:end].any():
            notes.append(f"type {name}: no edge reaches its {end - start:,} nodes")
    if graph.meta.get("typed") and graph.edge_classes and graph.edge_y is not None:
        notes += [
            f"relation {graph.edge_classes[r]}: no edge has it"
            for r in np.setdiff1d(np.arange(len(graph.edge_classes)), graph.edge_y)
        ]
        notes += _tested_relations(graph) if graph.split is not None and graph.split.ndim == 1 else []
    return notes


def _tested_relations(graph) -> list[str]:
    """Return notes on relations with edges of nodes of test, and none of nodes that train or validate. O(E)."""
    if task_of(graph.edge_y) != "classes" or graph.edge_y.min(initial=0) < 0:
        return []
    (ends_2L, ids_L), R = listed_ends(graph), len(graph.edge_classes)
    counts_R = lambda role: np.bincount(graph.edge_y[ids_L][(graph.split[ends_2L] == role).any(0)], minlength=R)
    tested_R, seen_R = counts_R(TEST), counts_R(TRAIN) + counts_R(VAL)
    return [
        f"relation {graph.edge_classes[r]}: its {tested_R[r]:,} edges of targets are of test alone: its weights are not trained"
        for r in np.flatnonzero((tested_R > 0) & (seen_R == 0))
    ]


def checked_node_types(value: Any, n_nodes: int) -> dict[str, list]:
    """Return meta["node_types"] as JSON has it; GraphError unless its starts rise from 0 to N, one for each name, and N."""
    of = value if isinstance(value, Mapping) else {}
    names, starts = (
        list(x) if isinstance(x := of.get(key), (Sequence, np.ndarray)) else [] for key in ("names", "starts")
    )
    is_named = all(isinstance(name, str) and name and not set(" .") & set(name) for name in names)
    is_range = all(map(is_integer, starts)) and starts[:1] + starts[-1:] == [0, n_nodes] and starts == sorted(starts)
    if not (is_named and is_range and 0 < len(names) == len(set(names)) == len(starts) - 1):
        expected = f"{{'names': [a, b], 'starts': [0, i, {n_nodes}]}}, starts that rise to the {n_nodes} nodes"
        raise GraphError(f"meta['node_types'] is {value!r}; expected {expected}, and names without blanks and dots")
    return {"names": names, "starts": list(map(int, starts))}


def listed_ends(graph) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target of the listed edges that A has, in its order, (2, L), and their places in the list, (L,)."""
    ends_2E = np.stack([np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr)), graph.A.indices])
    listed = np.flatnonzero(graph.edge_ids >= 0)
    return (ends_2E[::-1] if graph.edges == "reversed" else ends_2E)[:, listed], graph.edge_ids[listed]


def check_relations(graph) -> None:
    """Raise GraphError unless each edge of a relation such as "author writes paper" joins nodes of these types. O(E)."""
    types, names = NodeTypes.read(graph.meta), graph.edge_classes
    if not types.names or not names or graph.edge_y is None or task_of(graph.edge_y) != "classes":
        return
    (ends_2L, ids_L), type_N = listed_ends(graph), types.of(np.arange(graph.n_nodes)).astype(np.int32)
    T, relation_L = len(types.names), graph.edge_y[ids_L]
    expected_R = np.array(
        [-1 if (ends := types.ends_of(name)) is None else ends[0] * T + ends[1] for name in [*names, ""]]
    )
    found_L, expected_L = type_N[ends_2L[0]] * T + type_N[ends_2L[1]], expected_R[relation_L]
    is_wrong_L = (found_L != expected_L) & (expected_L >= 0)
    if is_wrong_L.any():
        e = int(np.argmax(is_wrong_L))
        u, v = ends_2L[:, e] if graph.ids is None else graph.ids[ends_2L[:, e]]
        joined = " and ".join(types.names[t] for t in type_N[ends_2L[:, e]])
        raise GraphError(f"edge {u} -> {v} of relation {names[relation_L[e]]!r} joins types {joined}")
