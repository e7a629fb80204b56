"""The kernels of attention on the memory of this process, GAT v1 and v2: softmax-weighted sums over edges, no (E, K) stored.

Shapes: n rows, c columns, E nonzeros, K heads of width D. Column d K + h of a matrix (c, K D) is entry d of head h:
heads are innermost. A is a LocalCSR block (n, c) whose pattern alone is read. Matrices are row-major; X, G, and of v2
left and right, may be bfloat16, all others have the type of sums. Outputs are written, or added to where accumulate is
set. Results do not depend on the number of threads, A.threads.
"""

from __future__ import annotations

import numpy as np
import torch

from . import _kernels
from .attention_sums import AttentionSums, EdgeDrop
from .buffers import arrays


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
