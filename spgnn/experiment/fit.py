"""train: a model of the user on a distributed graph, as a Python script or a notebook calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..config import TrainConfig, has_checkpoint
from ..distgraph import DistGraph, Fields, Parts
from ..errors import UsageError, from_root, together
from ..graph import Graph
from ..layers.registry import ModelSpec, listed_spec, operator_of
from ..layers.stack import norms_of
from ..samplers import Sampler
from ..terminal import is_notebook, say
from ..training.custom import Custom
from ..training.epoch_lines import EpochLines
from ..training.history import History
from ..training.notes import end_note
from ..training.steps.fields_step import FieldsStep
from ..training.trainer import Trainer, make_trainer
from .folder import check_outputs, resolved_out
from .named import Names
from .train import Report, kept


def train(
    model: torch.nn.Module,
    dgraph: DistGraph | Parts | Fields,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    optimizer: Literal["adam", "adamw", "sgd"] | Callable[[list], torch.optim.Optimizer] = "adam",
    weight_decay: float = 0.0,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    class_weights: Literal["balanced"] | Sequence[float] | np.ndarray | None = None,
    loss: Literal["auto", "mse", "mae", "huber"] | Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = "auto",
    patience: int = 0,
    monitor: Literal["val", "val_loss"] | Callable[[dict], float] = "val",
    callbacks: Report | Sequence[Report] = (),
    out: str | Path | None = None,
    resume: bool = False,
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
    weights were loaded: then training continues from them, with a new optimizer and epochs from 1, as of other modules: a
    line says so; a sweep over seeds makes new ones. The result does not depend on the ranks, but with Parts.

    Args:
        model          Stack, or any module that is called as model(A, X), see Trainer.
        dgraph         of distribute; or Parts: each rank trains its parts alone, and every `interval` epochs all weights
                       become their mean, see AverageStep. Or Fields: updates on `batch` snapshots, see FieldsStep.
        epochs         at most so many passes over the training nodes.
        lr             learning rate.
        optimizer      adam, adamw or sgd; or (weights) -> torch.optim.Optimizer, which has lr and weight_decay itself:
                       lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9).
        weight_decay   L2 penalty, of adamw the decay; decay_layers="first": of the first layer alone.
        schedule       (optimizer) -> scheduler of torch.optim.lr_scheduler, stepped after each epoch;
                       ReduceLROnPlateau gets what is monitored.
        class_weights  w: "balanced", n / (classes * nodes of the class) over the training nodes; (C,) numbers; None: 1.
        loss           (Z_tC, y_t) -> sum of l over the t training nodes of this rank, a scalar; y is (t, C) where nodes
                       have several labels. It is divided by the training nodes of all ranks or of a subgraph. auto:
                       cross-entropy, of each label where there are several; of numbers mse, or mae or huber by name.
        patience       stop after so many epochs without a better monitored value; 0: never.
        monitor        which epoch is the best: val, the best score, see metric; val_loss, the lowest loss; or (record) -> number,
                       the higher the better, whose record has "scores" too: record["scores"]["val"]["macro_f1"].
        callbacks      each called with the record of each epoch, {epoch, loss, train, val, test, epoch_s, bytes_sent}, on
                       every rank.
        out            folder that keeps the run, as `spgnn train --out` does, for load_run, predict, `spgnn report`; "auto":
                       runs/GRAPH-NUMBER; None: nothing is kept. A graph of a file is found by its path.
        resume         continue the run in out, if there is one, with the same keywords.
        seed           of the weights, dropout, a random split and subgraphs.
        split          given, random, the number of one of several, or auto: given if there is one, else random.
        progress       show a line with scores and time left, on rank 0; None: on a terminal or in a notebook.
        sampler        none; or what draws the subgraphs of each update: a Sampler, such as spgnn.samplers.Walk(graph), or
                       its name, with graph and options such as budget; with Parts its name.
        graph          with the name of a sampler: the graph of dgraph, as it is used, on every rank.
        report         one more callback.
        options        fields of TrainConfig: metric, the score that train, val and test are, eval_every, prune, decay_layers, those of samplers; with Parts also interval,
                       sync, correct and memory.
    Raises: UsageError for an unknown option; NumericalError when the loss is not finite.
    Collective.
    """
    if callable(optimizer) and (lr, weight_decay) != (0.01, 0.0):
        raise UsageError("lr and weight_decay are arguments of the optimizer that a function makes; omit them")
    rule = optimizer if isinstance(optimizer, str) else "adam"
    make = None if isinstance(optimizer, str) else optimizer
    custom = Custom(make, schedule, class_weights, None if isinstance(loss, str) else loss, monitor)
    how = {"epochs": epochs, "lr": lr, "optimizer": rule, "weight_decay": weight_decay, "patience": patience}
    options |= how | {"seed": seed, "split": split, "loss": loss if isinstance(loss, str) else "auto"}
    trainer = make_trainer(model, dgraph, sampler, graph, custom, **options)
    calls = [callbacks] if callable(callbacks) else list(callbacks)
    with _shown(trainer, calls + ([] if report is None else [report]), progress) as call:
        if out is None:
            return trainer.fit(call)
        return _keep(trainer, str(out), resume, custom.given(), call)


