"""data_notes: what a user should know of the weights of a graph before it is trained on.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

from ..distgraph import DistGraph
from ..graph import DIVIDES


def data_notes(dgraph: DistGraph) -> list[str]:
    """Return the notes on the data of a graph, a sentence each. Collective."""
    return _of_weights(dgraph)


def _of_weights(dgraph: DistGraph) -> list[str]:
    norms = dgraph.A.norms
    divides = [how for how in (dgraph.A.name, *norms.made) if how in DIVIDES]
    if norms.signs is None or not divides:
        return []
    return [f"{norms.signs}; the sums that the operator {divides[0]} divides by are above 0"]
