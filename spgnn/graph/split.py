"""Which nodes train, validate and test.

Shapes: N nodes, C classes, or columns of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..config import split_file
from ..config.names import Task
from ..errors import GraphError, UsageError, check_integer

TRAIN, VAL, TEST, NO_SPLIT = 0, 1, 2, -1
UNLABELLED = -1


def task_of(y: np.ndarray | None) -> Task:
    """Return what labels are: numbers where they are floats, else labels where they have columns, else classes."""
    if y is not None and y.dtype.kind == "f":
        return "numbers"
    return "labels" if y is not None and y.ndim == 2 else "classes"


def count_classes(y: np.ndarray | None) -> int:
    """Return C: 1 + the largest class, or the columns of several labels or of numbers; 0 without labels."""
    if y is None:
        return 0
    if y.ndim == 2:
        return y.shape[1]
    return 1 if task_of(y) == "numbers" else (int(y.max()) + 1 if len(y) else 0)


def labelled(y: np.ndarray) -> np.ndarray:
    """Return which nodes have a label, (N,) bool: text that is not empty, a number in some column; all rows of several labels."""
    if y.dtype.kind in "OUT":
        return np.array([value is not None and value == value and value != "" for value in y.tolist()], bool)
    if task_of(y) == "numbers":
        return ~np.isnan(y) if y.ndim == 1 else ~np.all(np.isnan(y), axis=1)
    return y >= 0 if y.ndim == 1 else np.ones(len(y), bool)


def given_split(name: str, splits: np.ndarray | None, which: str) -> np.ndarray | None:
    """Return the split of a graph that an option names, or None where one is to be drawn.

    Args:   splits  (N,) or (N, S), or rows of them; None: the graph has none.
            which   "given", the number of one of S splits, "random", or "auto": given if there is one, else random; or
                    a file of which the graph was read, as "given".
    Raises: GraphError where the graph has no split; UsageError for another name or number.
    """
    is_drawn = which == "random" or (which == "auto" and splits is None)
    return None if is_drawn else named_split(name, splits, which)


def named_split(name: str, splits: np.ndarray | None, which: str) -> np.ndarray:
    """Return the split that given_split returns where none is drawn."""
    if splits is None:
        raise GraphError(f"{name} has no split; use --split random, or give one: `spgnn convert SRC DST --split FILE`")
    is_first = which in ("auto", "given") or bool(split_file(which))
    if not is_first and not (which.isascii() and which.isdigit() and len(which) < 10):
        raise UsageError(f"split = {which!r} is not known; expected random, given, auto, its number or its file")
    number, count = (0 if is_first else int(which)), 1 if splits.ndim == 1 else splits.shape[1]
    if number >= count:
        has = "one split, 0" if count == 1 else f"splits 0 to {count - 1}"
        raise UsageError(f"{name} has {has}; split {number} does not exist")
    return np.ascontiguousarray(splits if splits.ndim == 1 else splits[:, number])


def random_edge_split(y_L: np.ndarray, ends_L2: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return a seeded split of the labelled edges, (L,) int8: all edges between two nodes, in any direction, are in one.

    Args: y_L  as of random_split; ends_L2: source and target. Of the pairs of nodes with a label 60 % train, 20 % validate.
    """
    low_L, high_L, has_label_L = ends_L2.min(axis=1), ends_L2.max(axis=1), labelled(y_L)
    _, of_L = np.unique(low_L * (high_L.max(initial=0) + 1) + high_L, return_inverse=True)
    has_label = np.bincount(of_L, weights=has_label_L) > 0
    return np.where(has_label_L, random_split(has_label.astype(np.int64) - 1, seed)[of_L], np.int8(NO_SPLIT))


def random_split(y: np.ndarray | None, seed: int = 0, fractions: Sequence[float] = (0.6, 0.2, 0.2)) -> np.ndarray:
    """Return a seeded split of the labelled nodes, (N,) int8.

    Args:   y          (N,) or (N, C), also as a list; text labels too, "" or None for none.
            fractions  of train, val and test, which add up to 1.
    Raises: GraphError without labels; UsageError for other fractions or seeds.
    """
    if y is None:
        raise GraphError("a split needs labels; this graph has none")
    if len(fractions) != 3 or not all(f >= 0 for f in fractions) or abs(sum(fractions) - 1) > 1e-6:
        raise UsageError(
            f"fractions = {tuple(fractions)}; expected three numbers of 0 or more, of train, val and test, that add up to 1"
        )
    check_integer("seed", seed, 0)
    y = np.asarray(y)
    nodes = np.flatnonzero(labelled(y))
    nodes = np.random.default_rng(seed).permutation(nodes)
    n_train, n_val = (int(round(f * len(nodes))) for f in fractions[:2])
    split = np.full(len(y), NO_SPLIT, np.int8)
    split[nodes[:n_train]] = TRAIN
    split[nodes[n_train : n_train + n_val]] = VAL
    split[nodes[n_train + n_val :]] = TEST
    return split
