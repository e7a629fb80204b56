"""Whether a training step of a model may compute some rows only: the hops of its layers."""

from __future__ import annotations

from torch import nn

from ..spmm.dry import DryRun
from .layer import hops_of
from .stack import Stack


def pruned_hops(model: nn.Module, run: DryRun | None) -> tuple[tuple[int, ...], str]:
    """Return the hops of each layer, 0 or 1, with which rows are pruned, and "" or why they cannot be.

    Args: run  of the model with all rows; None: it cannot run without data.
    """
    if not isinstance(model, Stack) or type(model).forward is not Stack.forward:
        return (), f"{type(model).__name__} is not a Stack, whose layers come one after the other"
    if any(module._forward_pre_hooks or module._forward_hooks for module in (model, *model.layers)):
        return (), "a hook may replace the rows of a layer"
    if getattr(model, "jump", None):
        return (), "the last layer reads the rows of all layers (jump)"
    hops = tuple(hops_of(layer) for layer in model.layers)
    for number, (layer, of_layer) in enumerate(zip(model.layers, hops), start=1):
        named = f"layer {number}, {type(layer).__name__},"
        if of_layer is None:
            return (), f"{named} declares no hops and may read any rows"
        if of_layer not in (0, 1):
            return (), f"{named} reads rows that are {of_layer} hops away"
        if not of_layer and run is not None and run.layer(number).products:
            return (), f"{named} declares hops = 0, and multiplies with A"
    return (hops, "") if run is not None else ((), "the model cannot run without data")
