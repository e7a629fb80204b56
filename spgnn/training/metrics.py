"""Scores from global counts: every node counts once, on whichever rank it is.

Shapes: n own rows, C classes, S splits (train, val, test).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import numpy as np
import torch

from ..config.names import LinkMetric, Metric, NumberMetric, RankedMetric, Task
from ..errors import UsageError
from ..links.scores import auc_and_ap
from ..spmm.kernels.buffers import sum_dtype

SPLITS = ("train", "val", "test")
RANKED = get_args(RankedMetric)
SCORES: dict[Task, tuple[Metric, ...]] = {  # the first decides, unless another is named
    "classes": ("accuracy", "micro_f1", "macro_f1", "weighted_f1"),
    "labels": ("micro_f1", "accuracy", "macro_f1", "weighted_f1", *RANKED),
    "numbers": get_args(NumberMetric),
    "links": get_args(LinkMetric),
}


def chosen_metric(metric: str, scorer) -> str:
    """Return the score that decides. Raises: UsageError for one that the task of a scorer, or the scorer, does not have."""
    task = scorer.task
    if metric in RANKED and task != "links" and not hasattr(scorer, "ranked"):
        raise UsageError(f"--metric {metric} needs the logits of all nodes, which {type(scorer).__name__} has not")
    known = getattr(scorer, "metrics", SCORES[task])
    if metric != "auto" and metric not in known:
        what = "links are predicted" if task == "links" else f"the labels are {task}"
        raise UsageError(f"--metric {metric}: {what}; expected one of {', '.join(known)}")
    return SCORES[task][0] if metric == "auto" else metric


def count(
    Z_nC: torch.Tensor, y_n: torch.Tensor, split_n: np.ndarray, n_classes: int, comm, task: Task = "classes"
) -> np.ndarray:
    """Return (3, C, 3) int64: of each split and class the true positives, false positives and false negatives of all ranks.

    Of numbers (3, C, 5) float64, see count_numbers. Collective.
    """
    if task == "numbers":
        return count_numbers(Z_nC.detach().double().cpu().numpy(), y_n.double().numpy(), split_n, comm)
    counts = count_own(Z_nC, y_n, split_n, n_classes)
    comm.all_reduce(counts)
    return counts


def count_own(Z_nC: torch.Tensor, y_n: torch.Tensor, split_n: np.ndarray, n_classes: int) -> np.ndarray:
    """Return (3, C, 3) int64, the counts of these rows alone."""
    return _hits(Z_nC, y_n, split_n, n_classes) if y_n.ndim == 1 else _positives(Z_nC, y_n, split_n)


def count_numbers(Z_nC: np.ndarray, Y_nC: np.ndarray, split_n: np.ndarray, comm) -> np.ndarray:
    """Return (3, C, 5) float64: of each split and column the numbers that are known, and their sums of (y - mean)^2, y^2, |z - y| and (z - y)^2.

    Means are over the split on all ranks, so that none is a difference of large sums. Collective.
    """
    weight_snC = (split_n == np.arange(3)[:, None])[:, :, None] * ~np.isnan(Y_nC)
    number_sC, mean_sC = number_means([(Y_nC, weight_snC)], comm)
    own = number_sums(Z_nC, Y_nC, weight_snC, mean_sC)
    comm.all_reduce(own)
    return np.concatenate([number_sC[:, :, None], own], axis=2)


def number_means(own: Iterable[tuple[np.ndarray, np.ndarray]], comm) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of weights and the mean of each split and column, (3, C) both; own: pairs (Y_rC, weight_srC). Collective."""
    each = (np.stack([w.sum(1), (np.nan_to_num(Y) * w).sum(1)], axis=2).astype(np.float64) for Y, w in own)
    sums = sum(each, np.zeros(()))
    comm.all_reduce(sums)
    return sums[:, :, 0], sums[:, :, 1] / np.where(sums[:, :, 0] > 0, sums[:, :, 0], 1)


def number_sums(Z_rC: np.ndarray, Y_rC: np.ndarray, weight_srC: np.ndarray, mean_sC: np.ndarray) -> np.ndarray:
    """Return the sums over own rows of (y - mean)^2, y^2, |z - y| and (z - y)^2 of each split and column, (3, C, 4) float64."""
    Y_rC = np.nan_to_num(Y_rC)
    E_rC = Z_rC - Y_rC
    terms = ((Y_rC - mean_sC[:, None]) ** 2, Y_rC**2, np.abs(E_rC), E_rC**2)
    return np.stack([(term * weight_srC).sum(1) for term in terms], axis=2)


