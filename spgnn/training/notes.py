"""data_notes: what a user should know of weights and labels of a graph before it is trained on.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

import numpy as np

from ..distgraph import DistGraph
from ..errors import together
from ..graph import DIVIDES, count_labels, label_notes
from .parts.inference import LayerwiseScorer
from .scorer import FullScorer


def data_notes(dgraph: DistGraph, scorer: FullScorer | LayerwiseScorer | None = None) -> list[str]:
    """Return the notes on the data of a graph, a sentence each; scorer: has labels and split, None: without labels. Collective."""
    return _of_weights(dgraph) + ([] if scorer is None or scorer.is_multilabel else _of_labels(dgraph, scorer))


def _of_weights(dgraph: DistGraph) -> list[str]:
    norms = dgraph.A.norms
    divides = [how for how in (dgraph.A.name, *norms.made) if how in DIVIDES]
    if norms.signs is None or not divides:
        return []
    return [f"{norms.signs}; the sums that the operator {divides[0]} divides by are above 0"]


def _of_labels(dgraph: DistGraph, scorer: FullScorer | LayerwiseScorer) -> list[str]:
    C = dgraph.n_classes
    counts = np.zeros((2, 1 + C), np.int64)
    for of_rows in together(dgraph.comm, lambda: [count_labels(y_n, C, split_n) for y_n, split_n in scorer.labels()]):
        counts += of_rows
    dgraph.comm.all_reduce(counts)
    return label_notes(counts)
