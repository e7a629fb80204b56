"""RowLoss: the rows that a loss counts, and their mean loss over all ranks; the units of targets that are numbers.

Shapes: n rows with logits, t rows that count, C classes or columns of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Literal

import numpy as np
import torch

from ...config import TrainConfig
from ...config.names import NumberLoss
from ...distgraph import DistGraph
from ...errors import UsageError, together
from ...layers import Stack
from ...layers.stack import Units
from ...spmm.chains.loss import binary_cross_entropy, cross_entropy, number_loss
from ...spmm.kernels.buffers import sum_dtype
from ..custom import Custom, Loss
from .step import sum_loss, sum_ranks


def check_loss(dgraph: DistGraph, config: TrainConfig) -> None:
    """Raise UsageError if config.loss names a loss of numbers, but labels are classes."""
    if config.loss != "auto" and not dgraph.is_regression:
        raise UsageError(
            f"--loss {config.loss} is for numbers, and the labels of {dgraph.name} are {dgraph.task}; omit it, or give floats: "
            "dataclasses.replace(graph, y=graph.y.astype(float))"
        )


def fit_units(model: torch.nn.Module, dgraph: DistGraph, y_n: torch.Tensor, split_n: np.ndarray) -> torch.Tensor:
    """Return the deviation of each column of the training targets, (C,), by which the loss divides.

    A Stack that was not trained gets Units of mean and deviation, so that its last layer learns numbers around 0.
    Args: y_n, split_n  of the nodes of this rank.
    Collective.
    """
    units = getattr(model, "units", None)
    if not isinstance(units, Units):
        Y_nC = y_n.double()[torch.from_numpy(split_n == 0)]  # in 1.5D c times, which changes nothing
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
    of_rows = (torch.stack([w.double().sum(0), (w * torch.nan_to_num(of(V))).sum(0)]) for V, w in rows())
    sums = np.asarray(sum(each.cpu().numpy() for each in of_rows))
    dgraph.comm.all_reduce(sums)
    return torch.from_numpy(sums[1] / np.where(sums[0] > 0, sums[0], 1))


PROBED = 4  # rows on which a loss is checked to be a sum


class RowLoss:
    """loss = sum_i w_(y_i) l(Z_i, y_i) / sum_i w_(y_i) over the targets of all ranks; l: cross-entropy, w: 1.

    Of numbers: sum_ic l((Z_ic - y_ic) / s_c) / their number over those that are known; l: see number_loss.
    Args: y_n          labels of the rows that have logits, of own nodes; is_target_n: which count, if they have a label.
          custom       its class_weights are w, and its loss sums l over rows, divided by their number.
          how          mse, mae or huber, of numbers; auto: mse.
          deviation_C  s, of numbers.
    rows_t  the rows that count; count: of all ranks; weight_C: w times count / sum w_(y_i), so that its mean is 1; None: 1;
    total: the numbers that are known.
    Collective.
    """

    def __init__(
        self,
        dgraph: DistGraph,
        y_n: torch.Tensor,
        is_target_n: torch.Tensor,
        custom: Custom,
        how: Literal["auto", NumberLoss] = "auto",
        deviation_C: torch.Tensor | None = None,
    ):
        self.dgraph, self.function, self.how, self.deviation_C = dgraph, custom.loss, how, deviation_C
        if y_n.ndim == 1:
            y_n = torch.where(is_target_n, y_n, -1)
            is_target_n = y_n >= 0
        elif dgraph.is_regression:
            is_target_n = is_target_n & ~torch.isnan(y_n).all(dim=1)
        device = dgraph.A.device
        self.y_n, self.rows_t = y_n.to(device), is_target_n.to(device).nonzero().squeeze(1)
        own = [len(self.rows_t), int((~torch.isnan(self.y_n[self.rows_t])).sum())]
        self.count, self.total = (sum_ranks(number if dgraph.is_counted else 0, dgraph.comm) for number in own)
        self.weight_C = None if custom.class_weights is None else self._weights(custom)
        if self.function is not None:
            together(dgraph.comm, self._check_sum, self.function)

    def of_part(self, y_n: torch.Tensor, is_target_n: torch.Tensor) -> RowLoss:
        """Return what the rows of a part add to this loss, which counts those of all; y: classes or labels."""
        other = copy(self)
        other.y_n = torch.where(is_target_n, y_n, -1) if y_n.ndim == 1 else y_n
        other.rows_t = (other.y_n >= 0 if y_n.ndim == 1 else is_target_n).nonzero().squeeze(1)
        return other

    def loss(self, Z_nC: torch.Tensor, overwrite: bool = False) -> torch.Tensor:
        """Return this rank's part of the loss; with overwrite its gradient may take the memory of Z."""
        A = self.dgraph.A
        if self.function is not None:
            return self._sum(self.function, Z_nC, self.y_n, self.rows_t) / self.count
        if self.dgraph.is_multilabel:
            return binary_cross_entropy(Z_nC, self.y_n, self.rows_t, self.count)
        if self.dgraph.is_regression:
            return self._of_numbers(Z_nC, self.y_n, self.rows_t, self.total)
        args = (Z_nC, self.y_n, self.count, A.pool, A.threads, overwrite, self._weights_of(self.y_n))
        with A.ops.span("loss"):
            return cross_entropy(*args)

    def of_subgraph(
        self, Z_nC: torch.Tensor, y_n: torch.Tensor, rows_t: torch.Tensor, weight_n: torch.Tensor
    ) -> torch.Tensor:
        """Return sum_t weight_t w_(y_t) l(Z_t, y_t) over targets that were drawn, an estimate of the loss of all ranks.

        Args: weight_n  of the mean, 1 / t, where custom sums the loss.
        """
        A = self.dgraph.A
        with A.ops.span("loss"):
            if self.function is not None:
                return self._sum(self.function, Z_nC, y_n, rows_t) / max(len(rows_t), 1)
            if self.dgraph.is_multilabel:
                return binary_cross_entropy(Z_nC, y_n, rows_t, 1, weight_n[rows_t])
            if self.dgraph.is_regression:
                return self._of_numbers(Z_nC, y_n, rows_t, self.total / max(self.count, 1), weight_n[rows_t])
            class_weight_n = self._weights_of(y_n)
            weight_n = weight_n if class_weight_n is None else weight_n * class_weight_n
            return cross_entropy(Z_nC, y_n, 1, A.pool, A.threads, weight_n=weight_n)

    def mean(self, Z_nC: torch.Tensor) -> float:
        """Return the loss of logits over all ranks, nan without targets. Collective."""
        own = self.loss(Z_nC.detach()) if self.dgraph.is_counted else 0.0
        loss = sum_loss(own, self.dgraph.comm)
        return loss if self.count else float("nan")

    def _of_numbers(self, Z_nC, y_n, rows_t, total: float, weight_t: torch.Tensor | None = None) -> torch.Tensor:
        how = "mse" if self.how == "auto" else self.how
        return number_loss(Z_nC, y_n, rows_t, how, self.deviation_C, total, weight_t)

    def _sum(self, function: Loss, Z_nC: torch.Tensor, y_n: torch.Tensor, rows_t: torch.Tensor) -> torch.Tensor:
        """Return the custom loss of some rows."""
        # Backward exchanges rows with ranks whose loss depends on these, where this rank has no target itself.
        none = Z_nC[:0].sum().double()
        if not len(rows_t):
            return none
        Z_tC, y_t = Z_nC.index_select(0, rows_t).to(sum_dtype(Z_nC.dtype)), y_n.index_select(0, rows_t)
        total = function(Z_tC, y_t)
        if not torch.is_tensor(total) or total.numel() != 1:
            got = f"shape {tuple(total.shape)}" if torch.is_tensor(total) else f"a {type(total).__name__}"
            raise UsageError(f"loss returned {got}; expected a number, the sum over {len(y_t)} rows: reduction='sum'")
        return total.reshape(()).double() + none

    def _weights_of(self, y_n: torch.Tensor) -> torch.Tensor | None:
        return None if self.weight_C is None else self.weight_C[y_n.clamp(min=0)]

    def _weights(self, custom: Custom) -> torch.Tensor:
        if self.dgraph.task != "classes":
            raise UsageError("class_weights are for one label of each node; weigh several labels, or numbers, in loss")
        y_t = self.y_n.index_select(0, self.rows_t).cpu().numpy()
        count_C = np.bincount(y_t if self.dgraph.is_counted else y_t[:0], minlength=self.dgraph.n_classes)
        self.dgraph.comm.all_reduce(count_C)
        weight_C = custom.weight_C(count_C)
        weight_C *= self.count / max(weight_C @ count_C, np.finfo(np.float64).tiny)
        return torch.from_numpy(weight_C).to(self.y_n.device)

    @torch.no_grad()
    def _check_sum(self, function: Loss) -> None:
        """Raise UsageError where the loss of some rows, given twice, is not twice as large, but the same: it is a mean."""
        y_t = self.y_n[self.rows_t[:PROBED]]
        Z_tC = torch.zeros(len(y_t), self.dgraph.n_classes, dtype=sum_dtype(self.dgraph.A.dtype), device=y_t.device)
        try:
            once, twice = (float(function(torch.cat([Z_tC] * n), torch.cat([y_t] * n))) for n in (1, 2))
        except Exception:  # of a function that is made for all rows: the first epoch says what is wrong with it
            return
        if len(y_t) and once and abs(twice - once) < 1e-6 * abs(once):
            raise UsageError("loss returns the mean over its rows; expected their sum: reduction='sum'")
