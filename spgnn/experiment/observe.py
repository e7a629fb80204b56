"""What watches a run: the watchdog, and the recorder of --log-view and --trace; wrapped around it from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch

from ..config import TrainConfig
from ..dist.job.watchdog import watched
from ..errors import ResourceError, together
from ..spmm.timing import TimedOperations
from ..timeline.logview import log_view
from ..timeline.recorder import EVALUATION, Recorder
from ..timeline.trace import check_path, write_own_trace, write_trace
from ..training.trainer import Trainer


@contextmanager
def observed(config: TrainConfig, comm, show: Callable[[str], None] | None = None) -> Iterator[tuple]:
    """Yield (comm under observation, Recorder or None); write what was asked for when the block ends well.

    Args: show  takes the table of --log-view, on rank 0.
    Collective.
    """
    if not (config.log_view or config.trace):
        with watched(comm, config.watchdog) as comm:
            yield comm, None
        return
    if config.trace:
        together(comm, check_path, config.trace, root=0)
    recorder = Recorder()
    with watched(comm, config.watchdog, recorder) as watched_comm:
        recorder.synchronise(comm)
        try:
            yield watched_comm, recorder
        except Exception as error:
            recorder.close()
            if config.trace and comm.rank == 0:
                with suppress(ResourceError):  # the error that is on its way says more
                    write_own_trace(0, recorder, config.trace, f"{type(error).__name__}: {error}")
            raise
        recorder.close()
        recorder.synchronise(comm)
        if config.trace:
            write_trace(comm, recorder, config.trace)
        if config.log_view:
            table = log_view(comm, recorder)
            if comm.rank == 0 and show is not None:
                show(str(table))


def time_operations(recorder: Recorder | None, trainer: Trainer) -> None:
    """Record what a trainer and its operator do; without a recorder nothing is touched."""
    if recorder is None:
        return
    A = trainer.dgraph.A
    settle = None if A.device.type == "cpu" else partial(torch.cuda.synchronize, A.device)
    A.layout.use(TimedOperations(recorder, trainer.comm.traffic, settle))
    trainer.optimizer.step = recorder.wrap(trainer.optimizer.step, "optimiser")
    trainer.logits = recorder.wrap(trainer.logits, "other", stage=EVALUATION)
    trainer._finish = recorder.wrap(trainer._finish, "scores", stage=EVALUATION)
