"""ProgressThread: a thread that advances started exchanges while the rank computes.

MPI sends nothing between its own calls: the messages of an Ialltoallv that is followed by a GEMM leave at
the wait. Test every 0.5 ms hides all of it, at no visible cost to the GEMM (which holds no GIL).
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from ..job.background import BackgroundThread

INTERVAL_S = 0.0005


class Advancing(Protocol):
    def advance(self) -> bool:
        """Advance; return whether it has ended. Never raises, never waits."""


class ProgressThread:
    """Call advance of each added request every INTERVAL_S until it has ended; sleep while there is none.

    `lock` is held during advance: a rank that holds it has its request for itself.
    """

    def __init__(self):
        self.lock = threading.Condition()
        self._requests: list[Advancing] = []
        self._thread = BackgroundThread(self._run, "spgnn progress")
        self._is_closed = True

    def start(self) -> None:
        """Start the thread."""
        self._is_closed = False
        self._thread.start()

    def add(self, request: Advancing) -> None:
        """Advance request from now on."""
        with self.lock:
            self._requests.append(request)
            self.lock.notify()

    def remove(self, request: Advancing) -> None:
        """Stop advancing request."""
        with self.lock:
            if request in self._requests:
                self._requests.remove(request)

    def close(self) -> None:
        """End the thread."""
        if self._is_closed:
            return
        with self.lock:
            self._is_closed = True
            self.lock.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self._requests or self._is_closed)
                if self._is_closed:
                    return
                self._requests = [request for request in self._requests if not request.advance()]
            time.sleep(INTERVAL_S)
