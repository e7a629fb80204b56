"""One rank's sparse block and its products, through the C++ kernels.

Shapes: n rows, m columns, F width of the dense matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch

from ...errors import ShapeError
from ...graph import check_csr
from .backend import kernels_of
from .buffers import sum_dtype
from .cpu import equals_transpose
from .tile_rule import may_tile
from .tiles import Passes


class LocalCSR:
    """A (n, m) CSR block with Y = A X and Y = A' G; the transpose is stored when first needed.

    It is multiplied by one thread of Python at a time.

    Args: A        scipy CSR with sorted indices; values of 1 throughout are not stored.
          dtype    torch.float32, float64 or bfloat16. Of bfloat16 products, weights and sums are float32,
                   and each of the two matrices may be float32 or bfloat16.
          threads  OpenMP threads, 0 for all.
    """

    def __init__(self, A: sp.csr_array, dtype: torch.dtype = torch.float32, threads: int = 0):
        check_csr(A, "LocalCSR", is_multi=True)
        self.shape = A.shape
        self.dtype = dtype
        self.threads = threads
        self.indptr = np.ascontiguousarray(A.indptr, dtype=np.int64)
        index = np.int32 if A.shape[1] < 2**31 else np.int64
        self.indices = np.ascontiguousarray(A.indices, dtype=index)
        self._set_types()
        weights = np.ascontiguousarray(A.data, dtype=self.numpy_dtype)
        self.weights: np.ndarray | torch.Tensor | None = None if (weights == 1).all() else weights
        self._transposed: LocalCSR | Callable[[], tuple[LocalCSR, np.ndarray]] | None = None
        self._order: np.ndarray | None = None  # places of the transpose's weights in these

    @classmethod
    def trusted(
        cls,
        shape: tuple[int, int],
        indptr: np.ndarray,
        indices: np.ndarray,
        weights: np.ndarray | None,
        dtype: torch.dtype = torch.float32,
        threads: int = 0,
        flip: Callable[[], tuple[LocalCSR, np.ndarray]] | None = None,
        is_fixed: bool = True,
    ) -> LocalCSR:
        """Return a block over arrays that are a sorted CSR: nothing is checked, scanned, copied or compared.

        Args: indptr    (n + 1,) int64; indices (nnz,) int32 or int64, ascending within a row.
              weights   (nnz,) float64 for float64, else float32; None: all 1.
              flip      returns A' and the order (nnz,) int64 as transposed_places returns it; None: they are found here.
              is_fixed  False for a matrix of one product or two, which is not worth cutting into tiles.
        """
        made = cls.__new__(cls)
        made.shape, made.dtype, made.threads = shape, dtype, threads
        if indices.dtype == np.int64 and shape[1] < 2**31:  # the kernels of 32 bits are the fast ones
            indices = indices.astype(np.int32)
        made.indptr, made.indices, made.weights = indptr, indices, weights
        made._set_types()
        made._transposed, made._order = flip, None
        made.may_tile &= is_fixed
        return made

    def _set_types(self) -> None:
        self.dtypes = {self.dtype, sum_dtype(self.dtype)}
        self.numpy_dtype = np.float64 if self.dtype == torch.float64 else np.float32
        self.may_tile = may_tile(self.shape[0], self.nnz)
        self.tiled: Passes | None = None  # made when first needed

    @property
    def nnz(self) -> int:
        return len(self.indices)

    def to_scipy(self) -> sp.csr_array:
        """Return the block as a scipy CSR over the same arrays."""
        # Of this dtype on every rank, also where one rank happens to hold nothing but ones.
        data = np.ones(self.nnz, self.numpy_dtype) if self.weights is None else self.weights
        data = data.cpu().numpy() if torch.is_tensor(data) else data
        # Of one type with indptr, or scipy copies the indices.
        indptr = self.indptr.astype(self.indices.dtype) if self.nnz < 2**31 else self.indptr
        return sp.csr_array((data, self.indices, indptr), shape=self.shape)

    def transposed(self) -> LocalCSR:
        """Return A' as a LocalCSR: A itself where A is symmetric."""
        if callable(self._transposed):
            self._transposed, self._order = self._transposed()
        if self._transposed is None and equals_transpose(self):
            self._transposed = self
        elif self._transposed is None:
            other = LocalCSR(self.to_scipy().T.tocsr(), self.dtype, self.threads)
            if np.array_equal(other.indptr, self.indptr) and np.array_equal(other.indices, self.indices):
                other.indptr, other.indices = self.indptr, self.indices  # of a symmetric pattern one copy is held
            self._transposed = other
        return self._transposed

    def transposed_places(self) -> np.ndarray:
        """Return the place in A of each nonzero of A', (nnz,) int64."""
        if callable(self._transposed):
            self.transposed()
        if self._order is None:
            places = sp.csr_array((np.arange(self.nnz), self.indices, self.indptr), shape=self.shape).T.tocsr().data
            self._order = places.astype(np.int64, copy=False)
        return self._order

    @cached_property
    def has_short_rows(self) -> bool:
        """Whether a place among the nonzeros of a row fits 16 bits."""
        return int(np.diff(self.indptr).max(initial=0)) < 2**16 - 1

    @cached_property
    def places_in_rows(self) -> np.ndarray:
        """The place of each nonzero of A' among those of its row of A, (nnz,) uint16, where rows are short."""
        at = (np.arange(self.nnz) - np.repeat(self.indptr[:-1], np.diff(self.indptr))).astype(np.uint16)
        if callable(self._transposed) or self._order is not None:
            return at[self.transposed_places()]
        return sp.csr_array((at, self.indices, self.indptr), shape=self.shape).T.tocsr().data

    def with_weights(self, weights: np.ndarray | torch.Tensor, upload: Callable = lambda order: order) -> LocalCSR:
        """Return the same pattern with other weights (nnz,); the order of the transpose is not found again.

        Args: upload  for weights of a device: brings the order there.
        """
        pattern, order = self.transposed(), self.transposed_places()
        other = copy(self)
        other._set_weights(weights)
        other._transposed = copy(pattern)
        other._transposed._set_weights(weights[upload(order)])
        other._transposed._transposed = other
        return other

    def _set_weights(self, weights: np.ndarray | torch.Tensor) -> None:
        """Take weights that will change: tiles, which store them once more, are not used."""
        self.weights, self.may_tile, self.tiled = weights, False, None

    def apply(self, X_mF, out_nF, accumulate: bool = False, bias_F=None, relu: bool = False, add_nF=None):
        """out = A X (+ out) (+ add) (+ bias), then ReLU where asked; out is written in place and returned.

        Args: add_nF  (n, F) of the sums' type: added before a bfloat16 out is rounded.
        """
        if X_mF.shape[0] != self.shape[1] or out_nF.shape != (self.shape[0], X_mF.shape[1]):
            raise ShapeError(
                f"A is {self.shape}, X {tuple(X_mF.shape)}, out {tuple(out_nF.shape)}; expected (n, m) (m, F) (n, F)"
            )
        if not {X_mF.dtype, out_nF.dtype} <= self.dtypes:
            raise ShapeError(
                f"A is {self.dtype}, X {X_mF.dtype}, out {out_nF.dtype}; expected one dtype, or float32 with bfloat16"
            )
        if add_nF is not None and (add_nF.shape != out_nF.shape or add_nF.dtype != sum_dtype(self.dtype)):
            raise ShapeError(
                f"add is {tuple(add_nF.shape)} {add_nF.dtype}; expected {tuple(out_nF.shape)} {sum_dtype(self.dtype)}"
            )
        kernels_of(out_nF).spmm(self, X_mF, out_nF, accumulate, bias_F, relu, add_nF)
        return out_nF

    def adjoint(self, G_nF, out_mF, accumulate: bool = False, add_mF=None):
        """out = A' G (+ out) (+ add)."""
        return self.transposed().apply(G_nF, out_mF, accumulate, add_nF=add_mF)
