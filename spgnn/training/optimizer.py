"""SGD, Adam and AdamW on replicated weights, by torch's functional forms.

The classes of torch.optim import torch's compiler when they are made: a second and 50 MB on every rank.
"""

from __future__ import annotations

import torch
from torch.optim.adam import adam

from ..config import TrainConfig
from ..errors import CheckpointError


class Optimizer:
    """W -= lr update(dW + decay W) for groups of weights with a decay of their own.

    Args:   groups  (parameters, decay) pairs; rule: "adam", "adamw" or "sgd".
    epoch_lr        lr of the last epoch, where a schedule changes it, see TorchOptimizer; here None.
    Source: Adam: Kingma & Ba 2015, Algorithm 1, with the L2 penalty in the gradient as Kipf & Welling have it. AdamW:
            Loshchilov & Hutter 2019, Algorithm 2: W -= lr decay W instead.
    """

    epoch_lr: float | None = None

    def __init__(self, groups: list[tuple[list[torch.nn.Parameter], float]], lr: float, rule: str = "adam"):
        self.groups = [(parameters, decay) for parameters, decay in groups if parameters]
        self.lr, self.rule = lr, rule
        # Adam's means, squares and numbers of steps. Steps are counted on the device of the weights, so that captured
        # steps count on, and in float64, as 1 - 0.999^t is computed from them.
        zeros = lambda ps: [torch.zeros_like(p) for p in ps]
        self._state = [
            (zeros(ps), zeros(ps), [torch.zeros((), dtype=torch.float64, device=p.device) for p in ps])
            for ps, _ in (() if rule == "sgd" else self.groups)
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights along their gradients."""
        if self.rule == "sgd":
            for parameters, decay in self.groups:
                for p in parameters:
                    p.sub_(p.grad + decay * p if decay else p.grad, alpha=self.lr)
            return
        for (parameters, decay), (means, squares, steps) in zip(self.groups, self._state):
            if self.rule == "adamw" and decay:
                for p in parameters:
                    p.mul_(1 - self.lr * decay)
                decay = 0.0
            options = dict(
                amsgrad=False, beta1=0.9, beta2=0.999, lr=self.lr, weight_decay=decay, eps=1e-8, maximize=False
            )
            on_device = all(p.is_cuda for p in parameters)  # then a launch for all weights, not one for each
            options |= dict(foreach=on_device, capturable=on_device)
            adam(parameters, [p.grad for p in parameters], means, squares, [], steps, **options)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None

    def end_epoch(self) -> None:
        """Take note of the end of an epoch."""

    def scored(self, value: float) -> None:
        """Take note of the monitored value of an epoch."""

    def replay(self, epochs: int, values: list[float]) -> None:
        """Take note of epochs that were trained before, and of the monitored values of those that were scored."""

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
                p.grad.add_(p - p_G, alpha=2 * self.proximal)
        super().step()


def make_optimizer(model: torch.nn.Module, config: TrainConfig) -> Optimizer:
    """Return the Optimizer of config; decay_layers = "first" puts weight decay on the first layer alone."""
    trained = lambda module: [p for p in module.parameters() if p.requires_grad]
    layers = getattr(model, "layers", None)
    groups = [(trained(model), config.weight_decay)]
    if config.decay_layers == "first" and layers is not None and len(layers) > 1:
        first = trained(layers[0])
        known = {id(p) for p in first}
        groups = [(first, config.weight_decay), ([p for p in trained(model) if id(p) not in known], 0.0)]
    return Optimizer(groups, config.lr, config.optimizer)
