"""SGD and Adam on replicated weights, by torch's functional forms.

The classes of torch.optim import torch's compiler when they are made: a second and 50 MB on every rank.
"""

from __future__ import annotations

import torch
from torch.optim.adam import adam

from ..config import TrainConfig


class Optimizer:
    """W -= lr update(dW + decay W) for groups of weights with a decay of their own.

    Args:   groups  (parameters, decay) pairs; rule: "adam" or "sgd".
    Source: Adam: Kingma & Ba 2015, Algorithm 1, with the L2 penalty in the gradient as Kipf & Welling have it.
    """

    def __init__(self, groups: list[tuple[list[torch.nn.Parameter], float]], lr: float, rule: str = "adam"):
        self.groups = [(parameters, decay) for parameters, decay in groups if parameters]
        self.lr, self.rule = lr, rule
        # The number of steps is where the weights are: a captured step counts on. In float64, as 1 - 0.999^t is made of it.
        zeros = lambda ps: [torch.zeros_like(p) for p in ps]
        self._state = [
            (zeros(ps), zeros(ps), [torch.zeros((), dtype=torch.float64, device=p.device) for p in ps])
            for ps, _ in self.groups
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights along their gradients."""
        for (parameters, decay), (means, squares, steps) in zip(self.groups, self._state):
            gradients = [p.grad for p in parameters]
            if self.rule == "sgd":
                for parameter, gradient in zip(parameters, gradients):
                    parameter.sub_(gradient + decay * parameter if decay else gradient, alpha=self.lr)
            else:
                options = dict(
                    amsgrad=False, beta1=0.9, beta2=0.999, lr=self.lr, weight_decay=decay, eps=1e-8, maximize=False
                )
                on_device = all(p.is_cuda for p in parameters)  # then a launch for all weights, not one for each
                adam(
                    parameters, gradients, means, squares, [], steps, foreach=on_device, capturable=on_device, **options
                )

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None


def make_optimizer(model: torch.nn.Module, config: TrainConfig) -> Optimizer:
    """Return the Optimizer of config; decay_layers = "first" puts the L2 penalty on the first layer alone."""
    trained = lambda module: [p for p in module.parameters() if p.requires_grad]
    layers = getattr(model, "layers", None)
    groups = [(trained(model), config.weight_decay)]
    if config.decay_layers == "first" and layers is not None and len(layers) > 1:
        first = trained(layers[0])
        known = {id(p) for p in first}
        groups = [(first, config.weight_decay), ([p for p in trained(model) if id(p) not in known], 0.0)]
    return Optimizer(groups, config.lr, config.optimizer)
