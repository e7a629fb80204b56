"""Targets that are numbers: their mean and deviation over the training nodes of all ranks, and the units of a model.

Shapes: n own rows, C columns.
"""

from __future__ import annotations

import numpy as np
import torch

from ..config import TrainConfig
from ..distgraph import DistGraph
from ..errors import UsageError
from ..layers import Stack
from ..layers.units import Units
from ..spmm.kernels.buffers import sum_dtype


def check_loss(dgraph: DistGraph, config: TrainConfig) -> None:
    """Raise UsageError where a loss of numbers is named, and labels are classes."""
    if config.loss != "auto" and not dgraph.is_regression:
        raise UsageError(
            f"--loss {config.loss} is for numbers, and the labels of {dgraph.name} are {dgraph.task}; omit it, or give floats: "
            "dataclasses.replace(graph, y=graph.y.astype(float))"
        )


def fit_units(model: torch.nn.Module, dgraph: DistGraph, split_n: np.ndarray) -> torch.Tensor | None:
    """Return the deviation of each column of the training targets, (C,), by which the loss divides; None: they are classes.

    A Stack that was not trained gets Units of mean and deviation, so that its last layer learns numbers around 0.
    Collective.
    """
    if not dgraph.is_regression:
        return None
    units = getattr(model, "units", None)
    if units is None:
        mean_C, deviation_C = moments(dgraph, split_n == 0)
        units = Units(len(mean_C)).to(dgraph.A.device, sum_dtype(dgraph.A.dtype))
        units.mean_C.copy_(torch.from_numpy(mean_C))
        units.deviation_C.copy_(torch.from_numpy(deviation_C))
        if isinstance(model, Stack) and type(model).forward is Stack.forward and not model.is_trained:
            model.units = units
    return units.deviation_C


def moments(dgraph: DistGraph, is_counted_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of the targets of some own rows of all ranks, (C,) each; a constant has deviation 1. Collective."""
    Y_nC = dgraph.y_n.double().numpy()[is_counted_n]  # in 1.5D c times, which changes neither
    sums = np.stack([(~np.isnan(Y_nC)).sum(0).astype(np.float64), np.nansum(Y_nC, 0)])
    dgraph.comm.all_reduce(sums)
    count_C = np.maximum(sums[0], 1)
    mean_C = sums[1] / count_C
    squares_C = np.nansum((Y_nC - mean_C) ** 2, 0)
    dgraph.comm.all_reduce(squares_C)
    deviation_C = np.sqrt(squares_C / count_C)
    # Rounding of the mean leaves a little of a constant.
    return mean_C, np.where(deviation_C > 1e-12 * np.abs(mean_C), deviation_C, 1.0)
