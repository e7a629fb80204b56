"""count_labels, label_notes: which classes have no node, and whether one has all training nodes.

Shapes: n nodes, C classes.
"""

from __future__ import annotations

import numpy as np

from .split import TRAIN


def count_labels(y_n: np.ndarray, n_classes: int, split_n: np.ndarray | None = None) -> np.ndarray:
    """Return how many nodes have label -1, 0, ..., C - 1, all and those that train, (2, 1 + C) int64.

    Args: y_n      (n,) integers from -1 to C - 1.
          split_n  (n,), or None: no node trains.
    """
    number_n = y_n.astype(np.int64) + 1
    train_n = number_n[:0] if split_n is None else number_n[split_n == TRAIN]
    return np.stack([np.bincount(numbers, minlength=1 + n_classes) for numbers in (number_n, train_n)])


def label_notes(counts: np.ndarray) -> list[str]:
    """Return what a user should know of labels, a sentence each, for the count_labels of a whole graph."""
    (unlabelled, *of_class), train_C = counts[0].tolist(), counts[1, 1:]
    empty, notes = np.flatnonzero(counts[0, 1:] == 0), []
    if unlabelled and of_class and not of_class[0]:
        notes.append(
            f"label -1 ({unlabelled:,} nodes) means no label, and class 0 has no node: if -1 is a class here, number the "
            "classes from 0 (np.unique(y, return_inverse=True)[1])"
        )
        empty = empty[1:]
    if len(empty):
        named = ", ".join(map(str, empty[:3])) + (", ..." if len(empty) > 3 else "")
        notes.append(
            f"of {len(of_class):,} classes {len(empty):,} have no node ({named}): to number the others from 0, use "
            "y[y >= 0] = np.unique(y[y >= 0], return_inverse=True)[1]"
        )
    if np.count_nonzero(train_C) == 1:
        notes.append(
            f"all training nodes ({train_C.sum():,}) are of class {train_C.argmax()}, and a model that always answers "
            f"{train_C.argmax()} fits them: check the labels and the split"
        )
    return notes
