"""RowWords: the calls of layers that read rows of H and not their sums: columns, linear, attend, attend2, maximum, sddmm.

Shapes: n rows out, m own rows in, t = m + g own and ghost columns, F in, C out, K heads of width D, E nonzeros. Column
d K + h of a matrix (m, K D) is entry d of head h: heads are innermost.
"""

from __future__ import annotations

import math

import torch

from ..errors import ShapeError, UsageError, is_number
from .attention import Attend, Attend2, Scores
from .autograd import Columns
from .cached_ghosts import cached_ghosts, reads_fixed_input
from .column_rows import ColumnRows, Linear, tensor_of
from .dropout import check_rate, is_nothing
from .edges import EdgeValues, sddmm
from .features import check_factors
from .fixed_input import check_is_held
from .maximum import Maximum


class RowWords:
    """These calls; `view` is the operator in a layer."""

    def columns(self, H_mF: torch.Tensor) -> torch.Tensor:
        """Return (m + g, F): own rows of H, then ghost rows; see SpMM. Collective."""
        if H_mF.is_sparse:
            raise UsageError("A.columns reads dense rows, but X is sparse: give it H @ W")
        check_is_held(H_mF)
        A = self.view
        ghosts_gF = cached_ghosts(A, H_mF)
        return Columns.apply(A, H_mF) if ghosts_gF is None else torch.cat([H_mF, ghosts_gF])

    def linear(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor | ColumnRows:
        """Return relu(H W + b) for attend, attend2 and maximum; see SpMM. Collective."""
        A = self.view
        check_factors(H, W_FC)
        if bias_C is not None and bias_C.shape != W_FC.shape[1:]:
            raise ShapeError(f"the bias of linear has shape {tuple(bias_C.shape)}; expected ({W_FC.shape[1]},)")
        check_is_held(H)
        is_narrow = W_FC.shape[0] < W_FC.shape[1] and not H.is_sparse
        if is_narrow or reads_fixed_input(A, H):
            X_tC = ColumnRows(Linear.apply(A, H, cached_ghosts(A, H), W_FC, bias_C))
            return X_tC.map(torch.relu) if relu else X_tC
        X_mC = H @ W_FC if bias_C is None else H @ W_FC + bias_C
        return torch.relu(X_mC) if relu else X_mC

    def attend(self, X, left_DK, right_DK, slope: float = 0.2, rate: float = 0.0, draw: int = 1) -> torch.Tensor:
        """Return Z_i = sum_j alpha_ij x_j, e_ij = lrelu(left x_i + right x_j); see SpMM. Collective."""
        _check_heads(X, left_DK, right_DK)
        return Attend.apply(self.view, tensor_of(self.view, X), left_DK, right_DK, self._scores(X, slope, rate, draw))

    def attend2(self, left_mKD, right, a_DK, slope: float = 0.2, rate: float = 0.0, draw: int = 1) -> torch.Tensor:
        """Return Z_i = sum_j alpha_ij right_j, e_ij = a lrelu(left_i + right_j); see SpMM. Collective."""
        _check_heads(right, a_DK)
        if left_mKD.shape != (self.view.m, right.shape[1]):
            raise ShapeError(
                f"left of attend2 has shape {tuple(left_mKD.shape)}; expected ({self.view.m}, {right.shape[1]})"
            )
        return Attend2.apply(
            self.view, left_mKD, tensor_of(self.view, right), a_DK, self._scores(right, slope, rate, draw)
        )

    def maximum(self, H) -> torch.Tensor:
        """Return the largest H_j of each column over the nonzeros of a row; see SpMM. Collective."""
        _check_matrix(H)
        return Maximum.apply(self.view, tensor_of(self.view, H), isinstance(H, ColumnRows))

    def sddmm(self, U_mKD: torch.Tensor, V_tKD: torch.Tensor, heads: int = 1, op: str = "dot") -> EdgeValues:
        """Return <U_i, V_j>, or U_i + V_j, for each nonzero and head; see SpMM."""
        return sddmm(self.view, U_mKD, V_tKD, heads, op)

    def _scores(self, X, slope: float, rate: float, draw: int) -> Scores:
        if not is_number(slope) or not 0 <= slope < math.inf:
            raise UsageError(f"slope = {slope!r}; expected a finite number of 0 or more")
        key = 0 if check_rate(rate, "rate") == 0 else self.view.drawn_key(draw)
        return Scores(slope, 0.0 if is_nothing(key) else rate, key, isinstance(X, ColumnRows))


def _check_heads(X, *of_heads: torch.Tensor) -> None:
    """Raise ShapeError unless weights (D, K) fit the columns of X."""
    _check_matrix(X)
    for a_DK in of_heads:
        if a_DK.ndim != 2 or a_DK.numel() != X.shape[1] or a_DK.shape != of_heads[0].shape:
            raise ShapeError(
                f"the weights of an attention have shape {tuple(a_DK.shape)}; expected (D, K) with D K = {X.shape[1]}, "
                "the columns of X"
            )


def _check_matrix(H) -> None:
    """Raise ShapeError for rows that are no matrix."""
    if len(H.shape) != 2:
        raise ShapeError(f"H has shape {tuple(H.shape)}; expected (m, F), one row per own node")
