"""Norms: the normalised operators of a graph, each made at its first use; they share pattern, index map and exchange plan.

Shapes: n own rows, g ghost rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import scipy.sparse as sp
import torch

from ...config.names import NORMS
from ...errors import UsageError, nearest
from ...graph import DIVIDES, WITH_LOOPS, BadWeight, Norm, bad_weight, with_self_loops
from ...partition.cover import Covers
from ..edges.edge_table import EdgeTable, NoEdgeTable
from ..exchange.context import Layout
from ..exchange.exchange_plan import ExchangePlan
from ..exchange.scaling import IN, scaled_blocks
from ..exchange.stages import Blocks, HostCovers, Stage, make_stages
from .dist_spmm import DistSpMM

WHOLE = "Train on the whole graph (--mode full), or give absolute values of the weights"


@dataclass(frozen=True, slots=True, eq=False)
class RawBlocks:
    """A, or A + I, before it is normalised.

    blocks      the rows of this rank; in 1.5D without the columns that another process column multiplies with.
    sums_n      (n,) float64, the sums of whole rows of A; looped_n: of A + I. A difference of the two loses digits.
    loopless_n  (n,) bool: A has no self-loop there, and A + I has one of weight 1.
    has_loops   these are in blocks.
    holds_own   the own columns are in blocks.
    columns_n   (n,) float64, the sums of whole columns of A where they are known; None: they are added up when needed.
    is_whole_n  (n,) bool, blocks have all entries of the row; None: of all rows. See scaled_blocks.
    """

    blocks: Blocks
    sums_n: np.ndarray
    looped_n: np.ndarray
    loopless_n: np.ndarray
    has_loops: bool
    holds_own: bool = True
    columns_n: np.ndarray | None = None
    is_whole_n: np.ndarray | None = None

    def of(self, has_loops: bool) -> RawBlocks:
        """Return A + I or A."""
        if has_loops == self.has_loops:
            return self
        A_oo = self.blocks.A_oo
        if self.holds_own:
            A_oo = with_self_loops(A_oo) if has_loops else _without_diagonal(A_oo, self.loopless_n)
        return replace(self, blocks=replace(self.blocks, A_oo=A_oo), has_loops=has_loops)

    @property
    def rows_n(self) -> np.ndarray:
        """The sums of whole rows of the matrix in blocks, (n,) float64."""
        return self.looped_n if self.has_loops else self.sums_n

    @property
    def whole_columns_n(self) -> np.ndarray | None:
        """The sums of whole columns of the matrix in blocks, where they are known."""
        return self.columns_n + self.loopless_n if self.has_loops and self.columns_n is not None else self.columns_n


class Norms:
    """Makes the operators of a graph: `get("row")` is D^-1 A. What A sends does not depend on the normalisation.

    Args: raw     A or A + I; its indices are then the operators', and weights of 1 take no memory.
          base    the plan that fetches all ghosts, None on one rank.
          covers  of the blocks, where they are known.
    bad_weight  of the whole graph, by whose sums nothing is divided; None: all may be.
    edges       attributes of the nonzeros of A, or None.
    Collective.
    """

    def __init__(
        self, raw: RawBlocks, base: ExchangePlan | None, layout: Layout, covers: Covers | HostCovers | None = None
    ):
        self.raw, self.base, self.layout, self.covers = {raw.has_loops: raw}, base, layout, covers
        self.bad_weight = _bad_weight(raw.blocks, layout)
        self.made: dict[str, DistSpMM] = {}
        self._stages: list[Stage] | None = None
        self.edges: EdgeTable | NoEdgeTable | None = None

    def get(self, how: Norm) -> DistSpMM:
        """Return the operator of a normalisation. Collective at its first use.

        Raises: GraphError, on all ranks, where it divides by sums of weights of which one is negative.
        """
        if how not in (*NORMS, IN):
            raise UsageError(f"normalisation {how!r} is not known{nearest(str(how), NORMS)}")
        if how not in self.made:
            self.made[how] = self.make(how)
        return self.made[how]

    def make(self, how: Norm) -> DistSpMM:
        """Return a new operator; the first one's `with_norm` gets the others. Raises: GraphError, as `get`. Collective."""
        dtype = np.float64 if self.layout.dtype == torch.float64 else np.float32
        has_loops = how in (*WITH_LOOPS, IN)
        raw = self.raw.get(has_loops) or self.raw[not has_loops].of(has_loops)
        if self.bad_weight is not None and how in DIVIDES:
            raise self.bad_weight.error(f"operator {how}")
        if self.bad_weight is not None and how == "none" and raw.is_whole_n is not None:
            raise self.bad_weight.error("a part that lacks edges of its halo", WHOLE)
        A_oo, A_og = scaled_blocks(
            raw.blocks.A_oo, raw.blocks.A_og, raw.rows_n, self.base, how, dtype, raw.whole_columns_n, raw.is_whole_n
        )
        blocks = replace(raw.blocks, A_oo=A_oo, A_og=A_og)
        stages = make_stages(blocks, self.layout, self.base, self.covers, self._stages)
        A = DistSpMM(blocks, self.base, stages, self.layout, how)
        A.edge_table = self.edges
        if self._stages is None:
            self._stages, A.norms = A.stages, self
        raw_oo, raw_og = _over(raw.blocks.A_oo, A.blocks.A_oo), _over(raw.blocks.A_og, A.blocks.A_og)
        self.raw[has_loops] = replace(raw, blocks=replace(A.blocks, A_oo=raw_oo, A_og=raw_og))
        return A


def _bad_weight(blocks: Blocks, layout: Layout) -> BadWeight | None:
    """Return the bad_weight of the blocks of all ranks, the same on each. Collective."""
    own_n, ghost_g = blocks.index.own_n, blocks.index.ghost_g
    found = bad_weight(blocks.A_oo, own_n, own_n), bad_weight(blocks.A_og, own_n, ghost_g)
    rows = [(bad.weight, bad.row, bad.column) for bad in found if bad is not None]
    every_k3 = layout.comm.all_gather(np.array(rows, np.float64).reshape(-1, 3))
    return min(
        (BadWeight(weight, int(u), int(v)) for weight, u, v in every_k3.tolist()),
        key=attrgetter("weight"),
        default=None,
    )


def _without_diagonal(A: sp.csr_array, rows_n: np.ndarray) -> sp.csr_array:
    """Return A without the diagonal entries of these rows."""
    row_E = np.repeat(np.arange(A.shape[0], dtype=A.indices.dtype), np.diff(A.indptr))
    is_left = (row_E != A.indices) | ~rows_n[row_E]
    index = A.indptr.dtype
    ends = np.concatenate([np.zeros(1, index), np.cumsum(is_left, dtype=index)])
    return sp.csr_array((A.data[is_left], A.indices[is_left], ends[A.indptr]), shape=A.shape)


def _over(raw: sp.csr_array, like: sp.csr_array) -> sp.csr_array:
    """Return a matrix that shares the index arrays of another; weights that are all 1 are stored as one number."""
    is_one = (raw.data == 1).all()
    data = np.broadcast_to(np.ones((), raw.dtype), raw.data.shape) if is_one else raw.data
    return sp.csr_array((data, like.indices, like.indptr), shape=raw.shape, copy=False)
