"""Units: from numbers of mean 0 and deviation 1 to the units of the targets, and back for inputs.

Shapes: n own rows, C columns.
"""

from __future__ import annotations

import torch
from torch import nn

from ..errors import ShapeError


class Units(nn.Module):
    """Z * deviation_C + mean_C, what a Stack that is trained on numbers does last: it answers in the units of the targets.

    Args: C  columns. mean_C and deviation_C are buffers, part of the state_dict; training sets them once.
    """

    def __init__(self, C: int):
        super().__init__()
        self.register_buffer("mean_C", torch.zeros(C))
        self.register_buffer("deviation_C", torch.ones(C))

    def forward(self, Z_nC: torch.Tensor) -> torch.Tensor:
        """Return Z in the units of the targets, (n, C)."""
        if Z_nC.shape[1] != len(self.mean_C):
            raise ShapeError(
                f"the model returns {Z_nC.shape[1]} columns, the targets have {len(self.mean_C)}; the last layer must have "
                f"f_out = {len(self.mean_C)}"
            )
        return Z_nC * self.deviation_C + self.mean_C

    def without(self, X_nC: torch.Tensor) -> torch.Tensor:
        """Return (X - mean_C) / deviation_C, (n, C)."""
        return ((X_nC - self.mean_C) / self.deviation_C).to(X_nC.dtype)
