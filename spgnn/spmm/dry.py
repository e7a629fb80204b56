"""Dry run: a training step and an evaluation of a model on torch's meta device, where tensors have shapes and no memory.

Layers, autograd, exchange plans and buffers are those of a training; only kernels and exchanges do nothing. So whatever
the model multiplies, sends and holds is written into the Ledger, for any model that does not look at values.
Shapes: n own rows, C classes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import CellType, FunctionType

import torch

from ..errors import ShapeError, SpgnnError, UsageError
from .autograd import mixed_precision
from .dry_operator import META, Setting, inputs_of
from .fixed_input import of_key
from .kernels.buffers import FreeBlocks, block_bytes, sum_dtype
from .ledger import Block, EdgePass, Ledger, Product, Watching, Work
from .loss import binary_cross_entropy, cross_entropy
from .shapes import Shaped

STEP = ("forward", "backward")


class DryRunError(UsageError):
    """A model that cannot run without data."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """What one layer does in a training step, forward and backward.

    number         as its exchanges are labelled; 0: outside of the layers of a Stack.
    products       with A, in their order; multiply_adds: of its products with weights.
    """

    number: int
    products: tuple[Product, ...]
    multiply_adds: int

    @property
    def exchanges(self) -> tuple[Product, ...]:
        """The products that need an exchange."""
        return tuple(product for product in self.products if product.is_sent)

    @property
    def multiplied(self) -> tuple[Product, ...]:
        """The products in which nonzeros of A are multiplied."""
        return tuple(product for product in self.products if product.multiplies)

    @property
    def reads_rows(self) -> bool:
        """Whether it reads the rows of neighbours themselves, as attention and maximum do, and not sums of them."""
        return any("ghosts" in product.rows for product in self.products)

    @property
    def order(self) -> str | None:
        """Of a chain A H W, spmm_first or gemm_first; rows where rows themselves are read; None: products A H."""
        if self.chain is not None:
            return self.chain.order
        return "rows" if self.reads_rows else None

    @property
    def chain(self) -> Product | None:
        """The forward product of a layer that is one chain A H W, else None."""
        forward = [product for product in self.products if product.pass_name == "forward" and product.rows != "sum"]
        return forward[0] if len(forward) == 1 and forward[0].order else None

    @property
    def is_cached(self) -> bool:
        """Whether all its products with A are cached."""
        return bool(self.products) and all(product.is_cached for product in self.products)

    @property
    def has_backward(self) -> bool:
        """Whether its backward multiplies with A."""
        return any(product.pass_name == "backward" for product in self.exchanges)

    @property
    def width(self) -> int | None:
        """Columns of the rows that travel; None where products differ in it."""
        widths = {product.width for product in self.products}
        return widths.pop() if len(widths) == 1 else None

    @property
    def why(self) -> str:
        """Why the products come in this order."""
        if self.chain is not None:
            return self.chain.why
        if not self.exchanges and not self.reads_rows:
            return "A X is fixed: computed once and kept"
        count = Counter((of.pass_name, of.width) for of in self.exchanges if of.rows != "sum")
        made = [f"{times} x {name} of width {width}" for (name, width), times in count.items()]
        if not self.reads_rows:
            return "as its forward multiplies: " + ", ".join(made)
        if any(of.rows == "cached ghosts" for of in self.products):
            made.insert(0, "ghost rows of X fetched once, at set-up")
        merged = (
            "; partial results of a process row are merged" if any(of.rows == "sum" for of in self.exchanges) else ""
        )
        return "it reads its neighbours' rows themselves, not sums of them: " + ", ".join(made) + merged


@dataclass(frozen=True, slots=True, eq=False)
class DryRun:
    """What a model does in set-up, in a training step and in an evaluation, in this order.

    n_weights     numbers in its parameters.
    widest_sum    bytes of the widest row of H in a product whose sums are not rounded: see tiles.
    reads_input   X itself is read, where A X is cached.
    cached        operator and power j of the products A^j X that are cached before the first step.
    edges         passes of attention and maximum over the nonzeros of A, without those of backward.
    """

    setting: Setting
    products: tuple[Product, ...]
    work: tuple[Work, ...]
    blocks: tuple[Block, ...]
    n_weights: int
    widest_sum: int
    reads_input: bool
    cached: tuple[tuple[str, int], ...] = ()
    edges: tuple[EdgePass, ...] = ()

    def on(self, setting: Setting) -> DryRun:
        """Return the same with other numbers of rows; this one has to be a run of `nominal` numbers."""
        pairs = [pair for pair in zip(self.setting.counts(), setting.counts(), strict=True) if pair[0]]
        known: dict[int, int] = {}

        def put(amount: int) -> int:
            if amount not in known:
                known[amount] = next((amount // a * b for a, b in pairs if amount % a == 0), amount)
            return known[amount]

        work = tuple(w._replace(multiply_adds=put(w.multiply_adds)) for w in self.work)
        blocks = tuple(b._replace(n_bytes=put(b.n_bytes)) for b in self.blocks)
        return replace(self, setting=setting, work=work, blocks=blocks)

    def of_pass(self, *names: str) -> tuple[Product, ...]:
        """Return the products of passes that need an exchange, in their order."""
        return tuple(product for product in self.products if product.pass_name in names and product.is_sent)

    @property
    def layers(self) -> tuple[LayerRun, ...]:
        """The layers of a training step that multiply with A, by number."""
        numbers = {product.layer or 0 for product in self.products if product.pass_name in STEP}
        return tuple(self.layer(number) for number in sorted(numbers))

    def layer(self, number: int) -> LayerRun:
        """Return what a layer does in a training step."""
        is_its = lambda done: (done.layer or 0) == number and done.pass_name in STEP
        multiply_adds = sum(done.multiply_adds for done in self.work if is_its(done))
        return LayerRun(number, tuple(filter(is_its, self.products)), multiply_adds)

    @property
    def pool_bytes(self) -> int:
        """Bytes that the pool of buffers holds after two epochs and an evaluation."""
        free: FreeBlocks[None] = FreeBlocks()
        sizes: dict[int, int] = {}  # of the blocks in use, by number
        held = 0  # blocks that were taken before the record began are never free in it
        for block in self.blocks:
            size = block_bytes(block.n_bytes)
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

    @property
    def torch_bytes(self) -> int:
        """The most bytes that torch's own tensors of a rank's rows take at once."""
        now = most = 0
        for block in self.blocks:
            if not block.is_pooled:
                now += block.n_bytes if block.is_taken else -block.n_bytes
                most = max(most, now)
        return most

    @property
    def buffer_bytes(self) -> int:
        """Bytes of activations, gradients and exchange buffers."""
        return self.pool_bytes + self.torch_bytes


def dry_run(model: torch.nn.Module, setting: Setting, shared: Iterable = ()) -> DryRun:
    """Return what a training step and an evaluation of a model multiply, send and hold; the model stays as it is.

    Args:   shared  objects that the model may refer to and that are not copied, such as its DistGraph.
    Raises: DryRunError for a model that looks at values or cannot be copied; what training it would raise.
    """
    try:
        with torch.device(META):
            return _run(_on_meta(model, sum_dtype(setting.dtype), shared), setting)
    except ShapeError as error:
        raise DryRunError(f"{type(model).__name__} cannot run without data: {error}") from error
    except SpgnnError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DryRunError(f"{type(model).__name__} cannot run without data: {reason[0]}") from error


def _run(model: torch.nn.Module, setting: Setting) -> DryRun:
    ledger = Ledger(x for x in setting.counts() if x > 1)
    A, X, step_A, step_X = inputs_of(setting, ledger)
    cached = _cache(model, A, X, ledger)
    loss = _loss(setting, A)
    ledger.open_memory(X, *model.parameters(), *model.buffers())
    with Watching(ledger), torch.autograd.set_multithreading_enabled(False):
        for _ in range(2):  # what the first step leaves, such as the gradient of X, is there in the second
            ledger.begin_step()
            _step(model, step_A, step_X, loss)
        ledger.pass_name = "evaluate"
        model.eval()
        with torch.no_grad(), mixed_precision(A):
            model(A, X)
    ledger.sweep()
    n_weights = sum(p.numel() for p in model.parameters())
    written = tuple(ledger.products), tuple(ledger.work), tuple(ledger.blocks)
    return DryRun(setting, *written, n_weights, ledger.widest_sum, ledger.reads_input, cached, tuple(ledger.edges))


def _cache(model: torch.nn.Module, A, X, ledger: Ledger) -> tuple[tuple[str, int], ...]:
    """Make the products with X that an evaluation caches, as set-up does, and return them: see DryRun.cached."""
    if A.fixed_input is None:
        return ()
    model.eval()
    with Shaped(), torch.no_grad(), mixed_precision(A):
        model(A, X)
    ledger.reads_input = False
    return tuple(of_key(key) for key, product in A.fixed_input.products.items() if product is not None)


def _step(model: torch.nn.Module, A, X, loss) -> None:
    """Run a training step as training does: who holds the logits and the loss decides when buffers are free."""
    model.train()
    for parameter in model.parameters():
        parameter.grad = None
    with mixed_precision(A):
        Z_nC = model(A, X)
    of_Z = loss(Z_nC)
    del Z_nC
    if of_Z.requires_grad:
        of_Z.backward()


def _loss(setting: Setting, A):
    if setting.n_train is None:
        return lambda Z_nC: cross_entropy(Z_nC, None, 1, A.pool, overwrite=True)
    rows, Y = torch.empty(setting.n_train, dtype=torch.int64), torch.empty(1)
    return lambda Z_nC: binary_cross_entropy(Z_nC, Y.expand(Z_nC.shape), rows, 1)


def _on_meta(model: torch.nn.Module, dtype: torch.dtype, shared: Iterable) -> torch.nn.Module:
    """Return a copy of a model without values; hooks that are functions get their own copies of the lists that they fill."""
    memo = {id(thing): thing for thing in shared}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
            if isinstance(tensor, torch.Tensor):
                memo[id(tensor)] = _without_values(tensor, dtype)
    copied = copy.deepcopy(model, memo)
    for module in copied.modules():
        for hooks in (value for name, value in vars(module).items() if name.endswith("_hooks")):
            for key, hook in hooks.items():
                hooks[key] = _apart(hook)
    return copied


def _without_values(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    dtype = dtype if tensor.is_floating_point() else tensor.dtype
    empty = torch.empty(tensor.shape, device=META, dtype=dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


def _apart(value):
    """Return a function whose closure has its own copies of lists, sets, dictionaries and functions; others as they are."""
    if isinstance(value, (list, dict, set)):
        return copy.copy(value)
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    cells = tuple(CellType(_apart(cell.cell_contents)) for cell in value.__closure__)
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
