"""SpMM by cuSPARSE through CuPy, which `gpu_spmm` compares the kernels with."""

from collections.abc import Callable

import cupy
import numpy as np
import scipy.sparse as sp
import torch
from cupy_backends.cuda.libs import cusparse

from spgnn.spmm.kernels.cuda.launcher import CurrentStream

CSR_ALG2 = 6  # CUSPARSE_SPMM_CSR_ALG2, for row-major matrices; it always adds in one order. CuPy has no name for it
CUDA_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType, library_types.h
INDEX_TYPES = {np.dtype(np.int32): cusparse.CUSPARSE_INDEX_32I, np.dtype(np.int64): cusparse.CUSPARSE_INDEX_64I}


def product(A: sp.csr_array, X_mF: torch.Tensor, out_nF: torch.Tensor) -> Callable[[], None]:
    """out = A X: return the call that launches it on torch's stream. Both are row-major; sums are float32 or float64."""
    index = np.dtype(np.int32 if A.nnz < 2**31 else np.int64)
    indptr, indices = (torch.from_numpy(x.astype(index)).to(X_mF.device) for x in (A.indptr, A.indices))
    values = torch.from_numpy(A.data).to(X_mF.device, X_mF.dtype)
    sums, kind = (np.float64 if X_mF.dtype == torch.float64 else np.float32), CUDA_TYPES[X_mF.dtype]
    one, zero = np.array(1, sums), np.array(0, sums)
    a = cusparse.createCsr(
        *A.shape, A.nnz, indptr.data_ptr(), indices.data_ptr(), values.data_ptr(), INDEX_TYPES[index],
        INDEX_TYPES[index], cusparse.CUSPARSE_INDEX_BASE_ZERO, kind,
    )  # fmt: skip
    x, y = (
        cusparse.createDnMat(*M.shape, M.shape[1], M.data_ptr(), kind, cusparse.CUSPARSE_ORDER_ROW)
        for M in (X_mF, out_nF)
    )
    plain, of_sums = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE, CUDA_TYPES[torch.from_numpy(one).dtype]
    how = (plain, plain, one.ctypes.data, a, x, zero.ctypes.data, y, of_sums, CSR_ALG2)
    handle, current = cupy.cuda.device.get_cusparse_handle(), CurrentStream(X_mF.device)
    work = torch.empty(cusparse.spMM_bufferSize(handle, *how), dtype=torch.uint8, device=X_mF.device)
    held = one, zero, indptr, indices, values  # descriptors have addresses alone

    def launch(held=held) -> None:
        with current():
            cusparse.spMM(handle, *how, work.data_ptr())

    return launch
