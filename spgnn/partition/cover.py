"""Minimum vertex covers of off-diagonal blocks: the fewest rows that one SpMM can move between two parts, or two hosts.

For a nonzero (i, j) of a block either row j of H is sent to the reader, or the owner sends a partial sum of row i: a
vertex cover of the bipartite graph rows x columns. The smallest has as many vertices as a maximum matching has edges,
so it never exceeds the number of nonempty columns. The graph may be directed.
Shapes: N nodes, n rows, g columns, B ranges of columns, k parts; q owns and sends, p reads.
Source: Koenig 1931; Hopcroft & Karp 1973.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..errors import PartitionError
from ..machine import cores
from . import _loops
from .metrics import csr_arrays


@dataclass(frozen=True, slots=True, eq=False)
class Covers:
    """A minimum cover for each range b of columns: every nonzero once, raw if its column is in, else by its row.

    columns_g  (g,) bool: the column is in its range's cover and travels as a raw row of H.
    rows       (m,) int64: the rows in the cover of range 0, rising, then of range 1, ...; they travel
               as partial sums over the nonzeros of the range whose column is not in the cover.
    rows_ptr   (B + 1,) int64: rows[rows_ptr[b] : rows_ptr[b + 1]] are those of range b.
    sizes_B    (B,) int64: columns and rows in the cover, what the range's owner sends.
    moved_B    (B,) int64: nonzeros that the owner multiplies instead of the reader.
    """

    columns_g: np.ndarray
    rows: np.ndarray
    rows_ptr: np.ndarray
    sizes_B: np.ndarray
    moved_B: np.ndarray


def minimum_covers(A_ng: sp.csr_array, bounds_B: np.ndarray, threads: int = 0) -> Covers:
    """Cover the nonzeros of each range bounds[b] to bounds[b + 1] - 1 of the columns by the fewest rows and columns.

    Of all minimum covers it is the one with the most columns, which leaves the fewest nonzeros to the owner.
    Independent of the number of threads. Memory besides the matrix: 8 bytes per nonzero, and on each thread 4 per row
    and column and 20 per nonzero of its range.

    Args:   A_ng      (n, g) CSR; a stored zero counts as a nonzero.
            bounds_B  (B + 1,) integers, rising from 0 to g.
            threads   0: the cores that this process has.
    Raises: PartitionError if the arrays are no CSR matrix, or the bounds do not cut its columns.
    """
    bounds = np.ascontiguousarray(bounds_B, np.int64)
    columns_g, rows, rows_ptr, moved_B = _call(_loops.range_covers, A_ng, A_ng.shape[1], bounds, threads or cores())
    sums = np.concatenate([[0], np.cumsum(columns_g)])
    sizes_B = sums[bounds[1:]] - sums[bounds[:-1]] + np.diff(rows_ptr)
    return Covers(columns_g, rows, rows_ptr, sizes_B, moved_B)


def cover_tables(
    A: sp.csr_array, owner_N: np.ndarray, k: int, threads: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns_PP, rows_PP, moved_PP, each (k, k) int64 with a zero diagonal, of the covers of all pairs.

    Of the block of p's rows and q's columns, columns_PP[q, p] travel raw, rows_PP[q, p] as partial
    sums, and q multiplies moved_PP[q, p] nonzeros instead of p.

    Args:   A  (N, N) CSR; owner_N (N,) integers 0 to k-1.
    Raises: PartitionError if the arrays are no CSR matrix or owner_N is no partition of it.
    """
    owner_N = np.ascontiguousarray(owner_N, dtype=np.int32)
    if len(owner_N) and not 0 <= int(owner_N.min()) <= int(owner_N.max()) < k:
        raise PartitionError(f"cover: owners are {owner_N.min()} to {owner_N.max()}; expected 0 to {k - 1}")
    columns_PP, rows_PP, moved_PP = _call(_loops.pair_covers, A, owner_N, k, threads or cores())
    return columns_PP, rows_PP, moved_PP


