"""From a pattern of drawn nonzeros to the operators of its normalisations; their transpose is made when it is first read.

Shapes: m input rows and n output rows of a block, e its nonzeros; N nodes and E nonzeros of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import numpy as np
from numpy.typing import DTypeLike

from ..config.names import NORMS, Norm
from ..errors import UsageError, nearest
from ..graph import DIVIDES, WITH_LOOPS, factors
from . import _samplers
from .graph_arrays import GraphArrays
from .sample import Csr, NormedBlock, Pattern


class _Block:
    """A pattern, or the pattern and its diagonal, with its transpose: what the normalisations of a block share.

    from_e  (e,) int64, the place of a nonzero in the pattern, -1 for a loop that was added; None: the same place.
    """

    def __init__(
        self,
        pattern: Pattern,
        indptr: np.ndarray,
        indices: np.ndarray,
        from_e: np.ndarray | None,
        may_be_symmetric: bool,
    ):
        self.pattern, self.indptr, self.indices, self.from_e = pattern, indptr, indices, from_e
        self.flip = cache(partial(_samplers.transpose, indptr, indices, pattern.shape[1], may_be_symmetric))

    def sums(self, graph: GraphArrays) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums of the rows (n,) and of the columns (m,), float64."""
        m, place_e = self.pattern.shape[1], self.pattern.place_e
        return _samplers.block_sums(self.indptr, self.indices, m, self.from_e, place_e, graph.weights)

    def operator(self, values_e: np.ndarray | None = None) -> NormedBlock:
        return NormedBlock(Csr(self.indptr, self.indices, values_e), self.flip)


def operators(
    graph: GraphArrays, node_m: np.ndarray, pattern: Pattern, norms: Iterable[Norm], dtype: DTypeLike = np.float32,
    alpha_E: np.ndarray | None = None, is_full: bool = False,
) -> dict[Norm, NormedBlock]:  # fmt: skip
    """left_i w_ij right_j / alpha_ij scale_ij: return the operator of each normalisation, see spgnn.graph.normalise.

    gcn, row_loops and loops have a diagonal entry in every row, of weight, alpha and scale 1 where A has none; row i
    of a block is column i. Where A has one that was not drawn, its value is 0: its scale makes up for it where it is
    drawn. Values are computed in float64 and rounded once. Operators of one pattern share its arrays.

    Args:   node_m   (m,) int64, original ids of the columns, of which the first n are the rows.
            dtype    float32 or float64.
            alpha_E  (E,) float32, P(nonzero is drawn | its row is drawn); None: 1.
            is_full  left and right are of the whole graph; otherwise of the pattern, which must be square.
    Raises: UsageError for a normalisation or dtype that is not known, and for own sums of a pattern that is not square.
    """
    norms, dtype = tuple(norms), np.dtype(dtype)
    check_norms(norms, dtype)
    n, m = pattern.shape
    if not is_full and n != m:
        raise UsageError(f"is_full = False with {n} rows and {m} columns; expected as many rows as columns")
    if not is_full:
        graph.check_weights(norms)
    make = _samplers.values64 if dtype == np.float64 else _samplers.values32
    may_be_symmetric = n == m and graph.is_symmetric
    blocks: dict[bool, _Block] = {}
    made: dict[Norm, NormedBlock] = {}
    for how in norms:
        has_loops = how in WITH_LOOPS
        if has_loops not in blocks:
            blocks[has_loops] = _block(pattern, has_loops, blocks.get(not has_loops), may_be_symmetric)
        block = blocks[has_loops]
        is_plain = graph.weights is None and alpha_E is None and pattern.scale_e is None
        if how == "loops" or (how == "none" and is_plain):
            made[how] = block.operator()
            continue
        if is_full:
            left, right = graph.factors(how)
        else:
            left, right = factors(how, *block.sums(graph)) if how in DIVIDES else (None, None)
        values_e = make(
            block.indptr, block.indices, block.from_e, pattern.place_e, graph.weights, node_m if is_full else None,
            left, right, alpha_E, pattern.scale_e,
        )  # fmt: skip
        if has_loops and pattern.scale_e is not None:
            _drop_stored_loops(graph, block, node_m, values_e)
        made[how] = block.operator(values_e)
    return made


def check_norms(norms: Iterable[Norm], dtype: np.dtype) -> None:
    """Raise UsageError for a normalisation that is not known, or another dtype than float32 and float64."""
    for how in norms:
        if how not in NORMS:
            raise UsageError(f"normalisation {how!r} is not known{nearest(str(how), NORMS)}")
    if dtype not in (np.float32, np.float64):
        raise UsageError(f"dtype = {dtype}; operators of subgraphs are float32 or float64")


def _block(pattern: Pattern, has_loops: bool, other: _Block | None, may_be_symmetric: bool) -> _Block:
    """Return the pattern with or without added loops; other, of the other kind, where none is added."""
    looped = _samplers.with_loops(pattern.indptr, pattern.indices) if has_loops else None
    if other is not None and other.from_e is None and looped is None:
        return other
    indptr, indices, from_e = looped or (pattern.indptr, pattern.indices, None)
    return _Block(pattern, indptr, indices, from_e, may_be_symmetric)


def _drop_stored_loops(graph: GraphArrays, block: _Block, node_m: np.ndarray, values_e: np.ndarray) -> None:
    """Set the values to 0 of loops that were added where A has one, which was not drawn."""
    if graph.stores_loop_N is not None and block.from_e is not None:
        row_e = np.repeat(np.arange(block.pattern.shape[0]), np.diff(block.indptr))
        values_e[(block.from_e < 0) & graph.stores_loop_N[node_m[row_e]]] = 0
