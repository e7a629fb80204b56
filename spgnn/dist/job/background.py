"""BackgroundThread: a thread whose start is waited for with a limit."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

from ...errors import ResourceError

START_S = 10.0  # a thread starts within microseconds; on a machine with more processes than cores, later
FIX = "raise the limits of this process (ulimit -v, ulimit -u, the memory of the job)"


class BackgroundThread:
    """Run run() next to the rank until it returns; Python ends without waiting for it.

    threading.Thread.start waits forever for a thread that runs out of memory in its first lines.
    """

    def __init__(self, run: Callable[[], None], name: str):
        self.name = name
        self._run = run
        self._has_started, self._has_ended = threading.Event(), threading.Event()

    def start(self, limit_s: float = START_S) -> None:
        """Start; return once the thread runs.

        Raises: ResourceError if the process has too little memory or too many threads.
        """
        try:
            _thread.start_new_thread(self._main, ())
        except RuntimeError as error:
            raise ResourceError(f"the thread {self.name} could not be started: {error}; {FIX}") from None
        if not self._has_started.wait(limit_s):
            raise ResourceError(f"the thread {self.name} did not start within {limit_s:g} s: out of memory? {FIX}")

    def join(self) -> None:
        """Wait until run has returned; return at once if it was never started."""
        if self._has_started.is_set():
            self._has_ended.wait()

    def _main(self) -> None:
        try:
            self._has_started.set()
            self._run()
        finally:
            self._has_ended.set()
