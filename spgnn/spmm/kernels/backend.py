"""Which kernels work on a tensor: those of the CPU or of its device, chosen here and nowhere else."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import torch

from ...errors import UsageError, nearest
from .cpu import HostKernels

if TYPE_CHECKING:
    from .cuda import CudaKernels

HOST = HostKernels()


def kernels_of(tensor: torch.Tensor) -> HostKernels | CudaKernels:
    """Return the kernels for the memory that a tensor lies in."""
    return kernels_on(tensor.device)


def kernels_on(device: torch.device) -> HostKernels | CudaKernels:
    """Return the kernels of a device; HostKernels and CudaKernels have the same methods."""
    return HOST if device.type == "cpu" else _of_device(device)


@functools.cache
def _of_device(device: torch.device) -> CudaKernels:
    from .cuda import CudaKernels
    from .cuda.launcher import CupyLauncher
    from .cuda.vendor import CusparseKernels

    known = {"own": CudaKernels, "cusparse": CusparseKernels}
    name = os.environ.get("SPGNN_SPMM", "own")
    if name not in known:
        raise UsageError(f"SPGNN_SPMM = {name!r} is not known{nearest(name, known)}")
    return known[name](device, CupyLauncher(device))
