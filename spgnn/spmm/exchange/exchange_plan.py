"""ExchangePlan: who sends which rows to whom, made once; pull and its adjoint push_add.

Messages are B H. B has a row for each row that is sent: a one for a copied row of H, the weights of A for a partial
sum. push_add is then the product with B'.
Shapes: n own rows, g rows received, m rows sent, F columns, P ranks.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp
import torch

from ...dist import Communicator
from ...errors import PartitionError, ShapeError, agree
from ..kernels.backend import kernels_of
from ..kernels.buffers import Pool
from ..kernels.csr import LocalCSR
from ..operator.timing import PACK, UNPACK, Operations, spmm_flops
from .index_map import IndexMap
from .wire import Wire

# For plans without a layout: untimed operations, rows as they are.
PLAIN = SimpleNamespace(ops=Operations(), wires=(Wire("float32"), Wire("float32")))


class ExchangePlan:
    """Send and receive rows of one SpMM: <pull(x), y> = <x, push_add(y)>.

    send_rows_P  (P,) rows sent to each rank in pull; received from it in push_add.
    recv_rows_P  (P,) rows received from each rank in pull: the index map's ghosts.
    send_index   own rows in the order in which they are sent, peer after peer.
    layout       has the operations and the wire types, forward and backward; both may be replaced later.
    Collective to make: ranks send the owners the ids of the rows that they read.
    """

    def __init__(self, comm: Communicator, index: IndexMap, pool: Pool, threads: int = 0, layout=None):
        self.recv_rows_P = index.ghosts_P
        self.send_rows_P = exchange_counts(comm, index.ghosts_P)
        wanted = np.empty(int(self.send_rows_P.sum()), np.int64)
        comm.all_to_all(np.ascontiguousarray(index.ghost_g), self.recv_rows_P, wanted, self.send_rows_P)
        send_index = np.ascontiguousarray(index.find_own(wanted))
        agree(comm, misdirected(comm.rank, send_index, wanted))
        self._set_up(comm, Selection(send_index, index.n, threads), index.n, pool, layout)

    @classmethod
    def packed(
        cls, comm: Communicator, B: Selection | LocalCSR, send_rows_P, recv_rows_P, pool: Pool, layout=None
    ) -> ExchangePlan:
        """Return the plan that sends B H, (m, n) x (n, F), send_rows_P rows of it to each rank. Not collective."""
        plan = cls.__new__(cls)
        plan.send_rows_P, plan.recv_rows_P = send_rows_P, recv_rows_P
        plan._set_up(comm, B, B.shape[1], pool, layout)
        return plan

    def under(self, layout) -> ExchangePlan:
        """Return the same plan with the operations and wires of a layout. Not collective."""
        return self.packed(self.comm, self.pack, self.send_rows_P, self.recv_rows_P, self.pool, layout)

    def _set_up(self, comm: Communicator, pack: Selection | LocalCSR, n: int, pool: Pool, layout) -> None:
        self.comm, self.pack, self.n, self.pool = comm, pack, n, pool
        self.g = int(self.recv_rows_P.sum())
        self.layout = layout or PLAIN
        self.moved_nnz = self.sums_read = 0  # `cover`: nonzeros multiplied for readers, and sums that owners made

    @property
    def sent_rows(self) -> int:
        """Rows that this rank sends in one pull."""
        return int(self.send_rows_P.sum())

    @property
    def send_index(self) -> np.ndarray:
        """Own rows in the order in which they are sent, of a plan that copies rows."""
        assert isinstance(self.pack, Selection)
        return self.pack.rows

    @property
    def matrix(self) -> LocalCSR:
        """The packing matrix of a plan that was made by `packed`."""
        assert isinstance(self.pack, LocalCSR)
        return self.pack

    def pull(self, H_nF: torch.Tensor) -> torch.Tensor:
        """Return the rows this rank reads, sent by their owners: H_gF = H_NF[ghost].

        Args:    H_nF (n, F), own rows.
        Returns: (g, F), ghost rows, ordered by owner, then by global index.
        Raises:  ShapeError if H_nF does not have n rows.
        Collective. Sends send_rows_P.sum() * F * itemsize bytes.
        """
        return self.start_pull(H_nF).finish()

    def push_add(self, G_gF: torch.Tensor, out_nF: torch.Tensor) -> torch.Tensor:
        """Add the ghost rows to their owners' rows: out[own] += sum over readers of G_gF.

        Args:   G_gF (g, F), one row per ghost; out_nF (n, F), written in place and returned.
        Raises: ShapeError if G_gF does not have g rows.
        Collective. Sends g * F * itemsize bytes. The order of the sum is fixed: by rank.
        """
        return self.add(self.start_push(G_gF).finish(), out_nF)

    def start_pull(self, H_nF: torch.Tensor) -> Flight:
        """Pack and start the exchange of pull; finish() returns H_gF. Collective."""
        self._check(H_nF, self.n, "own")
        packed = self.pool.empty(self.sent_rows, H_nF.shape[1], dtype=H_nF.dtype, device=H_nF.device)
        with self.layout.ops.span(PACK, 0 if isinstance(self.pack, Selection) else spmm_flops(self.pack, H_nF)):
            self.pack.apply(H_nF.contiguous(), packed)
        return Flight(self, packed, self.send_rows_P, self.recv_rows_P, self.layout.wires[0])

    def start_push(self, G_gF: torch.Tensor) -> Flight:
        """Start the exchange of push_add; finish() returns what `add` adds to the own rows. Collective."""
        self._check(G_gF, self.g, "ghost")
        recv_P, send_P = self.recv_rows_P, self.send_rows_P
        return Flight(self, G_gF.contiguous(), recv_P, send_P, self.layout.wires[1])

    def add(self, received_mF: torch.Tensor, out_nF: torch.Tensor) -> torch.Tensor:
        """out += B' received."""
        with self.layout.ops.span(UNPACK, spmm_flops(self.pack, received_mF)):
            return self.pack.adjoint(received_mF, out_nF, accumulate=True)

    def pull_csr(self, X_nF: sp.csr_array) -> sp.csr_array:
        """Copy the sparse rows this rank reads from their owners: X_gF = X_NF[ghost]. Collective."""
        packed = sp.csr_array(X_nF[self.send_index])
        return exchange_csr(self.comm, packed, self.send_rows_P, self.recv_rows_P)

    def _check(self, H: torch.Tensor, rows: int, what: str) -> None:
        if H.ndim != 2 or H.shape[0] != rows:
            raise ShapeError(
                f"rank {self.comm.rank}: got shape {tuple(H.shape)}, expected ({rows}, F): one row for each {what} node"
            )


