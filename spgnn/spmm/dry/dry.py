"""Dry run: a training step and an evaluation of a model on torch's meta device, where tensors have shapes and no memory.

A training has the same layers and autograd; the operator is a DryOperator. So whatever the model multiplies, sends and
holds is recorded, for any model that does not look at values. Shapes: n own rows, C classes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from ...errors import ShapeError, SpgnnError, UsageError
from ..chains.autograd import mixed_precision
from ..chains.loss import binary_cross_entropy, cross_entropy
from ..kernels.buffers import sum_dtype
from ..operator.facts import of_key
from .dry_operator import Setting, inputs_of
from .recording import META, HeapBlock, Product, Recording, amount, pool_bytes, torch_bytes

STEP = ("forward", "backward")


class DryRunError(UsageError):
    """A model that cannot run without data."""


@dataclass(frozen=True, slots=True, eq=False)
class DryRun:
    """What a model does in set-up, in a training step and in an evaluation, in this order; or one layer of the step.

    made          all products, and passes over the nonzeros of A.
    n_weights     numbers in its parameters.
    widest_sum    bytes of the widest row of H in a product whose sums are not rounded: see tiles.
    reads_input   X itself is read, where A X is cached.
    cached        operator and power j of the products A^j X that are cached before the first step.
    """

    setting: Setting
    made: tuple[Product, ...]
    blocks: tuple[HeapBlock, ...]
    n_weights: int
    widest_sum: int
    reads_input: bool
    cached: tuple[tuple[str, int], ...] = ()

    def on(self, counts: dict[str, int]) -> DryRun:
        """Return the same with other numbers of rows and nonzeros."""
        return replace(self, setting=replace(self.setting, counts=counts))

    def passes(self, *names: str) -> DryRun:
        """Return what these passes do."""
        return replace(self, made=tuple(product for product in self.made if product.pass_name in names))

    def layer(self, number: int) -> DryRun:
        """Return what a layer does in a training step; 0: what the step does outside of the layers of a Stack."""
        made = self.passes(*STEP).made
        return replace(self, made=tuple(product for product in made if (product.layer or 0) == number))

    @property
    def layers(self) -> tuple[DryRun, ...]:
        """The layers of a training step that multiply with A, by number."""
        numbers = {product.layer or 0 for product in self.passes(*STEP).products}
        return tuple(self.layer(number) for number in sorted(numbers))

    @property
    def number(self) -> int:
        """The number of a layer, as its exchanges are labelled."""
        return self.made[0].layer or 0

    @property
    def products(self) -> tuple[Product, ...]:
        """The products with A."""
        return tuple(product for product in self.made if product.is_of_A)

    @property
    def exchanges(self) -> tuple[Product, ...]:
        """The products that need an exchange."""
        return tuple(product for product in self.made if product.is_sent)

    @property
    def multiplied(self) -> tuple[Product, ...]:
        """The products in which nonzeros of A are multiplied."""
        return tuple(product for product in self.made if product.multiplies)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of products with weights."""
        counts = self.setting.counts
        return sum(of.multiply_adds * amount(of.rows, counts) for of in self.made if of.kind == "weights")

    @property
    def reads_rows(self) -> bool:
        """Whether it reads the rows of neighbours themselves, as attention and maximum do, and not sums of them."""
        return any("ghosts" in product.kind for product in self.products)

    @property
    def order(self) -> str | None:
        """Of a chain A H W, spmm_first or gemm_first; rows where rows themselves are read; None: products A H."""
        if self.chain is not None:
            return self.chain.order
        return "rows" if self.reads_rows else None

    @property
    def chain(self) -> Product | None:
        """The forward product of a layer that is one chain A H W, else None."""
        forward = [product for product in self.passes("forward").products if product.kind != "sum"]
        return forward[0] if len(forward) == 1 and forward[0].order else None

    @property
    def shape(self) -> tuple[int | None, int | None]:
        """(f_in, f_out) of a layer that is one chain A H W, else None for both."""
        return (self.chain and self.chain.shape) or (None, None)

    @property
    def is_cached(self) -> bool:
        """Whether all its products with A are cached."""
        return bool(self.products) and all(product.is_cached for product in self.products)

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
        count = Counter((of.pass_name, of.width) for of in self.exchanges if of.kind != "sum")
        made = ", ".join(f"{times} x {name} of width {width}" for (name, width), times in count.items())
        if not self.reads_rows:
            return f"as its forward multiplies: {made}"
        if any(of.kind == "cached ghosts" for of in self.products):
            made = "ghost rows of X fetched once, at set-up" + (f", {made}" if made else "")
        merged = (
            "; partial results of a process row are merged" if any(of.kind == "sum" for of in self.exchanges) else ""
        )
        return f"it reads its neighbours' rows themselves, not sums of them: {made}{merged}"

    @property
    def pool_bytes(self) -> int:
        """Bytes that the pool of buffers holds after two epochs and an evaluation."""
        return pool_bytes(self.blocks, self.setting.counts)

    @property
    def torch_bytes(self) -> int:
        """The most bytes that torch's own tensors of a rank's rows take at once."""
        return torch_bytes(self.blocks, self.setting.counts)

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
    record = Recording(model, setting.features)
    A, X, step_A, step_X = inputs_of(setting, record)
    for module in model.modules():
        module.register_forward_hook(record.note_layer)
    loss = _loss(setting, A)
    cached: tuple[tuple[str, int], ...] = ()
    with record, torch.autograd.set_multithreading_enabled(False):
        if A.fixed_input is not None:  # what an evaluation caches is made at set-up
            _evaluate(model, A, X)
            products = A.fixed_input.products.items()
            cached = tuple(of_key(key) for key, product in products if product is not None)
        record.begin_steps(X)
        for _ in range(2):  # what the first step leaves, such as the gradient of X, is there in the second
            record.begin("forward")
            _step(model, step_A, step_X, loss, record)
        record.begin("evaluate")
        _evaluate(model, A, X)
    n_weights = sum(p.numel() for p in model.parameters())
    made, blocks = tuple(record.products), tuple(record.heap.blocks)
    return DryRun(setting, made, blocks, n_weights, record.widest_sum, record.reads_input, cached)


