"""CheckpointWriter: the checkpoints of one training on disk, as rank 0 writes and removes them in the background."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..dist.job.background import BackgroundThread
from .checkpoint import BEST, WEIGHTS, Files, prune, save_checkpoint


class CheckpointWriter:
    """Keeps the two newest checkpoints that are whole, and the weights of the best epoch.

    Args: folder  of the checkpoints; moved: called after the first one; returns the folder of the next ones.
    """

    def __init__(self, folder: Path, moved: Callable[[], Path] | None = None):
        self.folder, self.moved = folder, moved
        self.whole: list[int] = []  # epochs of the newest two
        self._best_epoch = -1

    def write(self, epoch: int, files: Files, manifest: dict) -> None:
        """Write a checkpoint, and remove the oldest one. Raises: ResourceError naming its folder."""
        for stale in self.folder.glob(".epoch-*"):  # of a training that was killed
            shutil.rmtree(stale, ignore_errors=True)
        best = manifest["history"]["best_epoch"]
        if BEST in files:
            self._save_best(best, files, manifest)
        save_checkpoint(self.folder, epoch, files, manifest)
        self._best_epoch, self.whole = best, [*self.whole[-1:], epoch]
        if self.moved is not None:
            self.folder = self.moved()
        prune(self.folder, {best, *self.whole})

    def _save_best(self, epoch: int, files: Files, manifest: dict) -> None:
        """Write the weights of the best epoch as a checkpoint without state, before the one that removes older ones."""
        if 0 < epoch != self._best_epoch:
            history = manifest["history"]
            named = {"val": history["best"], "test": history["test"]} | {
                n: manifest[n] for n in ("metric", "task", "model")
            }
            save_checkpoint(self.folder, epoch, {WEIGHTS: files[BEST]}, named)


class Writing:
    """A function that runs in a thread next to the rank, and its error."""

    def __init__(self, function: Callable[[], Any]):
        self.error: BaseException | None = None
        self.is_done = False
        self._function = function
        self._thread = BackgroundThread(self._run, "spgnn checkpoint")
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        return self.is_done and self.error is not None

    def wait(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # raised on all ranks after the epoch
            self.error = error
        self.is_done = True
