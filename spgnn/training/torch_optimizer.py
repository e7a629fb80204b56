"""TorchOptimizer: an optimizer and a schedule of torch, chosen in Python, behind the calls of Optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..config import TrainConfig
from ..errors import CheckpointError, UsageError
from .optimizer import make_optimizer


class TorchOptimizer:
    """W -= update(dW) of a torch.optim.Optimizer, whose rates a scheduler changes after each epoch.

    Every rank moves its copy of the weights by the same gradients. ReduceLROnPlateau gets the monitored value of each
    epoch that is scored; other schedulers are stepped after each epoch.
    groups    (parameters, decay) pairs; lr: of the first group, now.
    epoch_lr  lr of the last epoch, where there is a schedule.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Any = None):
        self.optimizer, self.schedule = optimizer, schedule
        self.epoch_lr: float | None = None
        self.is_plateau = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)

    @property
    def groups(self) -> list[tuple[list[torch.nn.Parameter], float]]:
        """The weights and their decay."""
        return [(group["params"], group.get("weight_decay", 0.0)) for group in self.optimizer.param_groups]

    @property
    def lr(self) -> float:
        """The rate of the first group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """Move all weights along their gradients."""
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        self.optimizer.zero_grad()

    def end_epoch(self) -> None:
        """Step the schedule, unless it waits for a score."""
        if self.schedule is None:
            return
        self.epoch_lr = self.lr
        if not self.is_plateau:
            self.schedule.step()

    def scored(self, value: float) -> None:
        """Step a schedule that waits for a score."""
        if self.is_plateau:
            self.schedule.step(value)

    def replay(self, epochs: int, values: list[float]) -> None:
        """Step a new schedule as the epochs and scores of an earlier training did: a rate depends on nothing else."""
        with warnings.catch_warnings():  # that the optimizer has made no step yet
            warnings.simplefilter("ignore")
            for _ in range(epochs):
                self.end_epoch()
            for value in values:
                self.scored(value)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of the state by weight and name: "0.exp_avg", "0.step" ..., numbers as tensors."""
        return {
            f"{number}.{name}": value.detach().clone() if torch.is_tensor(value) else torch.tensor(float(value))
            for number, p in enumerate(self._weights())
            for name, value in self.optimizer.state.get(p, {}).items()
            if value is not None
        }

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take the state of an optimizer of the same class and weights. Raises: CheckpointError where it does not fit."""
        weights = self._weights()
        for name, value in state.items():
            number, _, key = name.partition(".")
            fits = number.isdigit() and int(number) < len(weights)
            if not fits or value.ndim and value.shape != weights[int(number)].shape:
                raise CheckpointError(
                    f"{name} of the state of the optimizer does not fit these weights; train on with the optimizer and the "
                    "model that it was saved with"
                )
            p = weights[int(number)]
            self.optimizer.state[p][key] = value.to(p.device, copy=True)

    def _weights(self) -> list[torch.nn.Parameter]:
        return [p for parameters, _ in self.groups for p in parameters]


def make_torch_optimizer(
    model: torch.nn.Module, config: TrainConfig, make: Callable | None = None, schedule: Callable | None = None
) -> TorchOptimizer:
    """Return the optimizer that `make` returns for the weights that are trained, or torch's class of config.optimizer.

    Raises: UsageError for what is no optimizer or scheduler of torch, and for weights that are left out.
    """
    if make is None:
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        groups = [{"params": ps, "weight_decay": decay} for ps, decay in make_optimizer(model, config).groups]
        optimizer = kinds[config.optimizer](groups, lr=config.lr)
    else:
        optimizer = make([p for p in model.parameters() if p.requires_grad])
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError(
            f"optimizer returned a {type(optimizer).__name__}; expected a torch.optim.Optimizer that steps by one gradient: "
            "optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)"
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, p in model.named_parameters():
        if p.requires_grad and id(p) not in held:
            raise UsageError(f"the optimizer lacks {name}; give it all weights, or freeze it: requires_grad_(False)")
    scheduler = None if schedule is None else schedule(optimizer)
    if schedule is not None and not callable(getattr(scheduler, "step", None)):
        raise UsageError(
            f"schedule returned a {type(scheduler).__name__}; expected a scheduler of torch.optim.lr_scheduler: "
            "schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 50)"
        )
    return TorchOptimizer(optimizer, scheduler)
