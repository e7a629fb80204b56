"""CapturedStep: a FullStep on a device whose work is captured as CUDA graphs, launched by one call each.

The shapes of a full-graph epoch never change. Three functions are captured once and replayed: a forward pass, its loss
with backward and update, and an evaluation. Weights, gradients, logits and loss keep the addresses that they had in the
capture; the host writes nothing but the dropout keys of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import UsageError
from ...layers.stack import stacks_of
from ...spmm.chains.dropout import EpochKeys
from .full import FullStep, check_trained
from .step import Scorer, WrappedStep

EAGER = 2  # calls without capture: kernels are compiled and libraries allocate their workspaces


class Replayed:
    """A function without arguments that is captured at the third call, and replayed from that call on.

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
        raise UsageError(f"--cuda-graph requires one rank, got {n_ranks}; omit it")


class CapturedStep(WrappedStep[FullStep]):
    """A FullStep on one rank whose epochs and evaluations are captured: trainer.steps = CapturedStep(trainer.steps).

    Tensors that a replayed function returns are overwritten by its next call. All share one pool of memory, so
    that nothing asks for the logits of an evaluation between forward and update.
    Raises: UsageError for several ranks, and on the CPU.
    """

    def __init__(self, step: FullStep, capture: Callable | None = None):
        check_ranks(step.comm.size)
        if capture is None:
            if step.dgraph.A.device.type == "cpu":
                raise UsageError("captured steps require a GPU; distribute the graph with device='cuda'")
            capture = Capture(step.dgraph.A.device)
        super().__init__(step)
        self._Z_nC: torch.Tensor | None = None
        lengths = [len(stack.layers) for stack in stacks_of(step.model)]
        self.keys = EpochKeys(step.config.seed, max(lengths, default=0), step.dgraph.A.device, len(lengths))
        self._forward = Replayed(lambda: step.outputs(self.keys), capture)
        self._update = Replayed(self._loss_and_move, capture)
        self.scorer = CapturedScorer(step.scorer, capture)

    def forward(self, epoch: int) -> torch.Tensor | None:
        """Compute the logits of an epoch; return them if the FullStep does."""
        check_trained(self.inner.model, self.inner.optimizer)
        self.keys.set(epoch)
        # The graph of the last backward goes first: its nodes of the weights belong to the stream they were made on.
        self._Z_nC = None
        self._Z_nC = self._forward()
        return self._Z_nC.detach() if self.inner.gives_logits else None

    def update(self, first: int, last: int) -> float:
        """Move the weights by the logits of `forward`; return the loss."""
        self._update()
        return self.inner.global_loss()

    def _loss_and_move(self) -> None:
        assert self._Z_nC is not None  # forward comes first
        self.inner.move(self.inner.loss(self._Z_nC, overwrite=True))


class CapturedScorer:
    """A scorer whose evaluation is captured."""

    def __init__(self, scorer: Scorer, capture: Callable):
        self.inner, self.task, self.labels = scorer, scorer.task, scorer.labels
        self.split, self.logits = scorer.split, Replayed(scorer.logits, capture)

    def counts(self, Z_nC: torch.Tensor | None = None):
        """Return the counts of each split and class, see Scorer."""
        return self.inner.counts(self.logits() if Z_nC is None else Z_nC)

    def predictions(self):
        """Return the predicted classes of all nodes, see Scorer."""
        return self.inner.predictions()


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
                f"--cuda-graph: the step cannot be captured ({str(problem).splitlines()[0]}); omit it"
            ) from problem
        return graph, result
