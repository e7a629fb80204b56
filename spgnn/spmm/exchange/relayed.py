"""The two-tier exchange: what crosses between two hosts crosses once, gathered in the one and spread in the other.

The items that cross are raw rows of H and partial sums, see partition/cover.py. Ranks 0 and 1 of host 0 own rows a
and b; ranks 2 and 3 of host 1 read them. Item 0 is row a, which both read; item 1 is the sum s over a and b for row i of
rank 2:

       host 0                                                 host 1
    rank 0:  a  ------------------- cross ----------------->  rank 2:  a
       |                                                         |
       | gather A[i, a] H[a]                                     | spread a
       v                                                         v
    rank 1:  s = A[i, a] H[a] + A[i, b] H[b]  --- cross --->  rank 3:  s, of which rank 2 gets a copy (spread)

Three exchanges, each of rows of the one before:

    gather  inside the sending host: R1 = rows and partial sums for items that another rank of the host sends
    cross   between hosts:           T2 = B_own H + B_sum R1
    spread  inside the reading host: T3 = rows of T2 that other ranks of the host received; A then multiplies [T2; T3].

push_add is the transpose: T3 goes back and is added to T2, crosses, and goes to the ranks with a share.

Each rank knows its part as records: an item with a rank that has a share of it (up) or reads it (down). Above:

         item  rank  sender  receiver  of  is_sum             item  rank  sender  receiver  of  is_sum
    up      0     0       0         2   a       0     down       0     2       0         2   a       0
            1     0       1         3   i       1                0     3       0         2   a       0
            1     1       1         3   i       1                1     2       1         3   i       1

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
from ...partition.cover import cover_hosts
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.timing import PACK, UNPACK, spmm_flops
from .context import Layout
from .covered import merged_csr
from .exchange_plan import ExchangePlan, Flight, exchange_counts, misdirected
from .index_map import IndexMap, make_csr, select_entries


def _named(names: str) -> np.dtype:
    """Return the type of records of int64 numbers with these names."""
    return np.dtype([(name, np.int64) for name in names.split()])


RECORD = _named("item rank sender receiver of is_sum is_down")  # of: column or row, by original id or place
NONZERO = _named("row column owner")  # of A: row of the reader, original id of the column, and its owner
SHARE = _named("item column owner")  # a nonzero that the owner of its column multiplies, and the sum it is part of
NUMBERS = 40  # bits of an item's number among those of its pair of hosts; the higher bits are the pair


@dataclass(frozen=True, slots=True, eq=False)
class Relay:
    """The records of the items that this rank has a share of, sends, receives or reads.

    up    an item with a rank that has a share of it: this one, or any where this one is its sender.
    down  an item with a rank that reads it: this one, or any where this one is its receiver.
    """

    up: np.ndarray
    down: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """The records of the rows that this rank sends and receives in each exchange, in their order.

    given, taken  of gather; sent, came of cross; lent, read of spread.
    """

    given: np.ndarray
    taken: np.ndarray
    sent: np.ndarray
    came: np.ndarray
    lent: np.ndarray
    read: np.ndarray

    @classmethod
    def of(cls, relay: Relay, me: int) -> Route:
        """Return what rank `me` sends and receives."""
        up, down = relay.up, relay.down
        is_sender, is_receiver = up["sender"] == me, down["receiver"] == me
        return cls(
            given=_sorted(up[(up["rank"] == me) & ~is_sender], "sender", "receiver", "item"),
            taken=_sorted(up[is_sender & (up["rank"] != me)], "rank", "receiver", "item"),
            sent=_once(_sorted(up[is_sender], "receiver", "item")),
            came=_once(_sorted(down[is_receiver], "sender", "item")),
            lent=_sorted(down[is_receiver & (down["rank"] != me)], "rank", "sender", "item"),
            read=_sorted(down[(down["rank"] == me) & ~is_receiver], "receiver", "sender", "item"),
        )

    def counts(self, P: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rows sent to each rank and received from it, (P,), by gather, cross and spread."""
        ends = (
            (self.given["sender"], self.taken["rank"]),
            (self.sent["receiver"], self.came["sender"]),
            (self.lent["rank"], self.read["receiver"]),
        )
        return [(np.bincount(to, minlength=P), np.bincount(source, minlength=P)) for to, source in ends]


