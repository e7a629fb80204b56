"""typed_graph: nodes and edges of several types as one Graph; pieces_of: a typed Graph by types again.

Shapes: N nodes, n of a type, L edges of a type, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import GraphError, UsageError
from ..graph import NO_SPLIT, TEST, TRAIN, UNLABELLED, VAL, Graph, NodeTypes, graph_from_coo, labelled, task_of
from ..graph.node_types import listed_ends

MASKS = {"train_mask": TRAIN, "val_mask": VAL, "test_mask": TEST}
NONE = {"classes": UNLABELLED, "labels": 0, "numbers": np.nan}  # the label of other nodes
Triple = tuple[str, str, str]  # a type of edges: the type of their sources, a name, the type of their targets


def typed_graph(
    sizes: Mapping[str, int],
    of_types: Mapping[str, Mapping[str, Any]],
    ends: Mapping[Triple, np.ndarray],
    target: str | None = None,
    **fields: Any,
) -> Graph:
    """Return the typed Graph: nodes type after type, relations in the order of ends; ids are author:12.

    X is sparse, with columns of each type, paper.0, paper.1, ..., or one of ones, paper, where a type has no features.
    Args:   sizes     n of each type.
            of_types  of each type what it has of X, y, split and classes, a row for each of its nodes.
            ends      (2, L) of each type of edges: sources and targets, numbered within their types.
            target    the type whose labels and split are read; None: the one that has labels.
    Raises: GraphError naming an edge or a type that is wrong, or the types where several have labels.
    """
    starts = np.cumsum([0, *sizes.values()]).tolist()
    first, names, blocks = dict(zip(sizes, starts)), [], []
    if missing := {end for a, _, b in ends for end in (a, b)} - set(sizes):
        raise GraphError(f"edges join nodes of type {min(missing)}; give how many there are")
    places = [of + np.array([[first[a]], [first[b]]]) for (a, _, b), of in ends.items()]
    src_L, dst_L = np.concatenate([np.zeros((2, 0), np.int64), *places], axis=1)
    for name, n in sizes.items():
        X = of_types[name].get("X")
        names += [name] if X is None else [f"{name}.{column}" for column in range(X.shape[1])]
        blocks.append(sp.csr_array(np.ones((n, 1), np.float32) if X is None else X))
    made = _targets(sizes, of_types, target)
    if "ids" not in fields:
        made["ids"] = [f"{name}:{i}" for name, n in sizes.items() for i in range(n)]
    if any(of.get("X") is not None for of in of_types.values()):
        made |= {"X": _diagonal(blocks), "feature_names": names}
    made["edge_y"] = np.repeat(np.arange(len(ends)), [of.shape[1] for of in places])
    meta = {"typed": True, "node_types": {"names": [*sizes], "starts": starts}} | fields.pop("meta", {})
    made |= {"edge_classes": tuple(map(" ".join, ends)), "meta": meta}
    return graph_from_coo(src_L, dst_L, starts[-1], **(made | fields))


def _diagonal(blocks: list[sp.csr_array]) -> sp.csr_array:
    """Return CSR blocks on the diagonal of one CSR, whose places are not listed as pairs on the way."""
    first = np.cumsum([0, *(block.shape[1] for block in blocks)])
    data = np.concatenate([block.data for block in blocks])
    indices = np.concatenate([block.indices + block.indices.dtype.type(at) for block, at in zip(blocks, first)])
    lengths_N = np.concatenate([np.diff(block.indptr) for block in blocks])
    return sp.csr_array((data, indices, np.concatenate([[0], np.cumsum(lengths_N)])), shape=(len(lengths_N), first[-1]))


def _targets(sizes: Mapping[str, int], of_types: Mapping[str, Mapping], target: str | None) -> dict[str, Any]:
    """Return labels, split and classes of all nodes, of which those of one type have some."""
    found = [name for name in sizes if of_types[name].get("y") is not None]
    if (target is None and len(found) > 1) or (target is not None and target not in found):
        raise GraphError(
            f"target = {target!r}; the types with labels, y, are: {', '.join(found) or 'none'}; choose one"
        )
    if not found:
        return {}
    target = target or found[0]
    out = {name: rows for name, rows in of_types[target].items() if name != "X" and rows is not None}
    at, counts = [*sizes].index(target), [*sizes.values()]
    for name, none in {"y": NONE[task_of(out["y"])], "split": NO_SPLIT}.items():
        if name in out:
            rows = out[name].astype(np.int64) if out[name].dtype.kind in "bu" else out[name]
            pad = [(sum(counts[:at]), sum(counts[at + 1 :])), *[(0, 0)] * (rows.ndim - 1)]
            out[name] = np.pad(rows, pad, constant_values=none)
    return out


def pieces_of(graph: Graph) -> tuple[dict[str, dict[str, Any]], dict[Triple, np.ndarray]]:
    """Return of each type what it has of x, y, train_mask, val_mask, test_mask, and num_nodes; of each type of edges (2, L).

    Edges are in the order in which they were listed. What typed_graph was given comes back; numbers are in the dtype of X.
    Raises: UsageError for a graph whose nodes or relations have no types.
    """
    types, named = NodeTypes.read(graph.meta), np.array(graph.feature_names or (), object)
    if graph.edges == "undirected" and graph.nnz != 2 * graph.meta.get("edges_listed", 0):
        raise UsageError(
            f"{graph.name}: a cutoff dropped some of its messages, which other libraries cannot express; convert without it"
        )
    ends_of = {name: ends for name in graph.edge_classes or () if (ends := types.ends_of(name)) is not None}
    if graph.edge_y is None or not types.names or len(ends_of) < len(graph.edge_classes or ()):
        expected = "meta['node_types'] and relations such as 'author writes paper'"
        raise UsageError(f"{graph.name}: expected a typed graph, with {expected}")
    owner_F = np.array([name.partition(".")[0] for name in named])
    nodes: dict[str, dict[str, Any]] = {}
    for name, start, end in zip(types.names, types.starts, types.starts[1:]):
        of = nodes[name] = {"num_nodes": end - start}
        X, y, split = (None if rows is None else rows[start:end] for rows in (graph.X, graph.y, graph.split))
        if X is not None and name not in named:
            X = X[:, owner_F == name] if len(named) and np.isin(owner_F, types.names).all() else X
            of["x"] = sp.csr_array(X).toarray()
        if y is not None and (y.any() if graph.is_multilabel else labelled(y).any()):
            masks = {} if split is None else {mask: split == role for mask, role in MASKS.items()}
            of |= {"y": y} | {mask: is_in for mask, is_in in masks.items() if is_in.any()}
    ends_2L, ids_L = listed_ends(graph)
    order, edges = np.argsort(ids_L), {}
    ends_2L, relation_L = ends_2L[:, order], graph.edge_y[ids_L[order]]
    for r, (name, (a, b)) in enumerate(ends_of.items()):
        first = np.array([[types.starts[a]], [types.starts[b]]])
        edges[types.names[a], " ".join(name.split(" ")[1:-1]), types.names[b]] = ends_2L[:, relation_L == r] - first
    return nodes, edges
