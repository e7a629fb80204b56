"""Recording: the calls of a dry run and the memory that its tensors take and give back, in the order in which they come.

Rows have numbers that are no dimension of a weight, so that the dimensions of a tensor tell whose rows it has; numbers have
names, so that calls and bytes follow from the counts of a rank. Shapes: n own rows, F columns.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from ..kernels.buffers import FreeBlocks, block_bytes, sum_dtype
from ..operator.place import Place
from .shapes import Shaped

META = torch.device("meta")
FIRST = 20_000  # the least number of rows: more than most weights have, fewer than a chunk of torch_dense.CHUNK
Rows = tuple[str, ...]  # names of counts that are added; (): no rows of a rank

aten = torch.ops.aten
GEMMS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}


@dataclass(frozen=True, slots=True)
class Product:
    """One product, with A or with weights, and what its exchange sends; or a pass over the nonzeros of A.

    layer      as the exchange is labelled; None outside of the layers of a Stack.
    pass_name  setup, forward, backward or evaluate.
    kind       scheme: A H, whose exchange sends what broadcast, columns or cover send; ghosts: rows are read, not sums;
               cached ghosts: so, of X, which a rank has: nothing is sent; cached: A X is known; sum: of partial results
               of a process row, of which `width` counts numbers of the type of sums; weights: with a matrix; attend,
               attend2, maximum: a pass over the nonzeros of A in forward, with another in backward.
    width      columns of what A multiplies; weights: columns of the result; heads: of attention.
    order      of a forward chain A H W: spmm_first or gemm_first; None: a product A H.
    shape      of the W of a chain, (f_in, f_out), or of weights, None: no product with a matrix; why: the order was taken.
    rows       weights: whose rows or nonzeros are multiplied, each by multiply_adds.
    """

    layer: int | None
    pass_name: str
    width: int
    kind: str = "scheme"
    order: str | None = None
    shape: tuple[int, int] | None = None
    why: str = ""
    rows: Rows = ()
    multiply_adds: int = 0
    heads: int = 1

    @property
    def is_cached(self) -> bool:
        """Whether it is not made, as A X is cached."""
        return self.kind == "cached"

    @property
    def is_of_A(self) -> bool:
        """Whether it is a product with A, made or cached, or a sum of its partial results."""
        return self.kind in ("scheme", "ghosts", "cached ghosts", "cached", "sum")

    @property
    def multiplies(self) -> bool:
        """Whether nonzeros of A are multiplied with rows: not where A X is cached, nor in a sum of partial results."""
        return self.kind in ("scheme", "ghosts", "cached ghosts")

    @property
    def is_sent(self) -> bool:
        """Whether it needs an exchange."""
        return self.kind in ("scheme", "ghosts", "sum")


class HeapBlock(NamedTuple):
    """Memory that a tensor takes or gives back, row_bytes per row; of the pool, or torch's own. Number 0: the pool is trimmed."""

    number: int
    rows: Rows
    row_bytes: int
    is_pooled: bool
    is_taken: bool


def amount(rows: Rows, counts: Mapping[str, int]) -> int:
    """Return the rows that these names have together; 1 of no rows."""
    return sum(counts[name] for name in rows) if rows else 1


def pool_bytes(blocks: Iterable[HeapBlock], counts: Mapping[str, int]) -> int:
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


def torch_bytes(blocks: Iterable[HeapBlock], counts: Mapping[str, int]) -> int:
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


