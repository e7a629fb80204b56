"""Memory that is planned once: a block goes back to the pool when the last tensor on it dies.

A fresh tensor of 100 MB is mapped, faulted in and unmapped at every use, which costs more than the
arithmetic on it. The shapes of an epoch never change, so after the first epochs every request finds a block. Where they
change with every step, as on subgraphs, sizes are rounded up to classes, and what is held has a bound.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect_left
from collections import deque
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

PAGE = 4096  # also the alignment: a vector load must not straddle two cache lines
SMALL = 1 << 15  # bytes under which torch's own allocator is as good
LOOSEST = 2  # times the size of a request: a larger block is left for larger requests
CLASSES = 8  # sizes between a power of two and the next, where sizes change
MOST_HELD = 3  # times the bytes in use at once, where sizes change: above, free blocks go back to the system

Memory = TypeVar("Memory")


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the numpy array over a tensor's memory; bfloat16, which numpy lacks, as the uint16 of its bits."""
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def arrays(*tensors: torch.Tensor | None) -> list:
    """Return the arrays over the memory of tensors, None for None."""
    return [None if x is None else array_of(x) for x in tensors]


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of weights, sums and loss for matrices of a type: float32 for bfloat16."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def block_bytes(n_bytes: int) -> int:
    """Return the size of the block that a pool takes for a request, 0 for one that torch's own allocator serves."""
    return -(-n_bytes // PAGE) * PAGE if n_bytes >= SMALL else 0


def class_bytes(n_bytes: int) -> int:
    """Return the size of the block for a request where sizes change: at most 1/8 more, so that close sizes share blocks."""
    if n_bytes < SMALL:
        return 0
    step = max(PAGE, (1 << (n_bytes - 1).bit_length()) // (2 * CLASSES))
    return -(-n_bytes // step) * step


class FreeBlocks(Generic[Memory]):
    """The free blocks of a pool, by size: a request gets the smallest that holds it and is at most LOOSEST times as large.

    Where there is none, smaller free blocks go back to the system, smallest first, until they make up for the new one.
    A block is thus replaced only by a larger one, so that a sequence of requests that repeats soon maps nothing.
    """

    def __init__(self):
        self._sizes: list[int] = []  # ascending; of equal ones the block that was freed last is first
        self._memory: list[Memory] = []

    def put(self, size: int, memory: Memory) -> None:
        """Add a block."""
        at = bisect_left(self._sizes, size)
        self._sizes.insert(at, size)
        self._memory.insert(at, memory)

    def take(self, size: int) -> tuple[int, Memory] | None:
        """Remove and return the size and the memory of a block for a request, None where none fits."""
        at = bisect_left(self._sizes, size)
        if at == len(self._sizes) or self._sizes[at] > LOOSEST * size:
            return None
        return self._sizes.pop(at), self._memory.pop(at)

    def make_room(self, size: int) -> int:
        """Drop blocks smaller than a new one until they make up for it; return their bytes."""
        given = count = 0
        while given < size and count < len(self._sizes) and self._sizes[count] < size:
            given += self._sizes[count]
            count += 1
        del self._sizes[:count], self._memory[:count]
        return given

    def clear(self) -> int:
        """Drop all blocks and return their bytes."""
        given = sum(self._sizes)
        self._sizes.clear()
        self._memory.clear()
        return given


class Pool(Protocol):
    """What hands out uninitialised tensors of one device: BufferPool, DevicePool, or the Heap of a dry run."""

    device: torch.device

    def empty(
        self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> torch.Tensor: ...

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor: ...

    def trim(self) -> None: ...


class BufferPool:
    """Hands out uninitialised CPU tensors and takes their memory back when they die. One thread asks for them.

    Args: varies  the sizes change with every step: blocks have class_bytes, and most_held is MOST_HELD.
    most_held  times the bytes that were in use at once that may be held, where a new block is made.
    """

    device = torch.device("cpu")

    def __init__(self, varies: bool = False):
        self._free: FreeBlocks[np.ndarray] = FreeBlocks()
        self._returned: deque[tuple[int, np.ndarray]] = deque()  # a tensor may die in any thread, within any call
        self._size_of = class_bytes if varies else block_bytes
        self.most_held = MOST_HELD if varies else math.inf
        self.held_bytes, self.used_bytes, self.most_used = 0, 0, 0

    def empty(
        self, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> torch.Tensor:
        """Return an uninitialised row-major tensor, page-aligned when it is large; device: there is one, the CPU."""
        nbytes = math.prod(shape) * dtype.itemsize
        size = self._size_of(nbytes)
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        self._collect()
        block = self._free.take(size) or self._new_block(size)
        self.used_bytes += block[0]
        self.most_used = max(self.most_used, self.used_bytes)
        array = block[1][:nbytes].view()
        # torch holds `array` until its storage dies; the callback then gives the block back.
        weakref.finalize(array, self._returned.append, block).atexit = False
        # No view: torch forbids most of what changes those of a Function in place.
        return torch.empty(0, dtype=dtype).set_(torch.from_numpy(array).untyped_storage(), 0, shape)  # pyrefly: ignore[no-matching-overload]  # torch's stub lacks this one

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a copy of a tensor in memory of the pool, of another type where one is given."""
        return self.empty(*tensor.shape, dtype=dtype or tensor.dtype).copy_(tensor)

    def trim(self) -> None:
        """Give all free blocks back to the system."""
        self._collect()
        self.held_bytes -= self._free.clear()

    def _collect(self) -> None:
        while self._returned:
            size, memory = self._returned.popleft()
            self.used_bytes -= size
            self._free.put(size, memory)

    def _new_block(self, size: int) -> tuple[int, np.ndarray]:
        self.held_bytes += size - self._free.make_room(size)
        if self.held_bytes > self.most_held * max(self.most_used, self.used_bytes + size):
            self.held_bytes -= self._free.clear()
        raw = np.empty(size + PAGE, np.uint8)
        start = -raw.ctypes.data % PAGE
        return size, raw[start : start + size]


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


def make_pool(device: torch.device, varies: bool = False) -> BufferPool | DevicePool:
    """Return the pool of a device; varies: see BufferPool."""
    return BufferPool(varies) if device.type == "cpu" else DevicePool(device)
