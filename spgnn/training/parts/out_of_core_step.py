"""OutOfCoreStep: all training nodes at once, of a graph larger than memory; one update per epoch.

Shapes: N nodes, n own nodes of a part, C classes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from ...config import TrainConfig
from ...dist import Communicator
from ...distgraph import DistGraph, Parts
from ...distgraph.own_rows import OwnRows
from ...errors import GraphError
from ...machine import rss_bytes
from ..custom import COMMAND_LINE, Custom
from ..optimizer import make_optimizer
from ..steps.full import check_gradient, check_trained
from ..steps.row_loss import RowLoss, check_loss, fit_units
from ..steps.step import Step, sum_gradients, sum_loss, sum_ranks
from .inference import LayerwiseScorer
from .out_of_core import OutOfCore


class OutOfCoreStep(Step):
    """A Step as FullStep, layer by layer and part by part, with the rows of hidden layers on disk: the same losses and weights.

    Args: model    a plain Stack, see passes_of; its weights are the same on all ranks.
          dgraph   merge_parts(parts, has_rows=False), which holds no rows.
          parts    with halos of one hop or more.
          scratch  folder of the files, which all ranks see; "": the folder of temporary files.
          custom   whose loss and class_weights are used.
    Collective, as every method.
    """

    def __init__(
        self, model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig, parts: Parts, scratch: str | Path = "",
        custom: Custom = COMMAND_LINE,
    ):  # fmt: skip
        self.model, self.dgraph, self.config = model, dgraph, config
        self.scorer: LayerwiseScorer = LayerwiseScorer(model, parts, scratch)  # pyrefly: ignore[bad-override]
        check_loss(dgraph, config)
        shape = (0,) if self.scorer.task == "classes" else (0, dgraph.n_classes)
        dtype = self.scorer.number_type if self.scorer.task == "numbers" else np.int64
        labels = [(np.zeros(shape, dtype), np.zeros(0, np.int8)), *self.scorer.labels()]
        y_n, split_n = (np.concatenate(of_parts) for of_parts in zip(*labels))
        y_n = torch.from_numpy(y_n)
        deviation_C = fit_units(model, dgraph, y_n, split_n) if dgraph.is_regression else None
        self.targets = RowLoss(dgraph, y_n, torch.from_numpy(split_n == 0), custom, cast(Any, config.loss), deviation_C)
        self.targets.y_n, self.targets.rows_t = y_n[:0].clone(), self.targets.rows_t[:0].clone()  # parts have theirs
        if not self.targets.count:
            raise GraphError(f"{dgraph.name}: no training node has a label; choose a --split that puts some into train")
        self.optimizer = make_optimizer(model, config)
        self._own_loss, self._read = 0.0, 0
        self._counts = self.scorer.no_counts()

    @property
    def comm(self) -> Communicator:
        """The communicator of the graph."""
        return self.dgraph.comm

    @property
    def engine(self) -> OutOfCore:
        """What computes the passes."""
        return self.scorer.passes

    @property
    def gives_logits(self) -> bool:  # pyrefly: ignore[bad-override]: it is read, never set
        """Whether a training pass computes the logits of an evaluation, of which it returns what a scorer counts."""
        return not getattr(self.model, "is_random", True)

    def forward(self, epoch: int) -> Any:
        """Compute the gradient of an epoch; return the counts of this rank's logits, see LayerwiseScorer, if gives_logits."""
        check_trained(self.model, self.optimizer)
        self._own_loss, self._counts = 0.0, self.scorer.no_counts()
        self._read = self.engine.gradient(self.config.seed, epoch, self._loss)
        return self._counts if self.gives_logits else None

    def update(self, first: int, last: int) -> float:
        """Move the weights by the gradient of `forward`, of the epoch first = last; return the global loss."""
        loss = sum_loss(self._own_loss, self.comm)
        sum_gradients([p for p in self.model.parameters() if p.requires_grad], self.comm)
        check_gradient(self.optimizer)
        self.optimizer.step()
        return loss

    def _loss(self, rows: OwnRows, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return the part of a part in the loss of all nodes."""
        assert rows.y_n is not None and rows.split_n is not None  # see check_trainable
        loss = self.targets.of_part(rows.y_n, torch.from_numpy(rows.split_n == 0)).loss(Z_nC)
        self._own_loss += float(loss.detach())
        if self.gives_logits:
            self.scorer.add(self._counts, rows, Z_nC.detach())
        return loss

    def notes(self) -> list[str]:
        """Return the memory, disk and reads that are predicted. Collective."""
        engine = self.engine
        memory = np.array([rss_bytes() + engine.part_bytes()], np.int64)
        self.comm.all_reduce(memory, "max")
        disk, read = (sum_ranks(own, self.comm) for own in (engine.disk_bytes(), engine.reads_predicted()))
        sizes = [
            f"{size / 1e6:,.0f} MB {what}" for size, what in ((memory[0], "of memory of a rank"), (disk, "of disk"))
        ]
        return [
            f"out of core, {engine.parts.k} parts: {', '.join(sizes)}, {read / 1e6:,.0f} MB read in an epoch are predicted"
        ]

    def facts(self, records: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Return the number of parts, and the bytes on disk and read in an epoch, of all ranks."""
        return {
            "parts": self.engine.parts.k,
            "disk_bytes": sum_ranks(self.engine.disk_bytes(), self.comm),
            "disk_read_bytes": sum_ranks(self._read, self.comm),
        }

    def close(self) -> None:
        """Remove the files of the training; a later epoch makes them again."""
        self.engine.close(sys.exception())