def cover_PP(A: sp.csr_array, owner_N: np.ndarray, k: int) -> np.ndarray:
    """Count what one SpMM moves with minimum covers: rows that q sends p, raw and partial sums; (k, k) int64."""
    columns_PP, rows_PP, _ = cover_tables(A, owner_N, k)
    return columns_PP + rows_PP


def _call(loop: Callable[..., tuple], A: sp.csr_array, *args) -> tuple:
    try:
        return loop(*csr_arrays(A), *args)
    except ValueError as error:
        raise PartitionError(f"cover: {error}; the matrix has shape {A.shape} and {A.nnz} nonzeros") from None


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Two-tier exchange: the items that one host reads, those of its first source host first; of a host its columns, then its sums.

    An item is a column or a row of a minimum cover of a pair of hosts: a row of H, or a partial sum, that crosses once from
    host h to host h'. The ranks that have a share of it (the owner of the column; the owners of the columns that are summed)
    send theirs to the sender, a rank of h. It adds them up and sends the item to the receiver, a rank of h', which sends it
    to the other ranks that read it. Shapes: H hosts, P ranks, E nonzeros, I items.
    Source: hierarchical reduction as in Bienz et al. 2019 (node-aware SpMV).

    is_sum_I    (I,) bool; of_I: the column or row of the matrix that covers it.
    pair_I      (I,) source host; number_I: place among the items of the pair.
    item_E      (E,) the item by which a nonzero of the matrix travels.
    up, down    (2, u) and (2, d): each item with each rank that has a share of it, and with each that reads it.
    sender_I    rank of the source host; receiver_I: of the reading one.
    """

    is_sum_I: np.ndarray
    of_I: np.ndarray
    pair_I: np.ndarray
    number_I: np.ndarray
    item_E: np.ndarray
    up: np.ndarray
    down: np.ndarray
    sender_I: np.ndarray
    receiver_I: np.ndarray


def cover_hosts(
    A_mc: sp.csr_array, reader_m: np.ndarray, owner_c: np.ndarray, host_P: np.ndarray, threads: int = 0
) -> Items:
    """Return the items of the fewest rows that cross from each host to the one that reads.

    Senders and receivers of a pair of hosts are ranks that have or read the item as far as none gets more than its equal
    share; what is beyond goes to the ranks that have less.
    Args: A_mc      rows of one host's ranks, columns ordered by the host that owns them.
          reader_m  rank of each row, rising; owner_c: of each column; host_P: host of each rank.
    """
    m, c = A_mc.shape
    hosts = int(host_P.max()) + 1
    host_c = host_P[owner_c]
    covers = minimum_covers(A_mc, np.searchsorted(host_c, np.arange(hosts + 1)), threads)
    columns = np.flatnonzero(covers.columns_g)
    sums_H = np.diff(covers.rows_ptr)
    pair_I = np.concatenate([host_c[columns], np.repeat(np.arange(hosts), sums_H)])
    order = np.argsort(pair_I, kind="stable")  # of a pair its columns first
    pair_I, place = pair_I[order], np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    is_sum_I = order >= len(columns)
    of_I = np.concatenate([columns, covers.rows])[order]
    row_E, is_raw_E = np.repeat(np.arange(m), np.diff(A_mc.indptr)), covers.columns_g[A_mc.indices]
    item_c = np.zeros(c, np.int64)
    item_c[columns] = place[: len(columns)]
    keys = np.repeat(np.arange(hosts), sums_H) * m + covers.rows  # rising
    item_E = item_c[A_mc.indices]
    moved = ~is_raw_E
    at = np.searchsorted(keys, host_c[A_mc.indices[moved]] * m + row_E[moved])
    item_E[moved] = place[len(columns) :][at]
    P = len(host_P)
    up = _distinct(item_E, owner_c[A_mc.indices], P)
    down = _distinct(item_E, reader_m[row_E], P)
    here = np.flatnonzero(host_P == host_P[reader_m[0]]) if m else np.zeros(0, np.int64)
    starts = np.searchsorted(pair_I, np.arange(hosts + 1))
    number_I = np.arange(len(pair_I)) - starts[pair_I]
    sender_I, receiver_I = _one_of(up, number_I), _one_of(down, number_I)
    for h in np.flatnonzero(np.diff(starts)):
        of_pair = slice(starts[h], starts[h + 1])
        sender_I[of_pair] = _levelled(sender_I[of_pair], np.flatnonzero(host_P == h))
        receiver_I[of_pair] = _levelled(receiver_I[of_pair], here)
    return Items(is_sum_I, of_I, pair_I, number_I, item_E, up, down, sender_I, receiver_I)


def two_tier_tables(
    A: sp.csr_array, owner_N: np.ndarray, host_P: np.ndarray, threads: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows_PP, what q sends p in one product between hosts and for them inside hosts, and moved_PP, nonzeros that q
    multiplies for p; (P, P) int64. Nonzeros inside a host are left out.

    Args: A (N, N) CSR; owner_N (N,) rank of each row; host_P (P,).
    """
    P, owner_N = len(host_P), np.asarray(owner_N, np.int64)
    rows_PP, moved_PP = np.zeros((P, P), np.int64), np.zeros((P, P), np.int64)
    by_rank = np.lexsort((owner_N, host_P[owner_N]))
    place_N = np.empty(len(by_rank), np.int64)
    place_N[by_rank] = np.arange(len(by_rank))
    of_place = owner_N[by_rank]
    for h in range(int(host_P.max()) + 1):
        rows = by_rank[host_P[of_place] == h]
        block = sp.csr_array(A[rows])
        is_remote = host_P[owner_N[block.indices]] != h
        ends = np.concatenate([[0], np.cumsum(is_remote)])[block.indptr]
        ids = place_N[block.indices[is_remote]]
        read, columns = np.unique(ids, return_inverse=True)
        data = np.ones(len(columns), np.int8)
        A_mc = sp.csr_array((data, columns.astype(np.int32), ends), shape=(len(rows), len(read)))
        A_mc.sort_indices()
        items = cover_hosts(A_mc, owner_N[rows], of_place[read], host_P, threads)
        rows_PP += sent_by(items, P)
        moved = items.is_sum_I[items.item_E]
        readers = np.repeat(owner_N[rows], np.diff(A_mc.indptr))[moved]
        np.add.at(moved_PP, (of_place[read][A_mc.indices[moved]], readers), 1)
    return rows_PP, moved_PP


