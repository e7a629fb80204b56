"""Parts of a training in mode average: those of a folder, or made of GRAPH, as many as memory needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from ..atomic import TemporaryFolder
from ..config import Distribution, TrainConfig
from ..cost.workload import HALO, Workload, graph_bytes, predicted_workload
from ..distgraph import Parts
from ..distgraph.parts import FolderSource
from ..errors import ResourceError, UsageError, from_root, together
from ..graph import Graph
from ..machine import give_back_memory
from ..partition import PartitionFolder, part_graph, save_partition
from ..training.parts.average import memory_of_rank
from .beyond_memory import PartNeeds
from .folder import RunFolder
from .memory_check import GraphSizes, memory_of_parts
from .opening import Show, Source

CUTS = 4  # of a graph at most, until the largest part with its halo fits
PARTS = "parts"  # folder in the one for temporary files


def open_parts(
    source: Source,
    how: Distribution,
    folder: RunFolder | None,
    stack: ExitStack,
    read: Callable[[], Graph] | None = None,
) -> tuple[Parts, dict | None]:
    """Return the parts of a training and the JSON object `workload`, None where a folder of parts was given.

    Without one rank 0 cuts GRAPH into as many parts as memory needs, or --parts, and all ranks map them from OUT/parts, or
    OUT/parts-2 ... where that exists, or from a folder for temporary files (TMPDIR). A run that is continued has its own
    parts, and the workload that they followed from. The numbers that k follows from are shown before and after the cut.
    Args:   folder  of the results, on rank 0; stack: removes parts that no run folder has when the training ends.
            read    returns the graph, on rank 0; None: the source's.
    Raises: ResourceError where parts do not fit, or a rank does not see them. Collective.
    """
    config, comm = source.config, source.comm
    comm.phase = "make parts"
    if source.folder is not None:
        path, workload = source.folder.path, None
        together(comm, _check_count, source.folder, config)
    else:
        M = memory_of_rank(comm, config.memory)
        path, workload = from_root(comm, _made_or_kept, source, folder, M, stack, read or source.read)

    def seen() -> PartitionFolder:
        if not Path(path).is_dir():
            raise ResourceError(f"{path}: not seen by this rank; choose an --out, or a TMPDIR, that all hosts share")
        return PartitionFolder(path)

    found = together(comm, seen)
    return Parts(found, comm, hops=config.hops, split=config.split, **asdict(how)), workload


def _check_count(folder: PartitionFolder, config: TrainConfig) -> None:
    k = folder.manifest["k"]
    if config.parts not in (0, k):
        raise UsageError(f"--parts {config.parts}: {folder.path} has {k} parts; omit --parts, or partition again")


def _made_or_kept(
    source: Source, folder: RunFolder | None, M: int, stack: ExitStack, read: Callable[[], Graph]
) -> tuple[str, dict | None]:
    """Return path and workload of parts that were made, or of a run that is continued."""
    if folder is None:
        temporary = TemporaryFolder("spgnn-parts-")
        stack.callback(temporary.remove)
        path = temporary.path / PARTS
    else:
        path, is_there = folder.parts_path()
        if is_there:
            return str(path), folder.workload
        stack.callback(folder.discard_parts)
    workload = make_parts(read(), path, source.config, source.comm.size, M, source.show).to_dict()
    if folder is not None:
        folder.workload = workload
    give_back_memory()
    return str(path), workload


def make_parts(graph: Graph, path: Path, config: TrainConfig, q: int, M: int, say: Show = None) -> Workload:
    """Cut a graph into parts, write them into a folder and return their number with what it follows from.

    If the largest part with its halo does not fit in memory, the graph is cut once more, into more parts; not if --parts
    has their number.
    Raises: ResourceError, with the arithmetic, if it still does not fit.
    """
    say = say or (lambda line: None)
    S, halo, needs = graph_bytes(graph), HALO if config.hops else 1.0, None
    if config.mode == "out-of-core":
        needs = PartNeeds(GraphSizes.of_graph(graph), config)
        training_bytes = lambda k: needs.fixed + needs.of_share(k, halo)
    else:
        predicted = memory_of_parts(graph, config, halo)
        training_bytes = lambda k: predicted(k).peak
    if config.parts:
        workload = Workload(S, q, M, int(training_bytes(config.parts)), config.parts, halo)
    else:
        workload = predicted_workload(S, q, M, training_bytes, halo)
    say(f"spgnn: {workload}")
    for cuts in range(1, CUTS + 1):
        part = part_graph(graph, workload.k, method=config.method, seed=config.seed)
        save_partition(part, path, graph, hops=config.hops)
        source = FolderSource(PartitionFolder(path), config.hops)
        largest = max(of_part["nbytes"] for of_part in source.facts.sizes)
        if needs is not None:  # by the halos that there are
            workload, largest = replace(workload, T=needs.fixed), largest + needs.largest(source.facts.sizes)
        workload = workload.cut(largest)
        say(f"spgnn: {workload}")
        if config.parts or workload.fits or cuts == CUTS:
            break
        workload = workload.grown()
    if config.memory or not config.parts:
        workload.check()
    return workload
