"""Slow, obvious versions of the kernels: the fast ones are tested against them.

Shapes: n rows, m columns, F features, C classes.
"""

from __future__ import annotations

import numpy as np
import torch

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


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
    keep = np.zeros((len(node_n), F), bool)
    threshold = int(min(rate * 2.0**32, 2.0**32 - 1))
    for i, node in enumerate(node_n):
        row = _mix64(key ^ _mix64((int(node) + 0x9E3779B97F4A7C15) & MASK64))
        for f in range(F):
            inner = _mix32((f * 0x9E3779B9 + (row & MASK32)) & MASK32)
            keep[i, f] = _mix32(inner ^ (row >> 32)) >= threshold
    return keep


def softmax_xent(Z_nC, y_n, scale: float) -> tuple[float, np.ndarray]:
    """Return the sum of -log softmax(Z)[y] over rows with y >= 0, and scale times its gradient."""
    Z = torch.tensor(np.asarray(Z_nC, dtype=np.float64), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(Z, torch.as_tensor(y_n), ignore_index=-1, reduction="sum")
    loss.backward()
    return float(loss.detach()), Z.grad.numpy() * scale


def _mix64(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK64
    return x ^ (x >> 31)


def _mix32(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK32
    x ^= x >> 15
    x = x * 0x846CA68B & MASK32
    return x ^ (x >> 16)
