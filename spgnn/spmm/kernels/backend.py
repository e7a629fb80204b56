"""Which kernels work on a tensor: the CPU's, its device's, or none (meta), chosen here and nowhere else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from .buffers import sum_dtype
from .cpu import HostKernels
from .torch_dense import TorchDense

if TYPE_CHECKING:
    from .cuda import CudaKernels


class NullKernels(TorchDense):
    """The kernels of the meta device, whose tensors have shapes and no memory: nothing is written.

    Those that return something return its shape here.
    """

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not hasattr(HostKernels, name):
            raise AttributeError(name)
        return lambda *args, **options: None

    def mask_sum(self, G_nC, H_nC, out_nC, threads: int = 0, act: int = 1) -> torch.Tensor:
        """Return column sums, (C,)."""
        return G_nC.new_empty(G_nC.shape[1], dtype=sum_dtype(G_nC.dtype))

    def drop_csr(self, A, node_n, key, rate: float):
        """Return the pattern of A."""
        return A

    def softmax_xent(self, Z_nC, y_n, scale: float, G_nC, threads: int = 0) -> torch.Tensor:
        """Return the loss, a scalar."""
        return torch.empty((), dtype=torch.float64, device=Z_nC.device)

    def attend_record(self, G_nKD, *args, **options) -> torch.Tensor:
        """Return the sum of the rows, (K D)."""
        return G_nKD.new_empty(G_nKD.shape[1])

    def attend_adjoint(self, A, X_cKD, *args, **options) -> torch.Tensor:
        """Return the gradients of two rows."""
        return X_cKD.new_empty(2, X_cKD.shape[1])


HOST, NULL = HostKernels(), NullKernels()


def kernels_of(tensor: torch.Tensor) -> HostKernels | CudaKernels | NullKernels:
    """Return the kernels for the memory that a tensor lies in."""
    return kernels_on(tensor.device)


def kernels_on(device: torch.device) -> HostKernels | CudaKernels | NullKernels:
    """Return the kernels of a device; all have the same methods."""
    if device.type == "cpu":
        return HOST
    return NULL if device.type == "meta" else _of_device(device)


@functools.cache
def _of_device(device: torch.device) -> CudaKernels:
    from .cuda import CudaKernels
    from .cuda.launcher import CupyLauncher

    return CudaKernels(device, CupyLauncher(device))
