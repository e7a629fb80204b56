"""Exact ranks: of a target among all candidates, counted in integers, the same on any ranks, threads and blocks.

Shapes: N nodes, n own rows, q queries, F columns, K known candidates of all queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from ..distgraph import DistGraph
from ..errors import NumericalError, ShapeError, UsageError, agree, check_integer
from ..spmm.kernels import _kernels

Ties = Literal["mean", "optimistic", "pessimistic"]
Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class LinkRanks:
    """How many candidates score above the target of each query, and as much as it: above_q, equal_q (q,) int64.

    The target itself is in neither, nor are known candidates. rank = 1 + above, + equal where ties are pessimistic,
    + equal / 2 where they are the mean of both.

    >>> LinkRanks(np.array([0, 3]), np.array([0, 2])).rank_q("mean")
    array([1., 5.])
    """

    above_q: np.ndarray
    equal_q: np.ndarray

    def rank_q(self, ties: Ties = "mean") -> np.ndarray:
        """Return the rank of each target, from 1, (q,) float64."""
        if ties not in get_args(Ties):
            raise UsageError(f"ties={ties!r} is not known; expected one of {', '.join(get_args(Ties))}")
        share = {"mean": 0.5, "optimistic": 0.0, "pessimistic": 1.0}[ties]
        return 1 + self.above_q + share * self.equal_q

    def mrr(self, ties: Ties = "mean") -> float:
        """Return the mean of 1 / rank."""
        return float(np.mean(1 / self.rank_q(ties)))

    def hits(self, most: int, ties: Ties = "mean") -> float:
        """Return the share of targets whose rank is at most `most`."""
        return float(np.mean(self.rank_q(ties) <= most))


class Candidates:
    """The rows Z of all nodes, each on its rank: a query x has the score <x, Z_j> for node j.

    A score is one chain of additions in ascending order of columns, whatever the block, the thread or the rank, so equal
    rows have equal scores, and ties are exact.

    Args:   Z_nF   (n, F) float32 or float64 tensor, rows of the own nodes in the order of dgraph.node_n.
            among  (first, last): only nodes first to last - 1, original ids, are candidates, such as the items of a
                   recommender; their rows are copied. None: all nodes.
    Raises: ShapeError for another shape or type; UsageError for an empty range. Collective, as every method.
    """

    block_bytes = 1 << 26  # of the queries that all ranks hold at once

    def __init__(self, dgraph: DistGraph, Z_nF: torch.Tensor, among: tuple[int, int] | None = None):
        problem, n = None, len(dgraph.node_n)
        first, last = self.among = among or (0, dgraph.n_nodes)
        if not 0 <= first < last <= dgraph.n_nodes:
            problem = UsageError(f"among={among}; expected (first, last), 0 <= first < last <= {dgraph.n_nodes}")
        if Z_nF.ndim != 2 or len(Z_nF) != n or Z_nF.dtype not in (torch.float32, torch.float64):
            problem = ShapeError(f"Z is {Z_nF.dtype} {tuple(Z_nF.shape)}; expected float32 or float64 of ({n}, F)")
        agree(dgraph.comm, problem)
        self.comm, self.is_counted, self.threads = dgraph.comm, dgraph.is_counted, dgraph.A.threads
        self.Z_nF = self.C_mF = Z_nF.detach().contiguous().numpy()
        self.place_N = np.full(dgraph.n_nodes, -1, np.int64)  # of a node in Z; -1: of another rank
        self.place_N[dgraph.node_n] = np.arange(n)
        own_m = np.flatnonzero((dgraph.node_n >= first) & (dgraph.node_n < last))
        if len(own_m) < n:
            self.C_mF = self.Z_nF[own_m]
        self.ids_m = dgraph.node_n[own_m]
        self.place_n1 = np.full(n + 1, -1, np.int64)  # of a row of Z in C; -1: no candidate, as the last entry
        self.place_n1[own_m] = np.arange(len(own_m))

    def rows(self, node_q: np.ndarray) -> np.ndarray:
        """Return the rows of nodes of any ranks, (q, F), on all ranks; node_q: original ids, the same on all."""
        rows_qF = np.zeros((len(node_q), self.Z_nF.shape[1]), self.Z_nF.dtype)
        place_q = self._own(node_q)
        rows_qF[place_q >= 0] = self.Z_nF[place_q[place_q >= 0]]
        return self.comm.all_reduce(rows_qF)

    def scores(self, x_qF: np.ndarray, target_q: np.ndarray) -> np.ndarray:
        """Return <x_i, Z_target_i>, (q,), on all ranks."""
        place_q = self._own(target_q)
        own = np.flatnonzero(place_q >= 0)
        scores_q = np.zeros(len(x_qF), x_qF.dtype)
        scores_q[own] = self._pair_scores(np.ascontiguousarray(x_qF[own]), place_q[own])
        return self.comm.all_reduce(scores_q)

    # What a subclass with another score has of its own.

    def _pair_scores(self, x_qF: np.ndarray, place_q: np.ndarray) -> np.ndarray:
        """Return the score of each query and one row of Z, (q,)."""
        scores_q = np.zeros(len(x_qF), x_qF.dtype)
        _kernels.pair_scores(x_qF, self.Z_nF, place_q, scores_q, self.threads)
        return scores_q

    def _rank_counts(self, x_qF: np.ndarray, *given) -> bool:
        """Add to above_q and equal_q; return whether all scores are numbers."""
        return _kernels.rank_counts(x_qF, self.C_mF, *given, self.threads)

    def _top(self, x_qF: np.ndarray, *given) -> bool:
        """Write the best candidates of each query and their scores; return whether all scores are numbers."""
        return _kernels.top_candidates(x_qF, self.C_mF, *given, self.threads)

    def ranks(self, x_qF: np.ndarray, target_q: np.ndarray, known: Arrays | None = None) -> LinkRanks:
        """Return the filtered rank of each query's target among the candidates.

        Args:   x_qF      (q, F) queries in the type of Z, and target_q (q,) original ids, the same on all ranks.
                known     (indptr (q + 1,), ids (K,)): candidates of each query that do not count, such as other links
                          that are known; the target may be one of them. None: all others count.
        Raises: UsageError for a target that is no candidate; NumericalError where a score is not finite.
        Queries are on all ranks, in blocks; candidates do not move. Source: filtered ranks, Bordes et al. 2013, 4.1.
        """
        first, last = self.among
        if len(outside := target_q[(target_q < first) | (target_q >= last)]):
            raise UsageError(f"target {outside[0]} is no candidate; expected nodes {first} to {last - 1}")
        counts_2q = np.zeros((2, len(x_qF)), np.int64)
        for of_block, *of_queries in self._blocks(x_qF, known):
            counts_2q[:, of_block] = self._count(x_qF[of_block], target_q[of_block], *of_queries)
        return LinkRanks(*counts_2q)

    def top(self, x_qF: np.ndarray, k: int, known: Arrays | None = None, exclude_q: np.ndarray | None = None) -> Arrays:
        """Return original ids (q, k) int64 and scores (q, k) of the best candidates of each query, the best one first.

        Equal scores are in ascending order of ids. Where fewer than k candidates are left the id is -1, the score NaN.

        Args:   x_qF, known  see ranks; exclude_q  (q,) one more node of each query that is none, such as its own.
        Raises: UsageError for k < 1; NumericalError where a score is not finite.
        """
        most = min(check_integer("k", k, 1), self.among[1] - self.among[0])
        ids_qk, scores_qk = np.full((len(x_qF), k), -1, np.int64), np.full((len(x_qF), k), np.nan, x_qF.dtype)
        row_bytes = 3 * (self.comm.size + 1) * most * (8 + x_qF.itemsize)  # of all ranks, and their order
        for of_block, *of_queries in self._blocks(x_qF, known, row_bytes):
            own = exclude_q if exclude_q is None else exclude_q[of_block]
            ids_qk[of_block, :most], scores_qk[of_block, :most] = self._best(x_qF[of_block], own, most, *of_queries)
        return ids_qk, scores_qk

    def _blocks(self, x_qF: np.ndarray, known: Arrays | None, row_bytes: int = 0):
        """Yield slices of queries that take at most block_bytes, and indptr and ids of their known candidates."""
        indptr, ids = (np.zeros(len(x_qF) + 1, np.int64), np.zeros(0, np.int64)) if known is None else known
        block = max(1, self.block_bytes // max(1, x_qF.shape[1] * x_qF.itemsize + row_bytes))
        for start in range(0, len(x_qF), block):
            starts = indptr[start : start + block + 1]
            yield slice(start, start + block), starts - starts[0], ids[starts[0] : starts[-1]]

    def _count(self, x_qF: np.ndarray, target_q: np.ndarray, indptr: np.ndarray, ids: np.ndarray) -> np.ndarray:
        target_scores_q = self.scores(x_qF, target_q)
        above_q, equal_q = np.zeros(len(x_qF), np.int64), np.zeros(len(x_qF), np.int64)
        are_numbers = True
        if self.is_counted:
            given = target_scores_q, *self._known(indptr, ids, target_q), above_q, equal_q
            are_numbers = self._rank_counts(np.ascontiguousarray(x_qF), *given)
        self._check(are_numbers, target_scores_q)
        return self.comm.all_reduce(np.stack([above_q, equal_q]))

    def _best(self, x_qF: np.ndarray, exclude_q: np.ndarray | None, k: int, indptr: np.ndarray, ids: np.ndarray):
        own = self.is_counted * len(x_qF), k
        ids_qk, scores_qk, are_numbers = np.empty(own, np.int64), np.empty(own, x_qF.dtype), True
        if self.is_counted:
            given = self.ids_m, *self._known(indptr, ids, exclude_q), ids_qk, scores_qk
            are_numbers = self._top(np.ascontiguousarray(x_qF), *given)
        of_ranks = (self.comm.all_gather(own_qk).reshape(-1, len(x_qF), k) for own_qk in (ids_qk, scores_qk))
        ids_qm, scores_qm = (of_Pqk.transpose(1, 0, 2).reshape(len(x_qF), -1) for of_Pqk in of_ranks)
        order_qk = np.lexsort((ids_qm, -scores_qm))[:, :k]  # NaN are last
        ids_qk, scores_qk = (np.take_along_axis(of_qm, order_qk, 1) for of_qm in (ids_qm, scores_qm))
        self._check(are_numbers, scores_qk[ids_qk >= 0])
        return ids_qk, scores_qk

    def _known(self, indptr: np.ndarray, ids: np.ndarray, more_q: np.ndarray | None) -> Arrays:
        """Return indptr and places in C, rising, of the known candidates of each query, one more of each with them."""
        query = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        if more_q is not None:
            query, ids = np.concatenate([query, np.arange(len(more_q))]), np.concatenate([ids, more_q])
        place = self.place_n1[self._own(ids)]
        pairs = np.unique((query * np.int64(len(self.C_mF)) + place)[place >= 0])
        query, place = np.divmod(pairs, max(1, len(self.C_mF)))
        return np.searchsorted(query, np.arange(len(indptr))), place

    def _check(self, are_numbers: bool, scores: np.ndarray) -> None:
        """Raise NumericalError on all ranks where a score of one is not finite."""
        is_wrong = not (are_numbers and np.isfinite(scores).all())
        text = f"rank {self.comm.rank}: scores are not finite; Z or queries"
        agree(self.comm, NumericalError(text) if is_wrong else None)

    def _own(self, node_q: np.ndarray) -> np.ndarray:
        """Return the places of nodes in Z, -1 for nodes of other ranks, and of ranks whose rows do not count."""
        place_q = self.place_N[node_q]
        return place_q if self.is_counted else np.full_like(place_q, -1)
