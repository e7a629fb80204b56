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
        self._shared: tuple[ExitStack, Path, int, dict] | None = None

    def write(self, epoch: int, files: Files, manifest: dict) -> None:
        """Write a checkpoint and remove the oldest. Raises: ResourceError naming the file."""
        self._remove_stale()
        self._save_best(files.get(BEST), manifest)
        with new_folder(self.folder / name_of(epoch)) as new:
            write_manifest(new, epoch, write_files(new, files), manifest)
        self._ended(epoch, manifest)

    def open_shared(self, epoch: int, manifest: dict) -> Path:
        """Return an empty folder into which several ranks write their files; seal_shared makes it a checkpoint."""
        self._remove_stale()
        stack = ExitStack()
        new = stack.enter_context(new_folder(self.folder / name_of(epoch)))
        self._shared = (stack, new, epoch, manifest)
        return new

    def seal_shared(self, entries: dict[str, dict]) -> None:
        """Write the manifest for the files of all ranks."""
        stack, new, epoch, manifest = self._shared
        self._save_best((new / BEST).read_bytes if BEST in entries else None, manifest)
        write_manifest(new, epoch, entries, manifest)
        self._shared = None
        stack.close()
        self._ended(epoch, manifest)

    def discard_shared(self) -> None:
        """Remove the folder of open_shared, if it has not become a checkpoint."""
        if self._shared is not None:
            stack, self._shared = self._shared[0], None
            abandoned = RuntimeError("abandoned")
            stack.__exit__(RuntimeError, abandoned, None)

    def _save_best(self, content: Callable[[], bytes] | None, manifest: dict) -> None:
        """Write the weights of the best epoch as a checkpoint without state, before the one that removes older ones."""
        history = manifest["history"]
        epoch = history["best_epoch"]
        if content is not None and 0 < epoch != self._best_epoch:
            named = {name: manifest[name] for name in ("metric", "model")}
            scores = {"val": history["val"], "test": history["test"]}
            save_checkpoint(self.folder, epoch, {WEIGHTS: content()}, scores | named)
        self._best_epoch = epoch

    def _ended(self, epoch: int, manifest: dict) -> None:
        self.whole = [*self.whole[-1:], epoch]
        if self.moved is not None:
            self.folder = self.moved()
        prune(self.folder, {manifest["history"]["best_epoch"], *self.whole})

    def _remove_stale(self) -> None:
        """Remove what a training that was killed had begun."""
        for path in self.folder.glob(".epoch-*"):
            shutil.rmtree(path, ignore_errors=True)


def write_files(folder: Path, files: Files) -> dict[str, dict]:
    """Write files and return their entries of the manifest. Raises: ResourceError naming the file."""
    entries = {}
    for name, content in files.items():
        try:
            entries[name] = write_bytes(folder / name, content())
        except OSError as error:
            raise ResourceError(
                f"{folder.parent / name_of_temporary(folder)}: cannot be written: {error.strerror or error} ({name}); "
                "checkpoints need a disk with room, which all ranks see"
            ) from error
    return entries


def name_of_temporary(folder: Path) -> str:
    """Return the name that a folder `.epoch-000060.new-*` is to have."""
    return folder.name.lstrip(".").partition(".")[0]


class Job:
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
