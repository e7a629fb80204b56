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


class KeptWeights:
    """The weights of the best epoch of a training, and of the last one while the model has the best."""

    def __init__(self, model: torch.nn.Module):
        self.model, self.best = model, weights_of(model)
        self._last: dict[str, torch.Tensor] | None = None

    @property
    def last(self) -> dict[str, torch.Tensor]:
        """The weights of the last epoch."""
        return weights_of(self.model) if self._last is None else self._last

    def moved(self) -> None:
        """Note that the model has the weights of the last epoch."""
        self._last = None

    def keep_best(self) -> None:
        """Keep the weights of the model as the best."""
        self.best = weights_of(self.model)

    def take_best(self) -> None:
        """Give the model the best weights."""
        self._last = self.last
        self.model.load_state_dict(self.best)

    def restore(self, best: dict[str, torch.Tensor]) -> None:
        """Note that the model has the weights of the last epoch, and that others are the best."""
        own = self.model.state_dict()
        self.best, self._last = {name: value.to(own[name], copy=True) for name, value in best.items()}, None
