"""Redraw borders by flows and cut regions again, where few rows are sent.

On a mesh the moves of `volume`, of nodes or of clusters, end in the first local minimum. Flows find the cheapest border
between two parts (refine/flow/pair.h). Other arrangements of a few neighbouring parts come from a new METIS cut or from
moves at a high temperature; flows redraw their borders, and they are accepted if the loads of all parts are no worse.
Parts that send much are chosen more often.
Shapes: N nodes, k parts, m parts of a region.
Source: large neighbourhood search, Shaw 1998 (CP '98), with METIS, annealing and FlowCutter as its means of repair.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from ...machine import cores
from ..metrics import ones_of, row_work
from ..refine import _flow, _volume
from .metis import OBJECTIVES, kway, neighbours

NORM, OF_MEAN = _flow.NORM, _flow.OF_MEAN  # of the cost that borders and regions are judged by
FEWEST, MOST = 2, 4  # parts of a region
SHY = 3.0  # a neighbour with the largest load is exp(-SHY) times as welcome as one that sends nothing
LIGHTER, SMALLEST = 0.3, 0.6  # how often the first part of a region gets less work, and its smallest share
SLACK = 0.999  # of the allowed work is METIS's aim
BALANCE = 1.005  # METIS's own, in a region
MOVES = {
    "coarsest": 60, "top_temperature": 1.76, "last_temperature": 1.0, "work_price": 0.05, "top_sweeps": 16, "sweeps": 8, "last_sweeps": 8,
}  # fmt: skip
MOST_LEVELS, TARGET, SOFT_CAP = 3, 1.03, 1.3
FIRST_PASSES, PASSES = 2, 2  # over all borders before the first region, and over those of a region
PATIENCE, GAIN = 8, 0.0005  # stop when this many regions, at least one per part, times the effort, gain less
CORRIDOR = (0.05, 0.3)  # the share of a part's work on either side of a border that flows may move: from, to


def cost(rows_kk: np.ndarray, *, send: bool, receive: bool) -> float:
    """Return ||loads||_NORM + OF_MEAN sum(rows) / k; loads are what each part sends, receives, or both; with neither, the second term."""
    mean = OF_MEAN * rows_kk.sum() / len(rows_kk)
    if not (send or receive):
        return float(mean)
    loads = _held(rows_kk, send, receive)
    largest = max(loads.max(), 1)
    return float(largest * ((loads / largest) ** NORM).sum() ** (1 / NORM) + mean)


def _held(rows_kk: np.ndarray, send: bool, receive: bool) -> np.ndarray:
    sent_k, read_k = rows_kk.sum(1), rows_kk.sum(0)
    return np.array([load_k for load_k, is_held in ((sent_k, send), (read_k, receive)) if is_held] or [sent_k], float)


def recut(
    A: sp.csr_array,
    owner_N: np.ndarray,
    k: int,
    *,
    seed: int,
    balance: float,
    rounds: int,
    send: bool,
    receive: bool,
    effort: float = 1.0,
) -> np.ndarray:
    """Return owner_N after redrawing its borders by flows and cutting `rounds` regions again; the cost never rises.

    It stops early when as many regions in a row as there are parts, times the effort, gain next to nothing. Work, the
    sum of (nnz + 1), is at most balance times the mean in each part that changed.
    """
    state = _State(A, owner_N, k, seed, balance, send, receive)
    state.borders.refine(list(range(k)), FIRST_PASSES, *CORRIDOR)
    rng = np.random.default_rng(seed)
    costs, patience = [state.borders.cost()], math.ceil(effort * max(PATIENCE, k))
    for _ in range(rounds):
        region = state.region(rng)
        if len(region) < FEWEST:  # nothing travels
            break
        state.cut(region, rng)
        costs.append(state.borders.cost())
        if len(costs) > patience and costs[-1] > (1 - GAIN) * costs[-1 - patience]:
            break
    return state.borders.owner()


class _State:
    def __init__(
        self, A: sp.csr_array, owner_N: np.ndarray, k: int, seed: int, balance: float, send: bool, receive: bool
    ):
        reads = ones_of(A)
        self.readers, self.both = reads.T.tocsr(), neighbours(A)
        self.k = k
        self.work_N = row_work(A)
        self.most_work = balance * self.work_N.sum() / k
        self.held = {"send": send, "receive": receive}
        patterns = [
            array for M in (reads, self.readers) for array in (M.indptr.astype(np.int64), M.indices.astype(np.int32))
        ]
        self.borders = _flow.Borders(
            *patterns,
            self.work_N.astype(np.int64),
            owner_N.astype(np.int32),
            k,
            int(self.most_work),
            **self.held,
            seed=seed,
        )
        self.place_N = np.empty(len(owner_N), np.int32)  # of a node in its region; one past the last for nodes outside

    def region(self, rng: np.random.Generator) -> np.ndarray:
        """Draw a few neighbouring parts, the first by its load."""
        rows_kk = self.borders.rows()
        load_k = _held(rows_kk, **self.held).max(0)
        is_held = any(self.held.values())
        if not load_k.any():
            return np.empty(0, np.int32)
        load_k = load_k / load_k.max()
        welcome_k = np.exp(-SHY * load_k) if is_held else np.ones(self.k)
        chances_k = load_k ** (NORM if is_held else 1)
        region: list[int] = []
        for _ in range(rng.integers(FEWEST, MOST + 1)):
            if not chances_k.any():
                break
            region.append(int(rng.choice(self.k, p=chances_k / chances_k.sum())))
            chances_k = (rows_kk[region].sum(0) + rows_kk[:, region].sum(1)) * welcome_k
            chances_k[region] = 0
        return np.array(region, np.int32)

    def cut(self, region: np.ndarray, rng: np.random.Generator) -> bool:
        """Cut a region again; true if that was no worse and was accepted."""
        is_of_region_k = np.zeros(self.k, bool)
        is_of_region_k[region] = True
        owner_N = self.borders.owner()
        is_inside_N = is_of_region_k[owner_N]
        nodes = np.flatnonzero(is_inside_N).astype(np.int32)
        self.place_N.fill(len(nodes))
        self.place_N[nodes] = np.arange(len(nodes))
        work = self.work_N[nodes]
        if work.sum() > self.most_work * len(region):  # some nodes are too heavy
            return False
        is_new = bool(rng.integers(2))
        if is_new:
            part = kway("a region", self._inside(self.both[nodes], is_inside_N), len(region), work, seed=int(rng.integers(2**31)), balance=BALANCE,
                        objective=OBJECTIVES[rng.integers(2)], shares_k=self._shares(len(region), float(work.sum()), rng))  # fmt: skip
        else:
            place_k = np.empty(self.k, np.int32)
            place_k[region] = np.arange(len(region))
            part = place_k[owner_N[nodes]]
        if not is_new or rng.integers(2):
            part = self._moved(part, len(region), nodes, work, rng)
        return self.borders.recut(region.tolist(), nodes, region[part], PASSES, *CORRIDOR)

    def _moved(
        self, part: np.ndarray, m: int, nodes: np.ndarray, work: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Refine the parts of a region; the rest is one node in a part of its own, which is full."""
        readers = self.readers[nodes]
        outside = 2 * int(self.most_work) + 2
        balance = self.most_work * (m + 1) / float(work.sum() + outside)
        is_even = bool(rng.integers(2))
        settings = MOVES | {
            "levels": int(rng.integers(MOST_LEVELS + 1)),
            "target": TARGET * (m + 1) / m,
            "soft_cap": SOFT_CAP * balance,
        }
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
        """Draw the share of work of each part of a region: equal, or less for the first, which sends much."""
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