class Flight:
    """Rows in flight; both buffers are held until `finish`. into: the buffer of the rows received; None: a new one."""

    def __init__(
        self,
        plan: ExchangePlan,
        rows: torch.Tensor,
        send_rows_P,
        recv_rows_P,
        wire: Wire,
        into: torch.Tensor | None = None,
    ):
        self.plan, self.wire, self.like, self.into = plan, wire, rows, into
        pool, F = plan.pool, rows.shape[1]
        received = int(recv_rows_P.sum())
        if wire.is_plain:
            self.send = rows
            self.recv = pool.empty(received, F, dtype=rows.dtype, device=rows.device) if into is None else into
        else:
            width = wire.row_bytes(F, rows.element_size())
            self.send, self.recv = (
                pool.empty(n, width, dtype=torch.uint8, device=rows.device) for n in (rows.shape[0], received)
            )
            with plan.layout.ops.span("wire"):
                wire.encode(rows, self.send)
        self.request = plan.layout.ops.start(plan.comm, self.send, send_rows_P, self.recv, recv_rows_P)

    def finish(self) -> torch.Tensor:
        """Wait, and return the rows received. Collective."""
        self.plan.layout.ops.wait(self.request)
        if self.wire.is_plain:
            return self.recv
        like, rows = self.like, self.into
        if rows is None:
            rows = self.plan.pool.empty(len(self.recv), like.shape[1], dtype=like.dtype, device=like.device)
        with self.plan.layout.ops.span("wire"):
            return self.wire.decode(self.recv, rows)


class Selection:
    """B that copies rows: B H = H[rows]."""

    def __init__(self, rows: np.ndarray, n: int, threads: int = 0):
        self.rows, self.shape, self.nnz, self.threads = rows, (len(rows), n), len(rows), threads
        self._transposed: dict[torch.dtype, LocalCSR] = {}

    def apply(self, X_nF: torch.Tensor, out_mF: torch.Tensor) -> torch.Tensor:
        """out = X[rows]."""
        kernels_of(out_mF).take_rows(X_nF, self.rows, out_mF, self.threads)
        return out_mF

    def adjoint(self, X_mF: torch.Tensor, out_nF: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
        """out = B' X (+ out): an unweighted SpMM, parallel and in rank order, of whatever type X has."""
        if X_mF.dtype not in self._transposed:
            m, n = self.shape
            order = np.argsort(self.rows, kind="stable")
            indptr = np.concatenate([[0], np.cumsum(np.bincount(self.rows, minlength=n))])
            B = sp.csr_array((np.ones(m, np.float32), order, indptr), shape=(n, m))
            self._transposed[X_mF.dtype] = LocalCSR(B, X_mF.dtype, self.threads)
        return self._transposed[X_mF.dtype].apply(X_mF, out_nF, accumulate=accumulate)


def exchange_counts(comm: Communicator, recv_P: np.ndarray) -> np.ndarray:
    """Return the number of rows that each rank reads from this one; recv_P: that this one reads from each. Collective."""
    send_P, ones_P = np.zeros(comm.size, np.int64), np.ones(comm.size, np.int64)
    return comm.all_to_all(np.ascontiguousarray(recv_P, dtype=np.int64), ones_P, send_P, ones_P)


def exchange_csr(comm: Communicator, packed: sp.csr_array, send_rows_P, recv_rows_P) -> sp.csr_array:
    """Send the next send_rows_P[q] sparse rows to rank q; return those received, in rank order. Collective."""
    lengths_send, lengths_recv = np.diff(packed.indptr).astype(np.int64), np.empty(int(recv_rows_P.sum()), np.int64)
    comm.all_to_all(lengths_send, send_rows_P, lengths_recv, recv_rows_P)
    send, recv = _sums(lengths_send, send_rows_P), _sums(lengths_recv, recv_rows_P)
    parts = []
    for values in (packed.indices.astype(np.int64), packed.data):
        received = np.empty(int(recv.sum()), values.dtype)
        comm.all_to_all(np.ascontiguousarray(values), send, received, recv)
        parts.append(received)
    indptr = np.concatenate([[0], np.cumsum(lengths_recv)])
    return sp.csr_array((parts[1], parts[0], indptr), shape=(len(lengths_recv), packed.shape[1]))


def misdirected(rank: int, found: np.ndarray, wanted: np.ndarray) -> PartitionError | None:
    """Return the error of a rank from which rows are requested that it does not own, -1 in found."""
    if len(found) == 0 or found.min() >= 0:
        return None
    node = int(wanted[int(np.argmax(found < 0))])
    return PartitionError(
        f"rank {rank} got a request for node {node}, which it does not own; use the same partition on all ranks"
    )


def _sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    ends = np.cumsum(counts)
    total = np.concatenate([[0], np.cumsum(values)])
    return (total[ends] - total[ends - counts]).astype(np.int64)
