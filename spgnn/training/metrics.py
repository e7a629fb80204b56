"""Scores from global counts: every node counts once, on whichever rank it is.

Shapes: n own rows, C classes, S splits (train, val, test).
"""

from __future__ import annotations

import numpy as np
import torch

SPLITS = ("train", "val", "test")


def count(Z_nC: torch.Tensor, y_n: torch.Tensor, split_n: np.ndarray, n_classes: int, comm) -> np.ndarray:
    """Return the confusion counts of the three splits, summed over ranks. Collective.

    Returns: single-label (3, C, C) int64, row = label, column = prediction;
             multi-label (3, C, 3): true positives, false positives, false negatives a class.
    """
    if y_n.ndim == 1:
        counts = _confusion(Z_nC, y_n, split_n, n_classes)
    else:
        counts = _positives(Z_nC, y_n, split_n)
    comm.all_reduce(counts)
    return counts


def scores(counts: np.ndarray, is_multilabel: bool) -> dict[str, float]:
    """Return accuracy, micro F1 and macro F1 of one split; nan where it is empty.

    Macro F1 is the mean over the classes that occur as a label or a prediction; accuracy of
    multi-label graphs is micro F1, as their papers report it.
    """
    tp, fp, fn = _rates(counts, is_multilabel)
    if counts.sum() == 0:
        return {"accuracy": float("nan"), "micro_f1": float("nan"), "macro_f1": float("nan")}
    micro = 2 * tp.sum() / max(2 * tp.sum() + fp.sum() + fn.sum(), 1)
    occurs = tp + fp + fn > 0
    macro = _f1(tp, fp, fn)[occurs].mean() if occurs.any() else 0.0
    accuracy = micro if is_multilabel else tp.sum() / counts.sum()
    return {"accuracy": float(accuracy), "micro_f1": float(micro), "macro_f1": float(macro)}


def per_class(counts: np.ndarray, is_multilabel: bool) -> list[dict[str, float]]:
    """Return precision, recall, F1 and support of each class of one split."""
    tp, fp, fn = _rates(counts, is_multilabel)
    precision, recall = _ratio(tp, tp + fp), _ratio(tp, tp + fn)
    return [
        {"class": c, "precision": float(p), "recall": float(r), "f1": float(f), "support": int(s)}
        for c, (p, r, f, s) in enumerate(zip(precision, recall, _f1(tp, fp, fn), tp + fn))
    ]


def _confusion(Z_nC, y_n, split_n, C):
    predicted = Z_nC.detach().argmax(dim=1).cpu().numpy() if len(Z_nC) else np.empty(0, np.int64)
    y, counts = y_n.numpy(), np.zeros((3, C, C), np.int64)
    counted = (split_n >= 0) & (y >= 0)
    key = (split_n[counted].astype(np.int64) * C + y[counted]) * C + predicted[counted]
    return np.bincount(key, minlength=3 * C * C).reshape(counts.shape)


def _positives(Z_nC, Y_nC, split_n):
    predicted, truth = (Z_nC.detach() > 0).cpu().numpy(), Y_nC.numpy() > 0.5
    out = []
    for split in range(3):
        p, t = predicted[split_n == split], truth[split_n == split]
        out.append(np.stack([(p & t).sum(0), (p & ~t).sum(0), (~p & t).sum(0)], axis=1))
    return np.stack(out).astype(np.int64)


def _rates(counts, is_multilabel: bool):
    """Return true positives, false positives and false negatives of each class."""
    if is_multilabel:
        return counts[:, 0], counts[:, 1], counts[:, 2]
    tp = np.diagonal(counts)
    return tp, counts.sum(axis=0) - tp, counts.sum(axis=1) - tp


def _ratio(a, b):
    return np.divide(a, b, out=np.zeros(len(a)), where=b > 0)


def _f1(tp, fp, fn):
    return _ratio(2 * tp, 2 * tp + fp + fn)
