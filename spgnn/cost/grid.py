"""ProcessGrid: P ranks as P/c block rows, each held by c ranks.

Shapes: P ranks, R = P/c block rows, c replication, s = P/c^2 stages.
Source: Mukhodopadhyay et al. 2024, Algorithm 2; Koanantakool et al. 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import UsageError, check_integer


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """Rank r = i c + j: process row i holds block row i, process column j multiplies the blocks of stages(j).

    c = 1 is 1D: one process column, whose stages are all blocks.
    Args:   size  P; c: replication; hosts: of each rank, (): all are on one.
    Raises: UsageError unless c^2 divides P, naming the c that do.
    """

    size: int
    c: int = 1
    hosts: tuple[int, ...] = ()

    def __post_init__(self):
        check_integer("ranks", self.size, 1)
        check_integer("replication", self.c)
        if self.c < 1 or self.size % (self.c * self.c):
            works = ", ".join(str(c) for c in valid_replications(self.size))
            raise UsageError(
                f"replication {self.c} does not fit {self.size} rank(s): its square must divide the number of ranks; those that work: {works}"
            )

    @property
    def rows(self) -> int:
        """Block rows R = P/c: the parts of the partition."""
        return self.size // self.c

    @property
    def n_stages(self) -> int:
        """Blocks that one process column multiplies, s = P/c^2."""
        return self.rows // self.c

    @property
    def host_P(self) -> np.ndarray:
        """The host of each rank, (P,)."""
        return np.array(self.hosts or (0,) * self.size)

    @property
    def crosses_PP(self) -> np.ndarray:
        """Which pairs of ranks are on different hosts, (P, P) bool."""
        return self.host_P[:, None] != self.host_P[None, :]

    @property
    def is_tiered(self) -> bool:
        """Whether the two-tier exchange is one: 1D, on several hosts. Elsewhere it is cover."""
        return self.c == 1 and any(self.hosts)

    def row_of(self, rank: int) -> int:
        return rank // self.c

    def column_of_rank(self, rank: int) -> int:
        return rank % self.c

    def stages(self, j: int) -> range:
        """Return the blocks that process column j multiplies with."""
        return range(j * self.n_stages, (j + 1) * self.n_stages)

    def column_of(self, q: int) -> int:
        """Return the process column that multiplies with block q."""
        return q // self.n_stages

    @property
    def holders(self) -> np.ndarray:
        """The ranks (q, q // s) that own block q and multiply with it, (R,)."""
        q = np.arange(self.rows)
        return q * self.c + q // self.n_stages


def slices(n: int, c: int) -> np.ndarray:
    """Return the bounds of the c slices of n rows that the ranks of a process row add up, (c + 1,)."""
    return np.arange(c + 1) * n // c


def valid_replications(size: int) -> list[int]:
    """Return the c whose square divides P."""
    return [c for c in range(1, int(size**0.5) + 1) if size % (c * c) == 0]
