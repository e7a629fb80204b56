"""ExchangePlan: who sends which rows to whom, made once; pull and its adjoint push_add.

Shapes: n own rows, g ghost rows, F columns, P ranks.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from ..dist import Communicator
from ..errors import PartitionError, ShapeError, agree
from .buffers import BufferPool
from .indexmap import IndexMap, find
from .local import LocalCSR, take_rows


class ExchangePlan:
    """Send and receive rows of one SpMM: <pull(x), y> = <x, push_add(y)>.

    send_rows_P  (P,) rows sent to each rank in pull; received from it in push_add.
    recv_rows_P  (P,) rows received from each rank in pull: the index map's ghosts.
    send_index   own rows in the order in which they are sent, peer after peer.
    Collective to make: ranks tell the owners which rows they read.
    """

    def __init__(self, comm: Communicator, index: IndexMap, pool: BufferPool, threads: int = 0):
        self.comm = comm
        self.pool = pool
        self.threads = threads
        self.n, self.g = index.n, index.g
        self.recv_rows_P = index.ghosts_P
        self.send_rows_P = np.zeros(comm.size, np.int64)
        ones_P = np.ones(comm.size, np.int64)
        comm.all_to_all(np.ascontiguousarray(index.ghosts_P), ones_P, self.send_rows_P, ones_P)
        wanted = np.empty(int(self.send_rows_P.sum()), np.int64)
        comm.all_to_all(np.ascontiguousarray(index.ghost_g), self.recv_rows_P, wanted, self.send_rows_P)
        self.send_index = np.ascontiguousarray(find(index.own_n, wanted))
        agree(comm, self._misdirected(wanted))
        self._unpack: dict[torch.dtype, LocalCSR] = {}

    @property
    def sent_rows(self) -> int:
        """Rows that this rank sends in one pull."""
        return len(self.send_index)

    def pull(self, H_nF: torch.Tensor) -> torch.Tensor:
        """Copy the rows this rank reads from their owners: H_gF = H_NF[ghost].

        Args:    H_nF (n, F), own rows.
        Returns: (g, F), ghost rows, ordered by owner, then by global index.
        Raises:  ShapeError if H_nF does not have n rows.
        Collective. Sends send_rows_P.sum() * F * itemsize bytes.
        """
        self._check(H_nF, self.n, "own")
        F = H_nF.shape[1]
        packed = take_rows(H_nF.contiguous(), self.send_index, self.pool.empty(self.sent_rows, F, dtype=H_nF.dtype), self.threads)
        H_gF = self.pool.empty(self.g, F, dtype=H_nF.dtype)
        self.comm.all_to_all(packed, self.send_rows_P, H_gF, self.recv_rows_P)
        return H_gF

    def push_add(self, G_gF: torch.Tensor, out_nF: torch.Tensor) -> torch.Tensor:
        """Add the ghost rows to their owners' rows: out[own] += sum over readers of G_gF.

        Args:   G_gF (g, F), one row a ghost; out_nF (n, F), written in place and returned.
        Raises: ShapeError if G_gF does not have g rows.
        Collective. Sends g * F * itemsize bytes. The order of the sum is fixed: by rank.
        """
        self._check(G_gF, self.g, "ghost")
        received = self.pool.empty(self.sent_rows, G_gF.shape[1], dtype=G_gF.dtype)
        self.comm.all_to_all(G_gF.contiguous(), self.recv_rows_P, received, self.send_rows_P)
        return self._unpacking(G_gF.dtype).apply(received, out_nF, accumulate=True)

    def pull_csr(self, X_nF: sp.csr_array) -> sp.csr_array:
        """Copy the sparse rows this rank reads from their owners: X_gF = X_NF[ghost]. Collective."""
        packed = sp.csr_array(X_nF[self.send_index])
        lengths_send = np.diff(packed.indptr).astype(np.int64)
        lengths_recv = np.empty(self.g, np.int64)
        self.comm.all_to_all(lengths_send, self.send_rows_P, lengths_recv, self.recv_rows_P)
        send = _sums(lengths_send, self.send_rows_P)
        recv = _sums(lengths_recv, self.recv_rows_P)
        parts = []
        for values in (packed.indices.astype(np.int64), packed.data):
            received = np.empty(int(recv.sum()), values.dtype)
            self.comm.all_to_all(np.ascontiguousarray(values), send, received, recv)
            parts.append(received)
        indptr = np.concatenate([[0], np.cumsum(lengths_recv)])
        return sp.csr_array((parts[1], parts[0], indptr), shape=(self.g, X_nF.shape[1]))

    def _unpacking(self, dtype: torch.dtype) -> LocalCSR:
        # Received rows are added to their owners' rows by an unweighted SpMM: parallel, in rank order.
        if dtype not in self._unpack:
            order = np.argsort(self.send_index, kind="stable")
            indptr = np.concatenate([[0], np.cumsum(np.bincount(self.send_index, minlength=self.n))])
            S = sp.csr_array((np.ones(len(order), np.float32), order, indptr), shape=(self.n, self.sent_rows))
            self._unpack[dtype] = LocalCSR(S, dtype, self.threads)
        return self._unpack[dtype]

    def _check(self, H, rows: int, what: str) -> None:
        if H.ndim != 2 or H.shape[0] != rows:
            raise ShapeError(f"rank {self.comm.rank}: got shape {tuple(H.shape)}, expected ({rows}, F): one row for each {what} node")

    def _misdirected(self, wanted) -> PartitionError | None:
        if len(self.send_index) == 0 or self.send_index.min() >= 0:
            return None
        node = int(wanted[int(np.argmax(self.send_index < 0))])
        return PartitionError(f"rank {self.comm.rank} is asked for node {node}, which it does not own; do all ranks use one partition?")


def _sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    ends = np.cumsum(counts)
    total = np.concatenate([[0], np.cumsum(values)])
    return (total[ends] - total[ends - counts]).astype(np.int64)
