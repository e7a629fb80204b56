"""Slow, obvious versions of the kernels over edges: attention, products for each head, softmax of rows, maximum.

Shapes: n rows, c columns, E nonzeros, K heads of width D, F features. Column d K + h of a matrix (c, K D) is entry d of
head h. Arithmetic is in the type of the arguments (tests pass float64).
"""

from __future__ import annotations

import numpy as np
import torch

from spgnn.spmm.kernels.attention_sums import AttentionSums, EdgeDrop

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def ends(A) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row and column of each nonzero, (E,) each."""
    row_E = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return torch.from_numpy(row_E), torch.from_numpy(A.indices.astype(np.int64))


def by_head(X_cF: torch.Tensor, K: int) -> torch.Tensor:
    """Return (c, D, K)."""
    return X_cF.reshape(len(X_cF), X_cF.shape[1] // K if K else 0, K)


def kept(A, K: int, drop: EdgeDrop | None, dtype) -> torch.Tensor:
    """Return mask / (1 - rate), (E, K): hash(key, id of row, id of column, head) >= rate 2^32."""
    if drop is None:
        return torch.ones(len(A.indices), K, dtype=dtype)
    row_E, column_E = (x.numpy() for x in ends(A))
    row_n = _mix64(np.uint64(drop.key) ^ _mix64(drop.ids_n.astype(np.uint64) + GOLDEN))
    edge_E = _mix64(row_n[row_E] ^ _mix64(drop.ids_c.astype(np.uint64) + GOLDEN)[column_E])
    low, high = edge_E.astype(np.uint32), (edge_E >> np.uint64(32)).astype(np.uint32)
    head_K = np.arange(K, dtype=np.uint32) * np.uint32(0x9E3779B9)
    bits = _mix32(_mix32(head_K + low[:, None]) ^ high[:, None])
    threshold = np.uint32(min(drop.rate * 2.0**32, 2.0**32 - 1))
    return torch.from_numpy(bits >= threshold).to(dtype) / (1 - drop.rate)


def attend(A, X, left, right, sums: AttentionSums, slope, drop, accumulate) -> None:
    """Add the weighted sum over A's nonzeros to the running state."""
    row, column = ends(A)
    u = left[row] + right[column]
    _add(sums, A, X.to(u.dtype), torch.where(u > 0, u, slope * u), u > 0, drop, accumulate)


def attend_adjoint(A, X, G, record, right, dX, dright, slope, drop, accumulate) -> None:
    """Gradients of X and right."""
    row, column = ends(A)
    K = right.shape[1]
    left, top, scale, D = record.split(K, 1)
    u, T = left[row] + right[column], right.dtype
    alpha = torch.exp(torch.where(u > 0, u, slope * u) - top[row]) * scale[row]
    mask, G_E = kept(A, K, drop, T), by_head(G.to(T), K)[row]
    dots = (G_E * by_head(X.to(T), K)[column]).sum(1)
    du = alpha * (mask * dots - D[row]) * torch.where(u > 0, torch.ones_like(u), slope)
    _sum_rows(dX, column, ((alpha * mask)[:, None] * G_E).flatten(1), accumulate)
    _sum_rows(dright, column, du, accumulate)


def attend2(A, right, left, a, sums: AttentionSums, slope, drop, accumulate) -> None:
    """Add the weighted sum over A's nonzeros to the running state, GAT v2."""
    row, column = ends(A)
    K, T = sums.top_nK.shape[1], a.dtype
    e, positive = _scores2(right.to(T)[column], left.to(T)[row], a, slope, K)
    _add(sums, A, right.to(T), e, torch.zeros_like(e), drop, accumulate)


