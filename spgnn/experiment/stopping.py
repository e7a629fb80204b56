"""StopSignals: SIGTERM, SIGUSR1 and Ctrl-C end a training after a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import numpy as np

from ..dist import Communicator
from ..errors import StoppedError

REQUEUE, INTERRUPTED = 75, 130  # exit codes: EX_TEMPFAIL, by which a batch script sees that the run can go on
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignals:
    """Notes a signal until the training asks for it; use it in `with`. Signals reach the main thread only.

    Before `begin` and after `end` a signal ends the process at once, as there is nothing to save; one rank of several
    notes it until `ask`, as srun kills the ranks of a job that aborts, with an exit code of its own. Ctrl-C ends the
    process at once, but between `begin` and `end` only if it comes twice.
    Args: say        called with a line for the user.
          when       of messages, until `begin`.
          is_shared  whether this process is one of several ranks; a signal that the outer one of two StopSignals has
                     noted is also the inner one's.
    """

    def __init__(
        self,
        say: Callable[[str], None] | None = None,
        when: str = "before the first epoch",
        is_shared: bool = False,
    ):
        self.wanted = 0  # number of the signal
        self.is_training, self._when, self._is_shared = False, when, is_shared
        self._say, self._before = say, {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._note)
                outer = getattr(self._before[number], "__self__", None)
                self.wanted = self.wanted or (outer.wanted if isinstance(outer, StopSignals) else 0)
        return self

    def __exit__(self, error, *_) -> None:
        for number, handler in self._before.items():
            # Slurm's warning may come when the results are written: it is no reason to fail.
            is_late_warning = number == signal.SIGUSR1 and error is None and handler == signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if is_late_warning else handler)

    def begin(self) -> None:
        """Note signals from now on: the training asks for them after each epoch."""
        self.is_training = True

    def end(self) -> None:
        """End the process on a signal again: the last epoch has ended."""
        self.is_training, self._when = False, "after the last epoch, before the results were written"

    def ask(self, comm: Communicator) -> None:
        """Raise StoppedError on all ranks, outside of the epochs, if one has noted a signal. Collective."""
        if self._is_shared and (number := int(comm.all_reduce(np.array([self.wanted]), "max")[0])):
            raise self._early(number, is_together=True)

    def _early(self, number: int, is_together: bool = False) -> StoppedError:
        message = f"stopped by {name_of_signal(number)} {self._when}; start it again"
        return StoppedError(message, REQUEUE, is_together)

    def _note(self, number: int, _) -> None:
        is_again = number == signal.SIGINT == self.wanted
        if number == signal.SIGINT and (is_again or not self.is_training):
            raise KeyboardInterrupt
        if not self.is_training and not self._is_shared:
            raise self._early(number)
        self.wanted = self.wanted or number
        if self._say is not None and number == signal.SIGINT:
            self._say("spgnn: interrupted: writing a checkpoint after this epoch; Ctrl-C again stops at once")


def name_of_signal(number: int) -> str:
    """Return SIGTERM for 15; Ctrl-C for 2."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def stopped(number: int, epoch: int, out: str) -> StoppedError:
    """Return the error that ends a training on a signal."""
    code = INTERRUPTED if number == signal.SIGINT else REQUEUE
    return StoppedError(
        f"stopped by {name_of_signal(number)} after epoch {epoch}; spgnn train --resume {out} continues the run",
        code,
        is_together=True,
    )
