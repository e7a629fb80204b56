"""check_sums: no rank divides by a sum of a row or column that negative weights make 0 or less.

Shapes: n own rows, g ghost rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from ...config.names import Norm
from ...errors import GraphError
from ...graph import DIVIDES, Signs, axis_sums, lost_error, lost_sums, signs_of, sizes_of
from .context import Layout
from .exchange_plan import ExchangePlan
from .scaling import row_sums


@dataclass(frozen=True, slots=True, eq=False)
class SignedWeights:
    """What a graph with negative weights has more: their number in the whole graph, and sums of magnitudes of own rows.

    sizes_n  (n,) float64, the sums of |w| of the rows of A as far as their entries are known.
    """

    signs: Signs
    sizes_n: np.ndarray


def signed_weights(A_oo: sp.csr_array, A_og: sp.csr_array, layout: Layout) -> SignedWeights | None:
    """Return what the blocks of A, without added loops, have of negative weights; None: none has any. Collective."""
    blocks = [signs_of(A.data) for A in (A_oo, A_og)]
    counts = np.array([[signs.negative, signs.huge, signs.E] for signs in blocks]).sum(axis=0)
    counts *= layout.is_counted
    layout.comm.all_reduce(counts)
    signs = Signs(*map(int, counts))
    return SignedWeights(signs, row_sums(magnitudes(A_oo), magnitudes(A_og))) if signs else None


def check_sums(raw, plan: ExchangePlan | None, how: Norm, layout: Layout) -> None:
    """Raise GraphError, on all ranks, where an operator divides by a sum that is 0 or less, or 0 up to rounding.

    Args: raw  RawBlocks with or without loops, as the operator is; plan: that fetches all ghosts.
    Collective.
    """
    signed, index = raw.signed, raw.blocks.index
    if signed is None or not (how in DIVIDES or (how == "none" and raw.is_whole_n is not None)):
        return
    signed.signs.check_size()
    A_oo, A_og = raw.blocks.A_oo, raw.blocks.A_og
    sizes_n = signed.sizes_n + raw.loopless_n * raw.has_loops
    if raw.is_whole_n is not None:
        _check_known(raw, sizes_n)
    if how not in DIVIDES:
        return
    is_lost_n = lost_sums(raw.rows_n, sizes_n, A_oo.dtype)
    columns_n2 = np.stack([axis_sums(A_oo, 0), axis_sums(magnitudes(A_oo), 0)], axis=1)
    if raw.columns_n is not None:
        columns_n2[:, 0] = raw.columns_n
    elif plan is not None:
        columns_g2 = np.stack([axis_sums(A_og, 0), axis_sums(magnitudes(A_og), 0)], axis=1)
        plan.push_add(torch.from_numpy(columns_g2), torch.from_numpy(columns_n2))
    has_columns = how == "gcn" and raw.holds_own  # of the ranks with the same rows, one has its own columns
    is_lost_m = lost_sums(*columns_n2.T, A_oo.dtype) & has_columns
    counts = np.array([np.count_nonzero(is_lost_n) * layout.is_counted, np.count_nonzero(is_lost_m)])
    layout.comm.all_reduce(counts)
    first = np.array([index.own_n[is_lost_n | is_lost_m].min(initial=np.iinfo(np.int64).max)])
    layout.comm.all_reduce(first, "min")
    if counts.any():
        raise lost_error(signed.signs, how, *map(int, counts), int(first[0]))


def magnitudes(A: sp.csr_array) -> sp.csr_array:
    """Return |A|, see sizes_of, over the index arrays of A."""
    return sp.csr_array((sizes_of(A.data), A.indices, A.indptr), shape=A.shape, copy=False)


def _check_known(raw, sizes_n: np.ndarray) -> None:
    """Raise GraphError for a row that lacks entries whose sum cannot be scaled to that of all, see scaled_blocks."""
    A_oo, A_og = raw.blocks.A_oo, raw.blocks.A_og
    known_n = row_sums(A_oo, A_og)
    is_lost_n = lost_sums(raw.rows_n, sizes_n, A_oo.dtype) | lost_sums(known_n, sizes_n, A_oo.dtype)
    is_lost_n &= ~raw.is_whole_n & (known_n != 0)
    if is_lost_n.any():
        raise GraphError(
            f"{raw.signed.signs}, and {np.count_nonzero(is_lost_n):,} rows of a part that are cut off have a sum of 0 or "
            f"less, node {raw.blocks.index.own_n[is_lost_n].min()} first: they are scaled by these sums. Train on the whole "
            "graph, --mode full, or make the weights positive"
        )
