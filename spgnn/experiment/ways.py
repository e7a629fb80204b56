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

from ..dist import Communicator
from ..distgraph import DistGraph, merge_parts
from ..distgraph.distribute import make_dgraph
from ..errors import together
from ..graph import Graph
from ..layers.registry import ModelSpec
from ..training.parts.average import AverageStep
from ..training.parts.evaluation import evaluated
from ..training.parts.part_steps import memory_of_rank
from ..training.parts.personal import personalise
from ..training.steps import Step
from ..training.steps.full import FullStep
from ..training.steps.sampled import SampledStep
from ..training.trainer import Trainer
from .averaging import open_parts
from .folder import RunFolder
from .memory_check import check_fits
from .opening import Source
from .personal_files import personal_facts, write_personal
from .prepare import Prepared
from .whole_graph import check_whole, whole_graph


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
        return make_dgraph(source.folder or self._reader(source), self.comm, None, self.prepared.how)

    def _reader(self, source: Source) -> Callable[[], Graph]:
        """Return what reads the graph on rank 0, and refuses one whose training memory cannot hold. Collective."""
        M, parts = memory_of_rank(self.comm, self.config.memory), self.comm.size // self.config.replication
        return partial(source.read, check=lambda graph: check_fits(graph, self.prepared, parts, M))

    def finish(self, trainer: Trainer, spec: ModelSpec, summary: dict[str, Any]) -> np.ndarray | None:
        """Add to a summary, and return the predictions in original order, on rank 0 at least. Collective."""
        return trainer.steps.scorer.predictions()


class SampledWay(FullWay):
    """Subgraphs of the whole graph, which every rank has; evaluations as in FullWay."""

    def open(self, source: Source, stack: ExitStack) -> DistGraph:
        together(self.comm, check_whole, source.folder, self.config)
        graph = whole_graph(source, stack)
        self.step = partial(SampledStep, graph=graph)
        return make_dgraph(graph, self.comm, None, self.prepared.how)


class AverageWay(FullWay):
    """Parts, each trained alone on one rank, and the mean of their weights."""

    def open(self, source: Source, stack: ExitStack) -> DistGraph:
        self.parts, self.workload = open_parts(source, self.prepared, self.folder, stack)
        config, parts = self.config, self.parts
        self.step = partial(AverageStep, parts=parts)
        if not parts.source.facts.n_features or not parts.n_classes:
            return merge_parts(parts)  # refused as any graph without features or labels
        model = ModelSpec.of(config, parts.source.facts.n_features, parts.n_classes).build()
        chosen, dgraph = evaluated(
            model, parts, config.evaluation, config.memory, config.correct != "none", source.show
        )
        self.config = replace(config, evaluation=chosen)
        return dgraph

    def finish(self, trainer: Trainer, spec: ModelSpec, summary: dict[str, Any]) -> np.ndarray | None:
        """Add the workload; train parts alone, where that is requested, and write their files. Collective."""
        summary["workload"] = self.workload
        if not self.config.personal:
            return super().finish(trainer, spec, summary)
        result = personalise(trainer.model, self.parts, self.config)
        self.comm.phase = "write results"
        summary["personal"] = personal_facts(result)
        if self.config.out:
            write_personal(Path(self.config.out), result, spec, self.comm)
        return result.predictions_N


WAYS = {"full": FullWay, "sampled": SampledWay, "average": AverageWay}
