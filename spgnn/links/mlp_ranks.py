"""MLPCandidates: ranks by a decoder of two dense layers, whose score of a candidate is no product.

Shapes: n own rows, m candidates of this rank, b of them at once, q queries, F columns.
"""

from __future__ import annotations

import numpy as np
import torch

from ..distgraph import DistGraph
from ..layers.decoders import MLPScore
from .ranks import Candidates

NUMBERS = 1 << 22  # scores at once


class MLPCandidates(Candidates):
    """Candidates whose score of a query x is <w, relu(x + Q Z_j)>, added up in ascending order of columns.

    Args: decoder  has w, and Q; is_reversed: candidates are sources, and P takes the place of Q.
    Its rows are Q Z.
    """

    def __init__(self, dgraph: DistGraph, Z_nF: torch.Tensor, among, decoder: MLPScore, is_reversed: bool):
        matrix = decoder.P_FF if is_reversed else decoder.Q_FF
        super().__init__(dgraph, Z_nF @ matrix.detach(), among)
        self.w_F = decoder.w_F.detach()

    def _pair_scores(self, x_qF: np.ndarray, place_q: np.ndarray) -> np.ndarray:
        return self._scores(torch.from_numpy(x_qF), torch.from_numpy(self.Z_nF[place_q])).numpy()

    def _scores(self, x_qF: torch.Tensor, rows_bF: torch.Tensor) -> torch.Tensor:
        """Return the scores of rows that broadcast; a product, then a sum, so that equal rows have equal scores."""
        total = torch.zeros(torch.broadcast_shapes(x_qF.shape[:-1], rows_bF.shape[:-1]), dtype=x_qF.dtype)
        for c in range(x_qF.shape[-1]):
            total += torch.relu(x_qF[..., c] + rows_bF[..., c]) * self.w_F[c]
        return total

    def _blocks_of_scores(self, x_qF: np.ndarray, indptr: np.ndarray, place: np.ndarray):
        """Yield (first candidate, scores (q, b), which of them are known); scores that are not finite end it with None."""
        x, query = torch.from_numpy(x_qF)[:, None], np.repeat(np.arange(len(x_qF)), np.diff(indptr))
        step = max(1, NUMBERS // max(1, len(x_qF)))
        for start in range(0, len(self.C_mF), step):
            scores_qb = self._scores(x, torch.from_numpy(self.C_mF[start : start + step])[None])
            is_here = (place >= start) & (place < start + step)
            is_known = np.zeros(scores_qb.shape, bool)
            is_known[query[is_here], place[is_here] - start] = True
            yield start, scores_qb.numpy(), is_known

    def _rank_counts(self, x_qF: np.ndarray, *given) -> bool:
        targets_q, indptr, place, above_q, equal_q = given
        is_finite = True
        for _, scores_qb, is_known in self._blocks_of_scores(x_qF, indptr, place):
            is_finite &= bool(np.isfinite(scores_qb).all())
            above_q += ((scores_qb > targets_q[:, None]) & ~is_known).sum(1)
            equal_q += ((scores_qb == targets_q[:, None]) & ~is_known).sum(1)
        return is_finite

    def _top(self, x_qF: np.ndarray, *given) -> bool:
        ids_m, indptr, place, ids_qk, scores_qk = given
        ids_qk[:], scores_qk[:], is_finite, k = -1, np.nan, True, ids_qk.shape[1]
        for start, scores_qb, is_known in self._blocks_of_scores(x_qF, indptr, place):
            is_finite &= bool(np.isfinite(scores_qb).all())
            ids_qb = np.broadcast_to(ids_m[start : start + scores_qb.shape[1]], scores_qb.shape)
            all_ids = np.concatenate([ids_qk, np.where(is_known, -1, ids_qb)], axis=1)
            all_scores = np.concatenate([scores_qk, np.where(is_known, np.nan, scores_qb)], axis=1)
            order_qk = np.lexsort((all_ids, -all_scores))[:, :k]  # NaN are last
            ids_qk[:], scores_qk[:] = (np.take_along_axis(of, order_qk, 1) for of in (all_ids, all_scores))
        return is_finite
