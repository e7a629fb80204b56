"""RowSum: the c partial results of a process row become one, the same on its c ranks.

Shapes: n rows, F columns, c ranks of a process row.
Source: Mukhodopadhyay et al. 2024, Algorithm 2; Thakur et al. 2005 (reduce-scatter and all-gather).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch

from ...cost.pairs import slices
from ...dist import Communicator
from ..kernels.buffers import Pool
from ..operator.timing import Operations
from .exchange_plan import exchange_csr


class RowSum:
    """Sums over the ranks of one process row, each a slice of the rows; every byte is counted by pair.

    Args: comm  the process row; holder: the rank of it whose process column multiplies with this block.
    """

    def __init__(self, comm: Communicator, holder: int, pool: Pool):
        self.comm, self.holder, self.pool = comm, holder, pool
        self.ops = Operations()

    def total(self, Z_nF: torch.Tensor, bias_F=None, relu: bool = False) -> torch.Tensor:
        """Z = relu(sum over the process row of Z + bias), in place. Collective.

        Sends n F / c entries to each other rank, twice. The order of the sum is by rank.
        """

        return self.combined(Z_nF, adding(bias_F, relu))

    def combined(self, Z_nF: torch.Tensor, add: Callable[[torch.Tensor], None]) -> torch.Tensor:
        """Z = what `add` makes of the partial results of the process row, in place. Collective.

        Args: add  (c, m, F), a slice of the rows from each rank, in rank order -> None; the result is in the first.
        Sends n F / c entries to each other rank, twice.
        """
        comm, (n, F) = self.comm, Z_nF.shape
        slices_P = np.diff(slices(n, comm.size))
        mine = int(slices_P[comm.rank])
        mine_P = np.full(comm.size, mine, np.int64)
        parts = self.pool.empty(comm.size * mine, F, dtype=Z_nF.dtype)
        self.ops.sum_rows(comm, Z_nF, slices_P, parts, mine_P)
        stacked = parts.view(comm.size, mine, F)
        add(stacked)
        for part in stacked[1:]:
            part.copy_(stacked[0])
        self.ops.sum_rows(comm, parts, mine_P, Z_nF, slices_P)
        return Z_nF

    def rows_of_total(self, n: int) -> int:
        """Return the rows that this rank sends in `total`."""
        mine = int(np.diff(slices(n, self.comm.size))[self.comm.rank])
        return n - mine + (self.comm.size - 1) * mine

    def rows_of_share(self, n: int) -> int:
        """Return the rows that this rank sends in `share`."""
        return (self.comm.size - 1) * n if self.comm.rank == self.holder else 0

    def share(self, U_nF: torch.Tensor) -> torch.Tensor:
        """U = U of the holder, in place. Collective. The holder sends n F entries to each other rank."""
        comm, n = self.comm, U_nF.shape[0]
        others = np.full(comm.size, n, np.int64)
        others[self.holder] = 0
        if comm.rank == self.holder:
            send = U_nF if comm.size == 2 else U_nF.repeat(comm.size - 1, 1)
            self.ops.sum_rows(comm, send, others, U_nF[:0], np.zeros(comm.size, np.int64))
        else:
            from_holder = np.zeros(comm.size, np.int64)
            from_holder[self.holder] = n
            self.ops.sum_rows(comm, U_nF[:0], np.zeros(comm.size, np.int64), U_nF, from_holder)
        return U_nF

    def total_csr(self, S: sp.csr_array) -> sp.csr_array:
        """Return the sum over the process row of sparse rows. Collective."""
        comm, n = self.comm, S.shape[0]
        copies = sp.csr_array(sp.vstack([S] * comm.size, format="csr"))
        rows_P = np.full(comm.size, n, np.int64)
        received = exchange_csr(comm, copies, rows_P, rows_P)
        parts = [sp.csr_array(received[q * n : (q + 1) * n]) for q in range(comm.size)]
        return sp.csr_array(sum(parts[1:], parts[0]))


def adding(bias_F: torch.Tensor | None = None, relu: bool = False) -> Callable[[torch.Tensor], None]:
    """Return the function that makes relu(sum of the parts + bias) of partial results, for RowSum.combined."""

    def add(parts_cmF: torch.Tensor) -> None:
        total = parts_cmF[0]
        for part in parts_cmF[1:]:
            total += part
        if bias_F is not None:
            total += bias_F.detach()
        if relu:
            total.relu_()

    return add
