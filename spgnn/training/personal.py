"""personalise: each part trains on from the weights of all parts, alone, and keeps those that validate better.

Shapes: n own nodes, m rows of a part, k parts, N nodes, C classes. W_G the weights of all parts, W_p those of part p.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ..config import TrainConfig
from ..dist.consistency import check_same, digest
from ..distgraph import DistGraph, Parts
from ..errors import UsageError, agree
from ..graph import labelled
from ..machine import give_back_memory
from ..partition.entropies import label_entropies
from .average_options import check_personal
from .consistency import check_trainable, check_width
from .metrics import SPLITS, predicted, scores
from .optimizer import ProximalOptimizer
from .part_steps import make_part_step, naming_part
from .scorer import FullScorer
from .splits import split_of
from .steps.cached_products import make_cached_products
from .trainer import weights_of

Weights = dict[str, torch.Tensor]
TRAIN, VAL, TEST = range(3)


@dataclass(frozen=True, slots=True)
class PersonalResult:
    """What a personal phase gave; the same on all ranks but for `weights`.

    parts          an object per part: part, rank, nodes, train, val, test (labelled own nodes), entropy (bits, of the
                   labels of own nodes), epochs, best (the epoch of W_p), chosen (general or personal), val_general,
                   val_personal, test_general, test_personal (micro F1 on the graph of the part; None without nodes, or
                   where the part did not train), seconds (training and its scores).
    scores         split -> {accuracy, micro_f1, macro_f1, weighted_f1} of the chosen models, from the counts of all parts.
    general        the same of W_G on the graphs of the parts.
    predictions_N  of the chosen models: classes (N,) int64, or (N, C) int8 of 0 and 1.
    weights        {p: W_p} of the parts of this rank that chose W_p.
    """

    parts: list[dict[str, Any]]
    scores: dict[str, dict[str, float]]
    general: dict[str, dict[str, float]]
    predictions_N: np.ndarray
    weights: dict[int, Weights]

    @property
    def chosen(self) -> int:
        """The number of parts that chose W_p."""
        return sum(part["chosen"] == "personal" for part in self.parts)


def personalise(
    model: torch.nn.Module, parts: Parts, config: TrainConfig, report: Callable[[dict], Any] | None = None
) -> PersonalResult:
    """min over W_p of loss_p(W_p) + lambda ||W_p - W_G||^2, for each part p alone; then the better of W_p and W_G.

    A part trains config.personal epochs on its own training nodes, with a new optimizer; it ends sooner after
    config.patience epochs without progress on its own validation nodes, of which the best epoch is W_p. It takes W_p
    where that validates better than W_G, and W_G where both are equal, or where it has no training or no validation
    node: then it does not train. Test nodes are scored once, after the choice. There is no collective until all parts
    of a rank are done; ranks wait for the slowest only there. An error on a part is raised then, on all ranks.

    Args:   model   with W_G, the same on all ranks; it has W_G afterwards.
            config  personal, proximal (lambda), patience, eval_every and what training reads.
            report  called on this rank with {part, epoch, loss, val} of each epoch; val: None where it was not scored.
    Raises: UsageError for options that do not fit; NumericalError and others that name rank and part.
    Collective.
    Source: entropy-aware training, section III-C. Its eq. (4) has ||W - W_G|| where the text says squared: squared here.
            Its published code descends lambda along with the weights, towards 0: fixed here. It takes the better model
            by test nodes, and the mean of the parts' F1: validation nodes, and counts of all parts, here.
    """
    if config.personal < 1:
        raise UsageError(f"personal = {config.personal}: a personal phase needs 1 epoch or more")
    check_personal(config)
    comm = parts.comm
    W_G = weights_of(model)
    check_same(comm, {"option.weights": digest(*(W_G[name].cpu().numpy() for name in sorted(W_G)))})
    personal = _Personal(model, parts, replace(config, split="given"), W_G, report)
    done, error = [], None
    try:
        for place, p in enumerate(parts.own):
            try:
                if place + 1 < len(parts.own):
                    parts.prefetch(parts.own[place + 1])
                done.append(personal.of_part(p))
                give_back_memory()
                parts.release(p)
            except Exception as caught:  # handed to all ranks, which raise together
                error = naming_part(caught, comm.rank, p, comm.phase)
                break
    finally:
        model.load_state_dict(W_G)
    comm.phase = "gather personal models"
    agree(comm, error)
    return _gathered(parts, done)


@dataclass(slots=True)
class _Done:
    """A part after its training; counts_sC3: of the chosen model and of W_G, (2, 3, C, 3)."""

    record: dict[str, Any]
    counts: np.ndarray
    node_n: np.ndarray
    predicted_n: np.ndarray
    weights: Weights | None


@dataclass(slots=True)
class _Trained:
    """The training of a part: its best weights, None where it did not train."""

    weights: Weights | None = None
    val: float = float("nan")
    epochs: int = 0
    best: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Personal:
    """The personal phase of this rank."""

    model: torch.nn.Module
    parts: Parts
    config: TrainConfig
    W_G: Weights
    report: Callable[[dict], Any] | None

    def of_part(self, p: int) -> _Done:
        """Train a part and choose its model."""
        model, parts = self.model, self.parts
        parts.comm.phase = f"open part {p}"
        dgraph = parts.open(p)
        check_trainable(dgraph)
        check_width(model, dgraph)
        n, split_m = parts.sizes(p)["n"], split_of(dgraph, "given", self.config.seed)
        make_cached_products(dgraph, model)
        model.load_state_dict(self.W_G)
        # Test nodes are no part of what the choice is made by.
        chooser = FullScorer(model, dgraph, np.where(split_m == VAL, split_m, -1))
        val_G = _micro(chooser.counts(), VAL, dgraph)
        has_label_n = labelled(dgraph.y_n.numpy()[:n])
        sizes = {name: int((has_label_n & (split_m[:n] == s)).sum()) for s, name in enumerate(SPLITS)}
        trained = _Trained()
        if sizes["train"] and sizes["val"]:
            trained = self._train(p, dgraph, partial(_score, chooser, dgraph))
        is_personal = trained.weights is not None and trained.val > val_G  # ties: W_G, which generalises
        scorer = FullScorer(model, dgraph, split_m)
        of_general, Z_mC = self._counts(scorer, self.W_G)
        of_personal = of_general
        if trained.weights is not None:
            of_personal, Z_personal_mC = self._counts(scorer, trained.weights)
            Z_mC = Z_personal_mC if is_personal else Z_mC
        y_n = dgraph.y_n.numpy()[:n]
        record = {
            "part": p,
            "rank": parts.comm.rank,
            "nodes": n,
            **sizes,
            "entropy": float(label_entropies(y_n, np.zeros(n, np.int64), 1)[0][0]),
            "epochs": trained.epochs,
            "best": trained.best,
            "chosen": "personal" if is_personal else "general",
            "val_general": _number(val_G),
            "val_personal": _number(trained.val),
            "test_general": _number(_micro(of_general, TEST, dgraph)),
            "test_personal": None if trained.weights is None else _number(_micro(of_personal, TEST, dgraph)),
            "seconds": trained.seconds,
        }
        return _Done(
            record,
            np.stack([of_personal if is_personal else of_general, of_general]),
            np.array(dgraph.node_n[:n], np.int64),  # a view would hold the ids of the halo
            predicted(Z_mC[:n], dgraph.is_multilabel),
            trained.weights if is_personal else None,
        )

    def _train(self, p: int, dgraph: DistGraph, score: Callable[[], float]) -> _Trained:
        """Train a part from W_G and return its weights of the best validation score."""
        config, comm, began = self.config, self.parts.comm, time.perf_counter()
        step = make_part_step(self.model, self.parts, p, config, dgraph)
        step.optimizer = ProximalOptimizer(step.optimizer, config.proximal)
        trained = _Trained()
        with ExitStack() as stack:
            stack.callback(step.close)
            for epoch in range(1, config.personal + 1):
                comm.phase = f"personal epoch {epoch}, part {p}"  # tells the watchdog of others that this rank moves
                number = config.epochs + epoch  # random numbers continue those of all parts
                loss = step.run(number, number)
                trained.epochs, val = epoch, None
                if epoch % config.eval_every == 0 or epoch == config.personal:
                    val = score()
                    if trained.weights is None or val > trained.val:
                        trained.weights, trained.val, trained.best = weights_of(self.model), val, epoch
                if self.report is not None:
                    self.report({"part": p, "epoch": epoch, "loss": loss, "val": val})
                if val is not None and 0 < config.patience <= epoch - trained.best:
                    break
        trained.seconds = time.perf_counter() - began
        return trained

    def _counts(self, scorer: FullScorer, weights: Weights) -> tuple[np.ndarray, torch.Tensor]:
        """Return counts of all splits and logits of a model with some weights."""
        self.model.load_state_dict(weights)
        Z_mC = scorer.logits()
        return scorer.counts(Z_mC), Z_mC


def _score(chooser: FullScorer, dgraph: DistGraph) -> float:
    return _micro(chooser.counts(), VAL, dgraph)


def _micro(counts: np.ndarray, split: int, dgraph: DistGraph) -> float:
    return scores(counts[split], dgraph.is_multilabel)["micro_f1"]


def _number(value: float) -> float | None:
    return None if value != value else float(value)


def _gathered(parts: Parts, done: list[_Done]) -> PersonalResult:
    """Return the result of all ranks. Collective."""
    comm, C = parts.comm, parts.n_classes
    records = [record for of_rank in comm.all_gather_json([part.record for part in done]) for record in of_rank]
    counts = sum((part.counts for part in done), np.zeros((2, 3, C, 3), np.int64))
    comm.all_reduce(counts)
    is_multilabel = any(comm.all_gather_json(any(part.predicted_n.ndim == 2 for part in done)))
    empty = np.empty((0, C), np.int8) if is_multilabel else np.empty(0, np.int64)
    node_N = comm.all_gather(np.concatenate([np.empty(0, np.int64), *(part.node_n for part in done)]))
    gathered = comm.all_gather(np.concatenate([empty, *(part.predicted_n for part in done)]))
    predictions_N = np.empty_like(gathered)
    predictions_N[node_N] = gathered
    chosen, general = ({name: scores(of[s], is_multilabel) for s, name in enumerate(SPLITS)} for of in counts)
    weights = {part.record["part"]: part.weights for part in done if part.weights is not None}
    return PersonalResult(sorted(records, key=lambda record: record["part"]), chosen, general, predictions_N, weights)
