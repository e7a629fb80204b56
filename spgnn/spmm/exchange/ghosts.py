"""Blocks of columns of A, own and ghost, and small rules of the rows that are read at them.

Shapes: n own rows, c columns of a block, t own and ghost columns, F columns of H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...errors import ShapeError
from ..kernels.buffers import Pool
from ..kernels.csr import LocalCSR
from ..operator.features import AnyRows


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlock:
    """A (n, c), the own or the ghost columns of A; with the original ids of the columns and the number of those before."""

    A: LocalCSR
    ids_c: np.ndarray
    is_ghost: bool = False
    start: int = 0

    @property
    def of_table(self) -> slice:
        """Where the rows of the columns are in a table (t, F)."""
        return slice(self.start, self.start + self.A.shape[1])


def rounded(pool: Pool, sum_nF: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return rows in a dtype."""
    return sum_nF if sum_nF.dtype == dtype else pool.copy(sum_nF, dtype)


def check_rows(H: AnyRows, rows: int, rank: int) -> None:
    """Raise ShapeError unless H has a row for each own node."""
    if H.ndim != 2 or H.shape[0] != rows:
        raise ShapeError(f"rank {rank}: H has shape {tuple(H.shape)}; expected ({rows}, F), one row per own node")