def _evaluate(model: torch.nn.Module, A, X) -> None:
    model.eval()
    with torch.no_grad(), mixed_precision(A):
        model(A, X)


def _step(model: torch.nn.Module, A, X, loss, record: Recording) -> None:
    """Run a training step as training does: who holds the logits and the loss decides when buffers are free."""
    model.train()
    for parameter in model.parameters():
        parameter.grad = None
    with mixed_precision(A):
        Z_nC = model(A, X)
    of_Z = loss(Z_nC)
    del Z_nC
    record.pass_name = "backward"
    if of_Z.requires_grad:
        of_Z.backward()


def _loss(setting: Setting, A):
    if not setting.is_multilabel:
        return lambda Z_nC: cross_entropy(Z_nC, None, 1, A.pool, overwrite=True)
    rows, Y = torch.empty(A.record.number("n_train"), dtype=torch.int64), torch.empty(1)
    return lambda Z_nC: binary_cross_entropy(Z_nC, Y.expand(Z_nC.shape), rows, 1)


def _on_meta(model: torch.nn.Module, dtype: torch.dtype, shared: Iterable) -> torch.nn.Module:
    """Return a copy of a model without values. Raises: DryRunError for hooks that fill what they refer to."""
    memo = {id(thing): thing for thing in shared}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
            if isinstance(tensor, torch.Tensor):
                memo[id(tensor)] = _without_values(tensor, dtype)
        hooks = [value for name, value in vars(module).items() if name.endswith("_hooks")]
        if any(_may_fill(hook) for of_kind in hooks for hook in of_kind.values()):
            raise DryRunError(f"{type(module).__name__} cannot run without data: a hook refers to a list, dict or set")
    return copy.deepcopy(model, memo)


def _may_fill(value) -> bool:
    """Return whether a function refers to a list, dict or set, which a dry run would fill too."""
    closure = getattr(value, "__closure__", None) or ()
    return isinstance(value, (list, dict, set)) or any(_may_fill(cell.cell_contents) for cell in closure)


def _without_values(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    dtype = dtype if tensor.is_floating_point() else tensor.dtype
    empty = torch.empty(tensor.shape, device=META, dtype=dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)