@contextmanager
def _shown(trainer: Trainer, calls: list[Report], progress: bool | None) -> Iterator[Report]:
    """Yield what is called with each record: a line for the person who waits, on rank 0, then the calls."""
    is_shown = sys.stderr.isatty() or is_notebook() if progress is None else progress
    lines = EpochLines(trainer.config.epochs) if is_shown and trainer.comm.rank == 0 else None

    def call_all(record: dict) -> None:
        for call in (*filter(None, [lines]), *calls):
            call(record)

    try:
        yield call_all
    finally:
        if lines is not None:
            lines.end()
            note = end_note(trainer).replace("--", "")
            if note and trainer.epoch == trainer.config.epochs:
                say(note)


def _keep(trainer: Trainer, out: str, is_resumed: bool, given: list[str], report: Report) -> History:
    """Train with the folder of a run, and return the History; given: names of keywords that only Python has. Collective."""
    dgraph, comm = trainer.dgraph, trainer.comm
    if isinstance(trainer.steps, FieldsStep):
        raise UsageError(f"out = {out!r} is not used with Fields; keep weights by torch.save(model.state_dict(), FILE)")
    try:
        spec = listed_spec(trainer.model)
    except UsageError:  # a custom model: predicted by its own code
        spec = None
    config = replace(trainer.config, out=out, **_options_of(dgraph, trainer.config, spec))
    source = dgraph.read.get("graph", dgraph.name)
    with resolved_out(dgraph.name, config, comm) as config:
        is_there = from_root(comm, lambda: is_resumed and has_checkpoint(Path(config.out)))
        trainer.config = replace(config, resume=config.out if is_there else "")
        together(comm, check_outputs, source, trainer.config, root=0)
        with kept(source, trainer.config, comm) as training:
            links = dgraph.links if config.on == "links" else None
            training.train(trainer, spec, Names(dgraph.ids, dgraph.classes, links=links), report, given)
    return trainer.history


def _options_of(dgraph: DistGraph, config: TrainConfig, spec: ModelSpec | None) -> dict[str, Any]:
    """Return the options of the command line that distribute this graph for this model."""
    names = ("scheme", "replication", "feature_norm")
    found = {name: getattr(dgraph, name) for name in names} | {"dtype": str(dgraph.A.dtype).removeprefix("torch.")}
    names_all = spec is not None and None not in norms_of(spec.build())  # no layer reads the graph's own operator
    is_auto = names_all or (spec is not None and operator_of(config, spec) == dgraph.A.name)
    read = {name: value for name, value in dgraph.read.items() if name != "graph"}
    if config.split not in ("auto", "given"):  # not the split of the file
        read.pop("split", None)
    return found | read | {"operator": "auto" if is_auto else dgraph.A.name}
