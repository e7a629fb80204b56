"""Checkpoints: the state of a training, copied after an epoch and written while the next one computes.

Weights with a row for each node, of which a rank has its own, are kept by original id, and resumed on any ranks.

Shapes: N nodes, n own rows, F columns.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..config import check_unchanged, fixed_options
from ..dist.job.background import BackgroundThread
from ..distgraph import DistGraph
from ..errors import CheckpointError, UsageError, agree, together
from ..graph import ColumnNames
from ..layers.registry import ModelSpec
from ..training.consistency import is_of_nodes
from ..training.trainer import Trainer
from .checkpoint import (
    BEST,
    HISTORY,
    MANIFEST,
    OPTIMIZER,
    WEIGHTS,
    Checkpoint,
    Files,
    Say,
    check_graph,
    check_names,
    check_parts,
    finite,
    graph_facts,
    newest,
    prune,
    save_checkpoint,
    to_bytes,
)
from .folder import RunFolder


class Checkpoints:
    """The checkpoints of a training: the two newest, and the weights of the best epoch.

    Args: folder   that all ranks see; rank 0 writes it.
          trainer  whose state they have.
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
        self.facts: dict[str, Any] = {  # of each manifest
            "model": None if model is None else asdict(model),
            "task": trainer.steps.scorer.task,
            "options": fixed_options(trainer.config),
            "graph": graph_facts(trainer.steps.parts or trainer.dgraph),
            "names": trainer.dgraph.names.written(),
            "versions": {"spgnn": __version__, "torch": str(torch.__version__)},
        }
        self.epoch = -1  # of the newest checkpoint that was begun
        self._saved_at = time.monotonic()
        self._lines: list[bytes] = []
        self._job: Writing | None = None  # of rank 0

    @classmethod
    def of_run(
        cls, trainer: Trainer, spec: ModelSpec | None, folder: RunFolder | None, python: Sequence[str] = ()
    ) -> Checkpoints:
        """Return the checkpoints of a run in trainer.config.out.

        Args: folder  on rank 0; python: keywords that only Python has, without which it cannot be continued.
        """
        home = Path(trainer.config.out) / "checkpoints" if folder is None else folder.new_checkpoints
        moved = None if folder is None else folder.after_checkpoint
        made = cls(home, trainer, trainer.config.checkpoint_every, spec, moved)
        made.facts |= {"python": list(python)} if python else {}
        return made

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

    def restore(self, found: Checkpoint | None = None, say: Say = None) -> bool:
        """Give the trainer the state of a checkpoint, and return whether there was one.

        Args: found  on all ranks; None: the newest that is whole in the folder.
              say    called on rank 0 with a line for each checkpoint that is damaged.
        Raises: CheckpointError where the graph or the model is another one, UsageError where options are.
        Collective.
        """
        found = newest(self.comm, self.writer.folder, say) if found is None else found
        if found is None:
            return False
        together(self.comm, self._load, found)
        self.epoch, self.writer.whole, self._lines = self.trainer.epoch, [self.trainer.epoch], []
        self._saved_at = time.monotonic()
        return True

    def _load(self, found: Checkpoint) -> None:
        path, manifest, facts = found.path, found.manifest, self.facts
        check_parts(path, manifest["graph"], facts["graph"])
        check_names(path, ColumnNames.read(manifest.get("names", {})), self.trainer.dgraph.names)
        check_graph(path, manifest["graph"], facts["graph"])
        check_unchanged(manifest["options"], self.trainer.config, str(path))
        if (given := manifest.get("python", [])) != facts.get("python", []):
            raise UsageError(
                f"{path} was trained with {', '.join(given) or 'none'} of Python's keywords; continue it in Python: "
                "spgnn.train(model, dgraph, out=DIR, resume=True) with the same ones"
            )
        try:
            self.trainer.load_state_dict(own(found.state(), self._of_nodes(), self.trainer.dgraph))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise CheckpointError(
                f"{path / MANIFEST}: is not as this version writes it ({error!r}); train again"
            ) from error

    def lines(self) -> list[bytes]:
        """Return the records of the training as lines of JSON."""
        for record in self.trainer.history.records[len(self._lines) :]:
            self._lines.append(json.dumps(finite(record)).encode() + b"\n")
        return self._lines

    def _begin(self) -> None:
        """Copy the state, and start to write it, on rank 0."""
        self.epoch, self._saved_at = self.trainer.epoch, time.monotonic()
        of_nodes = self._of_nodes()
        state = self.trainer.state_dict() if of_nodes[0] or self.comm.rank == 0 else {}
        state = gathered(state, of_nodes, self.trainer.dgraph) if of_nodes[0] else state
        if self.comm.rank == 0:
            self._job = Writing(partial(self.writer.write, self.epoch, *self._content(state)))

    def _of_nodes(self) -> tuple[set[str], set[str]]:
        return node_weights(self.trainer.model, self.trainer.steps.optimizer)

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
                n: manifest[n] for n in ("metric", "task", "model", "names")
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


