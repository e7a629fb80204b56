"""Memory that is planned once: a block goes back to the pool when the last tensor on it dies.

A fresh tensor of 100 MB is mapped, faulted in and unmapped at every use, which costs more than the
arithmetic on it. The shapes of a full-graph epoch never change, so from the second epoch on every
request finds the block that the same request used before.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict

import numpy as np
import torch

PAGE = 4096  # also the alignment: a vector load must not straddle two cache lines
SMALL = 1 << 15  # bytes under which torch's own allocator is as good


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the numpy array over a tensor's memory; bfloat16, which numpy lacks, as the uint16 of its bits."""
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of weights, sums and loss beside matrices of a type: float32 for bfloat16."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def block_bytes(n_bytes: int) -> int:
    """Return the size of the block that a pool takes for a request, 0 for one that torch's own allocator serves."""
    return -(-n_bytes // PAGE) * PAGE if n_bytes >= SMALL else 0


class BufferPool:
    """Hands out uninitialised CPU tensors and takes their memory back when they die."""

    device = torch.device("cpu")

    def __init__(self):
        self._free: dict[int, list[np.ndarray]] = defaultdict(list)
        self.held_bytes = 0

    def empty(
        self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> torch.Tensor:
        """Return an uninitialised row-major tensor, page-aligned when it is large; device: there is one, the CPU."""
        nbytes = math.prod(shape) * dtype.itemsize
        size = block_bytes(nbytes)
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        free = self._free[size]
        block = free.pop() if free else self._new_block(size)
        array = block[:nbytes].view()
        # torch holds `array` until its storage dies; the callback then gives the block back.
        weakref.finalize(array, free.append, block).atexit = False
        # No view: torch forbids most of what changes those of a Function in place.
        return torch.empty(0, dtype=dtype).set_(torch.from_numpy(array).untyped_storage(), 0, shape)

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a copy of a tensor in memory of the pool, of another type where one is given."""
        return self.empty(*tensor.shape, dtype=dtype or tensor.dtype).copy_(tensor)

    def trim(self) -> None:
        """Give all free blocks back to the system."""
        for size, blocks in self._free.items():
            self.held_bytes -= size * len(blocks)
            blocks.clear()

    def _new_block(self, size: int) -> np.ndarray:
        raw = np.empty(size + PAGE, np.uint8)
        self.held_bytes += size
        start = -raw.ctypes.data % PAGE
        return raw[start : start + size]


class DevicePool:
    """The same on a device, where torch's allocator keeps blocks and hands them out again, in the order of the stream."""

    def __init__(self, device: torch.device):
        self.device = device

    @property
    def held_bytes(self) -> int:
        """Bytes that torch holds of the device, in use or not."""
        return torch.cuda.memory_reserved(self.device)

    def empty(
        self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> torch.Tensor:
        """Return an uninitialised row-major tensor; device: the CPU's for rows that stay there."""
        return torch.empty(shape, dtype=dtype, device=self.device if device is None else device)

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a copy of a tensor on the device, of another type where one is given."""
        return self.empty(*tensor.shape, dtype=dtype or tensor.dtype).copy_(tensor)

    def trim(self) -> None:
        """Give all free blocks back to the device."""
        torch.cuda.empty_cache()


def make_pool(device: torch.device) -> BufferPool | DevicePool:
    """Return the pool of a device."""
    return BufferPool() if device.type == "cpu" else DevicePool(device)
