"""Which nodes train, validate and test: given, one of several, or drawn over the nodes of all ranks."""

from __future__ import annotations

import numpy as np

from ..distgraph import DistGraph
from ..graph import given_split, random_split


def split_of(dgraph: DistGraph, split: str, seed: int) -> np.ndarray:
    """Return the split of the own nodes, (n,) int8: 0 train, 1 val, 2 test, -1 none. Collective.

    split: "given", the number of one of several, "random" (60/20/20 of the labelled nodes, the same
    nodes for any number of ranks), or "auto": given if there is one, else random.
    """
    given_n = given_split(dgraph.name, dgraph.split_n, split)
    if given_n is not None:
        return given_n
    y_N = dgraph.collect(dgraph.has_label_n.astype(np.int64) - 1)  # a split asks whether nodes have a label alone
    return random_split(y_N, seed)[dgraph.node_n]
