"""The left factor of S W: dense rows or CSR rows, with one interface, so that sparse X stays sparse; and FeatureRows.

Shapes: n own rows, F features, C outputs; N nodes, m gathered rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from ...errors import InputError, ShapeError
from ..chains.backward import first_order
from ..kernels import _kernels
from ..kernels.backend import kernels_of, kernels_on
from ..kernels.buffers import Pool, array_of, sum_dtype
from ..kernels.csr import LocalCSR
from .timing import GEMM


class RowsTimes(torch.autograd.Function):
    """Z = S W with sparse S; dW = S' dZ."""

    @staticmethod
    def forward(ctx, S, W_FC):
        ctx.S = S
        return S.times(W_FC)

    @staticmethod
    @first_order
    def backward(ctx, G_nC):
        return None, ctx.S.transposed_times(G_nC)


def check_factors(H, W_FC) -> None:
    """Raise ShapeError unless the columns of H are the rows of W."""
    if len(H.shape) != 2 or W_FC.ndim != 2 or H.shape[1] != W_FC.shape[0]:
        raise ShapeError(f"H W of shapes {tuple(H.shape)} and {tuple(W_FC.shape)}; expected (m, F) and (F, C)")


def gemm(A, a_nF: torch.Tensor, b_FC: torch.Tensor, out_nC, bias_C=None, add_nC=None, relu=False) -> torch.Tensor:
    """Return out = relu(a b (+ add) (+ bias)), as an operation of A; add may be out."""
    with A.ops.span(GEMM, flops=2 * a_nF.shape[0] * a_nF.shape[1] * b_FC.shape[1]):
        kernels_of(out_nC).gemm(a_nF, b_FC, out_nC, bias_C, add_nC, relu, A.threads)
    return out_nC


class Gradients(NamedTuple):
    """Of relu(S W + b): of S, W and b, None where they are not made."""

    rows: torch.Tensor | None
    weights: torch.Tensor | None
    bias: torch.Tensor | None


class DenseRows:
    """S (n, F) as a tensor; A has buffers, threads and the GEMM.

    With bfloat16 rows weights are float32: cast for the product, their gradient summed in float32.
    """

    is_sparse = False

    def __init__(self, tensor: torch.Tensor, A):
        self.tensor, self.A = tensor, A

    @property
    def shape(self):
        return self.tensor.shape

    def times(
        self, W_FC, bias_C=None, relu: bool = False, dtype: torch.dtype | None = None, add_nC=None
    ) -> torch.Tensor:
        """Return relu(S W + add + bias) in a dtype, that of S when left out."""
        S, pool = self.tensor, self.A.pool
        Z = pool.empty(S.shape[0], W_FC.shape[1], dtype=S.dtype)
        if S.dtype != torch.bfloat16:
            return gemm(self.A, S, W_FC, Z, bias_C, add_nC, relu)
        gemm(self.A, S, W_FC.to(S.dtype), Z)
        if add_nC is not None:
            total = pool.copy(Z, sum_dtype(S.dtype)).add_(add_nC)
            total = total if bias_C is None else total.add_(bias_C)
            total = total.relu_() if relu else total
            return total if dtype == total.dtype else pool.copy(total, dtype or S.dtype)
        if bias_C is None and not relu and dtype in (None, Z.dtype):
            return Z
        # torch adds a bias of bfloat16, and takes half as long again for it.
        out = Z if dtype in (None, Z.dtype) else pool.empty(*Z.shape, dtype=dtype)
        kernels_of(out).finish(Z, out, bias_C, relu, self.A.threads)
        return out

    def transposed_times(self, G_nC) -> torch.Tensor:
        """Return S' G (F, C), the gradient of W."""
        dW = self.gradients(G_nC).weights
        assert dW is not None
        return dW

    def gradients(
        self, G_nC, W_FC=None, needs_W: bool = True, through=(None, None), add_to=None, is_spent: bool = False
    ) -> Gradients:
        """Return dZ W' (W None: not made), S' dZ and the column sums of dZ, in one pass over G; dZ = G where Z > 0, or G.

        Args: through    Z, and where dZ is kept, which may be G; add_to: a tensor that dZ W' is added to.
              is_spent   G may be overwritten: dZ W' then takes its place where they are of one shape.
        """
        S, A = self.tensor, self.A
        (n, F), C = S.shape, G_nC.shape[1]
        dS = add_to
        if W_FC is not None and dS is None:
            is_over = is_spent and F == C and G_nC.dtype != torch.bfloat16
            dS = G_nC if is_over else A.pool.empty(n, F, dtype=G_nC.dtype)
        dW = torch.empty(F, C, dtype=sum_dtype(S.dtype), device=S.device) if needs_W else None
        with A.ops.span(GEMM, flops=2 * n * F * C * ((dS is not None) + needs_W)):
            sums = kernels_of(G_nC).gemm_adjoint(G_nC, S, W_FC, dS, dW, through, add_to is not None, A.threads)
        return Gradients(dS, dW, sums)