def attend2_both(A, right, left, a, G, record, slope, drop):
    """Return dleft (n, K D), da (K D) and dright (c, K D)."""
    row, column = ends(A)
    K, T = record.shape[1] // 3, a.dtype
    top, scale, D = record.split(K, 1)
    r, l, G_E = right.to(T)[column], left.to(T)[row], by_head(G.to(T), K)[row]
    e, positive = _scores2(r, l, a, slope, K)
    alpha, mask = torch.exp(e - top[row]) * scale[row], kept(A, K, drop, T)
    de = alpha * (mask * (G_E * by_head(r, K)).sum(1) - D[row])
    u = l + r
    slopes = torch.where(u > 0, torch.ones_like(u), slope)
    du = by_head(a * slopes, K) * de[:, None]
    dright = (alpha * mask)[:, None] * G_E + du
    sums = [torch.zeros(shape, dtype=T) for shape in (left.shape, right.shape)]
    _sum_rows(sums[0], row, du.flatten(1), True)
    _sum_rows(sums[1], column, dright.flatten(1), True)
    return sums[0], (by_head(slopes * u, K) * de[:, None]).sum(0).flatten(), sums[1]


def sddmm(A, U, V, K: int) -> torch.Tensor:
    """Return <U_i, V_j> for each head and nonzero, (E, K)."""
    row, column = ends(A)
    return (by_head(U, K)[row] * by_head(V, K)[column]).sum(1)


def spmm_heads(A, values, X, out, accumulate, transpose) -> None:
    """out_i = sum_j values_ij X_j for each head (+ out), or of A': out_j = sum_i values_ij X_i; X None: ones."""
    to, of = ends(A)[::-1] if transpose else ends(A)
    K, T = values.shape[1], out.dtype
    parts = values if X is None else (values[:, None] * by_head(X.to(T), K)[of]).flatten(1)
    _sum_rows(out, to, parts, accumulate)


def maximum(A, X, order, out, arg, offset, accumulate) -> None:
    """The largest entry of each column over a row's nonzeros and where it is; NaN is larger than all."""
    for i in range(A.shape[0]):
        for f in range(X.shape[1]):
            best, at = (out[i, f].item(), int(arg[i, f])) if accumulate else (0.0, -1)
            for j in A.indices[A.indptr[i] : A.indptr[i + 1]]:
                x, to = X[j, f].item(), offset + int(j)
                here, there = (to, at) if order is None else (order[to], order[at])
                is_more = x > best or (x != x and best == best)
                if at < 0 or is_more or ((x == best or (x != x and best != best)) and here < there):
                    best, at = x, to
            out[i, f], arg[i, f] = (best, at) if at >= 0 else (0.0, -1)


def maximum_adjoint(A, G, arg, dX, offset, accumulate) -> None:
    """dX_j = sum of G_i over the i whose largest entry is j's."""
    row, column = ends(A)
    _sum_rows(dX, column, torch.where(arg[row] == offset + column[:, None], G[row], 0), accumulate)


def _add(sums, A, X, e, positive, drop, accumulate) -> None:
    """Add exp(e) X_j to the running state of softmax-weighted sums."""
    row, column = ends(A)
    K = e.shape[1]
    if not accumulate:
        sums.clear()
    top = sums.top_nK.clone()
    index = row[:, None].expand(-1, K)
    new = top.scatter_reduce(0, index, torch.where(e.isnan(), -torch.inf, e), "amax")
    scale = torch.where(top == new, 1.0, torch.exp(top - new))
    w = torch.exp(e - new[row])
    sums.top_nK.copy_(new)
    mask, X_E = kept(A, K, drop, e.dtype), by_head(X, K)[column]
    for Z, total, weights in (
        (sums.Z_nKD, sums.sum_nK, w),
        (sums.plus_nKD, sums.plus_sum_nK, torch.where(positive.bool(), w, 0)),
    ):
        if Z is not None:
            Z.copy_((by_head(Z, K) * scale[:, None]).flatten(1))
            total.mul_(scale)
            _sum_rows(total, row, weights, True)
            _sum_rows(Z, row, ((weights * mask)[:, None] * X_E).flatten(1), True)


def _scores2(r, l, a, slope, K: int):
    u = l + r
    return by_head(a * torch.where(u > 0, u, slope * u), K).sum(1), u > 0


def _sum_rows(out, row, parts, accumulate) -> None:
    if not accumulate:
        out.zero_()
    out.index_add_(0, row, parts.to(out.dtype))


def _mix64(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix32(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
