"""The cover exchange: raw rows of H where a column is in the minimum cover, partial sums where a row is.

The reader p covers the block A[rows of p, columns of q] and sends q, once, the nonzeros whose sums q will compute:

        5 6 7
    0 [ x x x ]    the cover is row 0 and column 5: q sends 2 rows instead of 3,
    1 [ x . . ]    row 5 of H, and the partial sum A[0, 6] H[6] + A[0, 7] H[7].

Shapes: n rows, g ghost columns, m rows sent, r rows received, P ranks.
Source: Koenig 1931.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...dist import Communicator
from ...errors import agree
from ...graph.structure import index_dtype
from ...partition.cover import Covers, minimum_covers
from ..kernels.csr import LocalCSR
from .exchange_plan import ExchangePlan, exchange_counts, exchange_csr, misdirected
from .index_map import IndexMap, make_csr, select_entries


def covers_of(A_og: sp.csr_array, index: IndexMap, threads: int = 0) -> Covers:
    """Return the minimum covers of the blocks of each owner."""
    return minimum_covers(A_og, np.concatenate([[0], np.cumsum(index.ghosts_P)]), threads)


def covered_plan(
    comm: Communicator, index: IndexMap, A_og: sp.csr_array, layout, covers: Covers | None = None
) -> tuple[ExchangePlan, sp.csr_array]:
    """Return the plan of one SpMM with A_og and A (n, r), which multiplies what the plan pulls: A pull(H) = A_og H_gF.

    Args: A_og (n, g) with the ghosts of index as columns; covers: of it, where they are known. Collective.
    """
    n, P = A_og.shape[0], comm.size
    covers = covers or covers_of(A_og, index, layout.threads)
    owner_g = np.repeat(np.arange(P), index.ghosts_P)
    raw_P = np.bincount(owner_g[covers.columns_g], minlength=P).astype(np.int64)
    sums_P = np.diff(covers.rows_ptr)
    recv_P = raw_P + sums_P
    starts_P = np.cumsum(recv_P) - recv_P
    # Of each owner come first its raw rows, then its partial sums.
    raw_at = np.arange(raw_P.sum()) + np.repeat(starts_P - (np.cumsum(raw_P) - raw_P), raw_P)
    sums_at = np.arange(sums_P.sum()) + np.repeat(starts_P + raw_P - (np.cumsum(sums_P) - sums_P), sums_P)
    is_raw, r = covers.columns_g[A_og.indices], int(recv_P.sum())
    where_g = np.zeros(A_og.shape[1], index_dtype(r))
    where_g[covers.columns_g] = raw_at
    read = make_csr(np.ones(len(covers.rows), A_og.dtype), covers.rows, sums_at, (n, r))
    A_nr = merged_csr(select_entries(A_og, is_raw, where_g[A_og.indices], r), read)
    S_sN = _owner_nonzeros(A_og, ~is_raw, owner_g, covers, index)
    send_raw_P, send_sums_P = exchange_counts(comm, raw_P), exchange_counts(comm, sums_P)
    wanted = np.empty(int(send_raw_P.sum()), np.int64)
    comm.all_to_all(np.ascontiguousarray(index.ghost_g[covers.columns_g]), raw_P, wanted, send_raw_P)
    theirs = exchange_csr(comm, S_sN, sums_P, send_sums_P)
    raw_own, sums_own = index.find_own(wanted), index.find_own(np.asarray(theirs.indices, dtype=np.int64))
    agree(comm, misdirected(comm.rank, raw_own, wanted) or misdirected(comm.rank, sums_own, theirs.indices))
    B = LocalCSR(
        _packing_matrix(raw_own, send_raw_P, theirs, sums_own, send_sums_P, index.n), layout.dtype, layout.threads
    )
    plan = ExchangePlan.packed(comm, B, send_raw_P + send_sums_P, recv_P, layout.pool, layout)
    plan.moved_nnz, plan.sums_read = len(sums_own), len(covers.rows)
    return plan, A_nr


def merged_csr(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """Return the CSR of the nonzeros of both, which are disjoint; stored zeros stay."""
    if not B.nnz:
        return A
    both, width = sp.csr_array(sp.hstack([A, B], format="csr")), A.shape[1]
    both.indices[both.indices >= width] -= width
    result = sp.csr_array((both.data, both.indices, both.indptr), shape=A.shape)
    result.sort_indices()
    return result


def _owner_nonzeros(A_og, is_moved, owner_g, covers: Covers, index: IndexMap) -> sp.csr_array:
    """Return the nonzeros that owners multiply: one row per covered row, columns are original ids."""
    n, columns = A_og.shape[0], A_og.indices[is_moved]
    rows = np.searchsorted(A_og.indptr, np.flatnonzero(is_moved), side="right") - 1
    covered_owner = np.repeat(np.arange(len(index.ghosts_P)), np.diff(covers.rows_ptr))
    keys = covered_owner * n + covers.rows  # rising
    at = np.searchsorted(keys, owner_g[columns] * n + rows)
    ids = index.ghost_g[columns]
    width = int(ids.max()) + 1 if len(ids) else 1
    return make_csr(A_og.data[is_moved], at, ids, (len(keys), width))


def _packing_matrix(raw_own, raw_P, sums: sp.csr_array, sums_own, sums_P, n: int) -> sp.csr_array:
    """Return B (m, n): for each reader its raw rows, then its partial sums."""
    lengths = np.concatenate([np.ones(len(raw_own), np.int64), np.diff(sums.indptr)])
    readers = np.concatenate([np.repeat(np.arange(len(raw_P)), raw_P), np.repeat(np.arange(len(sums_P)), sums_P)])
    whole = sp.csr_array(
        (
            np.concatenate([np.ones(len(raw_own)), sums.data]),
            np.concatenate([raw_own, sums_own]),
            np.concatenate([[0], np.cumsum(lengths)]),
        ),
        shape=(len(lengths), n),
    )
    B = sp.csr_array(whole[np.argsort(readers, kind="stable")])
    B.sort_indices()
    return B
