"""The kernels over edges: products for each head, softmax of rows, maximum.

Shapes: n rows, c columns, E nonzeros, K heads of width D, F features. Column d K + h of a matrix (c, K D) is entry d of
head h: heads are innermost. A is a LocalCSR block (n, c) whose pattern alone is read. Matrices are row-major, of one
type. Outputs are written, or added to where accumulate is set. Results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch

from . import _kernels
from .buffers import array_of, arrays


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
