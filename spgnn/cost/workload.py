"""How many parts a graph is cut into, so that each of them can be trained in the memory of a rank.

Source: SDT-GNN, section III-C, whose letters are used: S bytes of the graph, q workers, M bytes of each, of which training
takes T. The paper's k is ceil(S / (M - T)) with T = 2/3 M where S > q (M - T); here T is predicted for each number of parts,
and parts include their halo.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import ResourceError, UsageError, check_integer, is_number
from ..graph import Graph
from ..partition.checks import MAX_PARTS
from .memory import array_bytes

HALO = 1.5  # bytes of a part with its halo over those of a k-th of the graph
REMEDY = "give ranks more memory with --memory, start fewer of them per host, or choose a narrower model"


@dataclass(frozen=True, slots=True)
class Workload:
    """A number of parts k, and the numbers that it follows from, in bytes.

    T          predicted for parts of this size.
    halo       factor by which a part is larger than S / k.
    part_bytes of the largest part with its halo, as it was cut; 0: not known yet.
    """

    S: int
    q: int
    M: int
    T: int
    k: int
    halo: float = 1.0
    part_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.k} part(s) on {self.q} rank(s): graph S = {_mb(self.S)}, memory of a rank M = {_mb(self.M)}, "
            f"training T = {_mb(self.T)}, parts of {_mb(self.largest)}{', the largest' if self.part_bytes else ' each'}"
        )

    @property
    def largest(self) -> int:
        """Bytes of the largest part with its halo, as it was cut or as it is predicted."""
        return self.part_bytes or math.ceil(self.halo * self.S / self.k)

    @property
    def fits(self) -> bool:
        """The largest part and its training fit into the memory of a rank."""
        return self.largest + self.T <= self.M

    def to_dict(self) -> dict:
        """Return the JSON object `workload` of a training: S, q, M, T, k, and MB of the largest part."""
        return {"S": self.S, "q": self.q, "M": self.M, "T": self.T, "k": self.k, "part_mb": self.largest / 1e6}

    def cut(self, part_bytes: int) -> Workload:
        """Return the same with the bytes of the largest part, with its halo, that was cut."""
        return replace(self, part_bytes=int(part_bytes))

    def grown(self) -> Workload:
        """Return more parts, a multiple of q, by the ratio of what the largest part of the cut takes to what it may.

        Raises: ResourceError with the sum where that needs more parts than there can be, or T alone fills M.
        """
        free = self.M - self.T
        if free <= 0:
            raise ResourceError(f"{self._sum()}; {REMEDY}")
        k = math.ceil(self.k * max(self.largest / free, 1.0))
        k = max(-(-k // self.q) * self.q, self.k + self.q)
        if k > MAX_PARTS:
            raise ResourceError(f"{self._sum()}; {k} parts would fit, at most {MAX_PARTS} are possible; {REMEDY}")
        return replace(self, k=k, part_bytes=0)

    def check(self) -> None:
        """Raise ResourceError with the sum unless the largest part and its training fit into the memory of a rank."""
        if not self.fits:
            raise ResourceError(f"{self._sum()}; {REMEDY}")

    def _sum(self) -> str:
        return (
            f"{self.k} parts do not fit: the largest with its halo {_mb(self.largest)} + training {_mb(self.T)} = "
            f"{_mb(self.largest + self.T)}, memory of a rank {_mb(self.M)}"
        )


def predicted_workload(S: int, q: int, M: int, training_bytes: Callable[[int], float], halo: float = HALO) -> Workload:
    """Return the smallest k = q, 2 q, 3 q ... with halo S / k + T(k) <= M.

    Args:   S               bytes of structure, features, labels and split.
            q, M            ranks, and bytes of memory of each.
            training_bytes  T: the bytes that training one of k parts takes, which falls with k.
            halo            bytes of a part with its halo over S / k.
    Raises: UsageError for numbers that are none; ResourceError with the sum of the smallest parts if none fit.
    """
    check_integer("ranks", q, 1)
    for name, what, value in (("S", "the graph", S), ("M", "a rank", M)):
        if not is_number(value) or not value >= 0 or math.isinf(value):
            raise UsageError(f"{name} = {value!r}; expected the bytes of {what}, 0 or more")
    if not is_number(halo) or not halo >= 1:
        raise UsageError(f"halo = {halo!r}; expected a factor of 1 or more")
    most = max(MAX_PARTS // q, 1)
    at = lambda steps: Workload(int(S), q, int(M), math.ceil(training_bytes(steps * q)), steps * q, float(halo))
    steps = 1 + bisect_left(range(1, most), True, key=lambda steps: at(steps).fits)
    if not at(steps).fits:
        raise ResourceError(f"no parts fit: {at(steps)._sum()}; {REMEDY}")
    return at(steps)


def graph_bytes(graph: Graph) -> int:
    """Return S: the bytes of the arrays of a graph as it is used, structure, features, labels and split."""
    return sum(array_bytes(M) for M in (graph.A, graph.X, graph.y, graph.split))


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
