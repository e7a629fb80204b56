"""Regions cut anew: some neighbouring parts become one graph, which METIS and the refinement cut once more.

On a mesh the moves of `volume`, of nodes or of clusters of them, end in the first valley: a better border
of a part is another shape of it and of its neighbours at once. A new cut of a few parts, for few edges or for
little volume, finds such shapes, and is kept where the loads of all parts are no worse for it. Parts that
send much are chosen more often.
Shapes: N nodes, k parts, m parts of a region.
Source: large neighbourhood search, Shaw 1998 (CP '98), with METIS as its means of repair.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..machine import cores
from . import _volume
from .metis import OBJECTIVES, kway, neighbours
from .metrics import ones_of, row_work, rows_PP

NORM = 8  # of the loads of all parts: the largest counts most, none is free
FEWEST, MOST = 2, 5  # parts of a region
SHY = 3.0  # a neighbour with the largest load is exp(-SHY) times as welcome as one that sends nothing
LIGHTER, SMALLEST = 0.3, 0.6  # how often the first part of a region gets less work, and its least share
SLACK = 0.999  # of the allowed work is METIS's aim
BALANCE = 1.005  # METIS's own, in a region
REFINEMENT = {
    "coarsest": 60, "top_temperature": 0.5, "last_temperature": 0.3, "work_price": 0.05, "top_sweeps": 8, "sweeps": 5, "last_sweeps": 8,
}  # fmt: skip
MOST_LEVELS, TARGET, SOFT_CAP = 3, 1.03, 1.3


def cost(rows_kk: np.ndarray, *, send: bool, receive: bool) -> float:
    """Return the sum of the 8th powers of what each part sends, receives, or both apart; with neither, the sum of all rows."""
    return _cost(rows_kk.sum(1), rows_kk.sum(0), send, receive)


def _held(sent_k: np.ndarray, read_k: np.ndarray, send: bool, receive: bool) -> np.ndarray:
    return np.array([load_k for load_k, is_held in ((sent_k, send), (read_k, receive)) if is_held] or [sent_k], float)


def _cost(sent_k: np.ndarray, read_k: np.ndarray, send: bool, receive: bool) -> float:
    return float((_held(sent_k, read_k, send, receive) ** (NORM if send or receive else 1)).sum())


def recut(
    A: sp.csr_array, owner_N: np.ndarray, k: int, *, seed: int, balance: float, rounds: int, send: bool, receive: bool
) -> np.ndarray:
    """Return owner_N after so many regions were cut anew, each kept where the cost does not rise.

    Work, the sum of (nnz + 1), is at most balance times the mean in each part of a new cut.
    """
    state = _State(A, owner_N, k, balance, send, receive)
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        region = state.region(rng)
        if len(region) < FEWEST:  # nothing travels
            break
        state.cut(region, rng)
    return state.owner_N


class _State:
    def __init__(self, A: sp.csr_array, owner_N: np.ndarray, k: int, balance: float, send: bool, receive: bool):
        self.A = ones_of(A)
        self.readers, self.both = self.A.T.tocsr(), neighbours(A)
        self.owner_N, self.k = owner_N.astype(np.int32), k
        self.work_N = row_work(A)
        self.most_work = balance * self.work_N.sum() / k
        self.held = {"send": send, "receive": receive}
        self.rows_kk = rows_PP(A, self.owner_N, k)
        self.sums = [self.rows_kk.sum(1), self.rows_kk.sum(0)]  # that each part sends, and reads
        self.place_N = np.empty(len(owner_N), np.int32)  # of a node in its region; behind the last one outside

    def region(self, rng: np.random.Generator) -> np.ndarray:
        """Draw parts that border on each other, the first by its load."""
        load_k = _held(*self.sums, **self.held).max(0)
        is_held = any(self.held.values())
        if not load_k.any():
            return np.empty(0, np.int64)
        load_k = load_k / load_k.max()
        welcome_k = np.exp(-SHY * load_k) if is_held else np.ones(self.k)
        chances_k = load_k ** (NORM if is_held else 1)
        region: list[int] = []
        for _ in range(rng.integers(FEWEST, MOST + 1)):
            if not chances_k.any():
                break
            region.append(int(rng.choice(self.k, p=chances_k / chances_k.sum())))
            chances_k = (self.rows_kk[region].sum(0) + self.rows_kk[:, region].sum(1)) * welcome_k
            chances_k[region] = 0
        return np.array(region)

    def cut(self, region: np.ndarray, rng: np.random.Generator) -> None:
        """Cut a region anew; keep that where it is no worse."""
        is_of_region_k = np.zeros(self.k, bool)
        is_of_region_k[region] = True
        is_inside_N = is_of_region_k[self.owner_N]
        nodes = np.flatnonzero(is_inside_N)
        self.place_N.fill(len(nodes))
        self.place_N[nodes] = np.arange(len(nodes))
        reads, readers = self.A[nodes], self.readers[nodes]
        work = self.work_N[nodes]
        if work.sum() > self.most_work * len(region):  # single nodes that are too heavy
            return
        part = kway("a region", self._inside(self.both[nodes], is_inside_N), len(region), work, seed=int(rng.integers(2**31)), balance=BALANCE,
                    objective=OBJECTIVES[rng.integers(2)], shares_k=self._shares(len(region), float(work.sum()), rng))  # fmt: skip
        part = self._refined(part, len(region), readers, work, rng)
        if np.bincount(part, weights=work).max() > self.most_work:
            return
        owner_N = self.owner_N.copy()
        owner_N[nodes] = region[part]
        before, after = (self._pairs(owner, nodes, reads, readers, is_inside_N) for owner in (self.owner_N, owner_N))
        count = lambda parts: np.bincount(parts, minlength=self.k)
        sums = [self.sums[side] - count(before[side]) + count(after[side]) for side in (0, 1)]
        if _cost(*sums, **self.held) <= _cost(*self.sums, **self.held):
            self.sums = sums
            self.owner_N = owner_N
            np.subtract.at(self.rows_kk, before, 1)
            np.add.at(self.rows_kk, after, 1)

    def _refined(self, part: np.ndarray, m: int, readers: sp.csr_array, work: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Refine the parts of a region; all that is outside is one node of a part of its own, which none can enter."""
        outside = 2 * int(self.most_work) + 2
        balance = self.most_work * (m + 1) / float(work.sum() + outside)
        is_even = bool(rng.integers(2))
        settings = REFINEMENT | {"levels": int(rng.integers(MOST_LEVELS + 1)), "target": TARGET * (m + 1) / m, "soft_cap": SOFT_CAP * balance}
        settings |= {name: is_even and is_held for name, is_held in self.held.items()}
        part, _, _ = _volume.refine(
            np.append(readers.indptr, readers.nnz).astype(np.int64), self.place_N[readers.indices], 1, np.append(work, outside), np.append(part, m).astype(np.int32),
            m + 1, balance, int(rng.integers(2**31)), False, cores(), settings,
        )  # fmt: skip
        assert not np.any(part[:-1] == m), "the part outside has no room"
        return part[:-1]

    def _inside(self, rows: sp.csr_array, is_inside_N: np.ndarray) -> sp.csr_array:
        """Return the block of a region from its rows."""
        kept = is_inside_N[rows.indices]
        indptr = np.concatenate([[0], np.cumsum(kept)])[rows.indptr].astype(np.int64)
        indices = self.place_N[rows.indices[kept]].astype(np.int64)
        return sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=(rows.shape[0], rows.shape[0]))

    def _shares(self, m: int, work: float, rng: np.random.Generator) -> np.ndarray:
        """Draw what each part of a region is to have of its work: alike, or less for the first, who sends much."""
        shares_m = np.full(m, 1 / m)
        if rng.random() < LIGHTER:
            shares_m[0] *= rng.uniform(SMALLEST, 1)
            shares_m[1:] = (1 - shares_m[0]) / (m - 1)
        most = SLACK * self.most_work / work
        if most * m <= 1:
            return np.full(m, 1 / m)
        shares_m = np.minimum(shares_m, most)
        room_m = most - shares_m
        return shares_m + (1 - shares_m.sum()) * room_m / room_m.sum()

    def _pairs(self, owner_N: np.ndarray, nodes: np.ndarray, reads: sp.csr_array, readers: sp.csr_array, is_inside_N: np.ndarray):
        """Return (sender, reader) of each row that a part of the region sends or reads."""
        sent, reader = np.repeat(nodes, np.diff(readers.indptr)), owner_N[readers.indices]
        away = owner_N[sent] != reader
        row, column = np.repeat(nodes, np.diff(reads.indptr)), reads.indices
        outside = ~is_inside_N[column]
        of = np.concatenate([sent[away], column[outside]]).astype(np.int64)
        by = np.concatenate([reader[away], owner_N[row[outside]]])
        pairs = np.unique(of * self.k + by)
        return owner_N[pairs // self.k], pairs % self.k
