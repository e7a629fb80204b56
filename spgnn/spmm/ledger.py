"""Ledger: what a dry run writes down, product by product and buffer by buffer.

Shapes: n own rows, F columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from .place import Place
from .shapes import Shaped


@dataclass(frozen=True, slots=True)
class Product:
    """One product with A, and what its exchange sends; nothing where A X was cached.

    layer      as the exchange is labelled; None outside of the layers of a Stack.
    pass_name  setup, forward, backward or evaluate.
    width      columns of the rows that travel.
    rows       scheme: those that broadcast, columns or cover send; ghosts: the rows that are read, as they are;
               cached ghosts: these of X, which a rank has: nothing is sent; sum: of partial results of a process row,
               of which `width` counts numbers of the type of sums.
    order      of a chain A H W: spmm_first or gemm_first; None: a product A H.
    shape      of the W of a chain, (f_in, f_out); why: its order was taken.
    """

    layer: int | None
    pass_name: str
    width: int
    rows: str = "scheme"
    is_cached: bool = False
    order: str | None = None
    shape: tuple[int, int] | None = None
    why: str = ""

    @property
    def multiplies(self) -> bool:
        """Whether nonzeros of A are multiplied with rows: not where A X is cached, nor in a sum of partial results."""
        return not (self.is_cached or self.rows == "sum")

    @property
    def is_sent(self) -> bool:
        """Whether it needs an exchange."""
        return not (self.is_cached or self.rows == "cached ghosts")


class EdgePass(NamedTuple):
    """A pass of attention or maximum over the nonzeros of A, with rows of `width` columns; kind: attend, attend2 or maximum."""

    layer: int | None
    pass_name: str
    kind: str
    width: int
    heads: int


class Work(NamedTuple):
    """A product with weights, of dense rows or of sparse X, and the layer that it belongs to.

    shape  of the weights; None: of no product of rows with a matrix.
    """

    layer: int | None
    pass_name: str
    multiply_adds: int
    shape: tuple[int, int] | None = None


class Block(NamedTuple):
    """A piece of memory that a tensor takes, or gives back; of the pool, or torch's own. Number 0: the pool is trimmed."""

    number: int
    n_bytes: int
    is_pooled: bool
    is_taken: bool


class Ledger:
    """The products, dense work and memory of a dry run, in the order in which they come.

    Args: counts  numbers of rows that a rank has: torch's tensors with such a dimension are written down.
    """

    def __init__(self, counts: Iterable[int]):
        self.counts = frozenset(counts)
        self.pass_name, self.widest_sum, self.reads_input = "setup", 0, False
        self.products: list[Product] = []
        self.work: list[Work] = []
        self.edges: list[EdgePass] = []
        self.blocks: list[Block] = []
        self._X: int | None = None  # where the storage of a dense X is
        self._held: dict[int, tuple[StorageWeakRef, int, int, bool]] = {}
        self._taken = self._first = 0  # storages that were numbered; the last one before the record of memory
        self._layers: list[tuple[int, int | None]] = [(-1, None)]  # autograd's sequence number, layer
        self._of_node: dict[int, int] = {}  # sequence number of a chain's node -> its product
        self._work_before: list[int] = []  # of each product
        self._is_part = False  # the last product with weights was of a chunk of rows

    def begin_step(self) -> None:
        """Forget the products of an earlier step, but for set-up; memory goes on."""
        self.products = [product for product in self.products if product.pass_name == "setup"]
        self.work, self._work_before, self._is_part = [], [0] * len(self.products), False
        self.edges = []
        self._of_node.clear()
        del self._layers[1:]
        self.pass_name = "forward"

    def enter(self, layer: int | None) -> None:
        """What follows belongs to a layer, and so does what backward makes of it."""
        self._layers.append((torch.autograd._get_sequence_nr(), layer))

    def product(self, place: Place, width: int, rows: str = "scheme") -> None:
        """Write down a product with A."""
        chain = self._of_node.get(_node_number()) if place.pass_name == "backward" else None
        made = Product(place.layer, place.pass_name, width, rows)
        if chain is not None:
            forward = self.products[chain]
            made = replace(made, order=forward.order, shape=forward.shape, why=forward.why)
        self._work_before.append(len(self.work))
        self.products.append(made)

    def chain(self, place: Place, run: Callable, shape: tuple[int, int], is_cached: bool, why: Callable):
        """Run a chain A H W, and write down its order, found from what was multiplied first.

        Args: shape  of W; why: (order) -> the reason for it.
        """
        at, work_before, node = len(self.products), len(self.work), torch.autograd._get_sequence_nr()
        Z_nC = run()
        if is_cached:
            self.cached(place, shape[0])
        is_spmm_first = is_cached or self._work_before[at] == work_before
        order = "spmm_first" if is_spmm_first else "gemm_first"
        made = self.products[at]
        width = shape[1] if made.rows == "cached ghosts" and not is_spmm_first else made.width  # of what A multiplies
        self.products[at] = replace(made, width=width, order=order, shape=shape, why=why(order))
        self._of_node[node] = at
        return Z_nC

    def cached(self, place: Place, width: int) -> None:
        """Write down a product that was not made, as A X is cached."""
        self._work_before.append(len(self.work))
        self.products.append(Product(place.layer, place.pass_name, width, is_cached=True))

    def over_edges(self, place: Place, kind: str, width: int, heads: int = 1) -> None:
        """Write down a pass over the nonzeros, which has another in backward."""
        self.edges.append(EdgePass(place.layer, place.pass_name, kind, width, heads))

    def multiplied(self, multiply_adds: int, shape: tuple[int, int] | None = None, is_part: bool = False) -> None:
        """Write down a product with weights of a shape; is_part: of one chunk of rows after the other."""
        number, pass_name = _node_number(), self.pass_name
        if number is None:
            layer = self._layers[-1][1]
        else:
            layer = self._layers[bisect_right(self._layers, number, key=lambda entered: entered[0]) - 1][1]
            pass_name = "backward"
        if is_part and self._is_part and self.work[-1]._replace(multiply_adds=0) == Work(layer, pass_name, 0, shape):
            multiply_adds += self.work.pop().multiply_adds
        self._is_part = is_part
        self.work.append(Work(layer, pass_name, multiply_adds, shape))

    def take(self, tensor: torch.Tensor, is_pooled: bool) -> None:
        """Write down the memory of a tensor, unless it shares that of another."""
        self.sweep()
        storage = tensor.untyped_storage()
        if storage._cdata in self._held:
            return
        self._taken += 1
        self._held[storage._cdata] = StorageWeakRef(storage), self._taken, storage.nbytes(), is_pooled
        self.blocks.append(Block(self._taken, storage.nbytes(), is_pooled, True))

    def sweep(self) -> None:
        """Write down what was given back since the last call."""
        for address in [a for a, (reference, *_) in self._held.items() if reference.expired()]:
            _, number, n_bytes, is_pooled = self._held.pop(address)
            if number > self._first:
                self.blocks.append(Block(number, n_bytes, is_pooled, False))

    def open_memory(self, X, *others) -> None:
        """Begin the record of memory: what is held now, such as the features, is counted elsewhere."""
        for tensor in (X, *others):
            if torch.is_tensor(tensor):
                self.take(tensor, is_pooled=False)
        self._X = X.untyped_storage()._cdata if torch.is_tensor(X) else None
        self.sweep()
        self.blocks.clear()
        self._first = self._taken

    def read(self, tensors: Iterable) -> None:
        """Note whether X is among the tensors that are read."""
        self.reads_input |= any(t.untyped_storage()._cdata == self._X for t in tensors if isinstance(t, torch.Tensor))


