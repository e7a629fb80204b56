"""Slow, obvious versions of the kernels: the fast ones are tested against them.

Shapes: n rows, m columns, F features, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
from edge_reference import GOLDEN, mix64, stay


def spmm(indptr, indices, weights, X_mF, Y_nF=None, bias_F=None, relu: bool = False) -> np.ndarray:
    """Return relu(A X (+ Y) (+ bias)) in float64, one nonzero at a time."""
    n = len(indptr) - 1
    out = np.zeros((n, X_mF.shape[1])) if Y_nF is None else Y_nF.astype(np.float64)
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            out[i] += (1.0 if weights is None else float(weights[e])) * X_mF[indices[e]].astype(np.float64)
    if bias_F is not None:
        out += bias_F
    return np.maximum(out, 0) if relu else out


def drop_mask(node_n, F: int, key: int, rate: float) -> np.ndarray:
    """Return which (node, feature) stay, (n, F) bool: hash(key, node, feature) >= rate 2^32."""
    return stay(mix64(np.uint64(key) ^ mix64(np.asarray(node_n).astype(np.uint64) + GOLDEN)), F, rate)


def softmax_xent(Z_nC, y_n, scale: float) -> tuple[float, np.ndarray]:
    """Return the sum of -log softmax(Z)[y] over rows with y >= 0, and scale times its gradient."""
    Z = torch.tensor(np.asarray(Z_nC, dtype=np.float64), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(Z, torch.as_tensor(y_n), ignore_index=-1, reduction="sum")
    loss.backward()
    return float(loss.detach()), Z.grad.numpy() * scale
