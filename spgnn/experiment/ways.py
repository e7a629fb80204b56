"""The ways to train: on all nodes at once, on subgraphs, and on parts whose weights are averaged.

`open` returns the graph on which a model is scored; then `step` makes the Step of its Trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..config import TrainConfig
from ..dist import Communicator
from ..distgraph import DistGraph, merge_parts
from ..distgraph.distribute import make_dgraph
from ..errors import UsageError, together
from ..graph import Graph
from ..layers.registry import ModelSpec
from ..training.parts.average import AverageStep, memory_of_rank
from ..training.parts.evaluation import evaluated
from ..training.parts.personal import personalise
from ..training.steps import Step
from ..training.steps.full import FullStep
from ..training.steps.sampled import SampledStep
from ..training.trainer import Trainer
from .averaging import open_parts
from .folder import RunFolder
from .memory_check import check_fits
from .opening import Source
from .prepare import Prepared
from .results import personal_facts, write_personal


class FullWay:
    """All nodes at once: each rank holds its rows.

    Args: folder  of the results, on rank 0.
    config  the options, with what `open` has decided; step: (model, dgraph, config) -> Step.
    """

    step: Callable[..., Step] = FullStep

    def __init__(self, prepared: Prepared, comm: Communicator, folder: RunFolder | None):
        self.prepared, self.config, self.comm, self.folder = prepared, prepared.config, comm, folder

    def open(self, source: Source, stack: ExitStack) -> DistGraph:
        """Return the graph on which the model is scored; stack: ends what is opened, after the training. Collective."""
        if source.folder is not None:
            return make_dgraph(source.folder, self.comm, None, self.prepared.how)
        M, parts = memory_of_rank(self.comm, self.config.memory), self.comm.size // self.config.replication

        def read() -> Graph:
            graph = source.read()
            check_fits(graph, self.prepared, parts, M)
            return graph

        return make_dgraph(read, self.comm, None, self.prepared.how)

    def finish(self, spec: ModelSpec, trainer: Trainer, summary: dict[str, Any]) -> np.ndarray | None:
        """Add to a summary, and return the predictions in original order, on rank 0 at least. Collective."""
        return trainer.steps.scorer.predictions()


class SampledWay(FullWay):
    """Subgraphs of the whole graph, which every rank has; evaluations as in FullWay."""

    def open(self, source: Source, stack: ExitStack) -> DistGraph:
        together(self.comm, _check_whole, source, self.config)
        graph = source.read_everywhere(stack)
        self.step = partial(SampledStep, graph=graph)
        return make_dgraph(graph, self.comm, None, self.prepared.how)


class AverageWay(FullWay):
    """Parts, each trained alone on one rank, and the mean of their weights."""

    def open(self, source: Source, stack: ExitStack) -> DistGraph:
        self.parts, self.workload = open_parts(source, self.prepared, self.folder, stack)
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
        self.comm.phase = "write results"
        summary["personal"] = personal_facts(result)
        if self.config.out:
            write_personal(Path(self.config.out), result, spec, self.comm)
        return result.predictions_N


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


WAYS = {"full": FullWay, "sampled": SampledWay, "average": AverageWay}
