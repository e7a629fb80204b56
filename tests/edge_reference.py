"""Nonzeros, heads and dropped edges as the kernels over edges have them, slow and obvious.

Shapes: c columns, E nonzeros, K heads of width D. Column d K + h of a matrix (c, K D) is entry d of head h.
"""

from __future__ import annotations

import numpy as np
import torch

from spgnn.spmm.kernels.attention_kernels import EdgeDrop

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
    row_n = mix64(np.uint64(drop.key) ^ mix64(drop.ids_n.astype(np.uint64) + GOLDEN))
    edge_E = mix64(row_n[row_E] ^ mix64(drop.ids_c.astype(np.uint64) + GOLDEN)[column_E])
    return torch.from_numpy(stay(edge_E, K, drop.rate)).to(dtype) / (1 - drop.rate)


def stay(hash_e: np.ndarray, K: int, rate: float) -> np.ndarray:
    """Return hash(hash of a row or edge, column or head) >= rate 2^32, (e, K)."""
    low, high = hash_e.astype(np.uint32), (hash_e >> np.uint64(32)).astype(np.uint32)
    of_K = np.arange(K, dtype=np.uint32) * np.uint32(0x9E3779B9)
    return _mix32(_mix32(of_K + low[:, None]) ^ high[:, None]) >= np.uint32(min(rate * 2.0**32, 2.0**32 - 1))


def mix64(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix32(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
