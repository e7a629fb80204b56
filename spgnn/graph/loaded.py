"""loaded_line: what a graph has; graph_notes, label_notes: what of it looks like a mistake, a sentence each.

Shapes: N nodes, n of them, E nonzeros, F features, C classes.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..config.names import LONG_EDGES
from .node_types import type_notes, types_line
from .split import TRAIN, count_classes, task_of

USED = {
    "undirected": "read in both directions",
    "directed": "out: a node reads those that it points to",
    "reversed": "in: a node reads those that point to it",
}
NOUNS = {"classes": "classes", "labels": "labels", "numbers": "numbers to predict"}  # of a task
SECONDS, MILLISECONDS = (3e8, 5e9), (3e11, 5e12)  # since 1970, from 1979 on
MOST_SCALE = 1e4  # between the largest columns of features and the others
SAMPLED_ROWS = 10_000


def loaded_line(graph, edges: str = "") -> str:
    """Return what was read, in one line: sizes, how edges are used, duplicates, features, classes, split."""
    chosen = LONG_EDGES.get(edges, edges)
    if chosen in ("", "auto"):
        is_in = graph.meta.get("edges") == "in"
        chosen = ("reversed" if is_in else "undirected") if graph.edges == "stored" else graph.edges
    used = USED[chosen]
    said = [f"{graph.n_nodes:,} nodes", f"{graph.nnz:,} edges ({used})"]
    if of := graph.meta.get("bipartite"):
        said[0] += f" ({of['sources']:,} of {of['names'][0]}, {graph.n_nodes - of['sources']:,} of {of['names'][1]})"
    if types := types_line(graph):
        said[0] += f" ({types})"
    if twice := graph.meta.get("duplicates", 0):
        said.append(f"{twice:,} duplicates {'merged' if np.all(graph.A.data == 1) else 'merged by weight'}")
    said.append(
        f"{graph.n_features:,} {'sparse ' * sp.issparse(graph.X)}feature{'s' * (graph.n_features != 1)}"
        if graph.n_features
        else "no features"
    )
    if graph.n_edge_features:
        said.append(f"{graph.n_edge_features} attribute{'s' * (graph.n_edge_features != 1)} of edges")
    labels = [(graph.y, "", graph.classes), (graph.edge_y, " of edges", graph.edge_classes)][: 1 if types else 2]
    said += [_labels(*of) for of in labels if of[0] is not None] or ["no labels"]
    splits = 0 if graph.split is None else 1 if graph.split.ndim == 1 else graph.split.shape[1]
    said.append(("no split", "a split")[splits] if splits < 2 else f"{splits} splits")
    if graph.edge_split is not None:
        said[-1] = "a split of edges" if not splits else f"{said[-1]}, a split of edges"
    return f"{graph.name}: {', '.join(said)}"


def _labels(y: np.ndarray, of: str, classes: tuple[str, ...] | None) -> str:
    """Return of how many classes, or numbers, labels are; of: "" of nodes."""
    names = "" if classes is None else f" ({', '.join(classes[:3])}{', ...' if len(classes) > 3 else ''})"
    return f"{count_classes(y):,} {NOUNS[task_of(y)]}{of}{names}"


def graph_notes(graph) -> list[str]:
    """Return what a user should know of what was left out, or looks like a mistake, a sentence each."""
    zeros = graph.meta.get("zeros", 0)
    notes = [f"{zeros:,} stored weights of 0 are no edges, and left out"] if zeros else []
    notes += read_notes(graph)
    notes += _of_weights(graph.A.data)
    notes += _of_nodes(graph) + _of_classes(graph) + type_notes(graph)
    return notes + (_of_features(graph.X) if isinstance(graph.X, np.ndarray) else [])


def read_notes(graph) -> list[str]:
    """Return what reading left out, filled, or took for something, a sentence each."""
    unread = [name for name in graph.meta.get("unread", ()) if name]
    return [
        *([f"columns that are not read: {', '.join(unread)[:200]}"] if unread else []),
        *graph.meta.get("notes", ()),
    ]


def lacks_node_0(graph) -> bool:
    """No edge names node 0, and most others have one, as where the ids of a file are from 1."""
    if graph.n_nodes < 3 or graph.ids is not None or graph.A.indptr[1] > 0 or not graph.A.indices.all():
        return False
    return bool(np.count_nonzero(degrees(graph.A) == 0) <= max(1, 0.1 * graph.n_nodes))


def _of_weights(weights_E: np.ndarray) -> list[str]:
    if not len(weights_E) or weights_E.strides == (0,):
        return []
    low, high = float(weights_E.min()), float(weights_E.max())
    is_in_range = any(first < low and high < last for first, last in (SECONDS, MILLISECONDS))
    if is_in_range and np.all(weights_E == np.rint(weights_E)):
        return [f"weights of {low:.10g} to {high:.10g} look like times: --weight none of `spgnn convert` reads none"]
    if low < 0:
        return [
            f"{np.count_nonzero(weights_E < 0):,} of {len(weights_E):,} weights are negative: gcn and means divide by sums"
        ]
    return []


def _of_nodes(graph) -> list[str]:
    notes = []
    if lacks_node_0(graph):
        notes.append("no edge names node 0: if the ids are from 1, number them with --relabel of `spgnn convert`")
    if graph.split is not None and graph.nnz:
        train = graph.split if graph.split.ndim == 1 else graph.split[:, 0]
        lonely = int(np.count_nonzero((train == TRAIN) & (degrees(graph.A) == 0)))
        if lonely:
            notes.append(f"{lonely:,} of {np.count_nonzero(train == TRAIN):,} training nodes have no edge")
    return notes


def _of_classes(graph) -> list[str]:
    """Return notes where two classes are one number, as 007 and 7, and where one has a name without letters, as -."""
    of_number: dict[int, list[str]] = {}
    names = graph.classes or ()
    for name in names:
        if name.isascii() and name.isdigit() and len(name) < 19:
            of_number.setdefault(int(name), []).append(name)
    twice = next((same for same in of_number.values() if len(same) > 1), None)
    notes = [f"{' and '.join(twice)} are classes of their own; write a number in one way"] if twice else []
    for number, name in enumerate(names if graph.y is not None and graph.y.ndim == 1 else ()):
        if not any(map(str.isalnum, name)):
            count = np.count_nonzero(graph.y == number)
            notes.append(f"{name!r} is a class ({count:,} nodes): if it means no label, leave these cells empty")
    return notes


def _of_features(X: np.ndarray) -> list[str]:
    if X.shape[1] < 2 or not len(X):
        return []
    sizes_F = np.abs(X[:: max(1, len(X) // SAMPLED_ROWS)]).max(axis=0).astype(np.float64)
    filled = sizes_F[sizes_F > 0]
    if not len(filled) or filled.max() <= MOST_SCALE or filled.max() <= MOST_SCALE * filled.min():
        return []
    return [
        f"features differ in scale: column {sizes_F.argmax()} is up to {filled.max():.3g}, column "
        f"{np.where(sizes_F > 0, sizes_F, np.inf).argmin()} up to {filled.min():.3g}; subtract the mean of each column and divide by its deviation"
    ]


def degrees(A: sp.csr_array) -> np.ndarray:
    """Edges of each node in any direction, self-loops too, (N,)."""
    return np.diff(A.indptr) + np.bincount(A.indices, minlength=A.shape[0])


def count_labels(y_n: np.ndarray, n_classes: int, split_n: np.ndarray | None = None) -> np.ndarray:
    """Return how many nodes have label -1, 0, ..., C - 1, all and those that train, (2, 1 + C) int64.

    Args: y_n      (n,) integers from -1 to C - 1.
          split_n  (n,), or None: no node trains.
    """
    number_n = y_n.astype(np.int64) + 1
    train_n = number_n[:0] if split_n is None else number_n[split_n == TRAIN]
    return np.stack([np.bincount(numbers, minlength=1 + n_classes) for numbers in (number_n, train_n)])


def label_notes(counts: np.ndarray, noun: str = "node") -> list[str]:
    """Return what a user should know of labels, a sentence each, for the count_labels of a whole graph; noun: node, or edge."""
    (unlabelled, *of_class), train_C = counts[0].tolist(), counts[1, 1:]
    empty, notes = np.flatnonzero(counts[0, 1:] == 0), []
    if unlabelled and of_class and not of_class[0]:
        notes.append(
            f"label -1 ({unlabelled:,} {noun}s) means no label, and class 0 has no {noun}: if -1 is a class here, number the "
            "classes from 0 (np.unique(y, return_inverse=True)[1])"
        )
        empty = empty[1:]
    if len(empty):
        named = ", ".join(map(str, empty[:3])) + (", ..." if len(empty) > 3 else "")
        notes.append(
            f"of {len(of_class):,} classes {len(empty):,} have no {noun} ({named}): to number the others from 0, use "
            "y[y >= 0] = np.unique(y[y >= 0], return_inverse=True)[1]"
        )
    if np.count_nonzero(train_C) == 1:
        notes.append(
            f"all training {noun}s ({train_C.sum():,}) are of class {train_C.argmax()}, and a model that always answers "
            f"{train_C.argmax()} fits them: check the labels and the split"
        )
    return notes
