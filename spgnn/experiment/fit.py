"""train: a model of the user on a distributed graph, as a Python script or a notebook calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from ..distgraph import DistGraph, Parts
from ..errors import UsageError
from ..graph import Graph
from ..samplers import Sampler
from ..terminal import is_notebook
from ..training.custom import Custom
from ..training.epoch_lines import EpochLines
from ..training.history import History
from ..training.trainer import Trainer, make_trainer

Report = Callable[[dict], Any]


def train(
    model: torch.nn.Module,
    dgraph: DistGraph | Parts,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    optimizer: Literal["adam", "adamw", "sgd"] | Callable[[list], torch.optim.Optimizer] = "adam",
    weight_decay: float = 0.0,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    class_weights: Literal["balanced"] | Sequence[float] | np.ndarray | None = None,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    patience: int = 0,
    monitor: Literal["val", "val_loss"] | Callable[[dict], float] = "val",
    callbacks: Report | Sequence[Report] = (),
    seed: int = 0,
    split: str = "auto",
    progress: bool | None = None,
    sampler: str | Sampler = "none",
    graph: Graph | None = None,
    report: Report | None = None,
    **options,
) -> History:
    """Minimise loss = sum_i w_(y_i) l(Z_i, y_i) / sum_i w_(y_i) over the training nodes of all ranks, Z = model(A, X).

    The model ends with the weights of the best epoch. A Stack is drawn from the seed, unless it was trained or its
    weights were loaded: then training continues from them, with a new optimizer and epochs from 1. The result does not
    depend on the number of ranks, but with Parts.

    Args:
        model          Stack, or any module that is called as model(A, X), see Trainer.
        dgraph         of distribute; or Parts: each rank trains its parts alone, and every `interval` epochs all weights
                       become their mean, see AverageStep. Scores are of the whole graph.
        epochs         at most so many passes over the training nodes.
        lr             learning rate.
        optimizer      adam, adamw or sgd; or (weights) -> torch.optim.Optimizer, which has lr and weight_decay itself:
                       lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9).
        weight_decay   L2 penalty, of adamw the decay; decay_layers="first": of the first layer alone.
        schedule       (optimizer) -> scheduler of torch.optim.lr_scheduler, stepped after each epoch;
                       ReduceLROnPlateau gets what is monitored.
        class_weights  w: "balanced", n / (classes * nodes of the class) over the training nodes; (C,) numbers; None: 1.
        loss           (Z_tC, y_t) -> sum of l over the t training nodes of this rank, a scalar; y is (t, C) where nodes
                       have several labels. It is summed over the ranks and divided by their training nodes. None:
                       cross-entropy, of each label where there are several.
        patience       stop after so many epochs without a better monitored value; 0: never.
        monitor        which epoch is the best: val, the highest score; val_loss, the lowest loss; or (record) -> number,
                       the higher the better, whose record has "scores" too: record["scores"]["val"]["macro_f1"].
        callbacks      each called with the record of each epoch, {epoch, loss, train, val, test, epoch_s, bytes_sent}, on
                       every rank.
        seed           of the weights, dropout, a random split and subgraphs.
        split          given, random, the number of one of several, or auto: given if there is one, else random.
        progress       show a line with scores and time left, on rank 0; None: on a terminal or in a notebook.
        sampler        none; or what draws the subgraphs of each update: a Sampler, such as spgnn.samplers.Walk(graph), or
                       its name, with graph and options such as budget; with Parts its name.
        graph          with the name of a sampler: the graph of dgraph, as it is used, on every rank.
        report         one more callback.
        options        fields of TrainConfig: eval_every, prune, decay_layers, those of samplers; with Parts also interval,
                       sync, correct and memory.
    Raises: UsageError for an unknown option; NumericalError when the loss is not finite.
    Collective.
    """
    if callable(optimizer) and (lr, weight_decay) != (0.01, 0.0):
        raise UsageError("lr and weight_decay are arguments of the optimizer that a function makes; omit them")
    rule = optimizer if isinstance(optimizer, str) else "adam"
    make = None if isinstance(optimizer, str) else optimizer
    custom = Custom(make, schedule, class_weights, loss, monitor)
    how = {"epochs": epochs, "lr": lr, "optimizer": rule, "weight_decay": weight_decay, "patience": patience}
    options |= how | {"seed": seed, "split": split}
    trainer = make_trainer(model, dgraph, sampler, graph, custom, **options)
    calls = [callbacks] if callable(callbacks) else list(callbacks)
    return _fitted(trainer, calls + ([] if report is None else [report]), progress)


def _fitted(trainer: Trainer, calls: list[Report], progress: bool | None) -> History:
    """Train, with a line for the person who waits, and return the History. Collective."""
    is_shown = sys.stderr.isatty() or is_notebook() if progress is None else progress
    lines = EpochLines(trainer.config.epochs) if is_shown and trainer.comm.rank == 0 else None

    def report(record: dict) -> None:
        for call in (*filter(None, [lines]), *calls):
            call(record)

    try:
        return trainer.fit(report)
    finally:
        if lines is not None:
            lines.end()
