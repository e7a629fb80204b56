"""Negatives: pairs without a link, drawn uniformly, the same on any ranks and in any batches.

Shapes: N nodes, E links, t targets of a call, K negatives of each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from ..errors import GraphError, ShapeError, UsageError, check_choice, check_integer
from ..machine import cores
from ..samplers import _samplers

STREAM = 10  # of a seed
Csr = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class Negatives:
    """K negatives of a link (u, v): (u, w), w uniform among the candidates that are neither u nor linked with it.

    known   links that no negative is, (indptr (N + 1,) int64, indices (E,) int32): row u has the targets of u, rising.
    among   (first, last): the candidates are nodes first to last - 1, original ids.
    side    "target"; "either": a bit of the draw chooses which end w replaces (Bordes et al. 2013, Alg. 1), the other
            one where no candidate is left. known_of_targets: for it, row v has the sources of v.
    Raises: UsageError and ShapeError for what does not fit. Not checked: that rows rise.
    """

    known: Csr
    among: tuple[int, int]
    K: int = 1
    seed: int = 0
    side: Literal["target", "either"] = "target"
    known_of_targets: Csr | None = None

    def __post_init__(self):
        check_integer("K", self.K, 1)
        check_choice("side", self.side, ("target", "either"))
        if not 0 <= self.among[0] < self.among[1] < 2**31:
            raise UsageError(f"among={self.among}; expected (first, last), 0 <= first < last < 2^31")
        if self.side == "either" and self.known_of_targets is None:
            raise UsageError('side="either" replaces sources too; give known_of_targets, the sources of each target')
        for indptr, indices in (self.known, self.known_of_targets or self.known):
            if (indptr.dtype, indices.dtype) != (np.int64, np.int32):
                raise ShapeError(f"known links are {indptr.dtype} and {indices.dtype}; expected int64 and int32")

    def is_possible(self, source_t: np.ndarray, target_t: np.ndarray) -> np.ndarray:
        """Return which links have a negative, (t,) bool: `draw` raises for the others."""
        first, last = self.among
        found_t = np.zeros(len(source_t), bool)
        for end_t, (indptr, indices) in self._replaced(source_t, target_t):
            row_E, node_N = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), np.arange(len(indptr) - 1)
            counts = (indices >= first) & (indices < last) & (indices != row_E)
            taken_N = np.bincount(row_E[counts], minlength=len(node_N)) + ((node_N >= first) & (node_N < last))
            found_t |= taken_N[end_t] < last - first
        return found_t

    def draw(
        self, source_t: np.ndarray, target_t: np.ndarray, number_t: np.ndarray, epoch: int, threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes w, (t, K) int32, and whether each replaces the source, (t, K) bool.

        Draw k of a link is a function of (seed, epoch, its number, k), its ends and the known links alone.

        Args:   source_t, target_t  original ids; number_t  of each link in the list of all ranks; threads  0: all cores.
        Raises: UsageError for a node without a row of known; GraphError for a link without any negative.
        """
        rows_of, sides = (self.known, self.known_of_targets or self.known), 1 + (self.side == "either")
        for end_t, (indptr, _) in self._replaced(source_t, target_t):
            if len(outside := end_t[(end_t < 0) | (end_t >= len(indptr) - 1)]):
                raise UsageError(f"node {outside[0]} has no row of known links; there are {len(indptr) - 1:,} rows")
        ends = [np.ascontiguousarray(end_t, np.int32) for end_t in (source_t, target_t)]
        drawn_tK, is_source_tK = np.empty((len(ends[0]), self.K), np.int32), np.empty((len(ends[0]), self.K), bool)
        given = (*ends, np.ascontiguousarray(number_t, np.int64), *rows_of[0], *rows_of[1], *self.among, sides == 2)
        draw = partial(_samplers.negatives, *given, _samplers.hash3(self.seed, STREAM, epoch), drawn_tK, is_source_tK)
        threads = threads or cores()
        bounds = np.linspace(0, len(ends[0]), threads + 1).astype(int).tolist()
        with ThreadPoolExecutor(threads) as pool:
            failed = [at for at in pool.map(draw, bounds[:-1], bounds[1:]) if at >= 0]
        if failed:
            found = " or ".join(f"node {end_t[failed[0]]}" for end_t, _ in self._replaced(*ends))
            raise GraphError(
                f"no negative is left of {found}: linked with every candidate, {self.among[0]} to {self.among[1] - 1}; "
                "leave it out, or give more candidates or fewer known links"
            )
        return drawn_tK, is_source_tK

    def _replaced(self, source_t: np.ndarray, target_t: np.ndarray) -> list[tuple[np.ndarray, Csr]]:
        """Return the ends that stay when the other one is replaced, with the links of each that are known."""
        ends = [(source_t, self.known), (target_t, self.known_of_targets or self.known)]
        return ends[: 1 + (self.side == "either")]
