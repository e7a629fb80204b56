"""Checkpoints: the state of a training, copied after an epoch and written while the next one computes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..config import check_unchanged, fixed_options
from ..errors import UsageError, agree, together
from ..layers.registry import ModelSpec
from ..training.trainer import Trainer
from .checkpoint import BEST, HISTORY, OPTIMIZER, WEIGHTS, Files, finite, to_bytes
from .checkpoint_writer import CheckpointWriter, Writing
from .fingerprint import check_graph, check_parts, graph_facts
from .folder import RunFolder
from .restoring import Found, Say, as_described, read_state, share_newest
from .stopping import StopSignals, stopped


class Checkpoints:
    """The checkpoints of a training: the two newest, and the weights of the best epoch.

    Args: folder   that all ranks see; rank 0 writes it.
          trainer  before trainer.release_input().
          every_s  seconds between two; 0: after every epoch, but for those in which the one before is still written.
          model    what rebuilds the model without its own code; None for a custom one.
          moved    called after the first checkpoint; returns the folder of the next ones.
    Collective, as after_epoch and close.
    """

    def __init__(
        self,
        folder: str | Path,
        trainer: Trainer,
        every_s: float = 30.0,
        model: ModelSpec | None = None,
        moved: Callable[[], Path] | None = None,
    ):
        self.trainer, self.comm, self.every_s = trainer, trainer.comm, every_s
        self.writer = CheckpointWriter(Path(folder), moved)
        self.facts = {  # of each manifest
            "model": None if model is None else asdict(model),
            "task": trainer.steps.scorer.task,
            "options": fixed_options(trainer.config),
            "graph": graph_facts(trainer.steps.parts or trainer.dgraph),
            "versions": {"spgnn": __version__, "torch": torch.__version__},
        }
        self.epoch = -1  # of the newest checkpoint that was begun
        self._saved_at = time.monotonic()
        self._lines: list[bytes] = []
        self._job: Writing | None = None  # of rank 0

    @classmethod
    def of_run(cls, trainer: Trainer, spec: ModelSpec, folder: RunFolder | None) -> Checkpoints:
        """Return the checkpoints of a run in trainer.config.out; folder: on rank 0."""
        config = trainer.config
        if folder is None:
            return cls(Path(config.out) / "checkpoints", trainer, config.checkpoint_every, spec)
        return cls(folder.new_checkpoints, trainer, config.checkpoint_every, spec, folder.after_checkpoint)

    def after_epoch(self, stop: int = 0) -> int:
        """Begin or end what is due, and return the greatest `stop` of all ranks.

        Call it when the record of an epoch is complete, as the `report` of Trainer.fit does.
        Raises: ResourceError, on all ranks, where a checkpoint could not be written.
        """
        is_due = self.comm.rank == 0 and time.monotonic() - self._saved_at >= self.every_s
        is_busy = self._job is not None and not self._job.is_done
        has_failed = self._job is not None and self._job.has_failed
        flags = np.array([stop, is_due, is_busy, has_failed], np.int64)
        self.comm.all_reduce(flags, "max")
        stop, is_due, is_busy, has_failed = map(int, flags)
        if has_failed:
            self._agree()
        if is_due and not is_busy:
            self._begin()
        return stop

    def close(self) -> None:
        """Write the state after the last epoch, unless it is there, and wait until it is."""
        self._agree()
        if self.trainer.epoch != self.epoch:
            self._begin()
            self._agree()

    def abandon(self) -> None:
        """Wait for the thread of this rank. Not collective."""
        if self._job is not None:
            self._job.wait()

    def restore(self, found: Found | None = None, say: Say = None) -> bool:
        """Give the trainer the state of a checkpoint, and return whether there was one.

        Args: found  of newest_whole, on all ranks; None: the newest in the folder.
              say    called on rank 0 with a line for each checkpoint that is damaged.
        Raises: CheckpointError where the graph or the model is another one, UsageError where options are.
        Collective.
        """
        found = share_newest(self.comm, self.writer.folder, say) if found is None else found
        if found is None:
            return False
        path, manifest = found
        described = as_described(path)
        check_parts(path, manifest["graph"], self.facts["graph"])
        check_graph(path, manifest["graph"], self.facts["graph"])
        check_unchanged(manifest["options"], self.trainer.config, str(path))
        if (given := manifest.get("python", [])) != self.facts.get("python", []):
            raise UsageError(
                f"{path} was trained with {', '.join(given) or 'none'} of Python's keywords; continue it in Python: "
                "spgnn.train(model, dgraph, out=DIR, resume=True) with the same ones"
            )
        state = together(self.comm, described(read_state), path, manifest)
        together(self.comm, described(self.trainer.load_state_dict), state)
        self.epoch, self.writer.whole, self._lines = self.trainer.epoch, [self.trainer.epoch], []
        self._saved_at = time.monotonic()
        return True

    def lines(self) -> list[bytes]:
        """Return the records of the training as lines of JSON."""
        for record in self.trainer.history.records[len(self._lines) :]:
            self._lines.append(json.dumps(finite(record)).encode() + b"\n")
        return self._lines

    def _begin(self) -> None:
        """Copy the state, and start to write it, on rank 0."""
        self.epoch, self._saved_at = self.trainer.epoch, time.monotonic()
        if self.comm.rank == 0:
            self._job = Writing(partial(self.writer.write, self.epoch, *self._content(self.trainer.state_dict())))

    def _content(self, state: dict[str, Any]) -> tuple[Files, dict]:
        """Return the files of a checkpoint and its manifest."""
        history, lines = state["history"], b"".join(self.lines())
        records = history.pop("records")
        last = records[-1] if records else {}
        files = {
            WEIGHTS: lambda: to_bytes(state["model"]),
            OPTIMIZER: lambda: to_bytes(state["optimizer"]),
            HISTORY: lambda: lines,
        }
        if history["best_epoch"] != self.epoch:
            files[BEST] = lambda: to_bytes(state["best"])
        return files, {
            "val": self.trainer.history.compared(last) if last else None, "test": last.get("test"),
            "metric": history["metric"], **self.facts, "history": history, "unscored": state["unscored"],
        }  # fmt: skip

    def _agree(self) -> None:
        """Wait for the thread; raise on all ranks where it has failed. Collective."""
        self.abandon()
        agree(self.comm, None if self._job is None else self._job.error)


class Log:
    """Writes a line per epoch, on rank 0, and checkpoints; ends the training on a signal. Used in `with` around it."""

    def __init__(
        self, folder: RunFolder | None, checkpoints: Checkpoints | None, report, stop: StopSignals | None = None
    ):
        self.folder, self.checkpoints, self.report, self.stop = folder, checkpoints, report, stop

    def __enter__(self) -> Log:
        if self.stop is not None:
            self.stop.begin()
        return self

    def __exit__(self, error, *_) -> None:
        """Write the last checkpoint; after an error, wait for the one that was begun. Collective without an error."""
        if self.checkpoints is not None:
            try:
                if error is None:
                    self.checkpoints.close()
            finally:
                self.checkpoints.abandon()
        if self.stop is not None and error is None:
            self.stop.end()

    def record(self, record: dict) -> None:
        """Take the record of an epoch. Raises: StoppedError on all ranks after a signal to any. Collective."""
        if self.folder is not None:
            self.folder.write_line(record)
        if self.report is not None:
            self.report(record)
        if self.checkpoints is None:
            return
        if number := self.checkpoints.after_epoch(0 if self.stop is None else self.stop.wanted):
            self.checkpoints.close()
            raise stopped(number, record["epoch"], self.checkpoints.trainer.config.out)
