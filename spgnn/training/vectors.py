"""Tensors of a model: as one float64 vector that ranks add up, and as copies under their names."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class TensorVector:
    """Some tensors, read and written as one vector of float64 on the CPU; size: its length."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.tensors = list(tensors)
        self.size = sum(tensor.numel() for tensor in self.tensors)

    def read(self) -> torch.Tensor:
        """Return a copy of all values, (size,) float64."""
        pieces = [tensor.detach().to("cpu", torch.float64).ravel() for tensor in self.tensors]
        return torch.cat([*pieces, torch.empty(0, dtype=torch.float64)])

    @torch.no_grad()
    def write(self, values: torch.Tensor) -> None:
        """Give the tensors the values of a vector, rounded to their types."""
        for tensor, piece in zip(self.tensors, values.split([tensor.numel() for tensor in self.tensors])):
            is_float = tensor.dtype.is_floating_point
            tensor.copy_((piece if is_float else piece.round()).view_as(tensor))


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the weights and buffers of a model by name."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
