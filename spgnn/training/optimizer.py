"""SGD, Adam and AdamW on replicated weights, by torch's functional forms; optimizers and schedules of torch.

The classes of torch.optim import torch's compiler when they are made: a second and 50 MB on every rank. So they are made
only where a user chooses one, or a schedule.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.adam import adam

from ..config import TrainConfig
from ..errors import CheckpointError, UsageError

PIECE = 1 << 22  # entries of a weight that are moved at once: temporaries of learned rows are as large


def _pieces(parameters, means, squares, steps) -> list[list[torch.Tensor]]:
    """Return weights, gradients, means, squares and steps in pieces of rows; a piece but the last counts a copy of the step."""
    found: list[list[torch.Tensor]] = [[] for _ in range(5)]
    for p, mean, square, step in zip(parameters, means, squares, steps):
        assert p.grad is not None
        rows = max(1, PIECE // max(1, p[:1].numel())) if p.ndim and not p.is_cuda else 0
        parts = [of.split(rows) if rows else (of,) for of in (p, p.grad, mean, square)]
        for of, part in zip(found, (*parts, [*(step.clone() for _ in parts[0][1:]), step])):
            of += part
    return found


class Optimizer:
    """W -= lr update(dW + decay W) for groups of weights with a decay of their own.

    Every rank moves its copy of the weights by the same gradients.
    Args:   groups  (parameters, decay) pairs; rule: "adam", "adamw" or "sgd".
    lr        the rate now, of the first group; epoch_lr: of the last epoch, where a schedule changes it; else None.
    schedule  of torch, which changes the rate after each epoch; ReduceLROnPlateau by the monitored value of each epoch
              that is scored.
    Source: Adam: Kingma & Ba 2015, Algorithm 1, with the L2 penalty in the gradient as Kipf & Welling have it. AdamW:
            Loshchilov & Hutter 2019, Algorithm 2: W -= lr decay W instead.
    """

    epoch_lr: float | None = None
    schedule: Any = None

    def __init__(self, groups: list[tuple[list[torch.nn.Parameter], float]], lr: float, rule: str = "adam"):
        self.groups = [(parameters, decay) for parameters, decay in groups if parameters]
        self._lr, self.rule = lr, rule
        # Adam's means, squares and numbers of steps. Steps are counted on the device of the weights, so that captured
        # steps count on, and in float64, as 1 - 0.999^t is computed from them.
        zeros = lambda ps: [torch.zeros_like(p) for p in ps]
        self._state = [
            (zeros(ps), zeros(ps), [torch.zeros((), dtype=torch.float64, device=p.device) for p in ps])
            for ps, _ in (() if rule == "sgd" else self.groups)
        ]

    @property
    def lr(self) -> float:
        """The rate now."""
        return self._lr

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights along their gradients."""
        if self.rule == "sgd":
            for parameters, decay in self.groups:
                for p in parameters:
                    assert p.grad is not None
                    p.sub_(p.grad + decay * p if decay else p.grad, alpha=self.lr)
            return
        for (parameters, decay), (means, squares, steps) in zip(self.groups, self._state):
            if self.rule == "adamw" and decay:
                for p in parameters:
                    p.mul_(1 - self.lr * decay)
                decay = 0.0
            on_device = all(p.is_cuda for p in parameters)  # then a launch for all weights, not one for each
            weights, gradients, *state, steps = _pieces(parameters, means, squares, steps)
            adam(
                weights, gradients, state[0], state[1], [], steps,
                foreach=on_device, capturable=on_device, amsgrad=False, beta1=0.9, beta2=0.999, lr=self.lr,
                weight_decay=decay, eps=1e-8, maximize=False,
            )  # fmt: skip

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None

    @property
    def is_plateau(self) -> bool:
        """Whether the schedule waits for scores."""
        return isinstance(self.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)

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
        """Return a copy of the state: "0.mean", "0.square", "0.steps" of the first weight of the first group, and so on.

        Empty for SGD, which has none.
        """
        return {name: value.clone() for name, value in self.named_state().items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take the state of an optimizer with the same rule and weights. Raises: CheckpointError where it does not fit."""
        own = self.named_state()
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        if shapes != {name: tuple(value.shape) for name, value in state.items()}:
            raise CheckpointError(
                f"the state of the optimizer, {len(state)} tensors, does not fit the {len(own)} of {self.rule} on these "
                "weights; train on with the options and the model that it was saved with"
            )
        for name, value in own.items():
            value.copy_(state[name])

    def named_state(self) -> dict[str, torch.Tensor]:
        """Return the state itself, by the names of state_dict."""
        weights = [of_weight for group in self._state for of_weight in zip(*group)]
        names = ("mean", "square", "steps")
        return {f"{w}.{name}": value for w, values in enumerate(weights) for name, value in zip(names, values)}


class ProximalOptimizer(Optimizer):
    """W -= lr update(dW + 2 lambda (W - W_G) + decay W): along the gradient of loss + lambda ||W - W_G||^2.

    Args:   optimizer  whose groups, rate and rule are taken; its weights are W_G now.
            proximal   lambda, which stays as it is.
    """

    def __init__(self, optimizer: Optimizer, proximal: float):
        super().__init__(optimizer.groups, optimizer.lr, optimizer.rule)
        self.proximal = proximal
        self._general = [[p.detach().clone() for p in parameters] for parameters, _ in self.groups]

    @torch.no_grad()
    def step(self) -> None:
        """Add the gradient of the proximal term, and move all weights."""
        for (parameters, _), general in zip(self.groups, self._general):
            for p, p_G in zip(parameters, general):
                assert p.grad is not None
                p.grad.add_(p - p_G, alpha=2 * self.proximal)
        super().step()


class TorchOptimizer(Optimizer):
    """W -= update(dW) of a torch.optim.Optimizer; its state is named as torch does: "0.exp_avg", "0.step" ..."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Any = None):
        self.optimizer, self.schedule = optimizer, schedule
        self.groups = [(group["params"], group.get("weight_decay", 0.0)) for group in optimizer.param_groups]

    @property
    def lr(self) -> float:
        """The rate of the first group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """Move all weights along their gradients."""
        self.optimizer.step()

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

    def named_state(self) -> dict[str, torch.Tensor]:
        """Return the state by the names of state_dict, numbers as tensors."""
        return {
            f"{number}.{name}": value.detach() if torch.is_tensor(value) else torch.tensor(float(value))
            for number, p in enumerate(self._weights())
            for name, value in self.optimizer.state.get(p, {}).items()
            if value is not None
        }

    def _weights(self) -> list[torch.nn.Parameter]:
        return [p for parameters, _ in self.groups for p in parameters]


def make_optimizer(model: torch.nn.Module, config: TrainConfig) -> Optimizer:
    """Return the Optimizer of config; decay_layers = "first" puts weight decay on the first layer alone."""
    trained = lambda module: [p for p in module.parameters() if p.requires_grad]
    layers: Any = getattr(model, "layers", None)
    groups = [(trained(model), config.weight_decay)]
    if config.decay_layers == "first" and layers is not None and len(layers) > 1:
        first = trained(layers[0])
        known = {id(p) for p in first}
        groups = [(first, config.weight_decay), ([p for p in trained(model) if id(p) not in known], 0.0)]
    return Optimizer(groups, config.lr, config.optimizer)


def make_torch_optimizer(
    model: torch.nn.Module, config: TrainConfig, make: Callable | None = None, schedule: Callable | None = None
) -> Optimizer:
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
