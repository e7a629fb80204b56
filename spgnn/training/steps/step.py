"""Step: the protocol of the ways to train a model that Trainer runs, and the sums over ranks that they share.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from ...config.names import Task
from ...distgraph import Parts
from ...errors import NumericalError
from ..optimizer import Optimizer


@runtime_checkable
class Scorer(Protocol):
    """Evaluates a model on all nodes."""

    task: Task

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels and split of the own nodes that count, on one rank each."""

    def split(self) -> np.ndarray:
        """Return the split of all nodes in original order, (N,) int8. Collective."""

    def logits(self) -> torch.Tensor:
        """Return the logits of the own nodes in evaluation mode, (n, C). Collective."""

    def counts(self, Z_nC: torch.Tensor | None = None) -> np.ndarray:
        """Return (splits, C, 3) int64, the true positives, false positives and false negatives of all ranks.

        Of numbers (splits, C, 5) float64, see metrics.count_numbers.

        Args:   Z_nC  logits of the own nodes; None: of an evaluation.
        Raises: NumericalError on all ranks where a logit is not finite.
        Collective.
        """

    def predictions(self) -> np.ndarray | None:
        """Return the predicted classes of all nodes in original order, on rank 0 at least, None elsewhere. Collective.

        (N,) int64; (N, C) int8 of 0 and 1 where nodes have several labels; (N,) or (N, C) float of numbers.
        """


@runtime_checkable
class Step(Protocol):
    """Computes gradients on one source of rows and moves the weights of a model by them.

    For each epoch the Trainer calls forward, then update. A class that inherits it needs optimizer, scorer and update; the
    rest has defaults. From one update to the next forward it has no state but weights and optimizer, which are the same
    on all ranks: checkpoints hold nothing else.

    optimizer     moves the weights; the same state on all ranks.
    scorer        evaluates the model.
    interval      epochs of one update: 1, or more where ranks train alone between two exchanges. Updates end at its multiples.
    gives_logits  forward returns the logits that an evaluation would: scores are free.
    measured      keys and values that the last update adds to the record of its epoch.
    parts         whose weights are averaged; None: a model is trained on one graph.
    """

    optimizer: Optimizer
    scorer: Scorer
    interval: int = 1
    gives_logits: bool = False
    measured: dict[str, Any] = {}
    parts: Parts | None = None

    def forward(self, epoch: int) -> torch.Tensor | None:
        """Begin an epoch; return the logits of the own nodes, (n, C) without gradient, if gives_logits; else None.

        The logits are valid until update. Collective.
        """
        return None

    def update(self, first: int, last: int) -> float:
        """Train the epochs first to last, moving the weights once or more; return the loss of the last over all ranks.

        Args:   first, last  at most `interval` epochs, counted from 1; random numbers depend on them and on the seed alone.
        Raises: NumericalError on all ranks where the loss is not finite.
        Collective.
        """
        raise NotImplementedError

    def facts(self, records: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Return what a summary reports of this way to train, {key: JSON value}; records: of the epochs trained."""
        return {}

    def notes(self) -> list[str]:
        """Return what a user should know before the first epoch, a sentence each."""
        return []

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes that this rank sends in one update; None, on all ranks, where they are not known. Collective."""
        return 0

    def release_input(self) -> bool:
        """Free input that no later epoch or evaluation reads, and return whether there was any."""
        return False

    def close(self) -> None:
        """End what runs beside training, such as threads that draw ahead; a later epoch starts it again."""
        return


Inner = TypeVar("Inner", bound=Step)


class WrappedStep(Generic[Inner]):
    """A Step that passes every call on to another one; subclasses change some."""

    def __init__(self, step: Inner):
        self.inner = step

    def __getattr__(self, name: str):
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def sum_gradients(
    parameters: list[torch.nn.Parameter], comm, is_counted: bool = True, counts: Sequence[int] = ()
) -> list[int]:
    """Add the gradients of weights over the ranks, in one all-reduce, and return the sums of the counts. Collective.

    Args: is_counted  False: the gradients of this rank are left out, as another one has them, or as it has failed.
          counts      of this rank, small integers, as many on all.
    """
    for parameter in parameters:
        if parameter.grad is None:  # on one rank as on several: weight decay acts on it
            parameter.grad = torch.zeros_like(parameter)
    if comm.size == 1:
        return list(counts)
    gradients = [p.grad for p in parameters if p.grad is not None]  # of all
    flat = torch.cat([*(G.ravel() for G in gradients), *(gradients[0].new_full((1,), k) for k in counts)])
    size = flat.numel() - len(counts)
    if not is_counted:
        flat[:size].zero_()
    comm.all_reduce(flat)
    for parameter, gradient in zip(parameters, flat[:size].split([p.numel() for p in parameters])):
        parameter.grad = gradient.view_as(parameter)
    return [int(count) for count in flat[size:]]


def sum_loss(own_loss: torch.Tensor | float, comm) -> float:
    """Return the sum of the ranks' parts of a loss. Raises: NumericalError where it is not finite. Collective."""
    loss = np.array([float(own_loss)])  # a device is waited for here, not before backward
    comm.all_reduce(loss)
    if not np.isfinite(loss[0]):
        raise NumericalError(f"the loss is {loss[0]}; expected a finite number")
    return float(loss[0])


def sum_ranks(value: int, comm) -> int:
    """Return the sum of an integer over the ranks. Collective."""
    total = np.array([value], np.int64)
    comm.all_reduce(total)
    return int(total[0])
