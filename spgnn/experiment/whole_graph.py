"""whole_graph: the graph of a training on every rank, read by rank 0 and mapped by the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..atomic import TemporaryFolder
from ..config import TrainConfig
from ..data.native import load_native
from ..data.save import save_graph
from ..errors import ResourceError, UsageError, together
from ..graph import Graph
from ..partition import PartitionFolder


def check_whole(folder: PartitionFolder | None, config: TrainConfig) -> None:
    """Raise UsageError for parts, which hold no whole graph, and for options that subgraphs do not have."""
    if folder is not None:
        named = f"--partition {config.partition}" if config.partition else f"GRAPH {folder.path}, a partition folder,"
        raise UsageError(f"{named} has parts; --sampler {config.sampler} draws from the whole graph: give GRAPH alone")
    if config.device != "cpu":
        raise UsageError(f"--sampler {config.sampler} requires --device cpu; got {config.device}")
    if config.cuda_graph:
        raise UsageError(
            "--cuda-graph replays steps of one shape, and subgraphs differ; omit --sampler or --cuda-graph"
        )


@contextmanager
def whole_graph(read: Callable[[], Graph], comm) -> Iterator[Graph]:
    """Yield a graph on every rank: what read() returns on rank 0, and on the others its arrays, mapped from a file.

    The file is in the folder for temporary files (TMPDIR), which all hosts must see, until the block ends.
    Raises: ResourceError where a rank does not see it. Collective.
    """
    graph, folder = together(comm, read, root=0), None
    if comm.size == 1:
        yield graph
        return
    try:
        folder = together(comm, _written, graph, root=0)
        path = Path(comm.all_gather_json(None if folder is None else str(folder.path))[0])
        yield together(comm, _mapped, path / "graph")
    finally:
        if folder is not None:  # on rank 0
            folder.remove()


def _written(graph: Graph) -> TemporaryFolder:
    folder = TemporaryFolder("spgnn-graph-")
    try:
        save_graph(graph, folder.path / "graph")
    except BaseException:
        folder.remove()
        raise
    return folder


def _mapped(path: Path) -> Graph:
    if not path.is_dir():
        raise ResourceError(f"{path}: not seen by this rank; set TMPDIR to a folder that all hosts share")
    return load_native(path)
