"""The parts of a DryOperator: blocks, features, exchanges and a communicator of which only sizes are known.

Shapes: n rows, m columns, F features.
"""

from __future__ import annotations

import numpy as np
import torch

from ..dist.traffic import Traffic
from .features import SparseRows
from .fixed_input import FixedInput
from .kernels.buffers import sum_dtype
from .kernels.csr import LocalCSR
from .ledger import CountingPool, Ledger
from .place import Place
from .timing import Operations


class DryInput(FixedInput):
    """A fixed input X of which the shape alone is known."""

    def __init__(self, X, ledger: Ledger, has_products: bool = True):
        super().__init__(X, has_products)
        self.ledger = ledger

    def ghosts(self, A) -> torch.Tensor | SparseRows:
        """Return the ghost rows of X, and write down that they are read."""
        ghosts_gF = super().ghosts(A)
        self.ledger.product(Place(A.layer, A.pass_name), self.X.shape[1], rows="cached ghosts")
        return ghosts_gF


class DryCSR(LocalCSR):
    """A block of A (n, m) of which the shape alone is known."""

    def __init__(self, n: int, m: int, dtype: torch.dtype):
        self.shape, self.dtype, self.threads = (n, m), dtype, 0
        self.dtypes = {dtype, sum_dtype(dtype)}

    @property
    def nnz(self) -> int:
        return 0

    def transposed(self) -> LocalCSR:
        """Return A' (m, n)."""
        return DryCSR(*self.shape[::-1], self.dtype)


class DryRows(SparseRows):
    """Sparse rows (n, F) of which the number of nonzeros alone is known: those of A^power X."""

    def __init__(
        self, n: int, F: int, nnz: int, pool: CountingPool, dtype: torch.dtype, ledger: Ledger, power: int = 0
    ):
        super().__init__(DryCSR(n, F, dtype), pool)
        self.nnz, self.ledger, self.power = nnz, ledger, power

    def rows(self, chosen: np.ndarray) -> SparseRows:
        """Return S[chosen]."""
        return DryRows(len(chosen), self.shape[1], self.nnz, self.pool, self.dtype, self.ledger)

    def times(self, W_FC, *args, **options) -> torch.Tensor:
        """Return S W, and write it down."""
        self.ledger.multiplied(self.nnz * W_FC.shape[1], tuple(W_FC.shape))
        return super().times(W_FC, *args, **options)

    def transposed_times(self, G_nC) -> torch.Tensor:
        """Return S' G, and write it down."""
        self.ledger.multiplied(self.nnz * G_nC.shape[1], (self.shape[1], G_nC.shape[1]))
        return super().transposed_times(G_nC)

    def dropout(self, rate: float, key, node_n) -> SparseRows:
        """Return as many nonzeros."""
        self.ledger.reads_input = True
        return DryRows(*self.shape, self.nnz, self.pool, self.dtype, self.ledger)


class DryOperations(Operations):
    """Operations of which exchanges do nothing."""

    def start(self, comm, send, send_rows, recv, recv_rows):
        return None

    def wait(self, request) -> None:
        """Nothing is under way."""

    def sum_rows(self, comm, send, send_rows, recv, recv_rows) -> None:
        """Nothing is exchanged."""


class Silent:
    """A communicator that exchanges nothing."""

    def __init__(self, size: int, rank: int = 0):
        self.rank, self.size, self.traffic = rank, size, Traffic(size)

    def all_reduce(self, values) -> None:
        """Nothing is added."""
