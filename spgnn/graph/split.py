"""Which nodes train, validate and test.

Shapes: N nodes, C classes.
"""

from __future__ import annotations

import numpy as np

from ..errors import GraphError, UsageError, check_integer

TRAIN, VAL, TEST, NO_SPLIT = 0, 1, 2, -1
UNLABELLED = -1


def labelled(y: np.ndarray) -> np.ndarray:
    """Return which nodes have a label, (N,) bool; every row of a multi-label array counts as one."""
    return y >= 0 if y.ndim == 1 else np.ones(len(y), bool)


def random_split(y: np.ndarray | None, seed: int = 0, fractions=(0.6, 0.2, 0.2)) -> np.ndarray:
    """Return a seeded split of the labelled nodes, (N,) int8.

    Args:   fractions  of train, val and test, which add up to 1.
    Raises: GraphError without labels; UsageError for other fractions or seeds.
    """
    if y is None:
        raise GraphError("a split needs labels; this graph has none")
    if len(fractions) != 3 or not all(f >= 0 for f in fractions) or abs(sum(fractions) - 1) > 1e-6:
        raise UsageError(
            f"fractions = {tuple(fractions)}; expected three numbers of 0 or more, of train, val and test, that add up to 1"
        )
    check_integer("seed", seed, 0)
    nodes = np.flatnonzero(labelled(y))
    nodes = np.random.default_rng(seed).permutation(nodes)
    n_train, n_val = (int(round(f * len(nodes))) for f in fractions[:2])
    split = np.full(len(y), NO_SPLIT, np.int8)
    split[nodes[:n_train]] = TRAIN
    split[nodes[n_train : n_train + n_val]] = VAL
    split[nodes[n_train + n_val :]] = TEST
    return split
