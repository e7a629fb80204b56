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
from ..layers.stack import stacks_of
from ..spmm.dropout import EpochKeys
from .trainer import Trainer

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


def check_ranks(n_ranks: int) -> None:
    """Raise UsageError for several ranks."""
    if n_ranks > 1:
        raise UsageError(f"--cuda-graph is for one rank; got {n_ranks}: leave it away")


class CapturedSteps:
    """The steps of a Trainer on one rank; give it to `trainer.captured`.

    Tensors that a replayed step returns are written over by the next one. All share one pool of memory, so that what
    on_logits of Trainer.step is given to must not ask for the trainer's logits.
    Raises: UsageError for several ranks, and on the CPU.
    """

    def __init__(self, trainer: Trainer, capture: Callable | None = None):
        check_ranks(trainer.comm.size)
        if capture is None:
            if trainer.dgraph.A.device.type == "cpu":
                raise UsageError("captured steps are of GPUs; distribute the graph with device='cuda'")
            capture = Capture(trainer.dgraph.A.device)
        self.trainer, self._Z_nC = trainer, None
        lengths = [len(stack.layers) for stack in stacks_of(trainer.model)]
        self.keys = EpochKeys(trainer.config.seed, max(lengths, default=0), trainer.dgraph.A.device, len(lengths))
        self._forward = Replayed(lambda: trainer.forward(self.keys), capture)
        self._update = Replayed(self._loss_and_update, capture)
        self.logits = Replayed(trainer.evaluate, capture)

    def forward(self, epoch: int) -> torch.Tensor:
        """Return the logits of a training pass, (n, C)."""
        self.keys.set(epoch)
        # The last epoch's graph of backward goes first: its nodes of the weights belong to the stream that they were made on.
        self._Z_nC = None
        self._Z_nC = self._forward()
        return self._Z_nC

    def update(self) -> None:
        """Move the weights along the gradients of the loss of the last forward pass."""
        self._update()

    def _loss_and_update(self) -> None:
        loss = self.trainer.loss(self._Z_nC, overwrite=True)
        self.trainer.update(loss)


class Capture:
    """Captures functions on one device, all in one pool of memory: they are replayed in the order of their capture."""

    def __init__(self, device: torch.device):
        self.device, self.pool = device, torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph, before, result, problem = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device), None, None
        try:
            with (
                torch.cuda.device(self.device),
                torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"),
            ):
                try:
                    result = function()
                except RuntimeError as error:  # the end of the capture fails then, too, and says less
                    problem = error
        except RuntimeError as error:
            problem = problem or error
            torch.cuda.set_stream(before)  # a capture that cannot end leaves its own
        if isinstance(problem, torch.cuda.OutOfMemoryError):
            raise problem
        if problem is not None:
            raise UsageError(
                f"--cuda-graph: the step cannot be captured ({str(problem).splitlines()[0]}); leave it away"
            ) from problem
        return graph, result