def node_weights(model: torch.nn.Module, optimizer) -> tuple[set[str], set[str]]:
    """Return the names of weights that have a row for each node: of the model, and of the state of the optimizer."""
    names = {name for name, weight in model.named_parameters() if is_of_nodes(weight)}
    weights = [weight for group, _ in optimizer.groups for weight in group]
    of = {number: weight.shape for number, weight in enumerate(weights) if is_of_nodes(weight)}
    shape = lambda name: of.get(int(name.partition(".")[0]))
    return names, {name for name, value in optimizer.named_state().items() if value.shape == shape(name)}


def gathered(state: dict[str, Any], names: tuple[set[str], set[str]], dgraph: DistGraph) -> dict[str, Any]:
    """Return the state_dict of a Trainer whose rows of nodes are those of all ranks, (N, F), on rank 0. Collective."""
    return _changed(state, names, lambda name, value: torch.from_numpy(_on_root(dgraph, value.numpy())))


def own(state: dict[str, Any], names: tuple[set[str], set[str]], dgraph: DistGraph) -> dict[str, Any]:
    """Return a gathered state with the rows of this rank, (n, F). Raises: CheckpointError where there are not N rows."""

    def rows(name: str, value: torch.Tensor) -> torch.Tensor:
        if len(value) != dgraph.n_nodes:
            raise CheckpointError(f"{name} has {len(value)} rows; {dgraph.name} has {dgraph.n_nodes} nodes")
        return value[torch.from_numpy(dgraph.node_n)]

    return _changed(state, names, rows)


def _changed(state: dict[str, Any], names: tuple[set[str], set[str]], change: Callable) -> dict[str, Any]:
    of_model, of_optimizer = names
    parts = {"model": of_model, "best": of_model, "optimizer": of_optimizer}
    made = {
        part: state[part] | {name: change(name, state[part][name]) for name in sorted(of) if name in state[part]}
        for part, of in parts.items()
    }
    return state | made


def _on_root(dgraph: DistGraph, rows_nF: np.ndarray) -> np.ndarray:
    """Return the rows of all nodes in original order, (N, F), on rank 0; none on the others. Collective."""
    comm = dgraph.comm
    ids = comm.all_gather(dgraph.node_n)
    n_P = comm.all_gather(np.array([len(dgraph.node_n)]))
    send_P, recv_P = np.zeros(comm.size, np.int64), np.zeros(comm.size, np.int64)
    send_P[0] = len(rows_nF)
    recv_P = n_P if comm.rank == 0 else recv_P
    found = np.empty((int(recv_P.sum()), rows_nF.shape[1]), rows_nF.dtype)
    comm.all_to_all(np.ascontiguousarray(rows_nF), send_P, found, recv_P)
    whole = np.empty_like(found)
    if comm.rank == 0:
        whole[ids] = found
    return whole
