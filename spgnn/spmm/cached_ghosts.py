"""Ghost rows of the fixed input X: fetched once, and dropped out by the rank that reads them.

Shapes: m own rows, g ghost rows, F features.
"""

from __future__ import annotations

import torch

from .dropout import drop_rows, dropped_of
from .fixed_input import is_released


def reads_fixed_input(A, H) -> bool:
    """Return whether H is the dense fixed input of A, or that under dropout: then its ghost rows are at hand."""
    return _source(A, H) is not None


def cached_ghosts(A, H) -> torch.Tensor | None:
    """Return the ghost rows of H (g, F) where H is the dense fixed input X, or X under dropout; else None.

    Those of X are fetched once; a mask is a hash of original ids, so the reader drops rows by itself. Collective at first.
    """
    source = _source(A, H)
    if source is None:
        return None
    ghosts_gF = A.fixed_input.ghosts(A)
    if source is H:
        return ghosts_gF
    if not len(ghosts_gF):
        return ghosts_gF
    return drop_rows(A, ghosts_gF, A.column_blocks[-1].ids_c, dropped_of(H).rate, dropped_of(H).key)


def _source(A, H):
    fixed = A.fixed_input
    if fixed is None or not torch.is_tensor(H) or not torch.is_tensor(fixed.X):
        return None
    dropped = dropped_of(H)
    X = H if dropped is None else dropped.X
    return X if X is fixed.X and not is_released(X) and not X.requires_grad else None