def ranked_scores(Z_nC: torch.Tensor, Y_nC: torch.Tensor, split_n: np.ndarray, comm) -> dict[str, dict[str, float]]:
    """Return split -> {roc_auc, average_precision}: the means over the labels that have both kinds of nodes in the split.

    roc_auc is the share of pairs of a positive and a negative node that the logits order rightly, equal ones by half;
    average_precision is sum_k (R_k - R_(k-1)) P_k over the distinct logits, descending. Exact over the nodes of all ranks:
    one label after another is gathered, and ranked on one of them. nan where no label has both. Collective.
    """
    logits_nC, is_one_nC = Z_nC.detach().float().cpu().numpy(), Y_nC.numpy() > 0.5
    is_in_n, C = split_n >= 0, Z_nC.shape[1]
    split_M, found = comm.all_gather(split_n[is_in_n]), np.zeros((3, C, 3))  # sums of both, and whether there are any
    for c in range(C):
        z_M, y_M = comm.all_gather(logits_nC[is_in_n, c]), comm.all_gather(is_one_nC[is_in_n, c].astype(np.int8))
        if c % comm.size == comm.rank:
            for s in range(3):
                y, z = y_M[split_M == s], z_M[split_M == s]
                if 0 < y.sum() < len(y):
                    found[s, c] = *auc_and_ap(z[y == 1], z[y == 0]), 1
    comm.all_reduce(found)
    total, number = found.sum(1)[:, :2], found.sum(1)[:, 2:]
    means = np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)
    return {name: dict(zip(RANKED, map(float, means[s]))) for s, name in enumerate(SPLITS)}


def scores(counts: np.ndarray, task: Task) -> dict[str, float]:
    """Return accuracy, micro, macro and weighted F1 of one split, or of numbers r2, mae, rmse and relative_l2; nan where it is empty.

    Macro F1 is the mean over the classes that occur as a label or a prediction; weighted F1 is the mean over the
    classes by their labels, 0 without any. Accuracy of multi-label graphs is micro F1, as their papers report it.
    r2 is the mean of 1 - sum (z - y)^2 / sum (y - mean)^2 over columns, mae and rmse are over all numbers, and
    relative_l2 is |Z - Y| / |Y|.
    """
    if task == "numbers":
        return _number_scores(counts)
    tp, fp, fn = counts.T
    if counts.sum() == 0:
        return dict.fromkeys(SCORES["classes"], float("nan"))
    micro = 2 * tp.sum() / max(2 * tp.sum() + fp.sum() + fn.sum(), 1)
    occurs = tp + fp + fn > 0
    macro = _f1(tp, fp, fn)[occurs].mean() if occurs.any() else 0.0
    support = tp + fn
    weighted = _f1(tp, fp, fn) @ support / max(support.sum(), 1)
    accuracy = micro if task == "labels" else tp.sum() / support.sum()
    return {name: float(value) for name, value in zip(SCORES["classes"], (accuracy, micro, macro, weighted))}


def _number_scores(sums_C5: np.ndarray) -> dict[str, float]:
    """Return r2, mae, rmse and relative_l2; see scores."""
    number, spread, square, absolute, error = sums_C5[sums_C5[:, 0] > 0].T
    if not len(number):
        return dict.fromkeys(SCORES["numbers"], float("nan"))
    # As others have it: of a constant column 1 where it is met, else 0.
    r2 = 1 - np.divide(error, spread, out=(error > 0).astype(np.float64), where=spread > 0)
    n, norm = number.sum(), float(np.sqrt(square.sum()))
    relative = float(np.sqrt(error.sum())) / norm if norm else float("nan")
    found = (r2.mean(), absolute.sum() / n, np.sqrt(error.sum() / n), relative)
    return {name: float(value) for name, value in zip(SCORES["numbers"], found)}


def scores_of_splits(counts: np.ndarray, task: Task) -> dict[str, dict[str, float]]:
    """Return split -> scores; counts: as count returns them."""
    return {name: scores(counts[s], task) for s, name in enumerate(SPLITS)}


