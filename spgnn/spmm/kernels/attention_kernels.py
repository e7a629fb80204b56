"""The kernels of attention on the memory of this process, GAT v1 and v2: softmax-weighted sums over edges, no (E, K) stored;
AttentionSums, their running state, block by block; and HostEdges: products for each head, softmax of rows, maximum.

Shapes: n rows, c columns, E nonzeros, K heads of width D. Column d K + h of a matrix (c, K D) is entry d of head h:
heads are innermost. A is a LocalCSR block (n, c) whose pattern alone is read. Matrices are row-major; X, G, and of v2
left and right, may be bfloat16, all others have the type of sums. Outputs are written, or added to where accumulate is
set. Results do not depend on the number of threads, A.threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from . import _kernels
from .buffers import array_of, arrays


class HostAttention:
    """Kernels of attention; a part of HostKernels."""

    isa = ""  # instruction set of the kernels over edges; "": the best that the processor has

    def attend(
        self, A, X_cKD, left_nK, right_cK, sums: AttentionSums, slope: float, drop: EdgeDrop | None = None,
        accumulate=False, finish=False,
    ) -> None:  # fmt: skip
        """Z_i = sum_j exp(e_ij - top_i) mask_ij X_j over A's nonzeros, e_ij = lrelu(u_ij), u_ij = left_i + right_j.

        Args: sums        written, or gone on with where accumulate is set; plus sums are made where it has them.
              accumulate  sums are those of other nonzeros of the same rows.
              finish      these are the last nonzeros: sums.finish() and their act(Z + bias) at the end, at no cost.
        """
        X, left, right, bias = arrays(X_cKD, left_nK, right_cK, sums.bias_KD)
        _kernels.attend(
            A.indptr, A.indices, X, left, right, *arrays(*sums.tensors()), slope, _of_edges(drop), accumulate, finish,
            bias, sums.act, A.threads, self.isa,
        )  # fmt: skip

    def fixed_dots(self, X_cKD, fixed_2KD, left_cK, right_cK, threads: int = 0) -> None:
        """left_i = <X_i, fixed_0>, right_i = <X_i, fixed_1> of each head, in one pass; left None: not wanted."""
        _kernels.fixed_dots(*arrays(X_cKD, fixed_2KD, left_cK, right_cK), threads, self.isa)

    def attend_record(
        self, G_nKD, left_nK, sums: AttentionSums, slope: float, record, dleft_nK=None, dZ_nKD=None, threads: int = 0
    ) -> torch.Tensor:
        """record_i = (left_i, top_i, scale_i, D_i), what adjoints read of a row; D_i = <dZ_i, Z_i>; dleft_i = sum_j du_ij.

        As sum_j alpha_ij (mask_ij <dZ_i, x_j> - D_i) = 0 over a whole row, no pass over edges is needed:
        dleft = slope (<dZ, Z> - D share) + (1 - slope) (<dZ, plus> - D plus_sum), share = sum_j alpha_ij.
        Args:    left     None for v2: record_i = (top_i, scale_i, D_i), and dleft is not made.
                 sums     finished, for v1 with plus.
                 dZ_nKD   out, may be G: the gradient of Z + bias; G is the one of act(Z + bias). None: they are equal.
        Returns: the sum of the rows of dZ, (K D) float64.
        """
        G, left, dleft, dZ, bias = arrays(G_nKD, left_nK, dleft_nK, dZ_nKD, sums.bias_KD)
        of_sums = arrays(*sums.tensors(), sums.share_nK, sums.D_nK)
        given = (G, left, *of_sums, slope, *arrays(record), dleft, bias, sums.act, dZ)
        return torch.from_numpy(_kernels.attend_record(*given, threads, self.isa))

    def attend_adjoint(
        self, A, X_cKD, G_nKD, record_n4K, right_cK, fixed_2KD, dleft_cK, dX_cKD, slope: float,
        drop: EdgeDrop | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """dX_j = sum_i alpha_ij mask_ij G_i + fixed_0 dleft_j + fixed_1 dright_j, in one pass over A' (A.transposed()).

        dright_j = sum_i du_ij, du_ij = alpha_ij (mask_ij <G_i, x_j> - D_i) (1 where u_ij > 0, else slope), alpha_ij =
        exp(e_ij - top_i) scale_i, mask_ij with its factor 1 / (1 - rate).
        Args:    A, drop     as in attend.
                 record_n4K  of attend_record.
                 dleft_cK    of these columns; None: 0.
        Returns: the gradients of fixed, sum_j dleft_j x_j and sum_j dright_j x_j, (2, K D) float64.
        """
        transposed = A.transposed()
        given = arrays(X_cKD, G_nKD, record_n4K, right_cK, fixed_2KD, dleft_cK, dX_cKD)
        sums = _kernels.attend_adjoint(
            transposed.indptr, transposed.indices, *given, slope, _of_edges(drop), A.threads, self.isa
        )  # fmt: skip
        return torch.from_numpy(sums).view(2, -1)

    def attend2(
        self, A, right_cKD, left_nKD, a_KD, sums: AttentionSums, slope: float, drop: EdgeDrop | None = None,
        accumulate=False, finish=False,
    ) -> None:  # fmt: skip
        """As attend with e_ij = <a, lrelu(left_i + right_j)> of each head and X = right; sums without plus (GAT v2)."""
        given = arrays(right_cKD, left_nKD, a_KD, sums.Z_nKD, sums.top_nK, sums.sum_nK)
        _kernels.attend2(
            A.indptr, A.indices, *given, slope, _of_edges(drop), accumulate, finish, *arrays(sums.bias_KD), sums.act,
            A.threads, self.isa,
        )  # fmt: skip

    def attend2_rows(
        self, A, right_cKD, left_nKD, a_KD, G_nKD, record_n3K, dleft_nKD, da_KD, slope: float,
        drop: EdgeDrop | None = None, accumulate=False,
    ) -> None:  # fmt: skip
        """dleft_i = a sum_j de_ij lrelu'(left_i + right_j), da = sum_ij de_ij lrelu(left_i + right_j).

        de_ij = alpha_ij (mask_ij <G_i, right_j> - D_i), alpha_ij = exp(e_ij - top_i) scale_i, record_i = (top_i, scale_i,
        D_i) of attend_record.
        """
        given = arrays(right_cKD, left_nKD, a_KD, G_nKD, record_n3K, dleft_nKD, da_KD)
        _kernels.attend2_adjoint(
            A.indptr, A.indices, False, *given, slope, _of_edges(drop), accumulate, A.threads, self.isa
        )  # fmt: skip

    def attend2_columns(
        self, A, right_cKD, left_nKD, a_KD, G_nKD, record_n3K, dright_cKD, slope: float,
        drop: EdgeDrop | None = None, accumulate=False,
    ) -> None:  # fmt: skip
        """dright_j = sum_i alpha_ij mask_ij G_i + a de_ij lrelu'(left_i + right_j), in one pass over A'."""
        transposed = A.transposed()
        given = arrays(right_cKD, left_nKD, a_KD, G_nKD, record_n3K, dright_cKD)
        _kernels.attend2_adjoint(
            transposed.indptr, transposed.indices, True, *given, None, slope, _of_edges(drop), accumulate, A.threads,
            self.isa,
        )  # fmt: skip


def _of_edges(drop: EdgeDrop | None) -> tuple | None:
    """Return key, rate and ids as the C++ kernels take them."""
    if drop is None:
        return None
    ids = (np.ascontiguousarray(ids, dtype=np.int64) for ids in (drop.ids_n, drop.ids_c))
    return drop.key, drop.rate, *ids


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


class HostEdges:
    """Kernels over edges on the memory of this process; a part of HostKernels."""

    isa = ""  # instruction set; "": the best that the processor has

    def sddmm(self, A, U_nKD, V_cKD, out_EK) -> None:
        """out_ij = <U_i, V_j> of each head. Adjoint: dU = spmm_heads(A, dout, V), dV = spmm_heads(A, dout, U, transpose)."""
        U, V = (x.to(out_EK.dtype) for x in (U_nKD, V_cKD))
        self._matrices(0, A, out_EK.shape[1], U, V, None, None, out_EK)

    def edge_add(self, A, left_nK, right_cK, out_EK, add_EK=None) -> None:
        """out_ij = left_i + right_j + add_ij, of those that are not None.

        Adjoint: spmm_heads(A, dout, None), once with transpose.
        """
        self._matrices(1, A, out_EK.shape[1], left_nK, right_cK, add_EK, None, out_EK)

    def softmax_sums(self, A, e_EK, top_nK, sum_nK, accumulate=False) -> None:
        """top_i = max_j e_ij, sum_i = sum_j exp(e_ij - top_i); of -inf alone the lowest finite number and 0."""
        self._values(0, A, e_EK, top=top_nK, sum=sum_nK, accumulate=accumulate)

    def row_softmax(self, A, e_EK, top_nK, scale_nK, out_EK) -> None:
        """out_ij = exp(e_ij - top_i) scale_i, scale = 1 / sum of softmax_sums."""
        self._values(1, A, e_EK, out=out_EK, top=top_nK, sum=scale_nK)

    def row_dots(self, A, U_EK, V_EK, out_nK, accumulate=False) -> None:
        """out_i = sum_j U_ij V_ij."""
        self._values(3, A, U_EK, V_EK, out=out_nK, accumulate=accumulate)

    def row_softmax_adjoint(self, A, alpha_EK, dalpha_EK, D_nK, out_EK) -> None:
        """out_ij = alpha_ij (dalpha_ij - D_i), D of row_dots(alpha, dalpha) over all nonzeros of a row."""
        self._values(2, A, alpha_EK, dalpha_EK, D_nK, out_EK)

    def spmm_heads(self, A, values_EK, X_cKD, out_nKD, accumulate=False, transpose=False) -> None:
        """out_i = sum_j values_ij X_j of each head; transpose: out_j = sum_i values_ij X_i; X None: ones, D = 1."""
        X = None if X_cKD is None else X_cKD.to(out_nKD.dtype)
        of, places = (A.transposed(), A.transposed_places()) if transpose else (A, None)
        self._matrices(2, of, values_EK.shape[1], None, X, values_EK, places, out_nKD, accumulate)

    def maximum(self, A, X_cF, order_t, out_nF, arg_nF, offset: int = 0, accumulate=False, positive=False) -> None:
        """out_i = max_j X_j of each column and arg_i = offset + j, where it is; 0 and -1 for an empty row.

        Args: order_t  int64, rank of the original id of each place that arg may name: of equal entries the smallest
                       is taken. None: the smallest place.
              arg_nF   int32; int16 of the only block: the place among the row's nonzeros instead.
              offset   place of the block's first column in the table of all columns. positive: 0 and -1 unless X_j > 0.
        NaN is larger than all numbers, as in torch.amax. out has the type of X.
        """
        X, out = array_of(X_cF), array_of(out_nF)
        order_t = None if order_t is None else np.ascontiguousarray(order_t, dtype=np.int64)
        _kernels.maximum(
            A.indptr, A.indices, X, order_t, out, _places(arg_nF), offset, accumulate, positive, A.threads, self.isa
        )  # fmt: skip

    def maximum_adjoint(self, A, G_nF, arg_nF, dX_cF, offset: int = 0, accumulate=False) -> None:
        """dX_j = sum of the G_i with arg_i = offset + j, of each column."""
        T, G, dX = A.transposed(), array_of(G_nF), array_of(dX_cF)
        places = A.places_in_rows if arg_nF.dtype == torch.int16 else None
        _kernels.maximum_adjoint(
            T.indptr, T.indices, G, _places(arg_nF), places, dX, offset, accumulate, A.threads, self.isa
        )  # fmt: skip

    def _matrices(self, op: int, A, K: int, U, X, values, places, out, accumulate=False) -> None:
        """Inner products (0), sums (1) or weighted sums (2) of the rows at the ends of nonzeros."""
        U, X, values, out = arrays(U, X, values, out)
        _kernels.edge_matrices(
            op, A.indptr, A.indices, K, A.shape[1], U, X, values, places, out, accumulate, A.threads, self.isa
        )  # fmt: skip

    def _values(self, op: int, A, values, more=None, D=None, out=None, top=None, sum=None, accumulate=False) -> None:
        """Softmax over the nonzeros of each row: sums (0), shares (1), their adjoint (2), inner products (3)."""
        given = arrays(values, more, D, out, top, sum)
        _kernels.edge_values(op, A.indptr, A.indices, *given, accumulate, A.threads, self.isa)


def _places(arg_nF: torch.Tensor) -> np.ndarray:
    """Return the array over places; those of 16 bits have no sign."""
    return arg_nF.numpy().view(np.uint16) if arg_nF.dtype == torch.int16 else arg_nF.numpy()
