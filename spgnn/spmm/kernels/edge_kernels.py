"""The kernels over edges: products for each head, softmax of rows, maximum.

Shapes: n rows, c columns, E nonzeros, K heads of width D, F features. Column d K + h of a matrix (c, K D) is entry d of
head h: heads are innermost. A is a LocalCSR block (n, c) whose pattern alone is read. Matrices are row-major, of one
type. Outputs are written, or added to where accumulate is set. Results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch

from ...errors import UsageError
from . import _kernels
from . import edge_reference as reference
from .buffers import array_of


class HostEdges:
    """Kernels over edges on the memory of this process; a part of HostKernels."""

    isa = ""  # instruction set; "": the best that the processor has

    def sddmm(self, A, U_nKD, V_cKD, out_EK) -> None:
        """out_ij = <U_i, V_j> of each head. Adjoint: dU = spmm_heads(A, dout, V), dV = spmm_heads(A, dout, U, transpose)."""
        out_EK.copy_(reference.sddmm(A, U_nKD.to(out_EK.dtype), V_cKD.to(out_EK.dtype), out_EK.shape[1]))

    def edge_add(self, A, left_nK, right_cK, out_EK) -> None:
        """out_ij = left_i + right_j. Adjoint: spmm_heads(A, dout, None), once with transpose."""
        row, column = reference.ends(A)
        torch.add(left_nK[row], right_cK[column], out=out_EK)

    def softmax_sums(self, A, e_EK, top_nK, sum_nK, accumulate=False) -> None:
        """top_i = max_j e_ij, sum_i = sum_j exp(e_ij - top_i); L = top + ln sum."""
        reference.softmax_sums(A, e_EK, top_nK, sum_nK, accumulate)

    def row_softmax(self, A, e_EK, L_nK, out_EK) -> None:
        """out_ij = exp(e_ij - L_i)."""
        torch.exp(e_EK - L_nK[reference.ends(A)[0]], out=out_EK)

    def row_dots(self, A, U_EK, V_EK, out_nK, accumulate=False) -> None:
        """out_i = sum_j U_ij V_ij."""
        reference.spmm_heads(A, U_EK * V_EK, None, out_nK, accumulate, False)

    def row_softmax_adjoint(self, A, alpha_EK, dalpha_EK, D_nK, out_EK) -> None:
        """out_ij = alpha_ij (dalpha_ij - D_i), D of row_dots(alpha, dalpha) over all nonzeros of a row."""
        torch.mul(alpha_EK, dalpha_EK - D_nK[reference.ends(A)[0]], out=out_EK)

    def spmm_heads(self, A, values_EK, X_cKD, out_nKD, accumulate=False, transpose=False) -> None:
        """out_i = sum_j values_ij X_j of each head; transpose: out_j = sum_i values_ij X_i; X None: ones, D = 1."""
        reference.spmm_heads(A, values_EK, X_cKD, out_nKD, accumulate, transpose)

    def maximum(self, A, X_cF, order_t, out_nF, arg_nF, offset: int = 0, accumulate=False) -> None:
        """out_i = max_j X_j of each column and arg_i = offset + j, where it is; 0 and -1 for an empty row.

        Args: order_t  int64, rank of the original id of each place that arg may name: of equal entries the smallest
                       is taken. None: the smallest place.
              arg_nF   int32. offset: place of the block's first column in the table of all columns.
        NaN is larger than all numbers, as in torch.amax. out has the type of X.
        """
        X, out = array_of(X_cF), array_of(out_nF)
        order_t = None if order_t is None else np.ascontiguousarray(order_t, dtype=np.int64)
        _kernels.maximum(
            A.indptr, A.indices, X, order_t, out, arg_nF.numpy(), offset, accumulate, A.threads, self.isa
        )  # fmt: skip

    def maximum_adjoint(self, A, G_nF, arg_nF, dX_cF, offset: int = 0, accumulate=False) -> None:
        """dX_j = sum of the G_i with arg_i = offset + j, of each column."""
        T, G, dX = A.transposed(), array_of(G_nF), array_of(dX_cF)
        _kernels.maximum_adjoint(
            T.indptr, T.indices, G, arg_nF.numpy(), dX, offset, accumulate, A.threads, self.isa
        )  # fmt: skip


class NullEdges:
    """The kernels of attention and over edges on the meta device: nothing is written."""

    def _nothing(self, *args, **options) -> None:
        """Shapes are those of the arguments."""

    attend = attend_record = attend_adjoint = attend2 = attend2_rows = attend2_columns = head_dots = _nothing
    sddmm = edge_add = softmax_sums = row_softmax = row_dots = row_softmax_adjoint = spmm_heads = _nothing
    maximum = maximum_adjoint = _nothing


def _refused(what: str):
    def refuse(self, *args, **options) -> None:
        raise UsageError(f"{what} requires --device cpu: it has no CUDA kernels yet")

    return refuse


class RefusedEdges:
    """The kernels of attention and over edges on a CUDA device, where there are none."""

    attend = attend_record = attend_adjoint = attend2 = attend2_rows = attend2_columns = _refused("attention")
    head_dots = sddmm = edge_add = softmax_sums = row_softmax = row_dots = row_softmax_adjoint = _refused("attention")
    spmm_heads = _refused("attention")
    maximum = maximum_adjoint = _refused("aggregator max")
