"""The normalised operator of a row block: the same numbers as `graph.normalise`, on any ranks.

Shapes: n own rows, g ghost rows.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from ...graph import Norm, axis_sums, inverse_or_zero, scaled

IN = "gcn_in"


def row_sums(A_oo: sp.csr_array, A_og: sp.csr_array) -> np.ndarray:
    """Return the sums D_r of the rows of both blocks, (n,) float64."""
    return axis_sums(A_oo, 1) + axis_sums(A_og, 1)


def scaled_blocks(
    A_oo: sp.csr_array, A_og: sp.csr_array, rows_n, plan, how: Norm, dtype=np.float64, columns_n=None, is_whole_n=None
) -> tuple[sp.csr_array, sp.csr_array]:
    """Return D_r^-1/2 A D_c^-1/2 (gcn, sym), D_r^-1 A (row, row_loops), A (none) or its pattern (loops) in two blocks.

    gcn_in, the operator of PyG's GCNConv, is D_r^-1/2 A D_r^-1/2: of a directed graph, it reads the rows' sums alone.

    Args: rows_n      D_r, the sums of whole rows; the blocks may be some of their columns (1.5D).
          dtype       of the results, which share the indices of A; each product is taken in float64.
          columns_n   D_c of the own columns where they are known, and there are no ghosts. Otherwise they are added up at
                      the owners and fetched for the ghosts.
          is_whole_n  rows of which all entries are known, None: all. The others are scaled by D_r / sum of the known
                      entries, so that a mean stays a mean; not with loops, whose entries are ones.
    For gcn, gcn_in, row_loops and loops, A_oo must have its self-loops already. Collective for gcn, gcn_in
    and sym where plan is not None.
    """
    share_n = None if is_whole_n is None else _share(rows_n, row_sums(A_oo, A_og), is_whole_n)
    if how == "none" and share_n is not None:
        return scaled(A_oo, share_n, None, dtype), scaled(A_og, share_n, None, dtype)
    if how == "none":
        return _with_data(A_oo, A_oo.data.astype(dtype, copy=False)), _with_data(
            A_og, A_og.data.astype(dtype, copy=False)
        )
    if how == "loops":
        return _with_data(A_oo, np.ones(A_oo.nnz, dtype)), _with_data(A_og, np.ones(A_og.nnz, dtype))
    share_n = 1.0 if share_n is None else share_n
    if how in ("row", "row_loops"):
        left_n = inverse_or_zero(rows_n) * share_n
        return scaled(A_oo, left_n, None, dtype), scaled(A_og, left_n, None, dtype)
    left_n = inverse_or_zero(np.sqrt(rows_n)) * share_n
    columns_n = rows_n if columns_n is not None and how == IN else columns_n
    if columns_n is not None:
        return scaled(A_oo, left_n, inverse_or_zero(np.sqrt(columns_n)), dtype), _with_data(
            A_og, A_og.data.astype(dtype, copy=False)
        )
    columns_n1 = torch.from_numpy((rows_n if how == IN else axis_sums(A_oo, 0))[:, None])
    columns_g1 = torch.from_numpy(axis_sums(A_og, 0)[:, None])
    if plan is not None:
        if how != IN:
            plan.push_add(columns_g1, columns_n1)
        columns_g1 = plan.pull(columns_n1)
    right_n, right_g = (inverse_or_zero(np.sqrt(c.numpy().ravel())) for c in (columns_n1, columns_g1))
    return scaled(A_oo, left_n, right_n, dtype), scaled(A_og, left_n, right_g, dtype)


def _share(rows_n: np.ndarray, known_n: np.ndarray, is_whole_n: np.ndarray) -> np.ndarray:
    """Return D / D_known of each row, exactly 1 where all entries are known."""
    return np.where(is_whole_n, 1.0, rows_n * inverse_or_zero(known_n))


def _with_data(A: sp.csr_array, data: np.ndarray) -> sp.csr_array:
    return sp.csr_array((data, A.indices, A.indptr), shape=A.shape, copy=False)
