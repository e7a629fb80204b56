"""FeatureRows: rows of X by original id, gathered for each subgraph; X stays where it is, in memory or mapped from a file.

Shapes: N nodes, m gathered rows, F features.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from ...errors import InputError, ShapeError
from ..kernels import _kernels
from ..kernels.buffers import Pool, array_of
from ..kernels.csr import LocalCSR
from .features import SparseRows


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
