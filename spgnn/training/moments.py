"""Targets that are numbers: their mean and deviation over the training nodes of all ranks, and the units of a model.

Shapes: n own rows, r rows of some of them, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from ..config import TrainConfig
from ..distgraph import DistGraph
from ..errors import UsageError
from ..layers import Stack
from ..layers.stack import Units
from ..spmm.kernels.buffers import sum_dtype


def check_loss(dgraph: DistGraph, config: TrainConfig) -> None:
    """Raise UsageError where a loss of numbers is named, and labels are classes."""
    if config.loss != "auto" and not dgraph.is_regression:
        raise UsageError(
            f"--loss {config.loss} is for numbers, and the labels of {dgraph.name} are {dgraph.task}; omit it, or give floats: "
            "dataclasses.replace(graph, y=graph.y.astype(float))"
        )


def fit_units(model: torch.nn.Module, dgraph: DistGraph, split_n: np.ndarray) -> torch.Tensor:
    """Return the deviation of each column of the training targets, (C,), by which the loss divides.

    A Stack that was not trained gets Units of mean and deviation, so that its last layer learns numbers around 0.
    Collective.
    """
    units = getattr(model, "units", None)
    if units is None:
        Y_nC = dgraph.y_n.double()[torch.from_numpy(split_n == 0)]  # in 1.5D c times, which changes nothing
        units = units_of(lambda: [(Y_nC, ~torch.isnan(Y_nC))], dgraph)
        if is_new(model):
            model.units = units
    return units.deviation_C


def is_new(model: torch.nn.Module) -> bool:
    """Return whether a model is a Stack that was not trained, which gets Units."""
    return isinstance(model, Stack) and type(model).forward is Stack.forward and not model.is_trained


def units_of(rows: Callable[[], Iterable[tuple[torch.Tensor, torch.Tensor]]], dgraph: DistGraph) -> Units:
    """Return Units of the mean and the deviation of each column, by weights, of all ranks; a constant has deviation 1.

    Args: rows  () -> pairs of values (r, C) float64, which may be NaN where their weight is 0, and weights (r, C).
    Collective.
    """
    mean_C = _mean(rows, dgraph, lambda V: V)
    deviation_C = _mean(rows, dgraph, lambda V: (V - mean_C.to(V.device)).square()).sqrt()
    units = Units(len(mean_C)).double()
    units.mean_C.copy_(mean_C)
    # Rounding of the mean leaves a little of a constant.
    units.deviation_C.copy_(torch.where(deviation_C > 1e-12 * mean_C.abs(), deviation_C, 1.0))
    return units.to(dgraph.A.device, sum_dtype(dgraph.A.dtype))


def _mean(rows: Callable, dgraph: DistGraph, of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    sums = sum(torch.stack([w.double().sum(0), (w * torch.nan_to_num(of(V))).sum(0)]).cpu().numpy() for V, w in rows())
    dgraph.comm.all_reduce(sums)
    return torch.from_numpy(sums[1] / np.where(sums[0] > 0, sums[0], 1))
