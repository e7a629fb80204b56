"""The --out folder of a training: held against others, begun anew, a line an epoch, checkpoints, the results at the end."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import torch

from .. import __version__
from ..config import RUN_FILES, TrainConfig, is_of_run, to_toml
from ..errors import ResourceError, UsageError, together
from ..machine import cores
from ..training.trainer import Trainer
from .checkpoint import finite, save_checkpoint, write_array, write_json

CHECKPOINT_S = 30.0  # seconds between checkpoints of a long training


def check_outputs(config: TrainConfig) -> None:
    """Raise UsageError where the trace would be written over the results."""
    if config.out and config.trace and is_of_run(Path(config.out), Path(config.trace)):
        raise UsageError(f"--trace {config.trace} is a name that --out {config.out} needs itself; choose another")


class Log:
    """Writes metrics.jsonl line by line and, in a long training, a checkpoint now and then; rank 0 alone writes."""

    def __init__(self, folder: Path | None, trainer: Trainer, report):
        self.folder = folder if trainer.comm.rank == 0 else None
        self.trainer, self.report = trainer, report
        self.file = None if self.folder is None else open(self.folder / "metrics.jsonl", "w", encoding="utf-8")
        self.saved_at, self.saved_epoch = time.monotonic(), -1

    def record(self, record: dict) -> None:
        if self.file is not None:
            try:
                self.file.write(json.dumps(finite(record)) + "\n")
                self.file.flush()
            except OSError as problem:
                raise ResourceError(
                    f"{self.folder / 'metrics.jsonl'}: cannot be written: {problem.strerror or problem}"
                ) from None
            if time.monotonic() - self.saved_at > CHECKPOINT_S:
                self.save_best()
                self.saved_at = time.monotonic()
        if self.report is not None:
            self.report(record)

    def save_best(self) -> None:
        history = self.trainer.history
        if history.best_epoch > self.saved_epoch:
            self._save(history.best_epoch, history.val, history.test, self.trainer.best_state)
            self.saved_epoch = history.best_epoch

    def close(self) -> None:
        if self.file is None:
            return
        self.file.close()
        self.save_best()
        last = self.trainer.history.records[-1]
        if last["epoch"] > self.saved_epoch:
            self._save(last["epoch"], last["val"], last["test"], self.trainer.last_state)

    def _save(self, epoch: int, val, test, state) -> None:
        trainer = self.trainer
        manifest = {"val": val, "test": test, "metric": trainer.history.metric, "widths": trainer.model.widths}
        save_checkpoint(self.folder / "checkpoints", epoch, state, manifest)


@contextmanager
def held_folder(config: TrainConfig, comm) -> Iterator[Path | None]:
    """Yield the folder of results, which rank 0 holds against other trainings meanwhile; what it has stays."""
    if not config.out:
        yield None
        return
    folder = Path(config.out)
    held = ExitStack()

    def hold() -> None:
        if (
            any((folder / name).exists() for name in (*RUN_FILES, "checkpoints"))
            and not (folder / "config.toml").is_file()
        ):
            raise UsageError(
                f"--out {config.out}: holds results of something else than a training, as it has no config.toml; choose another folder"
            )
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True)
                held.callback(_remove_empty, folder)
            handle = os.open(folder, os.O_RDONLY)
        except OSError as problem:
            raise ResourceError(
                f"--out {config.out}: {problem.strerror or problem}; choose a folder that can be written"
            ) from None
        held.callback(os.close, handle)
        if not _locked(handle):
            raise ResourceError(
                f"--out {config.out}: another training is writing it; wait for it, or choose another folder"
            )

    with held:
        together(comm, hold, root=0)
        yield folder


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _locked(handle: int) -> bool:
    """Whether this process has the folder for itself now; true, too, where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def begin(folder: Path, source: str, config: TrainConfig, comm, threads: int) -> None:
    """Write what the run is, in place of an earlier one, of which nothing may stay: predict would take its weights."""
    try:
        _empty(folder / "checkpoints")
        for stale in ("metrics.jsonl", "summary.json", "predictions.npy"):
            (folder / stale).unlink(missing_ok=True)
        (folder / "config.toml").write_text(to_toml(config, {"graph": str(source)}), encoding="utf-8")
        write_json(folder / "env.json", environment(comm, threads))
    except OSError as problem:
        raise ResourceError(
            f"--out {config.out}: {problem.strerror or problem}; choose a folder that can be written"
        ) from None


def _empty(folder: Path) -> None:
    """Remove what a folder has, or one that a link stands for."""
    for entry in folder.iterdir() if folder.exists() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def environment(comm, threads: int) -> dict:
    """Return where and with what a run was made."""
    return {
        "spgnn": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": cores(),
        "threads": threads,
        "ranks": comm.size,
        "communicator": repr(comm).partition("(")[0],
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write_results(folder: Path, summary: dict, predictions_N: np.ndarray, history) -> None:
    """Write what a training ended with."""
    write_array(folder / "predictions.npy", predictions_N)
    write_json(folder / "summary.json", summary | {"per_class": history.per_class})
