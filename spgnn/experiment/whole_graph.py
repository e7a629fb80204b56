"""whole_graph: the graph of a training on every rank, read by rank 0 and mapped by the others."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ..atomic import TemporaryFolder
from ..config import TrainConfig
from ..data.native import load_native
from ..data.save import save_graph
from ..errors import ResourceError, UsageError, together
from ..graph import Graph
from ..partition import PartitionFolder
from .opening import Source


def check_whole(folder: PartitionFolder | None, config: TrainConfig) -> None:
    """Raise UsageError for parts, which hold no whole graph, and for options that subgraphs do not have."""
    if folder is not None:
        named = f"--partition {config.partition}" if config.partition else f"GRAPH {folder.path}, a partition folder,"
        raise UsageError(f"{named} has parts; --sampler {config.sampler} draws from the whole graph: give GRAPH alone")
    if config.device != "cpu":
        raise UsageError(f"--sampler {config.sampler} requires --device cpu; got {config.device}")
    if config.cuda_graph:
        raise UsageError("--cuda-graph replays steps of one shape; subgraphs differ: omit --sampler or --cuda-graph")


def whole_graph(source: Source, stack: ExitStack) -> Graph:
    """Return GRAPH on every rank: rank 0 reads it, and the others map its arrays from a file.

    The file is in the folder for temporary files (TMPDIR), which all hosts must see; stack: removes it.
    Raises: ResourceError where a rank does not see it. Collective.
    """
    comm = source.comm
    graph = together(comm, source.read, root=0)
    if comm.size == 1:
        return graph
    written = together(comm, _written, graph, stack, root=0)
    return together(comm, _mapped, Path(comm.all_gather_json(written)[0]))


def _written(graph: Graph, stack: ExitStack) -> str:
    folder = TemporaryFolder("spgnn-graph-")
    stack.callback(folder.remove)
    save_graph(graph, folder.path / "graph")
    return str(folder.path / "graph")


def _mapped(path: Path) -> Graph:
    if not path.is_dir():
        raise ResourceError(f"{path}: not seen by this rank; set TMPDIR to a folder that all hosts share")
    return load_native(path)
