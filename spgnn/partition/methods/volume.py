"""Volume-balanced refinement: minimise all rows sent and the largest send together, under the work balance.

Multilevel, from a start: coarsen inside the parts, then sweep from the coarsest level to the finest; a sweep moves each
vertex to the part with the best score + temperature x noise, and the temperature falls to zero. A score is the rows
saved, weighted by prices that rise with what a part sends, less a price of work. Where few rows are sent, as on road
networks and other meshes, a second refinement moves larger clusters and minimises the total alone; the best of both
and the start is the result. One thread, except for the coarsening. The result for a seed is the same on any machine;
refine/README.md shows the levels.
Shapes: N nodes, k parts; a net is a row that is sent, with its readers.
Source: the role of Graph-VB in the sparsity-aware paper (ICPP'24), section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

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

OBJECTIVES = ("columns", "cover")
MASKS = 64  # parts whose sets fit a machine word
NORM, OF_MEAN = 32, 0.25  # of the cost by which results are compared
# A mesh: fewer rows per node than FEW, or FEW_OF_SMALL with at most SMALL nonzeros.
FEW, FEW_OF_SMALL, SMALL = 0.1, 0.3, 1_000_000
ON_MESHES = {"coarsest": 15, "most_work": 0.1}  # whole stretches of a border move, not single nodes
COVER_ROUNDS = 2
COVER_SWEEPS = {"levels": 0, "last_sweeps": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOptions:
    """The options of `volume`.

    Args: objective  scheme whose rows are counted: "columns", or "cover" (minimum covers).
          effort     factor on the number of sweeps; 2 takes twice as long and saves about 1 % of the volume.
          send       minimise the largest send too; False: the total alone, with twice the sweeps.
          receive    minimise the largest receive too: the backward send of a directed graph. Under cover the two are
                     equal on a symmetric graph, and it changes nothing.
          start      name of a partitioner, run with its defaults, or owner_N (N,) integers, or a Partition.
    Raises: UsageError for an invalid one.
    """

    objective: Literal["columns", "cover"] = "columns"
    effort: float = 1.0
    send: bool = True
    receive: bool = False
    start: str | np.ndarray | Partition = "metis"

    def __post_init__(self):
        if self.objective not in OBJECTIVES:
            raise UsageError(f"volume: objective {self.objective!r} is not known{nearest(self.objective, OBJECTIVES)}")
        if not is_number(self.effort) or not 0 < self.effort <= 1000:
            raise UsageError(f"volume: effort = {self.effort!r}; expected a number above 0, at most 1000")
        for name in ("send", "receive"):
            if not isinstance(value := getattr(self, name), (bool, np.bool_)):
                raise UsageError(f"volume: {name} = {value!r}; expected True or False")


@partitioner(
    "volume", by_scheme={scheme: {"objective": "cover"} for scheme in ("auto", "cover")}, options_of=VolumeOptions
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
    search = _Search(graph, k, seed, balance, given)
    start_N = _start(graph, k, seed, balance, given.start)
    owner_N = search.columns(start_N)
    return owner_N if given.objective == "columns" else search.cover(owner_N, start_N)


class _Search:
    """Refinements of partitions of one graph, and which of several partitions is best."""

    def __init__(self, graph: Graph, k: int, seed: int, balance: float, options: VolumeOptions):
        self.graph, self.k, self.seed, self.balance = graph, k, seed, balance
        self.effort, self.held = float(options.effort), {"send": bool(options.send), "receive": bool(options.receive)}
        self.pattern = ones_of(graph.A)
        self.readers = self.pattern.T.tocsr()
        self.work_N = row_work(graph.A)

    def columns(self, start_N: np.ndarray) -> np.ndarray:
        """Return the best of the start and its refinements for the rows of `columns`."""
        nets, effort = _arrays(self.readers), self.effort if self.held["send"] else 2 * self.effort
        owner_N, rows, _ = self._refine(nets, start_N, **self.held, **sweeps(effort))
        if rows < self.graph.n_nodes * (FEW if self.graph.nnz > SMALL else FEW_OF_SMALL):  # a mesh
            free_N, _, _ = self._refine(nets, start_N, send=False, **sweeps(2 * self.effort), **ON_MESHES)
            owner_N = self._best(owner_N, free_N)
        return self._best(owner_N, start_N)

    def cover(self, columns_N: np.ndarray, start_N: np.ndarray) -> np.ndarray:
        """Return the best of the start, a partition and its refinements for the rows of minimum covers."""
        owner_N, sides = columns_N, self.held
        is_symmetric = not (self.readers != self.pattern).nnz
        if is_symmetric:  # each pair sends as many rows as it receives
            sides = {"send": any(self.held.values()), "receive": False, "both": True}
        settings = COVER_SWEEPS | {"last_sweeps": math.ceil(self.effort * COVER_SWEEPS["last_sweeps"])}
        for _ in range(COVER_ROUNDS):
            nets = _volume.nets_of_covers(*_arrays(self.pattern), owner_N, self.k, is_symmetric, cores())
            owner_N, _, _ = self._refine(nets, owner_N, per_vertex=1 if is_symmetric else 2, **sides, **settings)
        return self._best(
            owner_N, columns_N, start_N, rows_of=cover_PP
        )  # moves of nodes may lose more than covers gain

    def _refine(self, nets: tuple, owner_N: np.ndarray, per_vertex: int = 1, **settings) -> tuple:
        """Return the refined owners, the rows they send and the largest send."""
        return _volume.refine(
            *nets, per_vertex, self.work_N, owner_N, self.k, self.balance, self.seed, self.k > MASKS, cores(), settings
        )

    def _best(self, *owners: np.ndarray, rows_of=rows_PP) -> np.ndarray:
        """Return the partition of least cost among those of least work above the bound."""
        most_work = self.balance * self.work_N.sum() / self.k

        def rank(owner_N):
            work = max(np.bincount(owner_N, self.work_N).max(), most_work)
            return work, cost(rows_of(self.graph.A, owner_N, self.k), **self.held)

        return min(owners, key=rank)


def cost(rows_kk: np.ndarray, *, send: bool, receive: bool) -> float:
    """Return ||loads||_NORM, nearly the largest load, + OF_MEAN sum(rows) / k.

    Loads are the rows that each part sends, receives, or both; with neither, the second term remains.
    """
    loads = np.array([rows_kk.sum(axis) for axis, is_held in ((1, send), (0, receive)) if is_held] or [[0]], float)
    largest = max(loads.max(), 1)
    return float(largest * ((loads / largest) ** NORM).sum() ** (1 / NORM) + OF_MEAN * rows_kk.sum() / len(rows_kk))


def sweeps(effort: float) -> dict:
    """Return the numbers of sweeps on the coarsest, the middle and the finest level."""
    return {
        name: math.ceil(effort * count) for name, count in (("top_sweeps", 28), ("sweeps", 14), ("last_sweeps", 15))
    }


def _start(graph: Graph, k: int, seed: int, balance: float, start: str | np.ndarray | Partition) -> np.ndarray:
    if isinstance(start, str):
        names = [name for name in PARTITIONERS if name != "volume"]
        if start not in names:
            raise UsageError(f"volume: start = {start!r} is not known{nearest(start, names)}")
        owner_N, who = PARTITIONERS[start](graph, k, seed=seed, balance=balance), f"volume: start {start!r}"
    else:
        owner_N, who = getattr(start, "owner_N", start), "volume: start"
    return check_owner(owner_N, graph.n_nodes, k, who, fill_by=row_work(graph.A))


def _arrays(A: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    if max(A.shape) >= 2**30:
        raise PartitionError(f"volume: {A.shape[0]} nodes are too many; expected at most 2^30")
    return csr_arrays(A)
