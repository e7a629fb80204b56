"""Scores from global counts: every node counts once, on whichever rank it is.

Shapes: n own rows, C classes, S splits (train, val, test).
"""

from __future__ import annotations

import numpy as np
import torch

SPLITS = ("train", "val", "test")
SCORES = ("accuracy", "micro_f1", "macro_f1", "weighted_f1")


def count(Z_nC: torch.Tensor, y_n: torch.Tensor, split_n: np.ndarray, n_classes: int, comm) -> np.ndarray:
    """Return (3, C, 3) int64: of each split and class the true positives, false positives and false negatives of all ranks. Collective."""
    counts = count_own(Z_nC, y_n, split_n, n_classes)
    comm.all_reduce(counts)
    return counts


def count_own(Z_nC: torch.Tensor, y_n: torch.Tensor, split_n: np.ndarray, n_classes: int) -> np.ndarray:
    """Return (3, C, 3) int64, the counts of these rows alone."""
    return _hits(Z_nC, y_n, split_n, n_classes) if y_n.ndim == 1 else _positives(Z_nC, y_n, split_n)


def scores(counts: np.ndarray, is_multilabel: bool) -> dict[str, float]:
    """Return accuracy, micro, macro and weighted F1 of one split; nan where it is empty.

    Macro F1 is the mean over the classes that occur as a label or a prediction; weighted F1 is the mean over the
    classes by their labels, 0 without any. Accuracy of multi-label graphs is micro F1, as their papers report it.
    """
    tp, fp, fn = counts.T
    if counts.sum() == 0:
        return dict.fromkeys(SCORES, float("nan"))
    micro = 2 * tp.sum() / max(2 * tp.sum() + fp.sum() + fn.sum(), 1)
    occurs = tp + fp + fn > 0
    macro = _f1(tp, fp, fn)[occurs].mean() if occurs.any() else 0.0
    support = tp + fn
    weighted = _f1(tp, fp, fn) @ support / max(support.sum(), 1)
    accuracy = micro if is_multilabel else tp.sum() / support.sum()
    return {name: float(value) for name, value in zip(SCORES, (accuracy, micro, macro, weighted))}


def scores_of_splits(counts: np.ndarray, is_multilabel: bool) -> dict[str, dict[str, float]]:
    """Return split -> scores; counts: (3, C, 3), as count returns them."""
    return {name: scores(counts[s], is_multilabel) for s, name in enumerate(SPLITS)}


def accuracies(counts: np.ndarray, is_multilabel: bool) -> dict[str, float]:
    """Return split -> accuracy."""
    return {name: of["accuracy"] for name, of in scores_of_splits(counts, is_multilabel).items()}


def confusion(predicted_n: np.ndarray, y_n: np.ndarray, n_classes: int, comm) -> np.ndarray:
    """Return (C, C) int64: of the rows of all ranks with label c, how many were predicted as d. Collective."""
    is_known_n = y_n >= 0
    pairs = y_n[is_known_n] * n_classes + predicted_n[is_known_n]
    counts = np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
    comm.all_reduce(counts)
    return counts


def predicted(Z_nC: torch.Tensor, is_multilabel: bool) -> np.ndarray:
    """Return the predicted class of each row (n,) int64, or 0/1 for each class (n, C) int8."""
    if is_multilabel:
        return (Z_nC > 0).cpu().numpy().astype(np.int8)
    return Z_nC.argmax(dim=1).cpu().numpy() if len(Z_nC) else np.empty(0, np.int64)


def probabilities(Z_nC: torch.Tensor, is_multilabel: bool) -> np.ndarray:
    """Return the probability of each class, (n, C) float32: softmax of the logits, their sigmoid where nodes have several."""
    Z_nC = Z_nC.double()
    return (Z_nC.sigmoid() if is_multilabel else Z_nC.softmax(dim=1)).float().cpu().numpy()


def per_class(counts: np.ndarray) -> list[dict[str, float]]:
    """Return precision, recall, F1 and support of each class of one split."""
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
