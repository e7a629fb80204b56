"""CusparseKernels: SpMM by cuSPARSE, through CuPy; the second choice, and what the kernels are held against.

SPGNN_SPMM=cusparse takes it. The product alone is cuSPARSE's: out, add, bias and ReLU are passes behind it.
"""

from __future__ import annotations

import numpy as np
import torch

from ..buffers import sum_dtype
from .kernels import CudaKernels

CSR_ALG2 = (
    6  # CUSPARSE_SPMM_CSR_ALG2, which is for row-major matrices and always adds in one order; CuPy has no name for it
)
# cudaDataType of library_types.h.
CUDA_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}


class CusparseKernels(CudaKernels):
    """The same kernels but for SpMM. Matrices are row-major, sums float32 or float64; the order of a sum is cuSPARSE's own."""

    def __init__(self, device: torch.device, launcher):
        super().__init__(device, launcher)
        self._made: dict[tuple, tuple] = {}  # what cuSPARSE wants in another type, with what it was made from

    def spmm(self, A, X_mF, out_nF, accumulate=False, bias_F=None, relu=False, add_nF=None) -> None:
        """out = A X (+ out) (+ add) (+ bias), then ReLU."""
        X_mF, F = X_mF.contiguous(), out_nF.shape[1]
        sums = torch.float32 if X_mF.dtype == torch.float16 else sum_dtype(X_mF.dtype)
        product_nF = (
            out_nF
            if out_nF.dtype == X_mF.dtype and not accumulate
            else torch.empty(out_nF.shape, dtype=X_mF.dtype, device=self.device)
        )
        if A.nnz and F:
            self._product(A, X_mF, product_nF, sums)
        else:
            product_nF.zero_()
        if product_nF is out_nF and bias_F is None and add_nF is None and not relu:
            return
        total = product_nF.to(sums)
        for part in (out_nF if accumulate else None, add_nF, bias_F):
            total = total if part is None else total + part.detach()
        out_nF.copy_(total.relu_() if relu else total)

    def _product(self, A, X_mF, out_nF, sums: torch.dtype) -> None:
        import cupy
        from cupy_backends.cuda.libs import cusparse

        (n, m), F, kind = A.shape, out_nF.shape[1], CUDA_TYPES[X_mF.dtype]
        values = self._values(A, X_mF.dtype)
        wide = {torch.int32: cusparse.CUSPARSE_INDEX_32I, torch.int64: cusparse.CUSPARSE_INDEX_64I}
        indices, indptr = self._indices(A)
        with cupy.cuda.Device(self.device.index), self.launcher.current():
            handle = cupy.cuda.device.get_cusparse_handle()
            a = cusparse.createCsr(
                n, m, A.nnz, indptr.data_ptr(), indices.data_ptr(), values.data_ptr(), wide[indptr.dtype],
                wide[indices.dtype], cusparse.CUSPARSE_INDEX_BASE_ZERO, kind,
            )  # fmt: skip
            x, y = (
                cusparse.createDnMat(*M.shape, F, M.data_ptr(), kind, cusparse.CUSPARSE_ORDER_ROW)
                for M in (X_mF, out_nF)
            )
            one, zero = (np.array(number, np.float64 if sums == torch.float64 else np.float32) for number in (1, 0))
            plain = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE
            how = (handle, plain, plain, one.ctypes.data, a, x, zero.ctypes.data, y, CUDA_TYPES[sums], CSR_ALG2)
            try:
                work = torch.empty(cusparse.spMM_bufferSize(*how), dtype=torch.uint8, device=self.device)
                cusparse.spMM(*how, work.data_ptr())
            finally:
                cusparse.destroySpMat(a)
                cusparse.destroyDnMat(x)
                cusparse.destroyDnMat(y)

    def _values(self, A, dtype: torch.dtype) -> torch.Tensor:
        """Return A's values in the type of X, as cuSPARSE wants them; made once a matrix and type, but for weights that are drawn anew."""
        if torch.is_tensor(A.weights):
            return A.weights.to(dtype)
        key = (id(A.indptr), id(A.weights), dtype)
        if key not in self._made:
            ones = torch.ones(A.nnz, device=self.device)
            self._made[key] = (A.indptr, A.weights, (ones if A.weights is None else self.upload(A.weights)).to(dtype))
        return self._made[key][2]

    def _indices(self, A) -> tuple[torch.Tensor, torch.Tensor]:
        """Return A's indices and row starts, of one type as cuSPARSE takes them; made once a matrix."""
        indices = self.upload(A.indices)
        dtype = torch.int64 if A.nnz > torch.iinfo(torch.int32).max else indices.dtype
        key = (id(A.indptr), None, dtype)
        if key not in self._made:
            self._made[key] = (A.indptr, A.indices, (indices.to(dtype), self.upload(A.indptr).to(dtype)))
        return self._made[key][2]
