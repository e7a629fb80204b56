"""Which kernels work on a tensor: the CPU's, its device's, or none (meta), chosen here and nowhere else."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from .buffers import sum_dtype
from .cpu import HostKernels
from .edge_kernels import NullEdges
from .torch_dense import TorchDense

if TYPE_CHECKING:
    from .cuda import CudaKernels


class NullKernels(NullEdges, TorchDense):
    """The kernels of the meta device, whose tensors have shapes and no memory: nothing is written."""

    def prepare(self, A) -> None:
        """Nothing has to be copied."""

    def spmm(self, A, X_mF, out_nF, accumulate=False, bias_F=None, relu=False, add_nF=None) -> None:
        """out = A X; see HostKernels for this and the others."""

    def take_rows(self, X_nF, rows_m, out_mF, threads: int = 0) -> None:
        """out[i] = X[rows[i]]."""

    def mask_sum(self, G_nC, H_nC, out_nC, threads: int = 0, act: int = 1) -> torch.Tensor:
        """Return column sums, (C,)."""
        return G_nC.new_empty(G_nC.shape[1], dtype=sum_dtype(G_nC.dtype))

    def finish(self, Z_nC, out_nC, bias_C=None, act: int = 0, threads: int = 0) -> None:
        """out = act(Z (+ bias))."""

    def drop(self, X_nF, out_nF, node_n, key, rate: float, threads: int = 0) -> None:
        """out = X mask / (1 - rate)."""

    def drop_csr(self, A, node_n, key, rate: float):
        """Return the pattern of A."""
        return A

    def softmax_xent(self, Z_nC, y_n, scale: float, G_nC, threads: int = 0) -> torch.Tensor:
        """Return the loss, a scalar."""
        return torch.empty((), dtype=torch.float64, device=Z_nC.device)

    def encode(self, name: str, X_nF, out_nB, threads: int = 0) -> None:
        """out = code(X)."""

    def decode(self, name: str, bytes_nB, out_nF, threads: int = 0) -> None:
        """out = decode(bytes)."""


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
