"""The two-tier exchange: what crosses between two hosts crosses once, gathered in the one and spread in the other.

Three exchanges, each of rows of the one before, for the items of partition/two_tier.py:

    gather  inside the sending host: R1 = rows and partial sums for items that another rank of the host sends
    cross   between hosts:           T2 = B_own H + B_sum R1
    spread  inside the reading host: T3 = rows of T2 that other ranks of the host received; A then multiplies [T2; T3].

push_add is the transpose: T3 goes back and is added to T2, crosses, and goes to the ranks with a share.
Shapes: n own rows, m rows sent, F columns, P ranks; r1, r2, r3 rows received by gather, cross and spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from ...dist import Communicator
from ...errors import agree
from ...partition.two_tier import cover_hosts
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.timing import PACK, UNPACK, spmm_flops
from .context import Layout
from .covered import merged_csr
from .exchange_plan import ExchangePlan, Flight, exchange_counts, misdirected
from .index_map import IndexMap, make_csr, select_entries

KEY, RANK, SENDER, RECEIVER, OF, IS_SUM, IS_DOWN = range(7)  # columns of a record
# Of gather, cross and spread: the records of what is sent and who gets it, and of what is received and from whom.
ENDS = (("given", SENDER, "taken", RANK), ("sent", RECEIVER, "came", SENDER), ("lent", RANK, "read", RECEIVER))
NUMBERS = 40  # bits of an item's number in its key; the rest is the pair of hosts


@dataclass(frozen=True, slots=True, eq=False)
class Relay:
    """What this rank does for the items that it has a share of, sends, receives or reads; records (x, 7) int64 each.

    up    an item with a rank that has a share of it: this one, or any where this one is its sender.
    down  an item with a rank that reads it: this one, or any where this one is its receiver.
    """

    up: np.ndarray
    down: np.ndarray


def make_relay(index: IndexMap, A_og: sp.csr_array, layout: Layout) -> Relay:
    """Cover the nonzeros of each pair of hosts on a rank of the host that reads, and return what this rank does. Collective.

    Args: A_og  (n, g) with the ghosts of index as columns; those of ranks of this host are left out.
    """
    comm, local, host_P = layout.comm, layout.local, layout.grid.host_P
    here = np.flatnonzero(host_P == host_P[comm.rank])
    owner_g = np.repeat(np.arange(comm.size), index.ghosts_P)
    owner_E, row_E = owner_g[A_og.indices], np.repeat(np.arange(A_og.shape[0]), np.diff(A_og.indptr))
    is_remote = host_P[owner_E] != host_P[comm.rank]
    entries = np.stack([row_E, index.ghost_g[A_og.indices], owner_E], axis=1)[is_remote]
    solver_E = host_P[entries[:, 2]] % len(here)
    of_rank, counts = send_each(local, entries, solver_E)
    return _told(comm, _solve(of_rank, np.repeat(here, counts), layout))


def send_each(comm: Communicator, rows: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Send each row to a rank; return the rows received, in rank order, and how many each rank sent. Collective."""
    send_P = np.bincount(to, minlength=comm.size).astype(np.int64)
    recv_P = exchange_counts(comm, send_P)
    received = np.empty((int(recv_P.sum()), *rows.shape[1:]), rows.dtype)
    comm.all_to_all(np.ascontiguousarray(rows[np.argsort(to, kind="stable")]), send_P, received, recv_P)
    return received, recv_P


