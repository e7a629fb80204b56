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
              finish      these are the last nonzeros: sums.finish() at the end, at no cost.
        """
        Z, top, total, plus, plus_total = arrays(*sums.tensors())
        X, left, right = arrays(X_cKD, left_nK, right_cK)
        _kernels.attend(
            A.indptr, A.indices, X, left, right, Z, top, total, plus, plus_total, slope, _of_edges(drop), accumulate,
            finish, A.threads, self.isa,
        )  # fmt: skip

    def attend_record(
        self, G_nKD, left_nK, sums: AttentionSums, slope: float, record_n3K, dleft_nK, D_nK=None, threads: int = 0
    ) -> None:
        """record_i = (left_i, L_i, D_i), what attend_adjoint reads of a row; D_i = <G_i, Z_i>; dleft_i = sum_j du_ij.

        As sum_j alpha_ij (mask_ij <G_i, x_j> - D_i) = 0 over a whole row, no pass over edges is needed:
        dleft = slope (<G, Z> - D sum) + (1 - slope) (<G, plus> - D plus_sum).
        Args: sums  finished, with plus.
              D_nK  where sums are over some of a row's nonzeros: <G_i, Z_i> of all of them. None: it is made.
        """
        Z, L, total, plus, plus_total = arrays(*sums.tensors())
        G, left, D, record, dleft = arrays(G_nKD, left_nK, D_nK, record_n3K, dleft_nK)
        _kernels.attend_record(
            G, left, Z, L, total, plus, plus_total, D, slope, record, dleft, threads, self.isa
        )  # fmt: skip

    def attend_adjoint(
        self, A, X_cKD, G_nKD, record_n3K, right_cK, dX_cKD, dright_cK, slope: float, drop: EdgeDrop | None = None,
        accumulate=False,
    ) -> None:  # fmt: skip
        """dX_j = sum_i alpha_ij mask_ij G_i, dright_j = sum_i du_ij, in one pass over A' (A.transposed()).

        du_ij = alpha_ij (mask_ij <G_i, x_j> - D_i) (1 where u_ij > 0, else slope), alpha_ij = exp(e_ij - L_i), mask_ij
        with its factor 1 / (1 - rate).
        Args: A, drop  as in attend.
              record_n3K  of attend_record.
        """
        transposed = A.transposed()
        X, G, record, right, dX, dright = arrays(X_cKD, G_nKD, record_n3K, right_cK, dX_cKD, dright_cK)
        _kernels.attend_adjoint(
            transposed.indptr, transposed.indices, X, G, record, right, dX, dright, slope, _of_edges(drop),
            accumulate, A.threads, self.isa,
        )  # fmt: skip

    def attend2(
        self, A, right_cKD, left_nKD, a_KD, sums: AttentionSums, slope: float, drop: EdgeDrop | None = None,
        accumulate=False, finish=False,
    ) -> None:  # fmt: skip
        """As attend with e_ij = <a, lrelu(left_i + right_j)> of each head and X = right; sums without plus (GAT v2)."""
        right, left, a, Z, top, total = arrays(
            right_cKD, left_nKD, a_KD, sums.Z_nKD, sums.top_nK, sums.sum_nK
        )  # fmt: skip
        _kernels.attend2(
            A.indptr, A.indices, right, left, a, Z, top, total, slope, _of_edges(drop), accumulate, finish, A.threads,
            self.isa,
        )  # fmt: skip

    def attend2_rows(
        self, A, right_cKD, left_nKD, a_KD, G_nKD, L_nK, D_nK, dleft_nKD, da_KD, slope: float,
        drop: EdgeDrop | None = None, accumulate=False,
    ) -> None:  # fmt: skip
        """dleft_i = a sum_j de_ij lrelu'(left_i + right_j), da = sum_ij de_ij lrelu(left_i + right_j).

        de_ij = alpha_ij (mask_ij <G_i, right_j> - D_i), D_i = <G_i, Z_i> (see `head_dots`), alpha_ij = exp(e_ij - L_i).
        """
        given = arrays(right_cKD, left_nKD, a_KD, G_nKD, torch.cat([L_nK, D_nK], 1), dleft_nKD, da_KD)
        _kernels.attend2_adjoint(
            A.indptr, A.indices, False, *given, slope, _of_edges(drop), accumulate, A.threads, self.isa
        )  # fmt: skip

    def attend2_columns(
        self, A, right_cKD, left_nKD, a_KD, G_nKD, L_nK, D_nK, dright_cKD, slope: float,
        drop: EdgeDrop | None = None, accumulate=False,
    ) -> None:  # fmt: skip
        """dright_j = sum_i alpha_ij mask_ij G_i + a de_ij lrelu'(left_i + right_j), in one pass over A'."""
        transposed = A.transposed()
        given = arrays(right_cKD, left_nKD, a_KD, G_nKD, torch.cat([L_nK, D_nK], 1), dright_cKD)
        _kernels.attend2_adjoint(
            transposed.indptr, transposed.indices, True, *given, None, slope, _of_edges(drop), accumulate, A.threads,
            self.isa,
        )  # fmt: skip

    def head_dots(self, U_nKD, V_nKD, out_nK, threads: int = 0) -> None:
        """out_i = <U_i, V_i> of each head."""
        _kernels.head_dots(*arrays(U_nKD, V_nKD, out_nK), threads, self.isa)


def _of_edges(drop: EdgeDrop | None) -> tuple | None:
    """Return key, rate and ids as the C++ kernels take them."""
    if drop is None:
        return None
    ids = (np.ascontiguousarray(ids, dtype=np.int64) for ids in (drop.ids_n, drop.ids_c))
    return drop.key, drop.rate, *ids
