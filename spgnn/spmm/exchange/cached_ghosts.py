"""Ghost rows of the fixed input X: fetched once, and dropped out by the rank that reads them.

Shapes: m own rows, g ghost rows, F features.
"""

from __future__ import annotations

import torch

from ..chains.dropout import drop_rows
from ..operator.facts import AtLayer, FixedRows, SpMM, fixed_rows, is_released
from ..operator.features import AnyRows, SparseRows


def reads_fixed_input(A: SpMM, H: AnyRows) -> bool:
    """Return whether H is the fixed input of A, or X under dropout: then its ghost rows are cached."""
    return _source(A, H) is not None


def cached_ghosts(A: SpMM, H: AnyRows) -> AnyRows | None:
    """Return the ghost rows of H (g, F) where H is the fixed input X, or X under dropout; else None.

    Those of X are fetched once; a mask is a hash of original ids, so the reader drops rows by itself. Collective at first.
    """
    rows = _source(A, H)
    if rows is None or A.fixed_input is None:
        return None
    ghosts_gF = A.fixed_input.ghosts(A)
    if not rows.is_dropped or not ghosts_gF.shape[0]:
        return ghosts_gF
    ids_g = A.column_blocks[-1].ids_c
    if isinstance(ghosts_gF, SparseRows):
        return ghosts_gF.dropout(rows.rate, rows.key, ids_g)
    return drop_rows(A, ghosts_gF, ids_g, rows.rate, rows.key)


def times_fixed_input(A: AtLayer, H: torch.Tensor) -> torch.Tensor:
    """Return A H where a dense H reads_fixed_input, outside of autograd: H has no gradient. Collective at first."""
    H_mF = H if H.dtype == A.dtype else A.pool.copy(H, A.dtype)
    return A.apply(H_mF, ghosts_gF=cached_ghosts(A, H))


def _source(A: SpMM, H: AnyRows) -> FixedRows | None:
    rows = fixed_rows(A, H)
    if rows is None or (torch.is_tensor(rows.X) and (is_released(rows.X) or rows.X.requires_grad)):
        return None
    return rows
