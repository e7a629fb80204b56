"""Passes: a Stack as passes over the parts of a graph, in each of which rows of direct neighbours are read at most once.

Shapes: n rows out, m rows in, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ...config.names import Norm
from ...errors import UsageError
from ...layers import SGC, Stack
from ...layers.layer import Layer, hops_of
from ...layers.stack import apply_layer
from ...spmm.chains.autograd import mixed_precision
from ...spmm.chains.dropout import NOTHING
from ...spmm.operator.subgraph import SubgraphSpMM

TOGETHER = "use --evaluation together"


@dataclass(frozen=True, slots=True)
class PartLayer:
    """What a pass computes of one layer.

    number   of the layer in the Stack, from 1; operator: the normalisation that it names.
    hops     1: it reads the rows of neighbours; 0: own rows alone.
    """

    number: int
    operator: Norm | None
    hops: int
    forward: Callable[[object, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Pass:
    """Layers that are computed one after the other on the own rows of a part; only the first may read other rows.

    There is no dropout, as in evaluation.
    """

    layers: tuple[PartLayer, ...]

    @property
    def hops(self) -> int:
        """Whether the rows of the halo are read: 1 or 0."""
        return self.layers[0].hops

    def run(self, wide: SubgraphSpMM, local: SubgraphSpMM, H, is_last: bool) -> torch.Tensor:
        """Return the rows of own nodes, (n, C), from H, (m, F), or (n, F) where no rows of the halo are read.

        Args: wide   (n, m); local: (n, n), of layers that do not multiply.
        """
        for layer in self.layers:
            A = wide if layer.hops else local
            A_l = A.at(layer.number, is_last and layer is self.layers[-1], layer.operator, NOTHING)
            with mixed_precision(A_l):
                H = layer.forward(A_l, H)
            if not torch.is_tensor(H) or H.ndim != 2 or len(H) != A_l.n:
                got = tuple(H.shape) if torch.is_tensor(H) else type(H).__name__
                raise UsageError(f"layer {layer.number} returned {got}; expected ({A_l.n}, C). {TOGETHER}")
        return H


def passes_of(model: torch.nn.Module) -> tuple[Pass, ...]:
    """Return the passes of a Stack: each layer that multiplies with A begins one; SGC is one for each product.

    Raises: UsageError for a model whose layers need rows that a pass does not have.
    """
    if type(model) is not Stack or "forward" in vars(model):
        raise UsageError(f"layer by layer, a model is a plain Stack; got a {type(model).__name__}: {TOGETHER}")
    if model.jump:
        raise UsageError(f"layer by layer, jump = {model.jump} needs the outputs of all layers at once: {TOGETHER}")
    layers: list[PartLayer] = []
    for number, layer in enumerate(model.layers, start=1):
        layers += _part_layers(number, layer)
    starts = [place for place, layer in enumerate(layers) if layer.hops or not place]
    return tuple(Pass(tuple(layers[a:b])) for a, b in zip(starts, [*starts[1:], len(layers)]))


def written_by(passes: tuple[Pass, ...], wide: SubgraphSpMM, local: SubgraphSpMM, X) -> list[tuple[int, torch.dtype]]:
    """Return width and type of what each pass writes, from passes over a graph of one node. Raises as the layers do."""
    written, H = [], X
    for number, one in enumerate(passes, start=1):
        H = one.run(wide, local, H, number == len(passes))
        written.append((H.shape[1], H.dtype))
    return written


def _part_layers(number: int, layer: torch.nn.Module) -> list[PartLayer]:
    hops, name = hops_of(layer), type(layer).__name__
    operator = layer.operator if isinstance(layer, Layer) else None
    if type(layer) is SGC and hops is not None and hops > 1 and not layer.residual:
        return _products_of(number, layer)
    if hops is None:
        raise UsageError(f"layer by layer, layer {number}, {name}, must declare hops, 0 or 1: see Layer. Or {TOGETHER}")
    if hops > 1:
        raise UsageError(
            f"layer by layer, a layer multiplies with A once; layer {number}, {name}, {hops} times: {TOGETHER}"
        )
    return [PartLayer(number, operator, hops, partial(apply_layer, layer))]


def _products_of(number: int, layer: SGC) -> list[PartLayer]:
    """Return A (... (A (H W))) as one layer for each product; the last one ends as SGC does."""
    first = lambda A, H: A.chain(H, layer.W_FC)
    product = lambda A, H: A @ H
    last = lambda A, H: layer.finish(A, H, A @ H)
    steps = [first, *[product] * (layer.powers - 2), last]
    return [PartLayer(number, layer.operator, 1, step) for step in steps]