class SparseRows:
    """S (n, F) as CSR: bag-of-words features, or their product with A. Values of bfloat16 rows are float32."""

    is_sparse, ndim = True, 2

    def __init__(self, S: sp.csr_array | LocalCSR, pool: Pool, dtype: torch.dtype = torch.float32, threads: int = 0):
        self.csr = S if isinstance(S, LocalCSR) else LocalCSR(S, dtype, threads)
        self.pool = pool

    @property
    def shape(self):
        return self.csr.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.csr.dtype

    def rows(self, chosen: np.ndarray) -> SparseRows:
        """Return S[chosen]."""
        return SparseRows(sp.csr_array(self.csr.to_scipy()[chosen]), self.pool, self.dtype, self.csr.threads)

    def __matmul__(self, W_FC: torch.Tensor) -> torch.Tensor:
        """Return S W (n, C), differentiable in W."""
        return RowsTimes.apply(self, W_FC)

    def times(
        self, W_FC, bias_C=None, relu: bool = False, dtype: torch.dtype | None = None, add_nC=None
    ) -> torch.Tensor:
        """Return relu(S W + add + bias) in a dtype, that of S when left out."""
        Z = self.pool.empty(self.csr.shape[0], W_FC.shape[1], dtype=dtype or self.dtype)
        return self.csr.apply(W_FC, Z, bias_F=bias_C, relu=relu, add_nF=add_nC)

    def dense(self) -> torch.Tensor:
        """Return S as a tensor (n, F): S I, made on the device where S is."""
        dtype = sum_dtype(self.dtype)
        return self.times(torch.eye(self.csr.shape[1], dtype=dtype, device=self.pool.device), dtype=dtype)

    def transposed_times(self, G_nC) -> torch.Tensor:
        """Return S' G (F, C), the gradient of W."""
        out = torch.empty(self.csr.shape[1], G_nC.shape[1], dtype=sum_dtype(self.dtype), device=G_nC.device)
        return self.csr.adjoint(G_nC, out)

    def dropout(self, rate: float, key: int | torch.Tensor, node_n: np.ndarray) -> SparseRows:
        """Return S with stored entries zeroed as the dense mask of (key, node, feature) has it."""
        dropped = kernels_on(self.pool.device).drop_csr(self.csr, node_n, key, rate)
        return SparseRows(dropped, self.pool, self.dtype, self.csr.threads)


AnyRows = torch.Tensor | SparseRows


class FeatureRows:
    """X of a whole graph. `take` is thread-safe if each thread has its own pool, as X is only read.

    Args:   X_NF     (N, F) row-major array, maybe memory-mapped, or SciPy CSR, whose arrays may be.
            dtype    of the gathered rows.
            threads  that copy rows, 0 for all.
    Raises: ShapeError unless X is a row-major matrix of float32 or float64.
    """

    def __init__(self, X_NF: np.ndarray | sp.csr_array, dtype: torch.dtype = torch.float32, threads: int = 0):
        self.is_sparse, self.dtype, self.threads = not isinstance(X_NF, np.ndarray), dtype, threads
        values = X_NF if isinstance(X_NF, np.ndarray) else X_NF.data
        if values.dtype not in (np.float32, np.float64) or X_NF.ndim != 2:
            raise ShapeError(
                f"X has shape {X_NF.shape} and type {values.dtype}; expected (N, F) of float32 or float64: X.astype('float32')"
            )
        if not isinstance(X_NF, np.ndarray) and X_NF.format != "csr":
            raise ShapeError(f"X is a sparse matrix in {X_NF.format} format; expected CSR: scipy.sparse.csr_array(X)")
        if not self.is_sparse and not X_NF.flags.c_contiguous:
            raise ShapeError("the rows of X are not stored one after another: use numpy.ascontiguousarray(X)")
        self.X, self.shape = sp.csr_array(X_NF) if self.is_sparse else X_NF, X_NF.shape

    def take(self, node_m: np.ndarray, pool: Pool) -> torch.Tensor | SparseRows:
        """Return X[node_m], (m, F), in memory of a pool; ids may repeat, no other row is read.

        Raises: InputError for an id that is no node.
        """
        node_m = np.ascontiguousarray(node_m, np.int64)
        if len(node_m) and not (0 <= node_m.min() and node_m.max() < self.shape[0]):
            wrong = node_m[(node_m < 0) | (node_m >= self.shape[0])][0]
            raise InputError(f"node {wrong} has no row of X; expected 0 to {self.shape[0] - 1}")
        if self.is_sparse:
            return self._sparse(self.X[node_m], pool)
        stored = torch.float64 if self.X.dtype == np.float64 else torch.float32
        rows_mF = pool.empty(len(node_m), self.shape[1], dtype=stored)
        _kernels.take_rows(self.X, node_m, array_of(rows_mF), self.threads)
        return rows_mF if stored == self.dtype else pool.copy(rows_mF, self.dtype)

    def _sparse(self, S: sp.csr_array, pool: Pool) -> SparseRows:
        S.sort_indices()
        values = S.data.astype(np.float64 if self.dtype == torch.float64 else np.float32, copy=False)
        arrays = (S.indptr.astype(np.int64, copy=False), S.indices, values)
        return SparseRows(LocalCSR.trusted(S.shape, *arrays, self.dtype, self.threads), pool, self.dtype, self.threads)
