"""run: one training from a GRAPH and options to a folder of results; Kept: what any training does that has a folder; its
observers, the watchdog and the recorder of --trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from ..config import TrainConfig, continued, ended_summary
from ..dist import Communicator
from ..dist.job.watchdog import watched
from ..errors import ResourceError, from_root, together
from ..layers.registry import LISTED, ModelSpec
from ..links.scores import rank_tables
from ..partition.folder.pipeline.memory_budget import memory_bytes_of
from ..spmm.operator.timing import TimedOperations
from ..timeline.outputs import check_path, log_view, write_own_trace, write_trace
from ..timeline.recorder import EVALUATION, Recorder
from ..training.consistency import check_links, check_trainable
from ..training.link_scorer import LinkScorer
from ..training.notes import data_notes, end_note, host_notes
from ..training.parts.average import memory_of_rank
from ..training.steps import Scorer, Step, WrappedStep
from ..training.steps.captured import CapturedStep
from ..training.steps.full import FullStep
from ..training.trainer import Trainer
from .checkpoint import Checkpoint, found_checkpoint
from .folder import RunFolder, hold_folder
from .memory_check import check_rank_fits, explaining_memory
from .named import Names
from .opening import Show, Source
from .results import keep_results, summary_of
from .saving import Checkpoints
from .stopping import StopSignals, stopped
from .ways import prepare


@contextmanager
def observed(
    config: TrainConfig, comm: Communicator, show: Callable[[str], None] | None = None
) -> Iterator[tuple[Communicator, Recorder | None]]:
    """Yield (observed communicator, Recorder or None); write the table and the trace when the block ends without error.

    Args: show  called with the table of --trace, on rank 0.
    Collective.
    """
    if not config.trace:
        with watched(comm, config.watchdog) as comm:
            yield comm, None
        return
    together(comm, check_path, config.trace, root=0)
    recorder = Recorder()
    with watched(comm, config.watchdog, recorder) as watched_comm:
        recorder.synchronise(comm)
        try:
            yield watched_comm, recorder
        except Exception as error:
            recorder.close()
            if comm.rank == 0:
                with suppress(ResourceError):  # the error being raised says more
                    write_own_trace(0, recorder, config.trace, f"{type(error).__name__}: {error}")
            raise
        recorder.close()
        recorder.synchronise(comm)
        write_trace(comm, recorder, config.trace)
        table = log_view(comm, recorder)
        if comm.rank == 0 and show is not None:
            show(str(table))


def time_operations(recorder: Recorder | None, trainer: Trainer) -> None:
    """Record the operations of a trainer; without a recorder nothing changes."""
    if recorder is None:
        return
    A = trainer.dgraph.A
    settle = None if A.device.type == "cpu" else partial(torch.cuda.synchronize, A.device)
    A.layout.use(TimedOperations(recorder, trainer.comm.traffic, settle))
    trainer.steps = cast(Step, ObservedStep(trainer.steps, recorder))  # a WrappedStep has what it wraps


class ObservedStep(WrappedStep):
    """A Step whose scorer is recorded; its products, loss and update are recorded by the operations of A."""

    def __init__(self, step: Step, recorder: Recorder):
        super().__init__(step)
        if isinstance(step.scorer, LinkScorer):
            step.scorer.scores_of = recorder.span("scores", stage=EVALUATION)(step.scorer.scores_of)
        else:
            self.scorer = ObservedScorer(step.scorer, recorder)


class ObservedScorer:
    """A Scorer whose calls are spans of the stage EVALUATION."""

    def __init__(self, scorer: Scorer, recorder: Recorder):
        self.task, self.labels = scorer.task, scorer.labels
        self.split = scorer.split
        if hasattr(scorer, "ranked"):
            self.ranked = scorer.ranked
        self.logits = recorder.span("other", stage=EVALUATION)(scorer.logits)
        self._counts = recorder.span("scores", stage=EVALUATION)(scorer.counts)
        self.predictions = recorder.span("other", stage=EVALUATION)(scorer.predictions)

    def counts(self, Z_nC: torch.Tensor | None = None):
        """Return the counts of each split and class, see Scorer."""
        return self._counts(self.logits() if Z_nC is None else Z_nC)


Report = Callable[[dict], Any]
Finish = Callable[[Trainer, dict[str, Any]], np.ndarray | None]


def run(
    source: str, config: TrainConfig, comm: Communicator, report: Report | None = None, show: Show = None
) -> dict[str, Any]:
    """Train on GRAPH and return the summary; with config.out, write the files of the run there.

    Files: config.toml, env.json, metrics.jsonl (one object per epoch), details.json (see run_details), summary.json,
           split.npy and predictions.npy (original node order), checkpoints/ (best and newest); with config.personal also parts.jsonl (one object
           per part) and checkpoints/personal/.
    Args:  source  built-in name, file or folder; with config.partition it only names the graph; or a partition folder.
           report  called on this rank with the record of each epoch.
           show    called on rank 0 with the table of config.trace and with messages.
    Raises: StoppedError on all ranks after a signal and a checkpoint, see StopSignals.
    Collective.
    """
    way = prepare(source, config, comm)
    if config.resume and (ended := from_root(comm, ended_summary, source, config)):
        _show(comm, show, [f"{config.resume} has ended: nothing is trained, its results follow"])
        return ended
    signals = StopSignals(show, is_shared=comm.size > 1) if config.out else nullcontext()
    with observed(config, comm, show) as (comm, recorder), signals as stop:
        opened = Source.open(source, config, comm, show)
        if stop is not None:
            stop.ask(comm)
        with kept(source, config, comm, show, stop) as training:
            dgraph = way.open(opened, training.folder, training.stack)
            dgraph = dgraph.on_edges() if config.on == "edges" else dgraph
            names = opened.names
            is_parts = opened.folder is not None
            del opened  # and with it the owners of all nodes
            if stop is not None:
                stop.ask(comm)
            comm.phase = "set up training"
            check_links(dgraph) if config.on == "links" else check_trainable(dgraph)
            spec = training.listed or ModelSpec.of(config, dgraph.n_features, dgraph.n_classes, dgraph)
            trainer = Trainer(spec.build(), dgraph, way.config, way.step)
            _show(comm, show, host_notes(comm) + data_notes(dgraph, trainer.steps.scorer) + trainer.steps.notes())
            if is_parts:
                together(comm, check_rank_fits, trainer, way.config, memory_of_rank(comm, config.memory))
            trainer.release_input()
            if config.cuda_graph:
                trainer.steps = cast(
                    Step, CapturedStep(cast(FullStep, trainer.steps))
                )  # a WrappedStep has what it wraps
            time_operations(recorder, trainer)
            with explaining_memory(trainer):
                return training.train(trainer, spec, names, report, finish=partial(way.finish, spec))


def resume(
    folder: str | Path,
    comm: Communicator,
    report: Report | None = None,
    show: Show = None,
    graph: str = "",
    **options,
) -> dict[str, Any]:
    """Continue the run that `spgnn train --out` left in a folder, and return its summary.

    Args:   graph, options  that differ from the run's: epochs, scheme, partition, ... see config.continued.
            report, show    as those of experiment.run.
    Raises: UsageError naming options that a run cannot be continued with; CheckpointError without a whole checkpoint.
    Collective, on any number of ranks, which all see the folder.
    """
    source, config = together(comm, continued, graph, {**options, "resume": str(folder)})
    return run(source, config, comm, report, show)


@dataclass(frozen=True, slots=True)
class Kept:
    """A training whose folder, if it has one, is locked, and whose checkpoint, if it continues one, is found; see `kept`.

    source  GRAPH, or the name of a graph; folder: on rank 0, None elsewhere and where nothing is kept.
    show    called on rank 0 with messages; stop: signals that end the training after a checkpoint.
    stack   of what ends with the training.
    """

    source: str
    folder: RunFolder | None
    found: Checkpoint | None
    show: Show
    stop: StopSignals | None
    stack: ExitStack

    @property
    def listed(self) -> ModelSpec | None:
        """The model of the checkpoint if it lists layers, as a Stack that Python made; else None."""
        model = None if self.found is None else self.found.manifest.get("model")
        return ModelSpec(**model) if model is not None and model["family"] == LISTED else None

    def train(
        self,
        trainer: Trainer,
        spec: ModelSpec | None,
        names: Names,
        report: Report | None = None,
        python: Sequence[str] = (),
        finish: Finish | None = None,
    ) -> dict[str, Any]:
        """Go on from the checkpoint, train, and return the summary; with trainer.config.out, write all files of the run.

        Args: spec    what rebuilds the model; None: its own code.
              report  called on this rank with the record of each epoch.
              python  keywords that only Python has, without which the run cannot be continued.
              finish  adds to the summary and returns the predictions; None: the scorer has them.
        Raises: StoppedError on all ranks after a signal to any. Collective.
        """
        config, comm, folder, stop = trainer.config, trainer.comm, self.folder, self.stop
        checkpoints = None
        if config.out:
            checkpoints = Checkpoints.of_run(trainer, spec, folder, python)
            if self.found is not None:
                checkpoints.restore(self.found, self.show)
            together(comm, RunFolder.begin, folder, self.source, config, comm, checkpoints.lines(), root=0)

        def record(values: dict[str, Any]) -> None:
            if folder is not None:
                folder.write_line(values)
            if report is not None:
                report(values)
            if checkpoints is not None and (number := checkpoints.after_epoch(0 if stop is None else stop.wanted)):
                checkpoints.close()
                raise stopped(number, values["epoch"], config.out)

        if stop is not None:
            stop.begin()
        try:
            trainer.fit(record)
            if checkpoints is not None:
                checkpoints.close()
        finally:
            if checkpoints is not None:
                checkpoints.abandon()
        if stop is not None:
            stop.end()
        comm.phase = "write results"
        summary = summary_of(trainer)
        _show(comm, self.show, [end_note(trainer), _memory_note(config.memory, summary["peak_rss_mb"])])
        predictions_N = trainer.steps.scorer.predictions() if finish is None else finish(trainer, summary)
        if trainer.dgraph.links is not None and predictions_N is not None:
            summary |= rank_tables(trainer.dgraph.links, predictions_N)
        if stop is not None:
            stop.ask(comm)
        if config.out:
            keep_results(trainer, folder, names, summary, predictions_N)
        return summary


@contextmanager
def kept(
    source: str, config: TrainConfig, comm: Communicator, show: Show = None, stop: StopSignals | None = None
) -> Iterator[Kept]:
    """Yield a training: with config.out its folder is locked until the end, with config.resume its checkpoint is found.

    Raises: UsageError where the folder has another run; CheckpointError without a checkpoint. Collective.
    """
    with ExitStack() as stack:
        folder = together(comm, hold_folder, config, stack, root=0) if config.out else None
        found = found_checkpoint(config, comm, show) if config.resume else None
        yield Kept(source, folder, found, show, stop, stack)


def _show(comm: Communicator, show: Show, notes: list[str]) -> None:
    """Show the notes that are not empty, on rank 0."""
    if any(notes) and comm.rank == 0 and show is not None:
        show("\n".join(f"spgnn: {note}" for note in notes if note))


def _memory_note(memory: str, peak_mb: float) -> str:
    """Return what to say of a training that took more memory than it was to have, "" of others."""
    if not memory or peak_mb * 1e6 <= memory_bytes_of(memory):
        return ""
    return f"a rank took {peak_mb:.0f} MB at its peak, more than --memory {memory}, which is an estimate; set it lower"
