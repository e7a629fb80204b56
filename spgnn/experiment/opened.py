"""What GRAPH is in a training: a graph that rank 0 reads, or a partition folder of which each rank reads its part."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..config import Distribution, TrainConfig, select
from ..data import File, Named, is_built_in, load_graph, resolve
from ..data.readers.make_graph import graph_name
from ..distgraph import DistGraph
from ..distgraph.distribute import make_dgraph
from ..errors import InputError, PartitionError, UsageError, together
from ..graph import Graph
from ..machine import give_back_memory
from ..partition import Partition, PartitionFolder

Source = Named | File | PartitionFolder
UNNAMED = ("graph", "stream", "")  # names of graphs and streams that were made of arrays


def open_source(source: str, config: TrainConfig, comm) -> Source | None:
    """Return what GRAPH, or --partition, names: a partition folder on all ranks, or a graph on rank 0, None elsewhere.

    Raises: InputError or PartitionError for what does not exist or fit; UsageError for options that do not fit it.
    Collective.
    """
    comm.phase = "load"
    found = together(comm, _find, source, config, root=0)
    folder = comm.all_gather_json(str(found.path) if isinstance(found, PartitionFolder) else None)[0]
    return found if folder is None or comm.rank == 0 else PartitionFolder(folder)


def distribute_source(source: Source | None, config: TrainConfig, comm) -> DistGraph:
    """Distribute what open_source returned; --threads must be the number of this rank's threads. Collective."""
    given = source if isinstance(source, PartitionFolder) else partial(_read, source, config)
    return make_dgraph(given, comm, None, select(Distribution, config))


def _find(source: str, config: TrainConfig) -> Source:
    folder = PartitionFolder(config.partition or source)
    if not config.partition and (is_built_in(source) or not folder.is_valid):
        return resolve(source, config.format or None)
    _check_options(folder.partition(), config, str(folder.path))
    if config.partition:
        _check_graph(folder.partition(), source, config.partition)
    return folder


def _check_options(part: Partition, config: TrainConfig, folder: str) -> None:
    """Raise UsageError for options of reading and partitioning a graph that differ from those of a partition."""
    for name in ("format", "features", "labels"):
        if value := getattr(config, name):
            raise UsageError(
                f"--{name} {value} applies when a graph is read, and {folder} is a partition folder; "
                f"omit --{name}, or partition the graph again"
            )
    if config.method not in (TrainConfig().method, part.method):
        raise UsageError(
            f"--method {config.method} differs from the method of {folder}, {part.method}; omit --method, or partition again"
        )
    if part.edges != config.edges:
        raise UsageError(
            f"{folder} was made with --edges {part.edges}; got --edges {config.edges}; give the same, or partition again"
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
        raise PartitionError(
            f"{folder} was made for {made_for!r}, not for {source!r}; name that graph, or partition this one"
        )


def _read(source: Named | File, config: TrainConfig) -> Graph:
    graph = load_graph(source, features=config.features or None, labels=config.labels or None)
    graph = graph.with_edges(config.edges)
    give_back_memory()  # what reading took, before partitioning takes more
    return graph
