"""Read the GRAPH that a command names, with its progress shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from .console import ProgressBar, say

if TYPE_CHECKING:
    from ..graph import Graph


EDGES_TEXT = {"undirected": "edges both ways", "directed": "edges out", "reversed": "edges in"}


def load(graph: str, format: str = "", features: str = "", labels: str = "", split: str = "") -> Graph:
    """Return the Graph of a built-in name, a file or a folder, of parts too; an empty option is left to be guessed."""
    from ..data import load_graph
    from ..partition.folder.store import is_partition

    with ProgressBar(f"reading {graph}") as progress:
        files = {"format": format, "features": features, "labels": labels, "split": split}
        files = {name: value for name, value in files.items() if value}
        read = _of_parts(graph, files) if is_partition(graph) else load_graph(graph, **files, progress=progress)
    for note in read.notes() + read.label_notes():
        say(note)
    return read


def _of_parts(folder: str, files: dict[str, str]) -> Graph:
    from ..partition import PartitionFolder

    if files:
        name = min(files)
        raise UsageError(f"--{name} {files[name]}: {folder} is a partition folder, which has its own; omit it")
    return PartitionFolder(folder).graph()