def sent_by(items: Items, P: int) -> np.ndarray:
    """Return the rows that each rank sends each other for the items, (P, P) int64."""
    rows_PP = np.zeros((P, P), np.int64)
    np.add.at(rows_PP, (items.up[1], items.sender_I[items.up[0]]), 1)
    np.add.at(rows_PP, (items.receiver_I[items.down[0]], items.down[1]), 1)
    np.fill_diagonal(rows_PP, 0)
    np.add.at(rows_PP, (items.sender_I, items.receiver_I), 1)
    return rows_PP


def _distinct(item_E: np.ndarray, rank_E: np.ndarray, P: int) -> np.ndarray:
    """Return the pairs (item, rank) that occur, once each, in order, (2, u)."""
    return np.stack(np.divmod(np.unique(item_E * P + rank_E), P))


def _one_of(pairs: np.ndarray, number_I: np.ndarray) -> np.ndarray:
    """Return for each item one of its ranks: of the k ranks of the i-th item of a pair of hosts the one numbered i mod k."""
    k = np.bincount(pairs[0], minlength=len(number_I))
    return pairs[1][np.cumsum(k) - k + number_I % k]


def _levelled(wanted: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return a rank for each item: the wanted one for as many as an equal share, others for the rest."""
    share = -(-len(wanted) // len(ranks))
    order = np.argsort(wanted, kind="stable")
    of_rank = np.bincount(np.searchsorted(ranks, wanted), minlength=len(ranks))
    place = np.arange(len(wanted)) - np.repeat(np.cumsum(of_rank) - of_rank, of_rank)
    beyond = order[place >= share]
    chosen = wanted.copy()
    chosen[beyond] = np.repeat(ranks, np.maximum(share - of_rank, 0))[: len(beyond)]
    return chosen
