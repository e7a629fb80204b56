"""Trainer: runs the epochs of a Step, scores them, stops, and keeps the best weights.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

import numpy as np
import torch

from ..config import TrainConfig, Training, build
from ..config.names import LinkLoss
from ..dist import Communicator
from ..distgraph import DistGraph, Fields, Parts, merge_parts
from ..errors import CheckpointError, NumericalError, UsageError, is_number
from ..graph import Graph
from ..layers import Stack
from ..machine import give_back_memory
from ..samplers import Sampler, check_options
from ..terminal import say
from .consistency import prepare_model
from .custom import COMMAND_LINE, Custom
from .history import History, is_scored, monitored
from .link_scorer import LinkScorer
from .metrics import RANKED, SPLITS, add_ranked, chosen_metric, scores_of_splits
from .optimizer import make_torch_optimizer
from .parts.average import AverageStep
from .parts.average_options import check_average
from .parts.evaluation import evaluated
from .parts.out_of_core_step import OutOfCoreStep
from .scorer import FullScorer
from .steps import Step
from .steps.fields_step import FieldsStep
from .steps.full import FullStep
from .steps.link_step import LinkStep
from .steps.row_loss import RowLoss
from .steps.sampled import SampledStep
from .steps.step import sum_ranks

# The loss is flat, and the personal phase begins, where the mean of 5 epochs is less than 1 % below that of the 5 before.
FLAT, FLAT_EPOCHS = 0.01, 5
CONTINUED = (
    "the model was trained before and continues, from epoch 1; make a new one for another seed, or draw it again"
)


class Trainer:
    """One model on one DistGraph: `fit()` trains up to config.epochs, `step` one epoch, `logits` evaluates.

    Args: model      Stack, or any module called as model(A, X). A Stack that was neither trained nor loaded
                     (is_trained) is drawn from config.seed; then all ranks take the weights and buffers of rank 0.
                     torch's BatchNorm and Dropout within a layer see the rows of their rank only: with them the result
                     depends on the ranks. As layers of a Stack, or in spgnn.wrap, they see all rows. spgnn.verify names
                     the module of a model that depends on the ranks.
          dgraph     of `distribute`.
          config     TrainConfig; model, hidden and the other keys that describe the Stack are not read.
          make_step  (model, dgraph, config) -> Step: how an epoch trains. Default: all training nodes at once.
          custom     its monitor, optimizer and schedule are used; make_step has its loss.
    steps    the Step, which may be replaced by one that wraps it; epoch: epochs trained so far; history: of all of them;
    sent_P: bytes that this rank sent to each rank in the last record.
    Collective, as every method but the state's.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        dgraph: DistGraph,
        config: TrainConfig,
        make_step: Callable[[torch.nn.Module, DistGraph, TrainConfig], Step] = FullStep,
        custom: Custom = COMMAND_LINE,
    ):
        prepare_model(model, dgraph, config)
        self.model, self.dgraph, self.config = model, dgraph, config
        self.steps = make_step(model, dgraph, config)
        if custom.optimizer is not None or custom.schedule is not None:
            self.steps.optimizer = make_torch_optimizer(model, config, custom.optimizer, custom.schedule)
        self.monitor = Monitor(custom, dgraph, self.steps)
        self.epoch = 0
        self.history = History(metric=chosen_metric(config.metric, self.steps.scorer))
        self._kept = KeptWeights(model)
        self._unscored: dict | None = None  # the record of the last epoch, until the next forward gives its logits
        self.sent_P = np.zeros(dgraph.comm.size, np.int64)
        give_back_memory()

    @property
    def comm(self) -> Communicator:
        """The communicator of the graph."""
        return self.dgraph.comm

    @property
    def last_state(self) -> dict[str, torch.Tensor]:
        """The weights of the last epoch."""
        return self._kept.last

    @property
    def best_state(self) -> dict[str, torch.Tensor]:
        """The weights of the best epoch."""
        return self._kept.best

    def fit(self, report: Callable[[dict], Any] | None = None) -> History:
        """Train from the epoch after self.epoch; leave the weights of the best validation score; return the History.

        A model without dropout is scored by the next epoch's forward pass, which computes the logits that an
        evaluation would; the last epoch is evaluated separately.
        Args: report  called with the record of each epoch; the state_dict at that moment is the one after that epoch.
        """
        try:
            return self._fit(report)
        finally:
            self.steps.close()

    def _fit(self, report: Callable[[dict], Any] | None) -> History:
        config, steps, first = self.config, self.steps, len(self.history.records)
        if self._kept.is_trained and self.epoch == 0 and self.comm.rank == 0:
            say(CONTINUED)
        while self.epoch < config.epochs and not self._is_stopped():
            before, epoch = self.epoch, self._end_of_interval()
            self.comm.phase = f"epoch {epoch}"
            sent_before_P, began = self.comm.traffic.sent_bytes(), time.perf_counter()
            Z_nC = self._forward(epoch)
            seconds = time.perf_counter() - began
            if self._unscored is not None:  # the epoch before, whose weights these are the logits of
                self._score(Z_nC, report)
                if self._is_stopped():
                    break
            began, Z_nC = time.perf_counter(), None  # its memory is needed
            loss = self._update(epoch)
            seconds += time.perf_counter() - began
            self.sent_P = self.comm.traffic.sent_bytes() - sent_before_P
            record = self._record(loss, seconds / (epoch - before))
            if epoch // config.eval_every == before // config.eval_every and epoch < config.epochs:
                self._append(record, report)
                continue
            self._unscored = record
            if not steps.gives_logits:
                self._score(None, report)
        if self._unscored is not None:
            self._score(None, report)
        return self._close(first)

    def step(self, epoch: int) -> float:
        """Train up to the end of an epoch and return the loss of all ranks."""
        self._forward(epoch)
        return self._update(epoch)

    def _forward(self, epoch: int) -> torch.Tensor | None:
        """Begin an epoch; return the logits of the weights as they are, where the Step gives them."""
        with _naming_epoch(epoch, self.steps.optimizer.lr):
            return self.steps.forward(epoch)

    def _update(self, epoch: int) -> float:
        """Move the weights up to the end of an epoch and return the loss of all ranks."""
        with _naming_epoch(epoch, self.steps.optimizer.lr):
            loss = self.steps.update(self.epoch + 1, epoch)
        self.epoch = epoch
        self._kept.moved()
        self.steps.optimizer.end_epoch()
        return loss

    def _end_of_interval(self) -> int:
        """Return the last epoch of the next update."""
        interval = self.steps.interval
        return min((self.epoch // interval + 1) * interval, self.config.epochs)

    def _record(self, loss: float, seconds: float) -> dict[str, Any]:
        """Return the record of the epoch that was trained, without scores."""
        sent_bytes, lr = sum_ranks(int(self.sent_P.sum()), self.comm), self.steps.optimizer.epoch_lr
        record = {"epoch": self.epoch, "loss": loss} | dict.fromkeys(SPLITS) | ({} if lr is None else {"lr": lr})
        return record | {"epoch_s": seconds, "bytes_sent": sent_bytes} | self.steps.measured

    def _score(self, Z_nC: torch.Tensor | None, report: Callable | None) -> None:
        """Score the last record by these logits, or by an evaluation, and keep the weights if they are the best."""
        record, scorer = self._unscored, self.steps.scorer
        assert record is not None
        with _naming_epoch(record["epoch"], self.steps.optimizer.lr):
            is_ranked = self.history.metric in RANKED and scorer.task != "links"
            if Z_nC is None and (self.monitor.targets is not None or is_ranked):
                Z_nC = scorer.logits()
            if isinstance(scorer, LinkScorer):
                scores, counts = scorer.scored(), None
            else:
                counts = scorer.counts(Z_nC)
                scores = scores_of_splits(counts, scorer.task)
            if is_ranked:
                add_ranked(scores, scorer.ranked(Z_nC))  # pyrefly: ignore[missing-attribute]  # checked at set-up
            record |= {name: scores[name][self.history.metric] for name in SPLITS}
            self.monitor.add(record, scores, Z_nC)
            is_best = self.history.keep_if_best(record, scores, counts)
        self._unscored = None
        self.steps.optimizer.scored(monitored(record))
        if is_best:
            self._kept.keep_best()
        self._append(record, report)

    def _append(self, record: dict[str, Any], report: Callable | None) -> None:
        self.history.records.append(record)
        if report is not None:
            report(record)

    def logits(self) -> torch.Tensor:
        """Return the logits of the own nodes (n, C) in evaluation mode."""
        return self.steps.scorer.logits()

    def release_input(self) -> bool:
        """Free X where training and evaluation read the cached A X alone, and return whether; see FullStep."""
        return self.steps.release_input()

    def state_dict(self) -> dict[str, Any]:
        """Return all that `fit` needs to go on after the last epoch, bit for bit on as many ranks and threads.

        {model, optimizer, best: tensors by name; epoch; history; unscored}, nested dicts of tensors and JSON values, NaN
        among them. Copies; the same on all ranks but for seconds; not collective.
        """
        return {
            "model": deepcopy(self.last_state), "optimizer": self.steps.optimizer.state_dict(),
            "best": deepcopy(self.best_state), "epoch": self.epoch,
            "history": self.history.state_dict(), "unscored": self._unscored and dict(self._unscored),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state_dict of the same model, options and graph, given on every rank.

        Raises: CheckpointError where the weights or the state of the optimizer do not fit.
        """
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise CheckpointError(f"the weights of the state do not fit the model: {error}") from None
        self.steps.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.history = state["epoch"], History.of_state(state["history"])
        self.steps.optimizer.replay(self.epoch, [monitored(r) for r in self.history.records if is_scored(r)])
        self._kept.restore(state["best"])
        self._unscored = deepcopy(state["unscored"])

    def _is_stopped(self) -> bool:
        config, history = self.config, self.history
        window = -(-FLAT_EPOCHS // self.steps.interval)  # a record per interval
        if config.personal and history.is_flat(window, FLAT):
            return True
        return 0 < config.patience <= history.epochs_since_best()

    def _close(self, first: int) -> History:
        history = self.history
        records = history.records[first:] or history.records  # those before may be of other ranks
        history.epoch_s = float(np.median([r["epoch_s"] for r in records[1:] or records]))
        history.bytes_sent = int(np.median([r["bytes_sent"] for r in records]))
        own_bytes = self.steps.sent_bytes()
        history.bytes_predicted = None if own_bytes is None else sum_ranks(own_bytes, self.comm)
        if predicted := [r["bytes_predicted"] for r in records if "bytes_predicted" in r]:  # it depends on draws
            history.bytes_predicted = int(np.median(predicted))
        history.setup_bytes = sum_ranks(self.dgraph.setup_bytes, self.comm)
        history.split_N = self.steps.scorer.split()
        if isinstance(self.model, Stack):
            self.model.is_trained = True
        self._kept.take_best()
        scorer = self.steps.scorer
        if isinstance(scorer, LinkScorer):
            self.comm.phase = "rank links"
            history.scores = scorer.final()
        is_ranked = history.metric in RANKED or scorer.task != "labels" or not hasattr(scorer, "ranked")
        if history.scores and not is_ranked:
            self.comm.phase = "rank logits"
            add_ranked(history.scores, scorer.ranked())  # pyrefly: ignore[missing-attribute]  # see is_ranked
        return history


@contextmanager
def _naming_epoch(epoch: int, lr: float) -> Iterator[None]:
    """Add the epoch and the remedy to a NumericalError."""
    try:
        yield
    except NumericalError as problem:
        raise NumericalError(f"epoch {epoch}: {problem}. Lower --lr (now {lr:g}) or normalise the features") from None


class Monitor:
    """The validation score, the validation loss, or a function of the record; the higher the better, but for a loss.

    Args: steps  its scorer has the split; its logits are used where a loss is monitored, by the loss of its targets.
    """

    def __init__(self, custom: Custom, dgraph: DistGraph, steps: Step):
        self.kind, self.targets = custom.monitor, None
        if self.kind == "val_loss":
            scorer, of = cast(FullScorer, steps.scorer), cast(FullStep, steps).targets
            is_val_n = torch.from_numpy(scorer.split_n == 1)
            self.targets = RowLoss(dgraph, scorer.y_n, is_val_n, custom, of.how, of.deviation_C)
            if not self.targets.count:
                raise UsageError(f"monitor = 'val_loss': {dgraph.name} has no labelled validation node; use another")

    def add(self, record: dict, scores: dict, Z_nC: torch.Tensor | None) -> None:
        """Write what is monitored into a record that has the scores, unless it is one of them.

        Args: scores  split -> {accuracy, ...}; Z_nC: logits, for val_loss.
        Collective.
        """
        if self.targets is not None:
            assert Z_nC is not None  # see Trainer._score
            record["val_loss"] = self.targets.mean(Z_nC)
        elif callable(self.kind):
            value = self.kind(record | {"scores": scores})
            if not is_number(value):
                raise UsageError(f"monitor returned {value!r}; expected a number, the higher the better")
            record["monitor"] = float(value)


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the weights and buffers of a model by name."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


class KeptWeights:
    """The weights of the best epoch of a training, and of the last one while the model has the best."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self._best: dict[str, torch.Tensor] | None = None
        self._last: dict[str, torch.Tensor] | None = None
        weights = list(model.parameters())  # of another training, and unchanged since
        self.is_trained = bool(weights) and all(getattr(w, "trained_version", -1) == w._version for w in weights)

    @property
    def best(self) -> dict[str, torch.Tensor]:
        """The weights that were kept; before, the last ones."""
        return weights_of(self.model) if self._best is None else self._best

    @property
    def last(self) -> dict[str, torch.Tensor]:
        """The weights of the last epoch."""
        return weights_of(self.model) if self._last is None else self._last

    def moved(self) -> None:
        """Note that the model has the weights of the last epoch."""
        self._last = None

    def keep_best(self) -> None:
        """Keep the weights of the model as the best."""
        self._best = weights_of(self.model)

    def take_best(self) -> None:
        """Give the model the best weights."""
        self._last = self.last
        self.model.load_state_dict(self.best)
        for weight in self.model.parameters():
            vars(weight)["trained_version"] = weight._version

    def restore(self, best: dict[str, torch.Tensor]) -> None:
        """Note that the model has the weights of the last epoch, and that others are the best."""
        own = self.model.state_dict()
        self._best, self._last = {name: value.to(own[name], copy=True) for name, value in best.items()}, None


def make_trainer(
    model: torch.nn.Module,
    dgraph: DistGraph | Parts | Fields,
    sampler: str | Sampler = "none",
    graph: Graph | None = None,
    custom: Custom = COMMAND_LINE,
    **options,
) -> Trainer:
    """Return the Trainer of `spgnn.train`, whose arguments and errors are documented there; options: of the command line.

    Collective.
    """
    known = TrainConfig.__dataclass_fields__
    unread = [name for name in options if name not in Training.__dataclass_fields__ and name in known]
    if unread:
        raise UsageError(f"train does not read {unread[0]!r}; give it to distribute, Parts, layers, or `spgnn train`")
    name = sampler if isinstance(sampler, str) else getattr(sampler, "name", type(sampler).__name__)
    config = build(TrainConfig, options | {"sampler": name}, "train")
    if config.on != "nodes" and isinstance(dgraph, (Fields, Parts)):
        is_fields = isinstance(dgraph, Fields) and config.on == "edges"
        other = "Fields(dgraph, X, y, on='edges')" if is_fields else "distribute(graph)"
        raise UsageError(f"on = {config.on!r} is not possible with {type(dgraph).__name__}; use {other}")
    check_on_edges(config)
    if config.on == "links":
        custom.check_links()
        return Trainer(model, cast(DistGraph, dgraph), config, partial(LinkStep, custom=custom), custom)
    if config.on == "edges":
        dgraph = cast(DistGraph, dgraph).on_edges()
    if isinstance(dgraph, Fields):
        custom.check_fields(sampler)
        return Trainer(
            model, dgraph.first(), config, lambda model, _, config: FieldsStep(model, dgraph, config), custom
        )
    if isinstance(dgraph, Parts):
        if sampler is not name:
            raise UsageError("sampler of Parts is a name, such as 'neighbour': each part has a sampler of its own")
        custom.check_parts(config.mode)
        return parts_trainer(model, dgraph, config, custom)
    make_step = step_maker(config, graph, None if isinstance(sampler, str) else sampler, custom)
    return Trainer(model, dgraph, config, make_step, custom)


def check_on_edges(config: TrainConfig) -> None:
    """Raise UsageError for options that a training on edges or links does not have."""
    for name, only in (("mode", "full"), ("sampler", "none"), ("replication", 1), ("device", "cpu")):
        if config.on == "nodes" or (config.on, name) == ("edges", "device") or getattr(config, name) == only:
            continue
        raise UsageError(f"--task {config.on} trains on the whole graph, in 1D: omit --{name} {getattr(config, name)}")
    links = ("decoder", "negatives") if config.on != "links" else ()
    for name in links:
        if (value := getattr(config, name)) != TrainConfig.__dataclass_fields__[name].default:
            raise UsageError(f"--{name} {value} is an option of --task links; omit it")
    if config.loss != "auto" and (config.loss in get_args(LinkLoss)) != (config.on == "links"):
        raise UsageError(f"--loss {config.loss} is no loss of {config.on}; bce, bpr and softmax are of links")


def step_maker(
    config: TrainConfig, graph: Graph | None = None, sampler: Sampler | None = None, custom: Custom = COMMAND_LINE
) -> Callable:
    """Return what makes the Step that the options name: (model, dgraph, config) -> Step.

    Args:   graph   of a sampler that is named; `sampler` has its own.
            custom  whose loss and class_weights are used.
    Raises: UsageError where a sampler has no graph, and for options that do not fit each other.
    """
    check_average(config)
    if sampler is None:
        check_options(config)
    if config.sampler == "none":
        return partial(FullStep, custom=custom)
    graph = sampler.graph.origin if graph is None and hasattr(sampler, "graph") else graph
    if graph is None:
        raise UsageError(f"sampler = {config.sampler!r} requires graph=, the graph that was distributed, on every rank")
    return partial(SampledStep, graph=graph, sampler=sampler, custom=custom)


def parts_trainer(model: torch.nn.Module, parts: Parts, config: TrainConfig, custom: Custom = COMMAND_LINE) -> Trainer:
    """Return the Trainer of a model on parts. Raises: UsageError for options that do not fit. Collective."""
    config = config if config.mode == "out-of-core" else replace(config, mode="average")
    check_average(config)
    check_options(config)
    if config.split not in ("auto", parts.split):
        raise UsageError(f"split = {config.split!r}, but Parts chose {parts.split!r}; give split to Parts alone")
    if config.mode == "out-of-core":
        make_step = partial(OutOfCoreStep, parts=parts, scratch=config.out, custom=custom)
        return Trainer(model, merge_parts(parts, has_rows=False), config, make_step, custom)
    chosen, dgraph = evaluated(model, parts, config.evaluation, config.memory, config.correct != "none")
    make_step = partial(AverageStep, parts=parts)
    return Trainer(model, dgraph, replace(config, evaluation=chosen), make_step, custom)
