"""Heap: the memory that the tensors of a dry run take and give back, in the order in which they do.

Rows have numbers, and numbers have names: bytes are per row, and follow from the counts of a rank.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from ..kernels.buffers import FreeBlocks, block_bytes

META = torch.device("meta")
Rows = tuple[str, ...]  # names of counts that are added; (): no rows of a rank


class HeapBlock(NamedTuple):
    """Memory that a tensor takes or gives back, row_bytes per row; of the pool, or torch's own. Number 0: the pool is trimmed."""

    number: int
    rows: Rows
    row_bytes: int
    is_pooled: bool
    is_taken: bool


def amount(rows: Rows, counts) -> int:
    """Return the rows that these names have together; 1 of no rows."""
    return sum(counts[name] for name in rows) if rows else 1


def pool_bytes(blocks: Iterable[HeapBlock], counts) -> int:
    """Return the bytes that the pool of buffers holds at the end."""
    free: FreeBlocks[None] = FreeBlocks()
    sizes: dict[int, int] = {}  # of the blocks in use, by number
    held = 0  # blocks that were taken before the record began are never free in it
    for block in blocks:
        size = block_bytes(block.row_bytes * amount(block.rows, counts))
        if block.number == 0:
            held -= free.clear()
        elif not block.is_pooled or not size:
            continue
        elif not block.is_taken:
            free.put(sizes.pop(block.number), None)
        elif found := free.take(size):
            sizes[block.number] = found[0]
        else:
            held += size - free.make_room(size)
            sizes[block.number] = size
    return held


def torch_bytes(blocks: Iterable[HeapBlock], counts) -> int:
    """Return the most bytes that torch's own tensors of a rank's rows take at once."""
    now = most = 0
    for block in blocks:
        if not block.is_pooled and block.number:
            size = block.row_bytes * amount(block.rows, counts)
            now += size if block.is_taken else -size
            most = max(most, now)
    return most


class Heap:
    """Records the memory of tensors on the meta device that have rows of a rank, and is their BufferPool.

    rows_of  number of rows -> its names.
    """

    device, held_bytes = META, 0

    def __init__(self):
        self.rows_of: dict[int, Rows] = {}
        self.blocks: list[HeapBlock] = []
        self.is_pooled, self.is_counted = False, True
        self._held: set[int] = set()  # storages that are alive, by id: Python keeps one object of each
        self._taken = self._first = 0  # storages that were numbered; the last one that is counted elsewhere

    def begin(self) -> None:
        """Forget what was taken before: it is counted elsewhere."""
        self.blocks.clear()
        self._first = self._taken

    def take(self, tensor) -> None:
        """Record the memory of a tensor, unless it shares the memory of another."""
        if not isinstance(tensor, torch.Tensor) or not self.is_counted:
            return
        named = next((size for size in tensor.shape if size in self.rows_of), None)
        storage = tensor.untyped_storage()
        if named is None or id(storage) in self._held:
            return
        self._held.add(id(storage))
        self._taken += 1
        block = HeapBlock(self._taken, self.rows_of[named], storage.nbytes() // named, self.is_pooled, True)
        self.blocks.append(block)
        weakref.finalize(storage, self._give_back, id(storage), block).atexit = False

    def _give_back(self, storage: int, block: HeapBlock) -> None:
        self._held.discard(storage)
        if block.number > self._first:
            self.blocks.append(block._replace(is_taken=False))

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, device=None) -> torch.Tensor:
        """Return a tensor of the pool, without memory; empty, copy and trim are the calls of a BufferPool."""
        self.is_pooled = True
        tensor = torch.empty(shape, dtype=dtype, device=META)
        self.take(tensor)
        self.is_pooled = False
        return tensor

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a copy of a tensor, of another type where one is given."""
        return self.empty(*tensor.shape, dtype=dtype or tensor.dtype).copy_(tensor)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Record nothing: tensors of all rows that a run has in chunks."""
        self.is_counted = False
        yield
        self.is_counted = True

    def trim(self) -> None:
        """Give back all free blocks."""
        self.blocks.append(HeapBlock(0, (), 0, is_pooled=True, is_taken=False))
