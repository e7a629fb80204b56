"""CheckpointWriter: the checkpoints of one training on disk, as rank 0 writes and removes them in the background."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..atomic import new_folder
from ..dist.job.background import BackgroundThread
from ..errors import ResourceError
from .checkpoint import BEST, WEIGHTS, name_of, prune, save_checkpoint, write_bytes, write_manifest

Files = Mapping[str, Callable[[], bytes]]  # content by name, made when it is written


class CheckpointWriter:
    """Keeps the two newest checkpoints that are whole, and the weights of the best epoch.

    Args: folder  of the checkpoints; moved: called after the first one; returns the folder of the next ones.
    """

    def __init__(self, folder: Path, moved: Callable[[], Path] | None = None):
        self.folder, self.moved = folder, moved
        self.whole: list[int] = []  # epochs of the newest two
        self._best_epoch = -1
        self._opened: tuple[ExitStack, Path, int, dict] | None = None

    def open(self, epoch: int, manifest: dict) -> Path:
        """Return an empty folder for the files of a checkpoint, of several ranks too; `seal` makes it one."""
        for stale in self.folder.glob(".epoch-*"):  # of a training that was killed
            shutil.rmtree(stale, ignore_errors=True)
        stack = ExitStack()
        new = stack.enter_context(new_folder(self.folder / name_of(epoch)))
        self._opened = (stack, new, epoch, manifest)
        return new

    def seal(self, entries: dict[str, dict]) -> None:
        """Write the manifest for the files that are written, and remove the oldest checkpoint."""
        stack, new, epoch, manifest = self._opened
        with stack:
            if BEST in entries:
                self._save_best(new / BEST, manifest)
            write_manifest(new, epoch, entries, manifest)
        best = manifest["history"]["best_epoch"]
        self._opened, self._best_epoch, self.whole = None, best, [*self.whole[-1:], epoch]
        if self.moved is not None:
            self.folder = self.moved()
        prune(self.folder, {best, *self.whole})

    def discard(self) -> None:
        """Remove the folder of `open`, if it has not become a checkpoint."""
        if self._opened is not None:
            stack, self._opened = self._opened[0], None
            stack.__exit__(RuntimeError, RuntimeError("abandoned"), None)

    def _save_best(self, weights: Path, manifest: dict) -> None:
        """Write the weights of the best epoch as a checkpoint without state, before the one that removes older ones."""
        history = manifest["history"]
        if 0 < history["best_epoch"] != self._best_epoch:
            named = {"val": history["best"], "test": history["test"]} | {
                n: manifest[n] for n in ("metric", "task", "model")
            }
            save_checkpoint(self.folder, history["best_epoch"], {WEIGHTS: weights.read_bytes()}, named)


def write_files(folder: Path, files: Files) -> dict[str, dict]:
    """Write files and return their entries of the manifest. Raises: ResourceError naming the file."""
    named, entries = folder.name.lstrip(".").partition(".")[0], {}  # .epoch-000060.new-* is to be epoch-000060
    for name, content in files.items():
        try:
            entries[name] = write_bytes(folder / name, content())
        except OSError as error:
            raise ResourceError(
                f"{folder.parent / named}: cannot be written: {error.strerror or error} ({name}); "
                "checkpoints need a disk with room, which all ranks see"
            ) from error
    return entries


class Writing:
    """A function that runs in a thread next to the rank, and its result or error."""

    def __init__(self, function: Callable[[], Any]):
        self.result: Any = None
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
            self.result = self._function()
        except BaseException as error:  # raised on all ranks after the epoch
            self.error = error
        self.is_done = True
