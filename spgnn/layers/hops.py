"""The hops of the layers of a model: whether a training step may compute some rows only, and run on blocks of a sampler."""

from __future__ import annotations

from torch import nn

from ..errors import UsageError
from ..spmm.dry.dry import DryRun
from ..spmm.operator.subgraph import INDUCED
from .layer import hops_of
from .stack import Stack


def pruned_hops(model: nn.Module, run: DryRun | None) -> tuple[tuple[int, ...], str]:
    """Return the hops of each layer, 0 or 1, and ""; or, where rows cannot be pruned, () and the reason.

    Args: run  the dry run of the model with all rows; None: the model cannot run without data.
    """
    if not isinstance(model, Stack) or type(model).forward is not Stack.forward:
        return (), f"{type(model).__name__} is not a Stack, whose layers come one after the other"
    if any(module._forward_pre_hooks or module._forward_hooks for module in (model, *model.layers)):
        return (), "a hook may replace the rows of a layer"
    if getattr(model, "jump", None):
        return (), "the last layer reads the rows of all layers (jump)"
    hops: list[int] = []
    for number, layer in enumerate(model.layers, start=1):
        of_layer = hops_of(layer)
        named = f"layer {number}, {type(layer).__name__},"
        if of_layer is None:
            return (), f"{named} declares no hops and may read any rows"
        if of_layer not in (0, 1):
            return (), f"{named} reads rows that are {of_layer} hops away"
        if not of_layer and run is not None and run.layer(number).products:
            return (), f"{named} declares hops = 0, and multiplies with A"
        hops.append(of_layer)
    return (tuple(hops), "") if run is not None else ((), "the model cannot run without data")


def block_hops(model: nn.Module, n_blocks: int) -> tuple[int, ...]:
    """Return the number of blocks that each layer takes, 1 or 0, of a sampler that makes one block per layer with A.

    A block serves one product. A layer that declares no hops takes one block.
    Raises: UsageError for a model that is no Stack or never multiplies with A, for a layer that multiplies several
            times, and for a number of blocks that is not the number of layers with A.
    """
    if not isinstance(model, Stack) or type(model).forward is not Stack.forward:
        raise UsageError(f"{type(model).__name__} is not a Stack, and cannot use a block for each layer: {INDUCED}")
    hops = []
    for number, layer in enumerate(model.layers, start=1):
        of_layer = hops_of(layer)
        if isinstance(layer, Stack) or (of_layer or 0) > 1:
            what = "is a Stack" if isinstance(layer, Stack) else f"reads rows that are {of_layer} hops away"
            raise UsageError(
                f"layer {number}, {type(layer).__name__}, {what}, and cannot use the block of one layer: {INDUCED}"
            )
        hops.append(1 if of_layer is None else of_layer)
    if not any(hops):
        raise UsageError(f"no layer of the model multiplies with A, and takes a block of the sampler: {INDUCED}")
    if sum(hops) != n_blocks:
        raise UsageError(
            f"the sampler makes blocks for {n_blocks} layers, {sum(hops)} layers of the model multiply with A: give it "
            f"{sum(hops)} fan-outs, or {INDUCED}"
        )
    return tuple(hops)
