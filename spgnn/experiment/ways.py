"""The ways to train: on all nodes at once, on subgraphs, and on parts whose weights are averaged.

`open` returns the graph on which a model is scored; then `step` makes the Step of its Trainer. Parts are those of a folder,
or made of GRAPH, as many as memory needs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import TemporaryFolder
from ..config import EMBEDDING, Distribution, TrainConfig, link_shares
from ..cost.pairs import ProcessGrid
from ..cost.workload import HALO, Workload, graph_bytes, predicted_workload
from ..dist import Communicator
from ..distgraph import DistGraph, Parts, merge_parts
from ..distgraph.distribute import make_dgraph
from ..distgraph.parts import FolderSource
from ..errors import GraphError, ResourceError, UsageError, from_root, together
from ..graph import Graph
from ..layers.registry import ATTRIBUTES, FAMILIES, ModelSpec
from ..machine import give_back_memory
from ..partition import PartitionFolder, load_partition, part_graph, save_partition
from ..samplers import check_options
from ..training.parts.average import AverageStep, memory_of_rank
from ..training.parts.average_options import check_average
from ..training.parts.evaluation import evaluated
from ..training.parts.out_of_core_step import OutOfCoreStep
from ..training.parts.personal import personalise
from ..training.steps import Step
from ..training.steps.captured import check_ranks
from ..training.steps.full import FullStep
from ..training.steps.link_step import LinkStep
from ..training.steps.sampled import SampledStep
from ..training.trainer import Trainer, check_on_edges
from .beyond_memory import PartNeeds, check_memory
from .folder import RunFolder, check_outputs
from .memory_check import GraphSizes, memory_of_parts, model_of
from .opening import Show, Source, check_run, distribution
from .results import personal_facts, write_personal

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
    if not graph.n_features:
        raise GraphError(f"{graph.name} has no features; give them with --features FILE")
    S, halo, needs = graph_bytes(graph), HALO if config.hops else 1.0, None
    if config.mode == "out-of-core":
        needs = PartNeeds(GraphSizes.of_graph(graph), config)
        training_bytes = lambda k: needs.fixed + needs.of_share(k, halo)
    else:
        predicted = memory_of_parts(GraphSizes.of_graph(graph), model_of(graph, config), config, halo)
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
        least = workload.k * (1 if needs is None else 2)  # halos shrink slowly
        workload = workload.grown()
        workload = replace(workload, k=max(workload.k, least))
    if config.memory or not config.parts:
        workload.check()
    return workload


class FullWay:
    """All nodes at once: each rank holds its rows.

    Args: config  the options that were given; how: of `distribute`, with the operator and the threads of this rank.
    config  with what `open` has decided; step: (model, dgraph, config) -> Step.
    """

    step: Callable[..., Step] = FullStep
    instead: OutOfCoreWay | None = None  # where memory is too short

    def __init__(self, config: TrainConfig, how: Distribution):
        self.config, self.how = config, how
        if config.on == "links":
            self.step = LinkStep

    def open(self, source: Source, folder: RunFolder | None, stack: ExitStack) -> DistGraph:
        """Return the graph on which the model is scored.

        Args: folder  of the results, on rank 0; stack: ends what is opened, after the training.
        Collective.
        """
        config, comm, how = self.config, source.comm, self.how
        M, parts = memory_of_rank(comm, config.memory), comm.size // config.replication
        held: list[Graph] = []  # on rank 0

        def shortage() -> str:
            if source.folder is not None:
                return check_memory(source.folder, config, how.operator, parts, M)
            held.append(source.read())
            return check_memory(held[0], config, how.operator, parts, M)

        if short := from_root(comm, shortage):
            self.instead = OutOfCoreWay(replace(config, mode="out-of-core"), how)
            source = replace(source, config=self.instead.config)
            if source.show is not None and comm.rank == 0:
                source.show(f"spgnn: {short.partition(';')[0]}: it trains out of core, with the same result")
            try:
                dgraph = self.instead.open(source, folder, stack, held.pop)
            except ResourceError as error:
                raise ResourceError(f"{short}\n  out of core: {error}") from None
            self.config, self.step = self.instead.config, self.instead.step
            return dgraph
        if source.folder is not None:
            return make_dgraph(source.folder, comm, None, how)
        read = held.pop
        if config.on != "links":
            return make_dgraph(read, comm, None, how)
        part = together(comm, lambda: load_partition(config.partition) if config.partition else None)
        dgraph = make_dgraph(read, comm, part, how)
        return dgraph.with_embedding(config.hidden, config.seed) if config.features == EMBEDDING else dgraph

    def finish(self, spec: ModelSpec, trainer: Trainer, summary: dict[str, Any]) -> np.ndarray | None:
        """Add to a summary, and return the predictions in original order, on rank 0 at least. Collective."""
        if self.instead is not None:
            return self.instead.finish(spec, trainer, summary)
        return trainer.steps.scorer.predictions()


class SampledWay(FullWay):
    """Subgraphs of the whole graph, which every rank has; evaluations as in FullWay."""

    def open(self, source: Source, folder: RunFolder | None, stack: ExitStack) -> DistGraph:
        together(source.comm, _check_whole, source, self.config)
        graph = source.read_everywhere(stack)
        self.step = partial(SampledStep, graph=graph)
        return make_dgraph(graph, source.comm, None, self.how)


class AverageWay(FullWay):
    """Parts, each trained alone on one rank, and the mean of their weights."""

    def open(self, source: Source, folder: RunFolder | None, stack: ExitStack) -> DistGraph:
        self.parts, self.workload = open_parts(source, self.how, folder, stack)
        config, parts, facts = self.config, self.parts, self.parts.source.facts
        self.step = partial(AverageStep, parts=parts)
        if not facts.n_features or not facts.n_classes:
            return merge_parts(parts)  # refused as any graph without features or labels
        model = ModelSpec.of(config, facts.n_features, facts.n_classes).build()
        chosen, dgraph = evaluated(
            model, parts, config.evaluation, config.memory, config.correct != "none", source.show
        )
        self.config = replace(config, evaluation=chosen)
        return dgraph

    def finish(self, spec: ModelSpec, trainer: Trainer, summary: dict[str, Any]) -> np.ndarray | None:
        """Add the workload; train parts alone, where that is requested, and write their files. Collective."""
        summary["workload"] = self.workload
        if not self.config.personal:
            return super().finish(spec, trainer, summary)
        result = personalise(trainer.model, self.parts, self.config)
        trainer.comm.phase = "write results"
        summary["personal"] = personal_facts(result)
        if self.config.out:
            write_personal(Path(self.config.out), result, spec, trainer.comm)
        return result.predictions_N


class OutOfCoreWay(FullWay):
    """All nodes at once, one layer and one part after the other, with the rows of hidden layers on disk."""

    def open(
        self, source: Source, folder: RunFolder | None, stack: ExitStack, read: Callable[[], Graph] | None = None
    ) -> DistGraph:
        parts, self.workload = open_parts(source, self.how, folder, stack, read)
        M = memory_of_rank(source.comm, self.config.memory) if source.folder is not None and self.config.memory else 0
        sizes = [parts.sizes(p) for p in range(parts.k)]
        needs = together(source.comm, PartNeeds, GraphSizes.of_folder(parts.source.folder), self.config)
        together(source.comm, needs.check, sizes, M, self.config.out)
        self.step = partial(OutOfCoreStep, parts=parts, scratch=self.config.out)
        return merge_parts(parts, has_rows=False)

    def finish(self, spec: ModelSpec, trainer: Trainer, summary: dict[str, Any]) -> np.ndarray | None:
        """Add the workload. Collective."""
        summary["workload"] = self.workload
        return super().finish(spec, trainer, summary)


def _check_whole(source: Source, config: TrainConfig) -> None:
    """Raise UsageError for parts, which hold no whole graph, and for options that subgraphs do not have."""
    if source.folder is not None:
        path = source.folder.path
        named = f"--partition {config.partition}" if config.partition else f"GRAPH {path}, a partition folder,"
        raise UsageError(f"{named} has parts; --sampler {config.sampler} draws from the whole graph: give GRAPH alone")
    if config.device != "cpu":
        raise UsageError(f"--sampler {config.sampler} requires --device cpu; got {config.device}")
    if config.cuda_graph:
        raise UsageError("--cuda-graph replays steps of one shape; subgraphs differ: omit --sampler or --cuda-graph")


WAYS = {"full": FullWay, "sampled": SampledWay, "average": AverageWay, "out-of-core": OutOfCoreWay}


def prepare(source: str, config: TrainConfig, comm: Communicator) -> FullWay:
    """Return the way to train that the options name, all of which are checked before anything is read.

    Raises: UsageError for options that do not fit each other, or differ between ranks. Collective.
    """
    check_run(comm, source, config)
    together(comm, check_outputs, source, config)
    how = distribution(config, comm)
    check_average(config, takes_memory=True)
    check_options(config)
    check_on_edges(config)
    if config.features == EMBEDDING and config.on != "links":
        raise UsageError(
            "--features embedding learns a row for each node, of --task links; omit it, or give --features FILE"
        )
    if config.on == "links":
        link_shares(config.split)
        if config.labels:
            raise UsageError(f"--labels {config.labels} are of nodes, which --task links does not read; omit it")
    _check_device(config, comm.size)
    ProcessGrid(comm.size, config.replication)
    is_sampled = config.mode == "full" and config.sampler != "none"
    if (reads := FAMILIES[config.model].reads) and (is_sampled or config.mode != "full"):
        given = f"--sampler {config.sampler}" if is_sampled else f"--mode {config.mode}"
        raise UsageError(
            f"--model {config.model} reads {'attributes' if reads == ATTRIBUTES else 'relations'} of edges, which {given} does not keep; omit {given}"
        )
    return WAYS["sampled" if is_sampled else config.mode](config, how)


def _check_device(config: TrainConfig, n_ranks: int) -> None:
    """Raise UsageError for --cuda-graph where a step cannot be captured or is observed."""
    if not config.cuda_graph:
        return
    if config.device == "cpu":
        raise UsageError("--cuda-graph requires --device cuda")
    check_ranks(n_ranks)
    if config.trace:
        raise UsageError("--cuda-graph runs a step as one launch, inside which --trace sees nothing; omit one of them")