def _solve(entries: np.ndarray, reader_E: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the records of all items of the pairs of hosts whose nonzeros (row, column, owner) were sent here."""
    host_P = layout.grid.host_P
    hosts, n = int(host_P.max()) + 1, int(entries[:, 0].max(initial=0)) + 1
    rows, row_E = np.unique(reader_E * n + entries[:, 0], return_inverse=True)
    ids, first, column_E = np.unique(entries[:, 1], return_index=True, return_inverse=True)
    order = np.lexsort((ids, entries[first, 2], host_P[entries[first, 2]]))
    column_E = np.argsort(order)[column_E]
    ids, owner_c = ids[order], entries[first, 2][order]
    A = make_csr(np.ones(len(row_E), np.int8), row_E, column_E, (len(rows), len(ids)))
    items = cover_hosts(A, rows // n, owner_c, host_P, layout.threads)
    pair_I = (items.pair_I * hosts + host_P[layout.comm.rank]) << NUMBERS
    is_sum_I, of_I = items.is_sum_I, items.of_I.copy()
    of_I[is_sum_I], of_I[~is_sum_I] = rows[of_I[is_sum_I]] % n, ids[of_I[~is_sum_I]]
    facts = np.stack([items.sender_I, items.receiver_I, of_I, items.is_sum_I], axis=1).astype(np.int64)
    records = [
        np.column_stack(
            [(pair_I + items.number_I)[pairs[0]], pairs[1], facts[pairs[0]], np.full(pairs.shape[1], is_down)]
        )
        for is_down, pairs in enumerate((items.up, items.down))
    ]
    return np.concatenate(records)


def _told(comm: Communicator, records: np.ndarray) -> Relay:
    """Send each record to its rank, and to the sender or receiver of the item where that is another. Collective."""
    relay = np.where(records[:, IS_DOWN] == 1, records[:, RECEIVER], records[:, SENDER])
    other = relay != records[:, RANK]
    mine, _ = send_each(
        comm, np.concatenate([records, records[other]]), np.concatenate([records[:, RANK], relay[other]])
    )
    is_down = mine[:, IS_DOWN] == 1
    return Relay(mine[~is_down], mine[is_down])


def relayed_plan(
    index: IndexMap, A_og: sp.csr_array, layout: Layout, relay: Relay | None = None
) -> tuple[RelayedPlan, sp.csr_array]:
    """Return the plan of one SpMM with the ghosts of other hosts, and A (n, r2 + r3), which multiplies what it pulls.

    Args: A_og (n, g) with the ghosts of index as columns; relay: of it, where it is known. Collective.
    """
    comm, me = layout.comm, layout.comm.rank
    relay = relay or make_relay(index, A_og, layout)
    route = _route(relay, me)
    A_nr, moved, sums_read = _read(index, A_og, layout, relay.down[relay.down[:, RANK] == me], route)
    B, moved_nnz = _shares(index, moved, layout, relay.up[relay.up[:, RANK] == me], route)
    here = np.flatnonzero(layout.grid.host_P == layout.grid.host_P[me])
    on_host = np.zeros(comm.size, np.int64)
    on_host[here] = np.arange(len(here))
    r1, m2, r2, m3 = (len(route[name]) for name in ("taken", "sent", "came", "lent"))
    m1 = len(route["given"])
    ones = lambda keys, wanted, shape: make_csr(np.ones(len(wanted), A_og.dtype), *keys, shape)
    taken_at = _places(route["sent"][:, KEY], route["taken"][:, KEY])
    lent_at = _places(route["came"][:, KEY], route["lent"][:, KEY])
    packs = (
        B[:m1], ones((taken_at, np.arange(r1)), taken_at, (m2, r1)), ones((np.arange(m3), lent_at), lent_at, (m3, r2)),
    )  # fmt: skip
    legs, rows_2P = [], np.zeros((2, comm.size), np.int64)
    for pack, (out, to, back, source), leg in zip(packs, ENDS, ("gather", "cross", "spread")):
        both = [np.bincount(route[of][:, rank], minlength=comm.size) for of, rank in ((out, to), (back, source))]
        rows_2P += both
        on = comm if leg == "cross" else layout.local
        send_P, recv_P = both if leg == "cross" else [of_P[here] for of_P in both]
        pack = LocalCSR(sp.csr_array(pack), layout.dtype, layout.threads)
        legs.append(ExchangePlan.packed(on, pack, send_P, recv_P, layout.pool, layout))
    own = LocalCSR(sp.csr_array(B[m1:]), layout.dtype, layout.threads)
    return RelayedPlan(legs, own, rows_2P, moved_nnz, sums_read), A_nr


def relayed_counts(index: IndexMap, A_og: sp.csr_array, layout: Layout, relay: Relay) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that this rank sends each rank for what crosses, and the nonzeros that each multiplies for it, (P,)."""
    P, me, route = layout.comm.size, layout.comm.rank, _route(relay, layout.comm.rank)
    sent_P = sum(np.bincount(route[of][:, to], minlength=P) for of, to, *_ in ENDS)
    (entries, _) = _read(index, A_og, layout, relay.down[relay.down[:, RANK] == me], route)[1]
    return sent_P, np.bincount(entries[:, 2], minlength=P)


def _route(relay: Relay, me: int) -> dict[str, np.ndarray]:
    """Return the records of the rows of each exchange, in their order: what this rank sends and receives.

    given, taken  of gather; sent, came of cross; lent, read of spread.
    """
    up, down = relay.up, relay.down
    return {
        "given": _sorted(up[(up[:, RANK] == me) & (up[:, SENDER] != me)], SENDER, RECEIVER, KEY),
        "taken": _sorted(up[(up[:, SENDER] == me) & (up[:, RANK] != me)], RANK, RECEIVER, KEY),
        "sent": _once(_sorted(up[up[:, SENDER] == me], RECEIVER, KEY)),
        "came": _once(_sorted(down[down[:, RECEIVER] == me], SENDER, KEY)),
        "lent": _sorted(down[(down[:, RECEIVER] == me) & (down[:, RANK] != me)], RANK, SENDER, KEY),
        "read": _sorted(down[(down[:, RANK] == me) & (down[:, RECEIVER] != me)], RECEIVER, SENDER, KEY),
    }


def _read(index: IndexMap, A_og: sp.csr_array, layout: Layout, reads: np.ndarray, route: dict):
    """Return A (n, r2 + r3), the nonzeros that owners multiply, and the number of sums that this rank reads.

    The nonzeros as (key of the item, column, owner) (x, 3) int64 and their weights (x,).
    """
    n, host_P = A_og.shape[0], layout.grid.host_P
    place = _places(np.concatenate([route["came"][:, KEY], route["read"][:, KEY]]), reads[:, KEY])
    r, is_sum = len(route["came"]) + len(route["read"]), reads[:, IS_SUM] == 1
    raw_g = _places(index.ghost_g, reads[~is_sum, OF])
    where_g = np.full(index.g, -1)
    where_g[raw_g] = place[~is_sum]
    is_raw = where_g[A_og.indices] >= 0
    owner_g = np.repeat(np.arange(len(host_P)), index.ghosts_P)
    is_moved = ~is_raw & (host_P[owner_g] != host_P[layout.comm.rank])[A_og.indices]
    columns = A_og.indices[is_moved]
    rows = np.searchsorted(A_og.indptr, np.flatnonzero(is_moved), side="right") - 1
    source = (reads[is_sum, KEY] >> NUMBERS) // (int(host_P.max()) + 1)
    key = reads[is_sum, KEY][_places(source * n + reads[is_sum, OF], host_P[owner_g[columns]] * n + rows)]
    ones = make_csr(np.ones(int(is_sum.sum()), A_og.dtype), reads[is_sum, OF], place[is_sum], (n, r))
    A_nr = merged_csr(select_entries(A_og, is_raw, where_g[A_og.indices], r), ones)
    moved = np.stack([key, index.ghost_g[columns], owner_g[columns]], axis=1)
    return A_nr, (moved, A_og.data[is_moved]), int(is_sum.sum())


def _shares(index: IndexMap, moved: tuple, layout: Layout, shares: np.ndarray, route: dict) -> tuple[sp.csr_array, int]:
    """Return B (m1 + m2, n), this rank's shares of the rows that it gives and then of those that it sends, and the nonzeros
    that it multiplies for others. Collective."""
    comm, given, sent = layout.comm, route["given"], route["sent"]
    (entries, weights), is_own = moved, shares[:, SENDER] == comm.rank
    keys = np.concatenate([shares[~is_own, KEY], shares[is_own, KEY]])
    rows = np.concatenate(
        [_places(given[:, KEY], shares[~is_own, KEY]), len(given) + _places(sent[:, KEY], shares[is_own, KEY])]
    )
    theirs = send_each(comm, entries, entries[:, 2])[0]
    data = send_each(comm, weights, entries[:, 2])[0]
    ordered = np.concatenate([shares[~is_own], shares[is_own]])
    is_raw = ordered[:, IS_SUM] == 0
    raw_own, sums_own = index.find_own(ordered[is_raw, OF]), index.find_own(theirs[:, 1])
    agree(comm, misdirected(comm.rank, raw_own, ordered[is_raw, OF]) or misdirected(comm.rank, sums_own, theirs[:, 1]))
    B = make_csr(
        np.concatenate([np.ones(len(raw_own), data.dtype), data]),
        np.concatenate([rows[is_raw], rows[_places(keys, theirs[:, 0])]]),
        np.concatenate([raw_own, sums_own]),
        (len(given) + len(sent), index.n),
    )
    return B, len(sums_own)


def _sorted(records: np.ndarray, *columns: int) -> np.ndarray:
    """Return the records ordered by these columns, the first one first."""
    return records[np.lexsort([records[:, column] for column in columns[::-1]])]


def _once(records: np.ndarray) -> np.ndarray:
    """Return one record of each item, of records in which those of an item follow each other."""
    is_first = np.ones(len(records), bool)
    is_first[1:] = records[1:, KEY] != records[:-1, KEY]
    return records[is_first]


def _places(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where each wanted key is among distinct keys, all of which are there."""
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys, wanted, sorter=order)]


class RelayedPlan:
    """gather, cross and spread as one plan, like an ExchangePlan: pull returns [T2; T3], (r2 + r3, F).

    Args: legs      the plans of the three exchanges; the packing matrix of each makes its rows: (m1, n), (m2, r1), (m3, r2).
          own       B_own (m2, n).
          rows_2P   rows that all three send to each rank, and receive from it, (2, P).
          moved_nnz, sums_read  see ExchangePlan.
    """

    def __init__(
        self, legs: Sequence[ExchangePlan], own: LocalCSR, rows_2P: np.ndarray, moved_nnz: int, sums_read: int
    ):
        self.legs, self.own, self.comm = legs, own, legs[1].comm
        self.send_rows_P, self.recv_rows_P = rows_2P
        self.moved_nnz, self.sums_read = moved_nnz, sums_read

    @property
    def sent_rows(self) -> int:
        """Rows that this rank sends in one pull, of all three exchanges; g: that it receives."""
        return int(self.send_rows_P.sum())

    @property
    def g(self) -> int:
        return int(self.recv_rows_P.sum())

    @property
    def read_rows(self) -> int:
        """Rows that pull returns, r2 + r3."""
        return self.legs[1].g + self.legs[2].g

    def start_pull(self, H_nF: torch.Tensor) -> RelayedPull:
        """Gather, and start to cross; finish() returns [T2; T3]. Collective."""
        return RelayedPull(self, H_nF.contiguous())

    def start_push(self, G_rF: torch.Tensor) -> RelayedPush:
        """Take back what was spread, and start to cross; finish() returns what `add` adds. Collective."""
        return RelayedPush(self, G_rF.contiguous())

    def add(self, received_mF: torch.Tensor, out_nF: torch.Tensor) -> torch.Tensor:
        """out += B' received."""
        m1 = self.legs[0].sent_rows
        for pack, rows in ((self.legs[0].pack, received_mF[:m1]), (self.own, received_mF[m1:])):
            with self.legs[0].layout.ops.span(UNPACK, spmm_flops(pack, rows)):
                pack.adjoint(rows, out_nF, accumulate=True)
        return out_nF

    def rows(self, count: int, like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a buffer of rows as wide as others."""
        return self.legs[0].pool.empty(count, like.shape[1], dtype=dtype or like.dtype, device=like.device)

    def multiply(self, phase: str, A: LocalCSR, X: torch.Tensor, dtype: torch.dtype | None = None, add=None):
        """Return A X + add in a new buffer."""
        out = self.rows(A.shape[0], X, dtype)
        with self.legs[0].layout.ops.span(phase, spmm_flops(A, X)):
            return A.apply(X, out, add_nF=add)

    def fly(self, leg: int, rows: torch.Tensor, kind: str, into: torch.Tensor | None = None) -> Flight:
        """Start one of the three exchanges, forward (pull) or back (push)."""
        plan = self.legs[leg]
        is_pull = kind == "pull"
        send_P, recv_P = (plan.send_rows_P, plan.recv_rows_P) if is_pull else (plan.recv_rows_P, plan.send_rows_P)
        return Flight(plan, rows, send_P, recv_P, plan.layout.wires[not is_pull], into)


class RelayedPull:
    """A pull between gather and spread."""

    def __init__(self, plan: RelayedPlan, H_nF: torch.Tensor):
        gather, cross, _ = plan.legs
        self.plan, self.sum = plan, sum_dtype(H_nF.dtype)
        given = plan.fly(0, plan.multiply(PACK, gather.pack, H_nF), "pull")
        own = plan.multiply(PACK, plan.own, H_nF, self.sum)
        sent = plan.multiply(PACK, cross.pack, given.finish(), H_nF.dtype, own)
        self.table = plan.rows(plan.read_rows, H_nF)
        self.flight = plan.fly(1, sent, "pull", self.table[: cross.g])

    def finish(self) -> torch.Tensor:
        """Wait for the rows that cross, spread them, and return the table [T2; T3]. Collective."""
        plan, came = self.plan, self.flight.finish()
        lent = plan.multiply(PACK, plan.legs[2].pack, came)
        plan.fly(2, lent, "pull", self.table[len(came) :]).finish()
        return self.table


class RelayedPush:
    """A push_add between the transposes of spread and gather."""

    def __init__(self, plan: RelayedPlan, G_rF: torch.Tensor):
        gather, cross, spread = plan.legs
        self.plan = plan
        lent = plan.fly(2, G_rF[cross.g :], "push").finish()
        came, wide = G_rF[: cross.g], sum_dtype(G_rF.dtype)
        came = came if came.dtype == wide else gather.pool.copy(came, wide)
        total = plan.multiply(UNPACK, spread.pack.transposed(), lent, G_rF.dtype, came)
        self.received = plan.rows(gather.sent_rows + cross.sent_rows, G_rF)
        self.flight = plan.fly(1, total, "push", self.received[gather.sent_rows :])

    def finish(self) -> torch.Tensor:
        """Wait for the rows that cross, give the ranks with a share theirs, and return [of given; of sent]. Collective."""
        plan, sent = self.plan, self.flight.finish()
        taken = plan.multiply(UNPACK, plan.legs[1].pack.transposed(), sent)
        plan.fly(0, taken, "push", self.received[: len(self.received) - len(sent)]).finish()
        return self.received