class CountingPool:
    """BufferPool without memory: every request is written into a Ledger."""

    device = torch.device("meta")
    held_bytes = 0

    def __init__(self, ledger: Ledger):
        self.ledger = ledger

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, device=None) -> torch.Tensor:
        """Return a tensor without memory."""
        with _disable_current_modes():
            tensor = torch.empty(shape, dtype=dtype, device=self.device)
        self.ledger.take(tensor, is_pooled=True)
        return tensor

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a copy of a tensor, of another type where one is given."""
        return self.empty(*tensor.shape, dtype=dtype or tensor.dtype).copy_(tensor)

    def trim(self) -> None:
        """Give back all free blocks."""
        self.ledger.sweep()
        self.ledger.blocks.append(Block(0, 0, is_pooled=True, is_taken=False))


class Watching(Shaped):
    """Write down the memory that torch takes by itself for a rank's rows, and its products with weights.

    Torch casts weights to bfloat16 in its own products (autocast); on the meta device, which has no autocast, this does.
    """

    def __init__(self, ledger: Ledger):
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.ledger.read(tree_leaves(args))
        flops = flop_registry.get(func._overloadpacket)
        if flops is not None:
            args = _cast(args)
        out = self.run(func, args, kwargs)
        if flops is not None:
            self.ledger.multiplied(flops(*args, **kwargs, out_val=out) // 2, *self._weights(args))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and not self.ledger.counts.isdisjoint(tensor.shape):
                self.ledger.take(tensor, is_pooled=False)
        return out

    def _weights(self, args: tuple) -> tuple[tuple[int, int] | None, bool]:
        """Return the dimensions of a product of two matrices but for the rows of a rank, and whether those are a chunk."""
        factors = [x for x in args if isinstance(x, torch.Tensor)][-2:]
        if len(factors) < 2 or any(x.ndim != 2 for x in factors):
            return None, False
        outer = (factors[0].shape[0], factors[1].shape[1])
        dimensions = tuple(x for x in (*factors[0].shape, factors[1].shape[1]) if x not in self.ledger.counts)
        return (dimensions, False) if len(dimensions) == 2 else (outer, len(dimensions) == 3)


def _cast(args: tuple) -> tuple:
    """Return the arguments of a product in bfloat16 where one of them is."""
    if not any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 for x in args):
        return args
    return tuple(x.to(torch.bfloat16) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args)


def _node_number() -> int | None:
    """Return the sequence number of the node of autograd whose backward runs, None in forward."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()
