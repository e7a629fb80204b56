"""The left factor of S W: dense rows or CSR rows, with one interface, so that sparse X stays sparse.

Shapes: n own rows, F features, C outputs.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from . import _kernels
from .buffers import BufferPool
from .local import LocalCSR


class DenseRows:
    """S (n, F) as a tensor."""

    is_sparse = False

    def __init__(self, tensor: torch.Tensor, pool: BufferPool):
        self.tensor = tensor
        self.pool = pool

    @property
    def shape(self):
        return self.tensor.shape

    def times(self, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(S W + bias)."""
        Z = self.pool.empty(self.tensor.shape[0], W_FC.shape[1], dtype=self.tensor.dtype)
        if bias_C is None:
            torch.mm(self.tensor, W_FC, out=Z)
        else:
            torch.addmm(bias_C, self.tensor, W_FC, out=Z)
        return Z.relu_() if relu else Z

    def transposed_times(self, G_nC) -> torch.Tensor:
        """Return S' G (F, C), the gradient of W."""
        return torch.mm(self.tensor.t(), G_nC)


class SparseRows:
    """S (n, F) as CSR: bag-of-words features, or their product with A."""

    is_sparse = True

    def __init__(self, S: sp.csr_array | LocalCSR, pool: BufferPool, dtype: torch.dtype = torch.float32, threads: int = 0):
        self.csr = S if isinstance(S, LocalCSR) else LocalCSR(S, dtype, threads)
        self.pool = pool

    @property
    def shape(self):
        return self.csr.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.csr.dtype

    def __matmul__(self, W_FC: torch.Tensor) -> torch.Tensor:
        """Return S W (n, C), differentiable in W."""
        from .autograd import RowsTimes

        return RowsTimes.apply(self, W_FC)

    def times(self, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(S W + bias)."""
        Z = self.pool.empty(self.csr.shape[0], W_FC.shape[1], dtype=self.dtype)
        return self.csr.apply(W_FC, Z, bias_F=bias_C, relu=relu)

    def transposed_times(self, G_nC) -> torch.Tensor:
        """Return S' G (F, C), the gradient of W."""
        out = torch.empty(self.csr.shape[1], G_nC.shape[1], dtype=self.dtype)
        return self.csr.adjoint(G_nC, out)

    def dropout(self, rate: float, key: int, node_n: np.ndarray) -> SparseRows:
        """Return S with stored entries zeroed as the dense mask of (key, node, feature) has it."""
        csr = self.csr
        values = csr.to_scipy().data
        dropped = np.empty_like(values)
        _kernels.drop_sparse(csr.indptr, csr.indices, values, dropped, node_n, key, rate, csr.threads)
        return SparseRows(csr.with_weights(dropped), self.pool, self.dtype, csr.threads)
