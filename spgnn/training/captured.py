"""CapturedSteps: the steps of a training on a device as CUDA graphs, started by one call each.

The shapes of a full-graph epoch never change. What a step asks of the device is recorded once and replayed:
a forward pass, its loss with backward and update, and an evaluation. The weights, their gradients, the logits and the
loss then lie where they lay when it was recorded; the host is asked for nothing but the epoch's dropout keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import UsageError
from ..layers import Stack
from ..spmm.autograd import EpochKeys
from .loop import Trainer

EAGER = 2  # calls that run as they stand: kernels are compiled and libraries make their workspaces


class Replayed:
    """A function without arguments that is captured at the third call, and replayed then and from then on.

    Args: capture  (function) -> (object with replay(), what the function returned).
    """

    def __init__(self, function: Callable[[], Any], capture: Callable):
        self.function, self.capture = function, capture
        self.calls, self.graph, self.result = 0, None, None

    def __call__(self):
        self.calls += 1
        if self.calls <= EAGER:
            return self.function()
        if self.graph is None:
            self.graph, self.result = self.capture(self.function)
        self.graph.replay()
        return self.result


class CapturedSteps:
    """The steps of a Trainer on one rank; give it to `trainer.captured`.

    Tensors that a replayed step returns are written over by the next one.
    Raises: UsageError for several ranks.
    """

    def __init__(self, trainer: Trainer, capture: Callable | None = None):
        if trainer.comm.size > 1:
            raise UsageError(f"--cuda-graph is for one rank; got {trainer.comm.size}: leave it away")
        capture = Capture(trainer.dgraph.A.device) if capture is None else capture
        self.trainer = trainer
        n_layers = len(trainer.model.layers) if isinstance(trainer.model, Stack) else 0
        self.keys = EpochKeys(trainer.config.seed, n_layers, trainer.dgraph.A.device)
        self._forward = Replayed(lambda: trainer.forward(self.keys), capture)
        self._update = Replayed(self._loss_and_update, capture)
        self.logits = Replayed(trainer.evaluate, capture)

    def forward(self, epoch: int) -> torch.Tensor:
        """Return the logits of a training pass, (n, C)."""
        self.keys.set(epoch)
        self._Z_nC = self._forward()
        return self._Z_nC

    def update(self) -> None:
        """Move the weights along the gradients of the loss of the last forward pass."""
        self._update()

    def _loss_and_update(self) -> None:
        loss = self.trainer.loss(self._Z_nC)
        self.trainer.update(loss)


class Capture:
    """Captures functions on one device, all in one pool of memory: they are replayed in the order of their capture."""

    def __init__(self, device: torch.device):
        self.device, self.pool = device, torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self.device), torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                result = function()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise UsageError(f"--cuda-graph: the step cannot be captured ({str(error).splitlines()[0]}); leave it away") from error
        return graph, result