class Recording(Shaped):
    """Record the products of torch and of a DryOperator, and the memory of tensors that have rows of a rank.

    Torch casts weights to bfloat16 in its own products (autocast); on the meta device, which has no autocast, this does.
    Args: model  whose dimensions are no numbers of rows, nor sums of two; F: columns of X, likewise.
    layer, pass_name  of what comes next; chain: (order, shape, why) of a chain A H W whose first product comes next.
    """

    def __init__(self, model: torch.nn.Module, F: int):
        super().__init__()
        self._dimensions = {F, *(size for tensor in (*model.parameters(), *model.buffers()) for size in tensor.shape)}
        self._numbers: list[int] = []
        self.heap = Heap()
        self.layer: int | None = None
        self.pass_name = "setup"
        self.chain: tuple[str, tuple[int, int], str] | None = None
        self.products: list[Product] = []
        self.widest_sum, self.reads_input = 0, False
        self._X: torch.UntypedStorage | None = None

    def number(self, name: str) -> int:
        """Return the number of rows that stands for a name."""
        first = self._numbers[-1] + 1 if self._numbers else FIRST
        is_free = lambda number: not {number, *(number + other for other in self._numbers)} & self._dimensions
        self._numbers.append(next(filter(is_free, count(first))))
        self.heap.rows_of[self._numbers[-1]] = (name,)
        return self._numbers[-1]

    def together(self, m: int, g: int) -> int:
        """Return a number of rows that is the sum of two others."""
        self.heap.rows_of[m + g] = self.heap.rows_of[m] + self.heap.rows_of[g]
        return m + g

    def begin_steps(self, X) -> None:
        """Forget the memory that was taken so far, and X: both are counted elsewhere."""
        self.heap.take(X)
        self._X = X.untyped_storage() if isinstance(X, torch.Tensor) else None
        self.heap.begin()

    def begin(self, pass_name: str) -> None:
        """Begin a training step, or an evaluation: products of an earlier step are forgotten; memory stays."""
        if pass_name == "forward":
            self.products = [product for product in self.products if product.pass_name == "setup"]
        self.pass_name, self.layer = pass_name, None

    def product(self, place: Place, width: int, kind: str = "scheme", **more) -> None:
        """Record a product with A."""
        if self.chain is not None and place.pass_name != "setup":
            (order, shape, why), self.chain = self.chain, None
            width = shape[1] if kind == "cached ghosts" and order == "gemm_first" else width
            more |= {"order": order, "shape": shape, "why": why}
        self.products.append(Product(place.layer, place.pass_name, width, kind, **more))

    def weights(self, dimensions: tuple[int, ...], rows: Rows = (), per_row: int | None = None) -> None:
        """Record a product with weights; per_row: multiply-adds of a row, or of a nonzero."""
        if self.pass_name == "setup":
            return
        others = tuple(size for size in dimensions if size not in self.heap.rows_of)
        if per_row is None:
            rows = next((self.heap.rows_of[size] for size in dimensions if size in self.heap.rows_of), ())
            per_row = math.prod(others)
        shape = others if len(others) == 2 else None
        width = shape[1] if shape else 0
        self.products.append(
            Product(self.layer, self.pass_name, width, "weights", shape=shape, rows=rows, multiply_adds=per_row)
        )

    def note_layer(self, module, args, out) -> None:
        """Have backward enter the layer again at the gradient of what a module returned: a forward hook."""
        layer = self.layer
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient: setattr(self, "layer", layer))

    def summed(self, H_mF: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
        """Record that A H is summed up in a type by the own block, and return it."""
        if dtype == sum_dtype(dtype) and self.pass_name != "setup":
            self.widest_sum = max(self.widest_sum, H_mF.shape[1] * H_mF.element_size())
        return dtype

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        if self._X is not None and not self.reads_input:
            self.reads_input = any(x.untyped_storage() is self._X for x in tensors)
        is_gemm = func._overloadpacket in GEMMS
        if is_gemm:
            args = _cast(args)
        out = self.run(func, args, kwargs or {})
        if is_gemm:
            a, b = tensors[-2:]
            self.weights((*a.shape, b.shape[-1]))
        for tensor in tree_leaves(out):
            self.heap.take(tensor)
        return out


def _cast(args: tuple) -> tuple:
    """Return the arguments of a product in bfloat16 where one of them is."""
    if not any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 for x in args):
        return args
    return tuple(x.to(torch.bfloat16) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args)
