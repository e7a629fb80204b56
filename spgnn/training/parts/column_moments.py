"""ColumnMoments: the mean and variance of a BatchNorm over all nodes of a graph, part by part, and their gradients.

Shapes: N nodes, n own nodes of a part, F columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from ...errors import together

Rows = Callable[[], Iterable[torch.Tensor]]  # the rows (n, F) of each own part


class ColumnMoments:
    """mean = sum_i H_i / N, var = sum_i (H_i - mean)^2 / N over the rows of all parts of all ranks, summed in float64.

    Args: norm  whose running mean and variance take them in training; rows: read twice; N: nodes of the graph.
    mean_F, var_F  leaves: the backward passes of the parts add up their gradients.
    Collective, but for `gradient`.
    """

    def __init__(self, norm: nn.BatchNorm1d, rows: Rows, N: int, comm):
        self.N, self.comm = N, comm
        mean_F = self._mean(rows, norm.num_features, lambda H_nF: H_nF)
        var_F = self._mean(rows, norm.num_features, lambda H_nF: (H_nF - mean_F).square())
        weight = next(norm.parameters(), norm.running_mean)
        dtype = torch.float32 if weight is None else weight.dtype
        self.mean_F, self.var_F = (moment.to(dtype).requires_grad_() for moment in (mean_F, var_F))
        if norm.training and norm.running_mean is not None:
            self._follow(norm, mean_F, var_F)

    def _mean(self, rows: Rows, F: int, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        def own_sum() -> torch.Tensor:
            return sum((of(H_nF.double()).sum(0) for H_nF in rows()), torch.zeros(F, dtype=torch.float64))

        with torch.no_grad():
            total_F = together(self.comm, own_sum)
            self.comm.all_reduce(total_F)
            return total_F / self.N

    @torch.no_grad()
    def _follow(self, norm: nn.BatchNorm1d, mean_F: torch.Tensor, var_F: torch.Tensor) -> None:
        """Move the running moments as torch does: the variance is of N - 1."""
        running_mean, running_var, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
        assert running_mean is not None and running_var is not None and count is not None
        count.add_(1)
        momentum = 1 / int(count) if norm.momentum is None else norm.momentum
        running_mean.lerp_(mean_F.to(running_mean.dtype), momentum)
        running_var.lerp_((var_F * self.N / max(self.N - 1, 1)).to(running_var.dtype), momentum)

    def sum_gradients(self) -> None:
        """Add up the gradients of the moments over the ranks, after the last part."""
        for moment_F in (self.mean_F, self.var_F):
            moment_F.grad = torch.zeros_like(moment_F) if moment_F.grad is None else moment_F.grad
            self.comm.all_reduce(moment_F.grad)

    @torch.no_grad()
    def gradient(self, H_nF: torch.Tensor) -> torch.Tensor:
        """Return the gradient of rows H through the moments alone, (G_mean + 2 G_var (H - mean)) / N."""
        assert self.mean_F.grad is not None and self.var_F.grad is not None
        return (self.mean_F.grad + 2 * self.var_F.grad * (H_nF.to(self.mean_F.dtype) - self.mean_F)) / self.N
