"""What a sampler draws, a Sample, and what a layer multiplies with, a Subgraph.

Shapes: N nodes and E nonzeros of the graph; m input rows and n output rows of a block (n <= m), e its nonzeros; t targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..config.names import Norm


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Nonzeros of A that were drawn: rows are outputs, columns inputs, of which the first n are the outputs.

    shape     (n, m).
    indptr    (n + 1,) int64; indices (e,) int32, ascending within a row.
    place_e   (e,) int64, the place of each nonzero in the graph's A.
    scale_e   (e,) float32, the factor by which a sum over the drawn nonzeros estimates that over all; None: 1.
    """

    shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray
    place_e: np.ndarray
    scale_e: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The nodes and nonzeros of one draw.

    node_m    (m,) int64, original ids of the input rows; the first n are the outputs of a block (n, m).
    patterns  one, (m, m), for all layers; or one for each layer, the first layer first.
    """

    node_m: np.ndarray
    patterns: tuple[Pattern, ...]


class Sampler(Protocol):
    """Draws samples of one graph. Thread-safe: `sample` reads the graph and changes nothing.

    name       of --sampler.
    n_blocks   0: one pattern for all layers; L: one for each of L layers.
    rescales   aggregation and loss may be normalised by how often nodes and edges are drawn (see normalise.py).
    """

    name: str
    n_blocks: int
    rescales: bool

    def sample(self, seed: int, index: int) -> Sample:
        """Return sample number `index`, a function of the graph, the options, seed and index alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Csr:
    """A CSR matrix: indptr int64, indices int32 ascending within a row, values float32 or float64, None: all 1."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None


@dataclass(frozen=True, eq=False)
class NormedBlock:
    """A block of one normalisation, (n, m), and its transpose, which is made when it is first read.

    flip  returns indptr, indices and order_e of the transpose, the same arrays each time.
    """

    A: Csr
    flip: Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]]

    @property
    def order_e(self) -> np.ndarray:
        """The place in A of each nonzero of the transpose, (e,) int64."""
        return self.flip()[2]

    @cached_property
    def transposed(self) -> Csr:
        """A' (m, n)."""
        indptr, indices, order_e = self.flip()
        return Csr(indptr, indices, None if self.A.values is None else self.A.values[order_e])


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """What a model computes on: for each block the operators of the normalisations that its layers name.

    index     number of the subgraph.
    node_m    (m,) int64, original ids of the input rows of layer 1; the first n are the outputs of a block (n, m).
    shapes    (n, m) of each block.
    blocks    one for all layers, or one for each layer: normalisation -> NormedBlock.
    target_t  (t,) int64, rows of the last output: training nodes with a label.
    weight_t  (t,) float64; sum of weight * loss over the targets estimates the mean loss of all training nodes.
    seconds   that drawing it took.
    """

    index: int
    node_m: np.ndarray
    shapes: tuple[tuple[int, int], ...]
    blocks: tuple[Mapping[Norm, NormedBlock], ...]
    target_t: np.ndarray
    weight_t: np.ndarray
    seconds: float = 0.0
