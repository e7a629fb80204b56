"""How mixed the labels of each part are.

Shapes: N nodes, k parts, C classes.
Source: entropy-aware paper, footnote 2 and Table V; its published code has logarithms to base 2, and averages over
the parts by their training nodes.
"""

from __future__ import annotations

import numpy as np

from ..errors import GraphError
from .checks import check_owner


def label_entropies(labels: np.ndarray, owner_N: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """H(p) = -sum_c p_c log2 p_c for each part, in bits, and their average by labelled nodes.

    p_c is the share of class c among the labelled nodes of the part; a part without any has 0. Of multi-label
    nodes H is the sum over the labels of -p log2 p - (1 - p) log2 (1 - p).

    Args:    labels  (N,) integer classes, -1 for none, or (N, C) 0/1; owner_N (N,), 0 to k - 1.
    Returns: (k,) float64, and sum_i n_i / n H(i).
    Raises: GraphError unless labels have one entry or row per node; PartitionError for an invalid owner array.
    """
    owner_N = check_owner(owner_N, len(owner_N), k, "label_entropies: the owner array")
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != len(owner_N):
        raise GraphError(f"labels have shape {labels.shape}; expected an entry or row for each of {len(owner_N)} nodes")
    if labels.ndim == 1:
        is_labelled_N = labels >= 0
        owner_n, labels_n = owner_N[is_labelled_N].astype(np.int64), labels[is_labelled_N].astype(np.int64)
        # Class numbers may be far apart, and k x C much larger than N: only classes that occur are counted.
        classes, labels_n = np.unique(labels_n, return_inverse=True)
        pairs, counts = np.unique(owner_n * len(classes) + labels_n, return_counts=True)
        part_of_pair = pairs // max(len(classes), 1)
        nodes_k = np.bincount(owner_n, minlength=k)
        entropies_k = np.bincount(part_of_pair, _bits(counts / nodes_k[part_of_pair]), minlength=k)
    else:
        nodes_k = np.bincount(owner_N, minlength=k)
        columns = [np.bincount(owner_N, weights=of_class_N, minlength=k) for of_class_N in labels.T]
        counts_kC = np.stack(columns, axis=1) if columns else np.zeros((k, 0))
        share_kC = counts_kC / np.maximum(nodes_k, 1)[:, None]
        entropies_k = (_bits(share_kC) + _bits(1 - share_kC)).sum(axis=1)
    n = int(nodes_k.sum())
    return entropies_k, float(nodes_k @ entropies_k / n) if n else 0.0


def _bits(p: np.ndarray) -> np.ndarray:
    # 0 log 0 = 0; + 0.0 turns -0.0 into 0.0.
    return -p * np.log2(np.where(p > 0, p, 1)) + 0.0
