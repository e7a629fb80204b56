"""Observers of a run: the watchdog, and the recorder of --trace, wrapped around communicator and Step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import cast

import torch

from ..config import TrainConfig
from ..dist import Communicator
from ..dist.job.watchdog import watched
from ..errors import ResourceError, together
from ..spmm.operator.timing import TimedOperations
from ..timeline.outputs import check_path, log_view, write_own_trace, write_trace
from ..timeline.recorder import EVALUATION, Recorder
from ..training.link_scorer import LinkScorer
from ..training.steps import Scorer, Step, WrappedStep
from ..training.trainer import Trainer


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
