"""What GRAPH and --partition name, and how it is distributed: rank 0 reads a graph, each rank its part of a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic import TemporaryFolder
from ..config import EMBEDDING, Distribution, TrainConfig, input_files, select, shared_values
from ..config.names import LONG_EDGES, SHORT_EDGES
from ..data import File, Named, is_built_in, load_graph, resolve
from ..data.native import load_native
from ..data.readers.make_graph import graph_name
from ..data.save import save_graph
from ..dist import Communicator
from ..dist.consistency import check_same, versions
from ..dist.launch import share_of_threads
from ..errors import GraphError, InputError, PartitionError, ResourceError, UsageError, from_root, together
from ..graph import Graph, check_no_cutoff, loaded_line, split_as, targets_of, task_of
from ..layers.registry import ModelSpec, operator_of, reads_relations, with_relations
from ..links.scored_pairs import check_negatives
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
    comm: Communicator
    show: Show = None
    names: Names = field(default_factory=Names)

    @classmethod
    def open(cls, source: str, config: TrainConfig, comm: Communicator, show: Show = None) -> Source:
        """Find what GRAPH, or --partition, names; nothing is read yet.

        Raises: InputError or PartitionError for what does not exist or fit; UsageError for options that do not fit it.
        Collective.
        """
        comm.phase, folder = "load", PartitionFolder(config.partition or source)

        def find() -> Named | File | None:
            if config.on == "links":
                if not is_built_in(source) and PartitionFolder(source).is_valid:
                    raise UsageError(
                        f"{source} is a partition folder, whose parts have all edges; --task links takes those of val and test "
                        f"out: give the graph, with --partition {source} for its parts"
                    )
                return resolve(source, config.format or None)
            if not config.partition and (is_built_in(source) or not folder.is_valid):
                return resolve(source, config.format or None)
            _check_options(folder.partition(), config, str(folder.path))
            if config.partition:
                _check_graph(folder.partition(), source, config.partition)
            return None

        found = together(comm, find, root=0)
        if not comm.all_gather_json(found is None)[0]:
            return cls(None, found, config, comm, show)
        classes = folder.names.classes if config.on == "nodes" else folder.names.edge_classes
        names = together(comm, lambda: Names(folder.ids(), classes), root=0) or Names()
        return cls(folder, None, config, comm, show, names)

    def read(self) -> Graph:
        """Return the graph, with --edges, its classes as numbers where --loss is for numbers. On rank 0."""
        config = self.config
        files: dict[str, Any] = {name: path or None for name, path in input_files(config).items()}
        graph = load_graph(self.found, **files)
        is_on_nodes, y = config.on != "edges", targets_of(graph, config.on)
        if config.loss != "auto" and task_of(y) == "classes" and y is not None:
            name = graph.meta.get("label" if is_on_nodes else "edge_label")
            y, classes = np.where(y < 0, np.nan, y), None if name is None else (name,)
            if is_on_nodes:
                graph = replace(graph, y=y, classes=classes)
            else:
                graph = replace(graph, edge_y=y, edge_classes=classes)
        if config.on == "edges":
            check_no_cutoff(graph, "edges")
        self.names.ids, self.names.classes = graph.ids, graph.classes if is_on_nodes else graph.edge_classes
        if self.show is not None:
            for note in (loaded_line(graph, config.edges), *graph.notes()):
                self.show(f"spgnn: {note}")
        graph = (graph if graph.edge_y is None else with_relations(graph, config.model)).with_edges(config.edges)
        if config.on == "links":
            graph = self._split_links(graph)
        give_back_memory()  # what reading took, before partitioning takes more
        return graph

    def _split_links(self, graph: Graph) -> Graph:
        """Return the message edges of a graph and its links, with --split and --features embedding."""
        config = self.config
        if config.features == EMBEDDING and graph.X is not None:
            graph = replace(graph, X=None, feature_names=None)
        if config.split == "given" and graph.edge_split is None:
            raise GraphError(
                f"{graph.name} has no split of edges; omit --split given, or name its column by --edge-split of `spgnn convert`"
            )
        graph = split_as(graph, config.split, config.seed, reads_relations(config.model))
        if config.loss != "softmax":
            check_negatives(graph)
        self.names.links = graph.links
        return graph

    def read_everywhere(self, stack: ExitStack) -> Graph:
        """Return the graph on every rank: rank 0 reads it, and the others map its arrays from a file.

        The file is in the folder for temporary files (TMPDIR), which all hosts must see; stack: removes it.
        Raises: ResourceError where a rank does not see it. Collective.
        """
        if self.comm.size == 1:
            return together(self.comm, self.read)

        def written() -> str:
            folder = TemporaryFolder("spgnn-graph-")
            stack.callback(folder.remove)
            save_graph(self.read(), folder.path / "graph")
            return str(folder.path / "graph")

        def mapped(path: Path) -> Graph:
            if not path.is_dir():
                raise ResourceError(f"{path}: not seen by this rank; set TMPDIR to a folder that all hosts share")
            return load_native(path)

        return together(self.comm, mapped, Path(from_root(self.comm, written)))


def distribution(config: TrainConfig, comm: Communicator, spec: ModelSpec | None = None) -> Distribution:
    """Return the options of `distribute`, with the operator of a model and the threads of this rank.

    Args: spec  the model; None: of the options.
    Collective.
    """
    operator, share = operator_of(config, spec), share_of_threads(comm)  # collective, also where it is not needed
    torch.set_num_threads(threads := config.threads or share)
    return replace(select(Distribution, config), operator=operator, threads=threads)


def check_run(comm: Communicator, source: str, config: TrainConfig, **options) -> None:
    """Raise, on all ranks, where GRAPH, options, or versions of packages differ between ranks. Collective."""
    given = {f"option.{name}": value for name, value in options.items()}
    check_same(comm, {"option.graph": source} | shared_values(config) | versions() | given)


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
