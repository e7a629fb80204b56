"""Read the GRAPH that a command names, with its progress shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import ProgressBar, say

if TYPE_CHECKING:
    from ..graph import Graph


EDGES_TEXT = {"undirected": "edges both ways", "directed": "edges out", "reversed": "edges in"}


def load(graph: str, format: str = "", features: str = "", labels: str = "", split: str = "") -> Graph:
    """Return the Graph of a built-in name, a file or a folder; an empty option is left to be guessed."""
    from ..data import load_graph
    from ..graph import count_labels, label_notes

    with ProgressBar(f"reading {graph}") as progress:
        read = load_graph(
            graph,
            format=format or None,
            features=features or None,
            labels=labels or None,
            split=split or None,
            progress=progress,
        )
    of_labels = [] if read.y is None or read.y.ndim == 2 else label_notes(count_labels(read.y, read.n_classes))
    for note in read.notes() + of_labels:
        say(note)
    return read
