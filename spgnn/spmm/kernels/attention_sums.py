"""The running state of softmax-weighted sums over the rows of a matrix that is gone through block by block.

Shapes: n rows, K heads of width D; column d K + h of a matrix (n, K D) is entry d of head h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch


class EdgeDrop(NamedTuple):
    """Dropout on the weights of edges: a weight is zero where hash(key, id of row, id of column, head) / 2^32 < rate.

    The others are divided by 1 - rate. Softmax is of all weights: they are dropped after it. Where the key is 0 nothing
    is dropped (pass None instead).
    """

    key: int | torch.Tensor
    rate: float
    ids_n: np.ndarray  # int64, original ids of the rows
    ids_c: np.ndarray  # int64, original ids of the columns


@dataclass(slots=True)
class AttentionSums:
    """Z_i = sum_j exp(e_ij - top_i) mask_ij x_j and sum_i = sum_j exp(e_ij - top_i), top_i the largest e_ij so far.

    plus, plus_sum are the same sums over the j with u_ij > 0 only (v1 in training; None otherwise).
    Finished (see `finish`): sum is scale_i = 1 / sum_i, 0 for an empty row; Z, plus and plus_sum are weighted by
    alpha_ij = exp(e_ij - top_i) scale_i. An exponent is a difference of scores: alpha is as exact for large ones.
    bias, act: with which kernels finish, act the place in ENDS: Z is then act(Z + bias).
    share, D: where these are the sums over some of a row's nonzeros, sum_j alpha_ij over them and, for backward,
    <G_i, Z_i> of all of the row. None: they are over all, and share is 1.
    """

    Z_nKD: torch.Tensor
    top_nK: torch.Tensor
    sum_nK: torch.Tensor
    plus_nKD: torch.Tensor | None = None
    plus_sum_nK: torch.Tensor | None = None
    share_nK: torch.Tensor | None = None
    bias_KD: torch.Tensor | None = None
    act: int = 0
    D_nK: torch.Tensor | None = None

    @classmethod
    def empty(cls, pool, n: int, K: int, D: int, dtype: torch.dtype, plus: bool) -> AttentionSums:
        """Return uninitialised sums: the first attend is called without accumulate."""
        wide, narrow = lambda: pool.empty(n, K * D, dtype=dtype), lambda: pool.empty(n, K, dtype=dtype)
        return cls(wide(), narrow(), narrow(), *((wide(), narrow()) if plus else ()))

    def clear(self) -> None:
        """Make these the sums over no nonzeros."""
        self.top_nK.fill_(-torch.inf)
        for x in (self.Z_nKD, self.sum_nK, self.plus_nKD, self.plus_sum_nK):
            if x is not None:
                x.zero_()

    def merge(self, other: AttentionSums) -> None:
        """Add the sums over other nonzeros of the same rows, none of the two finished."""
        new = torch.maximum(self.top_nK, other.top_nK)
        scales = [torch.where(sums.top_nK == new, 1.0, torch.exp(sums.top_nK - new)) for sums in (self, other)]
        for mine, theirs in zip(self._parts(), other._parts()):
            self._scale(mine, scales[0])
            mine += self._scale(theirs.clone(), scales[1])
        self.top_nK.copy_(new)

    def finish(self, whole: AttentionSums | None = None) -> None:
        """Divide by the sum of weights, which becomes scale = 1 / sum.

        Args: whole  where these are the sums over some of a row's nonzeros: those over all of them, finished.
        """
        if whole is None:
            factor_nK = scale_nK = torch.where(self.sum_nK == 0, 0.0, 1 / self.sum_nK)
        else:
            scale_nK = whole.sum_nK
            factor_nK = torch.where(self.sum_nK == 0, 0.0, torch.exp(self.top_nK - whole.top_nK) * scale_nK)
            self.share_nK = self.sum_nK * factor_nK
            self.top_nK.copy_(whole.top_nK)
        for x in self._parts():
            self._scale(x, factor_nK)
        self.sum_nK.copy_(scale_nK)

    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        """Return Z, top, sum, plus, plus_sum."""
        return self.Z_nKD, self.top_nK, self.sum_nK, self.plus_nKD, self.plus_sum_nK

    def _parts(self) -> list[torch.Tensor]:
        return [x for x in (self.Z_nKD, self.sum_nK, self.plus_nKD, self.plus_sum_nK) if x is not None]

    def _scale(self, x: torch.Tensor, scale_nK: torch.Tensor) -> torch.Tensor:
        n, K = scale_nK.shape
        x.view(n, x.shape[1] // K, K).mul_(scale_nK[:, None])
        return x
