"""IndexMap: the rows that a rank owns and those that it reads, numbered own 0..n-1, then ghost n..n+g-1.

Shapes: N nodes, n own rows, g ghost rows, P ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ...graph.node_types import NodeTypes
from ...graph.structure import index_dtype, sort_columns

LARGEST_TABLE = 8  # nodes per nonzero


@dataclass(frozen=True, slots=True)
class IndexMap:
    """Own and ghost rows of one rank, in original node ids.

    own_n      (n,) int64, in any order: that of the rows on this rank.
    ghost_g    (g,) int64, ordered by owner, then by id.
    ghosts_P   (P,) int64, ghosts of each owner; zero for this rank.
    types      of the nodes of the whole graph.
    """

    own_n: np.ndarray
    ghost_g: np.ndarray
    ghosts_P: np.ndarray
    types: NodeTypes = NodeTypes()

    @property
    def n(self) -> int:
        return len(self.own_n)

    @property
    def g(self) -> int:
        return len(self.ghost_g)

    def find_own(self, ids: np.ndarray) -> np.ndarray:
        """Return the row of each original id on this rank, -1 where it is not an own one."""
        if np.all(self.own_n[1:] > self.own_n[:-1]):
            return find(self.own_n, ids)
        order_n = np.argsort(self.own_n)
        where = find(self.own_n[order_n], ids)
        return np.where(where >= 0, order_n[where], -1)

    def of_owners(self, owners: range) -> tuple[IndexMap, slice]:
        """Return the map with the ghosts of these owners alone, and their place among the ghosts."""
        ends = np.cumsum(self.ghosts_P)
        chosen = np.zeros_like(self.ghosts_P)
        chosen[owners.start : owners.stop] = self.ghosts_P[owners.start : owners.stop]
        start = int(ends[owners.start - 1]) if owners.start else 0
        where = slice(start, start + int(chosen.sum()))
        return replace(self, ghost_g=self.ghost_g[where], ghosts_P=chosen), where

    def split(self, A_nN: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
        """Return A_oo (n, n) and A_og (n, g) of a row block whose columns are original ids.

        Every column must be own or ghost.
        """
        places = self._places(A_nN)
        is_own = places < self.n
        return select_entries(A_nN, is_own, places, self.n), select_entries(A_nN, ~is_own, places, self.g, self.n)

    def _places(self, A_nN: sp.csr_array) -> np.ndarray:
        """Return the row of each column in the map, own rows from 0 and ghosts from n on."""
        places = places_of(np.concatenate([self.own_n, self.ghost_g]), A_nN.indices, A_nN.shape[1])
        assert places.min(initial=0) >= 0, "a column is neither own nor ghost"
        return places


def places_of(node_m: np.ndarray, ids: np.ndarray, n_nodes: int) -> np.ndarray:
    """Return the position of each id in node_m, (m,) distinct and in any order; -1 where it is absent.

    By a table of all nodes, unless they are many times the ids. In [2, 5, 3] the ids [5, 3, 2, 4] are at [1, 2, 0, -1].
    """
    if n_nodes <= LARGEST_TABLE * len(ids):
        place_N = np.zeros(n_nodes, index_dtype(len(node_m) + 1))  # from 1 on
        place_N[node_m] = np.arange(1, len(node_m) + 1)
        places = place_N[ids]
        places -= 1
        return places
    by_id = np.argsort(node_m)
    at = find(node_m[by_id], ids)
    return np.where(at >= 0, by_id[at], -1) if len(node_m) else at


def columns_map(own_n: np.ndarray, A_nN: sp.csr_array, owner_of, rank: int, size: int) -> IndexMap:
    """Return the map whose ghosts are the nonzero columns of the off-diagonal blocks, NnzCols(i, j).

    Args:   owner_of  function of original ids (m,) to their ranks (m,).
    Source: Mukhodopadhyay et al. 2024, section 4.1.
    """
    columns = np.sort(A_nN.indices)
    columns = columns[np.concatenate([np.ones(min(len(columns), 1), bool), columns[1:] != columns[:-1]])].astype(
        np.int64
    )
    ghost = columns[find(own_n, columns) < 0]
    return _ordered(own_n, ghost, np.asarray(owner_of(ghost)), rank, size)


def broadcast_map(own_n: np.ndarray, ids_N: np.ndarray, rows_P: np.ndarray, rank: int) -> IndexMap:
    """Return the map whose ghosts are all rows of all other ranks: the sparsity-oblivious baseline."""
    owner = np.repeat(np.arange(len(rows_P)), rows_P)
    other = owner != rank
    return _ordered(own_n, ids_N[other], owner[other], rank, len(rows_P))


def find(ascending: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the position of each id in an ascending array, -1 if it is absent."""
    if len(ascending) == 0:
        return np.full(len(ids), -1, np.int64)
    where = np.searchsorted(ascending, ids)
    where[where == len(ascending)] = 0
    return np.where(ascending[where] == ids, where, -1)


def _ordered(own_n, ghost, owner, rank, size) -> IndexMap:
    order = np.lexsort((ghost, owner))
    counts = np.bincount(owner, minlength=size).astype(np.int64)
    assert counts[rank] == 0, "a rank's own row is no ghost"
    return IndexMap(np.asarray(own_n, dtype=np.int64), ghost[order].astype(np.int64), counts)


def select_entries(A: sp.csr_array, is_one: np.ndarray, places: np.ndarray, width: int, first: int = 0) -> sp.csr_array:
    """Return the CSR (n, width) of some nonzeros of A, in the columns places - first; indices sorted."""
    index = index_dtype(max(width, A.nnz))
    indptr = np.concatenate([np.zeros(1, index), np.cumsum(is_one, dtype=index)])[A.indptr]

    def chosen() -> sp.csr_array:
        columns = (places[is_one] - first).astype(index, copy=False)
        return sp.csr_array((A.data[is_one], columns, indptr), shape=(A.shape[0], width))

    return sort_columns(chosen(), chosen)


def make_csr(data, rows, columns, shape) -> sp.csr_array:
    """Return the CSR of distinct entries, its indices sorted."""
    if np.any(np.diff(rows) < 0):
        order = np.argsort(rows, kind="stable")
        data, rows, columns = data[order], rows[order], columns[order]
    index = index_dtype(max(shape[1], len(rows)))
    indptr = np.zeros(shape[0] + 1, index)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    A = sp.csr_array((data, columns.astype(index, copy=False), indptr), shape=shape)
    A.sort_indices()
    return A
