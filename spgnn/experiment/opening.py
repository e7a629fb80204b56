"""GRAPH, or --partition: a graph that rank 0 reads, or a partition folder of which each rank reads its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..config import TrainConfig, input_files
from ..config.names import LONG_EDGES, SHORT_EDGES
from ..data import File, Named, is_built_in, load_graph, resolve
from ..data.readers.make_graph import graph_name
from ..errors import InputError, PartitionError, UsageError, together
from ..graph import Graph, loaded_line
from ..machine import give_back_memory
from ..partition import Partition, PartitionFolder
from .named import Names

Show = Callable[[str], None] | None
UNNAMED = ("graph", "stream", "")  # names of graphs and streams that were made of arrays


@dataclass(frozen=True, slots=True)
class Source:
    """What GRAPH, or --partition, names.

    folder  the partition folder, on all ranks; None: a graph.
    found   the graph, on rank 0; None elsewhere.
    show    called with the notes of a graph that is read.
    names   of nodes and classes, on rank 0: of the folder, or of the graph once it is read.
    """

    folder: PartitionFolder | None
    found: Named | File | None
    config: TrainConfig
    comm: object
    show: Show = None
    names: Names = field(default_factory=Names)

    @classmethod
    def open(cls, source: str, config: TrainConfig, comm, show: Show = None) -> Source:
        """Find what GRAPH, or --partition, names; nothing is read yet.

        Raises: InputError or PartitionError for what does not exist or fit; UsageError for options that do not fit it.
        Collective.
        """
        comm.phase = "load"
        found = together(comm, _find, source, config, root=0)
        if not comm.all_gather_json(isinstance(found, PartitionFolder))[0]:
            return cls(None, found, config, comm, show)
        names = together(comm, _names_of, found, root=0) or Names()
        return cls(found or PartitionFolder(config.partition or source), None, config, comm, show, names)

    def read(self, check: Callable[[Graph], None] | None = None) -> Graph:
        """Return the graph, with --edges, its classes as numbers where --loss is for numbers; check: called with it. On rank 0."""
        config = self.config
        files = {name: path or None for name, path in input_files(config).items()}
        graph = load_graph(self.found, **files)
        self.names.ids, self.names.classes = graph.ids, graph.classes
        if config.loss != "auto" and graph.task == "classes" and graph.y is not None:
            graph = replace(graph, y=np.where(graph.y < 0, np.nan, graph.y), classes=None)
        for note in (loaded_line(graph, config.edges), *graph.notes()) if self.show is not None else ():
            self.show(f"spgnn: {note}")
        graph = graph.with_edges(config.edges)
        if check is not None:
            check(graph)
        give_back_memory()  # what reading took, before partitioning takes more
        return graph


def _names_of(folder: PartitionFolder) -> Names:
    return Names(folder.ids(), folder.classes)


def _find(source: str, config: TrainConfig) -> Named | File | PartitionFolder:
    folder = PartitionFolder(config.partition or source)
    if not config.partition and (is_built_in(source) or not folder.is_valid):
        return resolve(source, config.format or None)
    _check_options(folder.partition(), config, str(folder.path))
    if config.partition:
        _check_graph(folder.partition(), source, config.partition)
    return folder


def _check_options(part: Partition, config: TrainConfig, folder: str) -> None:
    """Raise UsageError for options of reading and partitioning a graph that differ from those of a partition."""
    for name, value in ({"format": config.format} | input_files(config)).items():
        if value:
            raise UsageError(
                f"--{name} {value} applies when a graph is read, and {folder} is a partition folder; "
                f"omit --{name}, or partition the graph again"
            )
    if config.method not in (TrainConfig().method, part.method):
        raise UsageError(f"--method {config.method}: {folder} was made by {part.method}; omit it, or partition again")
    if part.edges != LONG_EDGES.get(config.edges, config.edges) and config.edges != "auto":
        raise UsageError(
            f"{folder} was made with --edges {SHORT_EDGES.get(part.edges, part.edges)}; got --edges {config.edges}; give the same, or partition again"
        )


def _check_graph(part: Partition, source: str, folder: str) -> None:
    """Raise unless GRAPH may be the graph that a partition was made for; names are compared, nothing is read."""
    made_for, path = part.graph_name, Path(source)
    if is_built_in(source):
        is_same = made_for.partition("-")[0] == source.partition(":")[0]  # rmat:scale=10 is named rmat-10-16
    elif made_for in UNNAMED or source == made_for:
        is_same = True
    else:
        is_same = path.is_dir() or graph_name(path) == made_for
        if not path.exists():
            try:
                resolve(source)  # the prefix of Planetoid's files is no path
            except InputError:
                raise InputError(
                    f"{source}: no such file or folder; {folder} was made for {made_for!r}, name that graph"
                ) from None
    if not is_same:
        raise PartitionError(f"{folder} was made for {made_for!r}, not {source!r}; name that, or partition this one")
