"""The normalised operator of a row block: the same numbers as `graph.normalise`, on any ranks.

Shapes: n own rows, g ghost rows.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from ...graph import Norm, axis_sums, inverse_or_zero, scaled


def row_sums(A_oo: sp.csr_array, A_og: sp.csr_array) -> np.ndarray:
    """Return the sums D_r of the rows of both blocks, (n,) float64."""
    return axis_sums(A_oo, 1) + axis_sums(A_og, 1)


def scaled_blocks(
    A_oo: sp.csr_array, A_og: sp.csr_array, rows_n, plan, how: Norm, dtype=np.float64
) -> tuple[sp.csr_array, sp.csr_array]:
    """Return D_r^-1/2 A D_c^-1/2 (gcn), D_r^-1 A (row, row_loops), A (none) or its pattern (loops) in two blocks.

    Args: rows_n  D_r, the sums of whole rows; the blocks may be some of their columns (1.5D).
          dtype   of the results, which share the indices of A; each product is taken in float64.
    Column sums D_c are added up at the owners and fetched for the ghosts.
    For gcn, row_loops and loops, A_oo must have its self-loops already. Collective for gcn where plan is not None.
    """
    if how == "none":
        return _with_data(A_oo, A_oo.data.astype(dtype, copy=False)), _with_data(
            A_og, A_og.data.astype(dtype, copy=False)
        )
    if how == "loops":
        return _with_data(A_oo, np.ones(A_oo.nnz, dtype)), _with_data(A_og, np.ones(A_og.nnz, dtype))
    if how in ("row", "row_loops"):
        return scaled(A_oo, inverse_or_zero(rows_n), None, dtype), scaled(A_og, inverse_or_zero(rows_n), None, dtype)
    columns_n1 = torch.from_numpy(axis_sums(A_oo, 0)[:, None])
    columns_g1 = torch.from_numpy(axis_sums(A_og, 0)[:, None])
    if plan is not None:
        plan.push_add(columns_g1, columns_n1)
        columns_g1 = plan.pull(columns_n1)
    left_n = inverse_or_zero(np.sqrt(np.maximum(rows_n, 0)))
    right_n, right_g = (inverse_or_zero(np.sqrt(np.maximum(c.numpy().ravel(), 0))) for c in (columns_n1, columns_g1))
    return scaled(A_oo, left_n, right_n, dtype), scaled(A_og, left_n, right_g, dtype)


def _with_data(A: sp.csr_array, data: np.ndarray) -> sp.csr_array:
    return sp.csr_array((data, A.indices, A.indptr), shape=A.shape, copy=False)
