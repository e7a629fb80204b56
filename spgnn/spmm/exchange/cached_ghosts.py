"""Ghost rows of the fixed input X: fetched once, and dropped out by the rank that reads them.

Shapes: m own rows, g ghost rows, F features.
"""

from __future__ import annotations

import torch

from ..chains.dropout import drop_rows, dropped_of
from ..operator.features import SparseRows
from ..operator.fixed_input import is_released


def reads_fixed_input(A, H) -> bool:
    """Return whether H is the fixed input of A, or that under dropout: then its ghost rows are at hand."""
    return _source(A, H) is not None


def cached_ghosts(A, H) -> torch.Tensor | SparseRows | None:
    """Return the ghost rows of H (g, F) where H is the fixed input X, or X under dropout; else None.

    Those of X are fetched once; a mask is a hash of original ids, so the reader drops rows by itself. Collective at first.
    """
    source = _source(A, H)
    if source is None:
        return None
    ghosts_gF = A.fixed_input.ghosts(A)
    if source is H or not ghosts_gF.shape[0]:
        return ghosts_gF
    dropped, ids_g = dropped_of(H), A.column_blocks[-1].ids_c
    if ghosts_gF.is_sparse:
        return ghosts_gF.dropout(dropped.rate, dropped.key, ids_g)
    return drop_rows(A, ghosts_gF, ids_g, dropped.rate, dropped.key)


def times_fixed_input(A, H) -> torch.Tensor:
    """Return A H where a dense H reads_fixed_input, outside of autograd: H has no gradient. Collective at first."""
    H_mF = H if H.dtype == A.dtype else A.pool.copy(H, A.dtype)
    return A.apply(H_mF, ghosts_gF=cached_ghosts(A, H))


def _source(A, H):
    fixed = A.fixed_input
    if fixed is None:
        return None
    dropped = dropped_of(H)
    X = H if dropped is None else dropped.X
    if X is not fixed.X or (torch.is_tensor(X) and (is_released(X) or X.requires_grad)):
        return None
    return X