def make_relay(index: IndexMap, A_og: sp.csr_array, layout: Layout) -> Relay:
    """Cover the nonzeros of each pair of hosts on a rank of the host that reads, and return what this rank does. Collective.

    Args: A_og  (n, g) with the ghosts of index as columns; those of ranks of this host are left out.
    """
    comm, host_P = layout.comm, layout.grid.host_P
    here = np.flatnonzero(host_P == host_P[comm.rank])
    owner_g = np.repeat(np.arange(comm.size), index.ghosts_P)
    row_E, owner_E = np.repeat(np.arange(A_og.shape[0]), np.diff(A_og.indptr)), owner_g[A_og.indices]
    nonzeros = _records(NONZERO, row=row_E, column=index.ghost_g[A_og.indices], owner=owner_E)
    nonzeros = nonzeros[host_P[owner_E] != host_P[comm.rank]]
    of_rank, counts = send_each(layout.on_host, nonzeros, host_P[nonzeros["owner"]] % len(here))
    return _told(comm, _solve(of_rank, np.repeat(here, counts), layout))


def send_each(comm: Communicator, rows: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Send each row or record to a rank; return those received, in rank order, and how many each rank sent. Collective."""
    send_P = np.bincount(to, minlength=comm.size).astype(np.int64)
    recv_P = exchange_counts(comm, send_P)
    ordered = np.ascontiguousarray(rows[np.argsort(to, kind="stable")])
    width = () if rows.dtype.names is None else (len(rows.dtype.names),)
    plain = ordered if not width else ordered.view(np.int64).reshape(-1, *width)
    received = np.empty((int(recv_P.sum()), *width), plain.dtype)
    comm.all_to_all(plain, send_P, received, recv_P)
    return received.view(rows.dtype).reshape(-1), recv_P


def _solve(nonzeros: np.ndarray, reader_E: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the records of all items of the pairs of hosts whose nonzeros were sent here."""
    host_P = layout.grid.host_P
    hosts, n = int(host_P.max()) + 1, int(nonzeros["row"].max(initial=0)) + 1
    rows, row_E = np.unique(reader_E * n + nonzeros["row"], return_inverse=True)
    ids, first, column_E = np.unique(nonzeros["column"], return_index=True, return_inverse=True)
    owner_c = nonzeros["owner"][first]
    order = np.lexsort((ids, owner_c, host_P[owner_c]))
    column_E = np.argsort(order)[column_E]
    ids, owner_c = ids[order], owner_c[order]
    A = make_csr(np.ones(len(row_E), np.int8), row_E, column_E, (len(rows), len(ids)))
    items = cover_hosts(A, rows // n, owner_c, host_P, layout.threads)
    item_I = ((items.pair_I * hosts + host_P[layout.comm.rank]) << NUMBERS) + items.number_I
    is_sum_I, of_I = items.is_sum_I, items.of_I.copy()
    of_I[is_sum_I], of_I[~is_sum_I] = rows[of_I[is_sum_I]] % n, ids[of_I[~is_sum_I]]
    facts = {"item": item_I, "sender": items.sender_I, "receiver": items.receiver_I, "of": of_I, "is_sum": is_sum_I}
    up, down = (
        _records(RECORD, rank=rank, is_down=is_down, **{name: of[item] for name, of in facts.items()})
        for is_down, (item, rank) in enumerate((items.up, items.down))
    )
    return np.concatenate([up, down])


def _told(comm: Communicator, records: np.ndarray) -> Relay:
    """Send each record to its rank, and to the sender or receiver of the item where that is another. Collective."""
    relay = np.where(records["is_down"] == 1, records["receiver"], records["sender"])
    other = relay != records["rank"]
    to = np.concatenate([records["rank"], relay[other]])
    mine, _ = send_each(comm, np.concatenate([records, records[other]]), to)
    return Relay(mine[mine["is_down"] == 0], mine[mine["is_down"] == 1])


def relayed_plan(
    index: IndexMap, A_og: sp.csr_array, layout: Layout, relay: Relay | None = None
) -> tuple[RelayedPlan, sp.csr_array]:
    """Return the plan of one SpMM with the ghosts of other hosts, and A (n, r2 + r3), which multiplies what it pulls.

    Args: A_og (n, g) with the ghosts of index as columns; relay: of it, where it is known. Collective.
    """
    comm, me = layout.comm, layout.comm.rank
    relay = relay or make_relay(index, A_og, layout)
    route = Route.of(relay, me)
    A_nr, shares, weights, sums_read = _read(index, A_og, layout, relay, route)
    B, moved_nnz = _shares(index, shares, weights, layout, relay, route)
    m1, r1, m2, r2, m3 = map(len, (route.given, route.taken, route.sent, route.came, route.lent))
    taken_at = _places(route.sent["item"], route.taken["item"])
    lent_at = _places(route.came["item"], route.lent["item"])
    packs = (
        B[:m1],
        make_csr(np.ones(r1, A_og.dtype), taken_at, np.arange(r1), (m2, r1)),
        make_csr(np.ones(m3, A_og.dtype), np.arange(m3), lent_at, (m3, r2)),
    )
    here = np.flatnonzero(layout.grid.host_P == layout.grid.host_P[me])
    legs, counts = [], route.counts(comm.size)
    for pack, (send_P, recv_P), leg in zip(packs, counts, ("gather", "cross", "spread")):
        on, ranks = (comm, slice(None)) if leg == "cross" else (layout.on_host, here)
        pack = LocalCSR(sp.csr_array(pack), layout.dtype, layout.threads)
        legs.append(ExchangePlan.packed(on, pack, send_P[ranks], recv_P[ranks], layout.pool, layout))
    own = LocalCSR(sp.csr_array(B[m1:]), layout.dtype, layout.threads)
    return RelayedPlan(legs, own, np.sum(counts, axis=0), moved_nnz, sums_read), A_nr


def relayed_counts(index: IndexMap, A_og: sp.csr_array, layout: Layout, relay: Relay) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that this rank sends each rank for what crosses, and the nonzeros that each multiplies for it, (P,)."""
    P, route = layout.comm.size, Route.of(relay, layout.comm.rank)
    _, shares, _, _ = _read(index, A_og, layout, relay, route)
    return np.sum([sent_P for sent_P, _ in route.counts(P)], axis=0), np.bincount(shares["owner"], minlength=P)


def _read(
    index: IndexMap, A_og: sp.csr_array, layout: Layout, relay: Relay, route: Route
) -> tuple[sp.csr_array, np.ndarray, np.ndarray, int]:
    """Return A (n, r2 + r3), the nonzeros that owners multiply and their weights, (x,), and the sums that this rank reads."""
    n, host_P = A_og.shape[0], layout.grid.host_P
    reads = relay.down[relay.down["rank"] == layout.comm.rank]
    place = _places(np.concatenate([route.came["item"], route.read["item"]]), reads["item"])
    r, is_sum = len(route.came) + len(route.read), reads["is_sum"] == 1
    where_g = np.full(index.g, -1)
    where_g[_places(index.ghost_g, reads["of"][~is_sum])] = place[~is_sum]
    is_raw = where_g[A_og.indices] >= 0
    owner_g = np.repeat(np.arange(len(host_P)), index.ghosts_P)
    is_moved = ~is_raw & (host_P[owner_g] != host_P[layout.comm.rank])[A_og.indices]
    columns = A_og.indices[is_moved]
    rows = np.searchsorted(A_og.indptr, np.flatnonzero(is_moved), side="right") - 1
    sums = reads[is_sum]
    source = (sums["item"] >> NUMBERS) // (int(host_P.max()) + 1)  # the host from which a sum comes
    item = sums["item"][_places(source * n + sums["of"], host_P[owner_g[columns]] * n + rows)]
    ones = make_csr(np.ones(len(sums), A_og.dtype), sums["of"], place[is_sum], (n, r))
    A_nr = merged_csr(select_entries(A_og, is_raw, where_g[A_og.indices], r), ones)
    shares = _records(SHARE, item=item, column=index.ghost_g[columns], owner=owner_g[columns])
    return A_nr, shares, A_og.data[is_moved], len(sums)


def _shares(
    index: IndexMap, shares: np.ndarray, weights: np.ndarray, layout: Layout, relay: Relay, route: Route
) -> tuple[sp.csr_array, int]:
    """Return B (m1 + m2, n), what this rank gives and then what it sends of its own, and the nonzeros that it multiplies
    for others. Collective.

    Args: shares, weights  the nonzeros that owners multiply for this rank.
    """
    comm, given, sent = layout.comm, route.given, route.sent
    ours = relay.up[relay.up["rank"] == comm.rank]
    is_sent = ours["sender"] == comm.rank
    ours = np.concatenate([ours[~is_sent], ours[is_sent]])
    given_at, sent_at = np.split(ours["item"], [np.count_nonzero(~is_sent)])
    rows = np.concatenate([_places(given["item"], given_at), len(given) + _places(sent["item"], sent_at)])
    theirs = send_each(comm, shares, shares["owner"])[0]
    data = send_each(comm, weights, shares["owner"])[0]
    is_raw = ours["is_sum"] == 0
    raw_ids = ours["of"][is_raw]
    raw_own, sums_own = index.find_own(raw_ids), index.find_own(theirs["column"])
    agree(comm, misdirected(comm.rank, raw_own, raw_ids) or misdirected(comm.rank, sums_own, theirs["column"]))
    B = make_csr(
        np.concatenate([np.ones(len(raw_own), data.dtype), data]),
        np.concatenate([rows[is_raw], rows[_places(ours["item"], theirs["item"])]]),
        np.concatenate([raw_own, sums_own]),
        (len(given) + len(sent), index.n),
    )
    return B, len(sums_own)


def _records(kind: np.dtype, **fields: np.ndarray | int) -> np.ndarray:
    """Return records of a type, with these fields: arrays, or one number for all."""
    records = np.empty(next(len(of) for of in fields.values() if isinstance(of, np.ndarray)), kind)
    for name, of in fields.items():
        records[name] = of
    return records


def _sorted(records: np.ndarray, *names: str) -> np.ndarray:
    """Return the records ordered by these fields, the first one first."""
    return records[np.lexsort([records[name] for name in reversed(names)])]


def _once(records: np.ndarray) -> np.ndarray:
    """Return one record of each item, of records in which those of an item follow each other."""
    is_first = np.ones(len(records), bool)
    is_first[1:] = records["item"][1:] != records["item"][:-1]
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
        self.gather, self.cross, self.spread = (leg.matrix for leg in legs)
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
        for pack, rows in ((self.gather, received_mF[:m1]), (self.own, received_mF[m1:])):
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
        self.plan = plan
        given = plan.fly(0, plan.multiply(PACK, plan.gather, H_nF), "pull")
        own = plan.multiply(PACK, plan.own, H_nF, sum_dtype(H_nF.dtype))
        sent = plan.multiply(PACK, plan.cross, given.finish(), H_nF.dtype, own)
        self.table = plan.rows(plan.read_rows, H_nF)
        self.flight = plan.fly(1, sent, "pull", self.table[: plan.legs[1].g])

    def finish(self) -> torch.Tensor:
        """Wait for the rows that cross, spread them, and return the table [T2; T3]. Collective."""
        plan, came = self.plan, self.flight.finish()
        lent = plan.multiply(PACK, plan.spread, came)
        plan.fly(2, lent, "pull", self.table[len(came) :]).finish()
        return self.table


class RelayedPush:
    """A push_add between the transposes of spread and gather."""

    def __init__(self, plan: RelayedPlan, G_rF: torch.Tensor):
        gather, cross, _ = plan.legs
        self.plan = plan
        lent = plan.fly(2, G_rF[cross.g :], "push").finish()
        came, wide = G_rF[: cross.g], sum_dtype(G_rF.dtype)
        came = came if came.dtype == wide else gather.pool.copy(came, wide)
        total = plan.multiply(UNPACK, plan.spread.transposed(), lent, G_rF.dtype, came)
        self.received = plan.rows(gather.sent_rows + cross.sent_rows, G_rF)
        self.flight = plan.fly(1, total, "push", self.received[gather.sent_rows :])

    def finish(self) -> torch.Tensor:
        """Wait for the rows that cross, give the ranks with a share theirs, and return [of given; of sent]. Collective."""
        plan, sent = self.plan, self.flight.finish()
        taken = plan.multiply(UNPACK, plan.cross.transposed(), sent)
        plan.fly(0, taken, "push", self.received[: len(self.received) - len(sent)]).finish()
        return self.received
