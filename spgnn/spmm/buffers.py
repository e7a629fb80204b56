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

NUMPY = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64, torch.int32: np.int32}


class BufferPool:
    """Hands out uninitialised CPU tensors and takes their memory back when they die."""

    def __init__(self):
        self._free: dict[int, list[np.ndarray]] = defaultdict(list)
        self.held_bytes = 0

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return an uninitialised row-major tensor, page-aligned when it is large."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALL:
            return torch.empty(shape, dtype=dtype)
        size = -(-nbytes // PAGE) * PAGE
        free = self._free[size]
        block = free.pop() if free else self._new_block(size)
        array = block[:nbytes].view(NUMPY[dtype]).reshape(shape)
        # torch holds `array` until its storage dies; the callback then gives the block back.
        weakref.finalize(array, free.append, block).atexit = False
        return torch.from_numpy(array)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor in memory of the pool."""
        return self.empty(*tensor.shape, dtype=tensor.dtype).copy_(tensor)

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
