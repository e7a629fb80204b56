"""Wire: the type of rows in messages.

Shapes: m rows, F numbers per row, B = row_bytes bytes per row.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from ...cost.schedule import row_bytes
from ...errors import ShapeError, UsageError
from ..kernels.backend import kernels_of

FLOAT16_MAX = 65504
CUT_OFF = "rows beyond 65,504 are cut off at it by wire float16; use bfloat16, or scale the features"


@dataclass(frozen=True, slots=True)
class Wire:
    """float32 (the rows as they are), bfloat16 or float16; threads: of the kernels, 0 for all."""

    name: str
    threads: int = 0

    def __post_init__(self):
        row_bytes(1, 4, self.name)  # which knows the names

    @property
    def is_plain(self) -> bool:
        """Whether rows are sent unchanged, so that nothing has to be encoded."""
        return self.name == "float32"

    def row_bytes(self, width: int, itemsize: int = 4) -> int:
        """Return the bytes of one row; itemsize is of the rows' own type."""
        return row_bytes(width, itemsize, self.name)

    def encode(self, rows_mF: torch.Tensor, out_mB: torch.Tensor) -> torch.Tensor:
        """Encode rows: out = code(rows).

        Args: rows_mF  float32, float64 or bfloat16, rounded to nearest even. float16: what is finite stays
                       finite, 65504 at most, with a warning where that changes a number.
              out_mB   (m, B) uint8.
        """
        self._check(rows_mF, out_mB)
        if self.name == "float16" and rows_mF.device.type == "cpu" and rows_mF.numel():
            low, high = rows_mF.aminmax()
            if max(-low, high) > FLOAT16_MAX:
                warnings.warn(CUT_OFF, stacklevel=1)  # once per process
        kernels_of(out_mB).encode(self.name, rows_mF, out_mB, self.threads)
        return out_mB

    def decode(self, bytes_mB: torch.Tensor, out_mF: torch.Tensor) -> torch.Tensor:
        """Decode received rows: out (m, F), float32, float64 or bfloat16."""
        self._check(out_mF, bytes_mB)
        kernels_of(out_mF).decode(self.name, bytes_mB, out_mF, self.threads)
        return out_mF

    def _check(self, rows_mF, bytes_mB) -> None:
        expected = (rows_mF.shape[0], self.row_bytes(rows_mF.shape[1], rows_mF.element_size()))
        if self.is_plain:
            raise UsageError("wire float32 sends rows unchanged; test is_plain before encoding")
        if tuple(bytes_mB.shape) != expected or bytes_mB.dtype != torch.uint8:
            raise ShapeError(
                f"wire {self.name}: bytes are {tuple(bytes_mB.shape)} {bytes_mB.dtype}; expected {expected} torch.uint8"
            )