def main_scores(counts: np.ndarray, task: Task, metric: str, ranked: dict | None = None) -> dict[str, str | float]:
    """Return metric, and of each split the score of this name; ranked: of ranked_scores, where it is one of these."""
    scores = scores_of_splits(counts, task) if ranked is None else ranked
    return {"metric": metric} | {name: of[metric] for name, of in scores.items()}


def confusion(predicted_n: np.ndarray, y_n: np.ndarray, n_classes: int, comm) -> np.ndarray:
    """Return (C, C) int64: of the rows of all ranks with label c, how many were predicted as d. Collective."""
    is_known_n = y_n >= 0
    pairs = y_n[is_known_n] * n_classes + predicted_n[is_known_n]
    counts = np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
    comm.all_reduce(counts)
    return counts


def predicted(Z_nC: torch.Tensor, task: Task) -> np.ndarray:
    """Return the predicted class of each row (n,) int64, 0/1 for each class (n, C) int8, or numbers (n,) or (n, C)."""
    if task == "numbers":
        numbers_nC = Z_nC.to(sum_dtype(Z_nC.dtype)).cpu().numpy()
        return numbers_nC[:, 0] if numbers_nC.shape[1] == 1 else numbers_nC
    if task == "labels":
        return (Z_nC > 0).cpu().numpy().astype(np.int8)
    return Z_nC.argmax(dim=1).cpu().numpy() if len(Z_nC) else np.empty(0, np.int64)


def probabilities(Z_nC: torch.Tensor, task: Task) -> np.ndarray:
    """Return the probability of each class, (n, C) float32: softmax of the logits, their sigmoid where nodes have several.

    Raises: UsageError for numbers.
    """
    if task == "numbers":
        raise UsageError("numbers have no probabilities; the predictions are the numbers themselves")
    Z_nC = Z_nC.double()
    return (Z_nC.sigmoid() if task == "labels" else Z_nC.softmax(dim=1)).float().cpu().numpy()


def add_ranked(scores: dict[str, dict[str, float]], ranked: dict[str, dict[str, float]]) -> None:
    """Add the scores of ranked_scores to those of each split."""
    for name, of in scores.items():
        of |= ranked[name]


def per_class(counts: np.ndarray) -> list[dict[str, float]]:
    """Return precision, recall, F1 and support of each class of one split; of numbers the scores of each column."""
    if counts.shape[1] == 5:
        return [{"class": c} | _number_scores(of[None]) | {"support": int(of[0])} for c, of in enumerate(counts)]
    tp, fp, fn = counts.T
    precision, recall = _ratio(tp, tp + fp), _ratio(tp, tp + fn)
    return [
        {"class": c, "precision": float(p), "recall": float(r), "f1": float(f), "support": int(s)}
        for c, (p, r, f, s) in enumerate(zip(precision, recall, _f1(tp, fp, fn), tp + fn))
    ]


def _hits(Z_nC, y_n, split_n, C):
    predicted_n = Z_nC.detach().argmax(dim=1).cpu().numpy() if len(Z_nC) else np.empty(0, np.int64)
    y_n, counts = y_n.numpy(), np.empty((3, C, 3), np.int64)
    for split in range(3):
        counted = (split_n == split) & (y_n >= 0)
        y, predicted = y_n[counted], predicted_n[counted]
        is_right = y == predicted
        for column, classes in enumerate((y[is_right], predicted[~is_right], y[~is_right])):
            counts[split, :, column] = np.bincount(classes, minlength=C)
    return counts


def _positives(Z_nC, Y_nC, split_n):
    predicted, truth = (Z_nC.detach() > 0).cpu().numpy(), Y_nC.numpy() > 0.5
    out = []
    for split in range(3):
        p, t = predicted[split_n == split], truth[split_n == split]
        out.append(np.stack([(p & t).sum(0), (p & ~t).sum(0), (~p & t).sum(0)], axis=1))
    return np.stack(out).astype(np.int64)


def _ratio(a, b):
    return np.divide(a, b, out=np.zeros(len(a)), where=b > 0)


def _f1(tp, fp, fn):
    return _ratio(2 * tp, 2 * tp + fp + fn)
