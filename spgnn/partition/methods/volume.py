"""Volume-balanced refinement: minimise all rows sent and the largest send together, under the work balance.

Multilevel, from a start: coarsen inside the parts, then sweep from the coarsest level to the finest; a sweep moves each
vertex to the part with the best score + temperature x noise, and the temperature falls to zero. A score is the rows
saved, weighted by prices that rise with what a part sends, less a price of work. Of several starts each is refined, of
large graphs briefly; the best is refined in full. Where few rows are sent, as on road networks and other meshes, a
second refinement minimises the total alone; the best of both and the start is the result. One thread, except for the
coarsening. The result for a seed is the same on any machine; refine/README.md shows the levels.
Shapes: N nodes, k parts; a net is a row that is sent, with its readers.
Source: the role of Graph-VB in the sparsity-aware paper (ICPP'24), section 5.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from ...errors import PartitionError, UsageError, is_number, nearest
from ...graph import Graph
from ...machine import cores
from ..checks import check_owner
from ..cover import cover_PP
from ..metrics import csr_arrays, ones_of, row_work, rows_PP
from ..partition import Partition
from ..refine import _volume
from ..registry import PARTITIONERS, partitioner

RowsOf = Callable[[sp.csr_array, np.ndarray, int], np.ndarray]  # (A, owner_N, k) -> rows that q sends p, (k, k)
OBJECTIVES = ("columns", "cover")
MASKS = 64  # parts whose sets fit a machine word
NORM, OF_MEAN = 32, 0.25  # of the cost by which results are compared
MINIMISE = ("time", "largest", "total")
# A mesh: fewer rows per node than FEW, or FEW_OF_SMALL with at most SMALL nonzeros.
FEW, FEW_OF_SMALL, SMALL = 0.1, 0.3, 1_000_000
BEYOND_SMALL = {"most_work": 0.02}  # smaller clusters: 0.9 % fewer rows on ogbn-arxiv, k = 64
TINY, BRIEF = 400_000, 0.1  # beyond TINY nonzeros starts are compared by BRIEF of the effort
# Hotter, and steeper prices: 1 % fewer rows on Flickr, k = 64, and cnr-2000 sends more evenly.
BEYOND_TINY = {"top_temperature": 1.76, "end": 0.8, "coarsest": 15, "proportional": 8, "highest": 2.5}
MORE = 8  # times the sweeps on a graph of TINY / MORE nonzeros and fewer; TINY / nonzeros above
LESS_EVEN = {"target": 1.2}  # of the largest send over the mean: fewer rows in all
COVER_ROUNDS = 2
COVER_SWEEPS = {"levels": 0, "last_sweeps": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOptions:
    """The options of `volume`.

    Args: objective  scheme whose rows are counted: "columns", or "cover" (minimum covers).
          effort     factor on the number of sweeps; 2 takes twice as long and saves about 1 % of the volume.
          minimise   "time": the largest send plus a quarter of the mean, as an exchange ends with the busiest link and
                     links share wires, of results that send no more rows in all than the first start, or nearest to it;
                     "largest": the largest send; "total": all rows alone, with twice the sweeps.
          receive    minimise the largest receive too: the backward send of a directed graph. Under cover the two are
                     equal on a symmetric graph, and it changes nothing.
          start      names of partitioners with commas, run with their defaults, or owner_N (N,), or a Partition.
          tried      a list that receives a line per start: its name, rows that it led to, seconds.
    Raises: UsageError for an invalid one.
    """

    objective: Literal["columns", "cover"] = "columns"
    effort: float = 1.0
    minimise: Literal["time", "largest", "total"] = "time"
    receive: bool = False
    start: str | np.ndarray | Partition = "metis,spring,block"
    tried: list | None = None

    def __post_init__(self):
        for name, known in (("objective", OBJECTIVES), ("minimise", MINIMISE)):
            if (value := getattr(self, name)) not in known:
                raise UsageError(f"volume: {name} {value!r} is not known{nearest(value, known)}")
        if not is_number(self.effort) or not 0 < self.effort <= 1000:
            raise UsageError(f"volume: effort = {self.effort!r}; expected a number above 0, at most 1000")
        if not isinstance(self.receive, (bool, np.bool_)):
            raise UsageError(f"volume: receive = {self.receive!r}; expected True or False")


@partitioner(
    "volume",
    by_scheme={scheme: {"objective": "cover"} for scheme in ("auto", "flat", "cover", "two-tier")},
    options_of=VolumeOptions,
)
def volume(graph: Graph, k: int, *, seed: int, balance: float, **options) -> np.ndarray:
    """Minimise total volume and the largest send together, work sum of (nnz + 1) at most balance times the mean.

    The bound holds unless some nodes are too heavy for it; then no part exceeds the mean by more than the heaviest node.
    From a start within the bound the result is never worse. A directed graph is not symmetrised.

    Args:   options  see VolumeOptions.
    Raises: UsageError for an invalid option; PartitionError if start is no partition.
    """
    given = VolumeOptions(**options)
    if k == 1 or k >= graph.n_nodes:
        return np.arange(graph.n_nodes) % k
    return _Search(graph, k, seed, balance, given).best_of(_starts(graph, k, seed, balance, given.start))


class _Search:
    """Refinements of partitions of one graph, and which of several partitions is best."""

    def __init__(self, graph: Graph, k: int, seed: int, balance: float, options: VolumeOptions):
        self.graph, self.k, self.seed, self.balance = graph, k, seed, balance
        self.options, self.most_rows = options, {}
        self.pattern = ones_of(graph.A)
        self.readers = self.pattern.T.tocsr()
        self.work_N = row_work(graph.A)

    def best_of(self, starts: Iterable[tuple[str, np.ndarray, float]]) -> np.ndarray:
        """Return the best partition that the starts (name, owner_N, seconds) lead to."""
        results, tried = [], self.options.tried
        starts, full = list(starts), float(self.options.effort)
        self.most_rows = {of: of(self.graph.A, starts[0][1], self.k).sum() for of in {rows_PP, self.rows_of}}
        if self.graph.nnz > TINY:
            starts = [of for of in starts if rows_PP(self.graph.A, of[1], self.k).sum() <= self.most_rows[rows_PP]]
        effort = full * (BRIEF if len(starts) > 1 and self.graph.nnz > TINY else 1)
        for name, start_N, seconds in starts:
            began = time.perf_counter()
            results.append(self.refined(start_N, effort))
            seconds += time.perf_counter() - began
            if tried is not None:
                tried.append({"start": name} | self._loads(results[-1]) | {"seconds": seconds})
        best = min(range(len(starts)), key=lambda i: self._rank(results[i], self.rows_of))
        owner_N = results[best]
        if effort < full:
            began = time.perf_counter()
            owner_N = self._best(self.refined(starts[best][1], full), owner_N, rows_of=self.rows_of)
            if tried is not None:
                seconds = time.perf_counter() - began
                tried.append({"start": f"{starts[best][0]}, in full"} | self._loads(owner_N) | {"seconds": seconds})
        return owner_N

    def _loads(self, owner_N: np.ndarray) -> dict[str, int]:
        send_k = self.rows_of(self.graph.A, owner_N, self.k).sum(axis=1)
        return {"total_rows": int(send_k.sum()), "max_send_rows": int(send_k.max())}

    @property
    def held(self) -> dict[str, bool]:
        return {"send": self.options.minimise != "total", "receive": bool(self.options.receive)}

    @property
    def rows_of(self) -> RowsOf:
        return cover_PP if self.options.objective == "cover" else rows_PP

    def refined(self, start_N: np.ndarray, effort: float) -> np.ndarray:
        """Return the best of a start and its refinements for the rows of the objective."""
        owner_N = self.columns(start_N, effort)
        return self.cover(owner_N, start_N, effort) if self.options.objective == "cover" else owner_N

    def columns(self, start_N: np.ndarray, effort: float) -> np.ndarray:
        """Return the best of the start and its refinements for the rows of `columns`."""
        nets = _arrays(self.readers)
        effort *= min(MORE, max(1, TINY / max(self.graph.nnz, 1)))
        settings = sweeps(effort * (1 if self.held["send"] else 2)) | (BEYOND_SMALL if self.graph.nnz > SMALL else {})
        settings |= {} if self.graph.nnz <= TINY else BEYOND_TINY
        owner_N, rows, _ = self._refine(nets, start_N, self.held | settings)
        owners = [start_N, owner_N]
        is_tiny = self.options.minimise == "time" and self.graph.nnz <= TINY
        if is_tiny:
            owners.append(self._refine(nets, start_N, self.held | settings | LESS_EVEN)[0])
        is_mesh = rows < self.graph.n_nodes * (FEW if self.graph.nnz > SMALL else FEW_OF_SMALL)
        if is_tiny or is_mesh:
            owners.append(self._refine(nets, start_N, {"send": False} | sweeps(2 * effort))[0])
        return self._best(*owners)

    def cover(self, columns_N: np.ndarray, start_N: np.ndarray, effort: float) -> np.ndarray:
        """Return the best of the start, a partition and its refinements for the rows of minimum covers."""
        owner_N, sides = columns_N, self.held
        is_symmetric = not (self.readers != self.pattern).nnz
        if is_symmetric:  # each pair sends as many rows as it receives
            sides = {"send": any(self.held.values()), "receive": False, "both": True}
        settings = COVER_SWEEPS | {"last_sweeps": math.ceil(effort * COVER_SWEEPS["last_sweeps"])}
        for _ in range(COVER_ROUNDS):
            nets = _volume.nets_of_covers(*_arrays(self.pattern), owner_N, self.k, is_symmetric, cores())
            owner_N, _, _ = self._refine(nets, owner_N, sides | settings, per_vertex=1 if is_symmetric else 2)
        # Moves of nodes may lose more than covers gain.
        return self._best(owner_N, columns_N, start_N, rows_of=cover_PP)

    def _refine(self, nets: tuple, owner_N: np.ndarray, settings: dict[str, Any], per_vertex: int = 1) -> tuple:
        """Return the refined owners, the rows they send and the largest send."""
        return _volume.refine(
            *nets, per_vertex, self.work_N, owner_N, self.k, self.balance, self.seed, self.k > MASKS, cores(), settings
        )

    def _best(self, *owners: np.ndarray, rows_of: RowsOf = rows_PP) -> np.ndarray:
        """Return the partition of least cost among those of least work above the bound."""
        return min(owners, key=lambda owner_N: self._rank(owner_N, rows_of))

    def _rank(self, owner_N: np.ndarray, rows_of: RowsOf) -> tuple[float, float, float]:
        work = max(np.bincount(owner_N, self.work_N).max(), self.balance * self.work_N.sum() / self.k)
        of_mean = 0.0 if self.options.minimise == "largest" else OF_MEAN
        rows_kk = rows_of(self.graph.A, owner_N, self.k)
        above = max(0, rows_kk.sum() - self.most_rows[rows_of]) if self.options.minimise == "time" else 0
        return work, above, cost(rows_kk, **self.held, of_mean=of_mean)


def cost(rows_kk: np.ndarray, *, send: bool, receive: bool, of_mean: float = OF_MEAN) -> float:
    """Return ||loads||_NORM, nearly the largest load, + of_mean sum(rows) / k.

    Loads are the rows that each part sends, receives, or both; with neither, the second term remains.
    """
    loads = np.array([rows_kk.sum(axis) for axis, is_held in ((1, send), (0, receive)) if is_held] or [[0]], float)
    largest = max(loads.max(), 1)
    return float(largest * ((loads / largest) ** NORM).sum() ** (1 / NORM) + of_mean * rows_kk.sum() / len(rows_kk))


def sweeps(effort: float) -> dict[str, Any]:
    """Return the numbers of sweeps on the coarsest, the middle and the finest level."""
    counts = {"top_sweeps": 28, "sweeps": 14, "last_sweeps": 15}
    return {name: math.ceil(effort * count) for name, count in counts.items()}


def _starts(
    graph: Graph, k: int, seed: int, balance: float, start: str | np.ndarray | Partition
) -> Iterator[tuple[str, np.ndarray, float]]:
    """Return each start: its name, the owners, and the seconds that they took.

    On graphs of up to TINY nonzeros METIS with objective=vol, which is fast there, is tried first.
    """
    known = [name for name in PARTITIONERS if name != "volume"]
    names = start.split(",") if isinstance(start, str) else ["given"]
    for name in names if isinstance(start, str) else ():
        if name not in known:
            raise UsageError(f"volume: start = {name!r} is not known{nearest(name, known)}")
    first = [("metis", {"objective": "vol"})] if len(names) > 1 and names[0] == "metis" and graph.nnz <= TINY else []
    for name, how in first + [(name, {}) for name in names]:
        began = time.perf_counter()
        if isinstance(start, str):
            owner_N, who = PARTITIONERS[name](graph, k, seed=seed, balance=balance, **how), f"volume: start {name!r}"
        else:
            owner_N, who = getattr(start, "owner_N", start), "volume: start"
        owner_N = check_owner(owner_N, graph.n_nodes, k, who, fill_by=row_work(graph.A))
        yield " ".join([name, *how.values()]), owner_N, time.perf_counter() - began


def _arrays(A: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    if max(A.shape) >= 2**30:
        raise PartitionError(f"volume: {A.shape[0]} nodes are too many; expected at most 2^30")
    return csr_arrays(A)
