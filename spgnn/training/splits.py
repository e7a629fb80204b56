"""Which nodes train, validate and test: given, one of several, or drawn over the nodes of all ranks."""

from __future__ import annotations

import numpy as np

from ..distgraph import DistGraph
from ..errors import GraphError, UsageError
from ..graph import random_split


def split_of(dgraph: DistGraph, split: str, seed: int) -> np.ndarray:
    """Return the split of the own nodes, (n,) int8: 0 train, 1 val, 2 test, -1 none. Collective.

    split: "given", the number of one of several, "random" (60/20/20 of the labelled nodes, the same
    nodes for any number of ranks), or "auto": given if there is one, else random.
    """
    given_n = dgraph.split_n
    if split == "random" or (split == "auto" and given_n is None):
        y_N = dgraph.collect(dgraph.y_n.numpy() if dgraph.y_n.ndim == 1 else dgraph.y_n.numpy()[:, :1] * 0)
        y_N = y_N if y_N.ndim == 1 else y_N.ravel().astype(np.int64)
        return random_split(y_N, seed)[dgraph.node_n]
    if given_n is None:
        raise GraphError(f"{dgraph.name} has no split; use --split random")
    if split not in ("auto", "given") and not (split.isascii() and split.isdigit() and len(split) < 10):
        raise UsageError(f"split = {split!r} is not known; expected random, given, auto or the number of a split")
    number, splits = (0 if split in ("auto", "given") else int(split)), 1 if given_n.ndim == 1 else given_n.shape[1]
    if number >= splits:
        has = "one split, 0" if splits == 1 else f"splits 0 to {splits - 1}"
        raise UsageError(f"{dgraph.name} has {has}; split {number} does not exist")
    return np.ascontiguousarray(given_n if given_n.ndim == 1 else given_n[:, number])
