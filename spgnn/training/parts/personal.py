"""personalise: each part trains on from the weights of all parts, alone, and keeps those that validate better.

Shapes: n own nodes, m rows of a part, k parts, N nodes, C classes. W_G the weights of all parts, W_p those of part p.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...config import TrainConfig
from ...dist.consistency import check_same, digest
from ...distgraph import DistGraph, Parts
from ...errors import UsageError, agree
from ...graph import labelled
from ...machine import give_back_memory
from ...partition.metrics import label_entropies
from ..consistency import check_trainable, check_width
from ..metrics import SPLITS, predicted, scores, scores_of_splits
from ..optimizer import ProximalOptimizer
from ..scorer import FullScorer, make_cached_products, split_of
from ..trainer import weights_of
from .average import make_part_step, naming_part

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
    model: torch.nn.Module,
    parts: Parts,
    config: TrainConfig,
    report: Callable[[dict], Any] | None = None,
    proximal: float = 0.01,
) -> PersonalResult:
    """min over W_p of loss_p(W_p) + lambda ||W_p - W_G||^2, for each part p alone; then the better of W_p and W_G.

    A part trains config.personal epochs on its own training nodes, with a new optimizer; it ends sooner after
    config.patience epochs without progress on its own validation nodes, of which the best epoch is W_p. It takes W_p
    where that validates better than W_G, and W_G where both are equal, or where it has no training or no validation
    node: then it does not train. Test nodes are scored once, after the choice. There is no collective until all parts
    of a rank are done; ranks wait for the slowest only there. An error on a part is raised then, on all ranks.

    Args:   model   with W_G, the same on all ranks; it has W_G afterwards.
            config  personal, patience, eval_every and what training reads.
            report  called on this rank with {part, epoch, loss, val} of each epoch; val: None where it was not scored.
            proximal  lambda.
    Raises: UsageError for options that do not fit; NumericalError and others that name rank and part.
    Collective.
    Source: entropy-aware training, section III-C. Its eq. (4) has ||W - W_G|| where the text says squared: squared here.
            Its published code descends lambda along with the weights, towards 0: fixed here. It takes the better model
            by test nodes, and the mean of the parts' F1: validation nodes, and counts of all parts, here.
    """
    if config.personal < 1:
        raise UsageError(f"personal = {config.personal}: a personal phase needs 1 epoch or more")
    if config.optimizer == "sgd" and config.lr * proximal >= 1:
        raise UsageError(
            f"proximal = {proximal:g} diverges with optimizer = sgd and lr = {config.lr:g}; expected less than "
            f"1 / lr = {1 / config.lr:g}"
        )
    comm = parts.comm
    W_G = weights_of(model)
    check_same(comm, {"option.weights": digest(*(W_G[name].cpu().numpy() for name in sorted(W_G)))})
    phase, error = _Phase(model, parts, replace(config, split="given"), W_G, report, proximal), None
    try:
        for p, following in zip(parts.own, [*parts.own[1:], None]):
            try:
                if following is not None:
                    parts.prefetch(following)
                phase.add(p)
                give_back_memory()
                parts.release(p)
            except Exception as caught:  # handed to all ranks, which raise together
                error = naming_part(caught, comm.rank, p, comm.phase)
                break
    finally:
        model.load_state_dict(W_G)
    comm.phase = "gather personal models"
    agree(comm, error)
    return phase.gathered()


class _Phase:
    """The personal phase of this rank, part after part; counts: (2, 3, C, 3), of the chosen models and of W_G."""

    def __init__(self, model, parts: Parts, config: TrainConfig, W_G: Weights, report, proximal: float):
        self.model, self.parts, self.config = model, parts, config
        self.W_G, self.report, self.proximal = W_G, report, proximal
        self.records: list[dict[str, Any]] = []
        self.weights: dict[int, Weights] = {}
        self.counts = np.zeros((2, 3, parts.n_classes, 3), np.int64)
        self.predicted: list[tuple[np.ndarray, np.ndarray]] = []  # ids of nodes, and what is predicted of them

    def add(self, p: int) -> None:
        """Train part p and choose its model."""
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
        micro = lambda counts, split: scores(counts[split], dgraph.task)["micro_f1"]
        validate = lambda: micro(chooser.counts(), VAL)
        assert dgraph.y_n is not None  # see check_trainable
        val_G, y_n = validate(), dgraph.y_n.numpy()[:n]
        has_label_n = labelled(y_n)
        sizes = {name: int((has_label_n & (split_m[:n] == s)).sum()) for s, name in enumerate(SPLITS)}
        W_p, val_p, trained = None, float("nan"), {"epochs": 0, "best": 0}
        began = time.perf_counter()
        if sizes["train"] and sizes["val"]:
            W_p, val_p, trained = self._train(p, dgraph, validate)
        seconds = time.perf_counter() - began if trained["epochs"] else 0.0
        is_personal = W_p is not None and val_p > val_G  # ties: W_G, which generalises
        scorer = FullScorer(model, dgraph, split_m)
        of_general, Z_mC = self._counts(scorer, self.W_G)
        of_personal, Z_personal_mC = (of_general, Z_mC) if W_p is None else self._counts(scorer, W_p)
        self.counts += np.stack([of_personal if is_personal else of_general, of_general])
        of_part = predicted((Z_personal_mC if is_personal else Z_mC)[:n], dgraph.task)
        self.predicted.append((np.array(dgraph.node_n[:n], np.int64), of_part))  # a view would hold the ids of the halo
        if is_personal:
            self.weights[p] = W_p
        record = {
            "part": p, "rank": parts.comm.rank, "nodes": n, **sizes,
            "entropy": float(label_entropies(y_n, np.zeros(n, np.int64), 1)[0][0]), **trained,
            "chosen": "personal" if is_personal else "general", "val_general": val_G, "val_personal": val_p,
            "test_general": micro(of_general, TEST),
            "test_personal": float("nan") if W_p is None else micro(of_personal, TEST), "seconds": seconds,
        }  # fmt: skip
        self.records.append({name: None if value != value else value for name, value in record.items()})

    def _train(self, p: int, dgraph: DistGraph, validate: Callable[[], float]) -> tuple[Weights, float, dict[str, int]]:
        """Train a part from W_G; return its weights of the best validation score, that score, and the epochs."""
        config, comm = self.config, self.parts.comm
        step = make_part_step(self.model, self.parts, p, config, dgraph)
        step.optimizer = ProximalOptimizer(step.optimizer, self.proximal)
        W_p, best, best_val = None, 0, float("nan")
        with closing(step):
            for epoch in range(1, config.personal + 1):
                comm.phase = f"personal epoch {epoch}, part {p}"  # tells the watchdog of others that this rank moves
                number = config.epochs + epoch  # random numbers continue those of all parts
                step.forward(number)
                loss = step.update(number, number)
                val = None
                if epoch % config.eval_every == 0 or epoch == config.personal:
                    val = validate()
                    if W_p is None or val > best_val:
                        W_p, best, best_val = weights_of(self.model), epoch, val
                if self.report is not None:
                    self.report({"part": p, "epoch": epoch, "loss": loss, "val": val})
                if val is not None and 0 < config.patience <= epoch - best:
                    break
        assert W_p is not None  # the last epoch is scored
        return W_p, best_val, {"epochs": epoch, "best": best}

    def _counts(self, scorer: FullScorer, weights: Weights) -> tuple[np.ndarray, torch.Tensor]:
        """Return counts of all splits and logits of the model with some weights."""
        self.model.load_state_dict(weights)
        Z_mC = scorer.logits()
        return scorer.counts(Z_mC), Z_mC

    def gathered(self) -> PersonalResult:
        """Return the result of all ranks. Collective."""
        comm, C = self.parts.comm, self.parts.n_classes
        task = self.parts.source.facts.task
        empty = np.empty((0, C), np.int8) if task == "labels" else np.empty(0, np.int64)
        records = [record for of_rank in comm.all_gather_json(self.records) for record in of_rank]
        comm.all_reduce(self.counts)
        node_N = comm.all_gather(np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in self.predicted)]))
        gathered = comm.all_gather(np.concatenate([empty, *(of_part for _, of_part in self.predicted)]))
        predictions_N = np.empty_like(gathered)
        predictions_N[node_N] = gathered
        of_chosen, of_general = (scores_of_splits(of, task) for of in self.counts)
        records.sort(key=lambda record: record["part"])
        return PersonalResult(records, of_chosen, of_general, predictions_N, self.weights)
