"""FullStep: all training nodes at once; forward, loss, backward, one all-reduce, one update.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from ...config import TrainConfig
from ...dist import Communicator
from ...distgraph import DistGraph
from ...errors import GraphError, NumericalError, ShapeError, UsageError
from ...graph.loaded import NOUNS
from ...layers.stack import layers_of, set_epoch
from ...machine import give_back_memory
from ...spmm.chains.autograd import mixed_precision, on_this_thread
from ...spmm.chains.dropout import EpochKeys
from ..custom import COMMAND_LINE, Custom
from ..not_finite import naming_source
from ..optimizer import Optimizer, make_optimizer
from ..scorer import FullScorer, split_of, unchanged
from .row_loss import RowLoss, check_loss, fit_units
from .step import Step, sum_gradients, sum_loss
from .step_rows import StepRows


class FullStep(Step):
    """A Step on all nodes of a DistGraph, with one update per epoch.

    Args: model   its weights are on the device of the graph and the same on all ranks, see prepare_model.
          custom  whose loss and class_weights are used.
    rows     StepRows: operator and input of the training passes.
    split_n  (n,) of the own nodes; targets: the training nodes with a label, n_train on all ranks.
    Collective, as every method.
    """

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig, custom: Custom = COMMAND_LINE):
        self.model, self.dgraph, self.config = model, dgraph, config
        self.split_n = split_of(dgraph, config.split, config.seed)
        check_loss(dgraph, config)
        assert dgraph.y_n is not None  # a training needs labels
        deviation_C = fit_units(model, dgraph, dgraph.y_n, self.split_n) if dgraph.is_regression else None
        self.rows = StepRows(dgraph, model, config, self.split_n)
        _fetch_ghosts(self.rows, dgraph)
        y_n, is_train_n = self.rows.of(dgraph.y_n), self.rows.of(torch.from_numpy(self.split_n == 0))
        self.targets = RowLoss(dgraph, y_n, is_train_n, custom, cast(Any, config.loss), deviation_C)
        if not self.targets.count:
            raise GraphError(
                f"{dgraph.name}: no training {dgraph.on[:-1]} has a label; choose a --split that puts some into train"
            )
        self.rows.prepare_adjoint()
        self.optimizer = make_optimizer(model, config)
        self.scorer = FullScorer(model, dgraph, self.split_n)
        self._Z_nC: torch.Tensor | None = None  # of an epoch, from forward to update

    @property
    def comm(self) -> Communicator:
        """The communicator of the graph."""
        return self.dgraph.comm

    @property
    def n_train(self) -> int:
        """Training nodes with a label, all ranks."""
        return self.targets.count

    @property
    def gives_logits(self) -> bool:  # pyrefly: ignore[bad-override]: it is read, never set
        """Whether a training pass computes the logits of an evaluation: all rows, and nothing random."""
        return not (self.rows.is_pruned or getattr(self.model, "is_random", True))

    def forward(self, epoch: int) -> torch.Tensor | None:
        """Compute the logits of an epoch; return them if gives_logits."""
        check_trained(self.model, self.optimizer)
        self._Z_nC = self.outputs(epoch)
        return self._Z_nC.detach() if self.gives_logits else None

    def update(self, first: int, last: int) -> float:
        """Move the weights by the logits of `forward`, of the epoch first = last; return the global loss."""
        assert self._Z_nC is not None  # forward comes first
        loss = self.loss(self._Z_nC, overwrite=True)
        self._Z_nC = None  # so that backward frees its memory
        if self.dgraph.A.device.type != "cpu":
            self.move(loss)
            return self.global_loss()
        with naming_source(self.model, self.dgraph, lambda: self.gradient(last)):
            value = self.global_loss()  # before the weights move, so that the pass can be run again
            self.move(loss)
        return value

    def outputs(self, epoch: int | EpochKeys) -> torch.Tensor:
        """Return the logits of a training pass, (n, C): of all own nodes, or of the rows of a pruned step."""
        dgraph = self.dgraph
        self.model.train()
        self.optimizer.zero_grad()
        set_epoch(self.model, self.config.seed, epoch)
        with mixed_precision(dgraph.A), unchanged(self.rows.X):
            Z_nC = self.model(self.rows.A, self.rows.X)
        n, C = len(self.targets.y_n), dgraph.n_classes
        if Z_nC.shape != (n, C):  # the same on all ranks
            if Z_nC.ndim != 2 or len(Z_nC) != n:
                raise ShapeError(
                    f"the model returns {tuple(Z_nC.shape)}; expected ({n}, {C}), a row per own {dgraph.on[:-1]} and a column per class"
                )
            raise ShapeError(
                f"the model returns {Z_nC.shape[1]} columns, {dgraph.name} has {C} {NOUNS[dgraph.task]}; the last layer must have f_out = {C}"
            )
        return Z_nC

    def loss(self, Z_nC: torch.Tensor, overwrite: bool = False) -> torch.Tensor:
        """Return this rank's part of the loss; with overwrite its gradient may take the memory of Z."""
        loss = self.targets.loss(Z_nC, overwrite)
        self._own_loss = loss.detach() if self.dgraph.is_counted else 0.0
        return loss

    def gradient(self, epoch: int) -> list[torch.Tensor]:
        """Return the gradient of the loss of all ranks at the weights as they are, as an epoch computes it."""
        check_trained(self.model, self.optimizer)
        backward(self, self.loss(self.outputs(epoch), overwrite=True))
        return [p.grad for p in self.model.parameters() if p.requires_grad and p.grad is not None]

    def move(self, loss: torch.Tensor) -> None:
        """Move the weights along the gradient of the sum of all ranks' losses, terms on the weights included.

        Raises: NumericalError where the gradient is not finite, on a CPU.
        """
        backward(self, loss)
        if self.dgraph.A.device.type == "cpu":
            check_gradient(self.optimizer)
        with self.dgraph.A.ops.span("optimiser"):
            self.optimizer.step()

    def global_loss(self) -> float:
        """Return the loss of the last epoch over all ranks."""
        return sum_loss(self._own_loss, self.comm)

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes that this rank sends in one epoch; None where the model cannot run without data."""
        return self.rows.sent_bytes()

    def release_input(self) -> bool:
        """Free X where training and evaluation read the cached A X alone, and return whether.

        The X of the DistGraph is unusable afterwards. Not where X is sparse, dropout acts on it, or the first layer
        adds it to its output.
        """
        A, X, run = self.dgraph.A, self.dgraph.X, self.rows.run
        first = next(iter(layers_of(self.model)), None)
        if run is None or A.fixed_input is None or not run.layers:
            return False
        is_cached = run.layers[0].number == 1 and run.layers[0].is_cached
        if not is_cached or run.reads_input or not torch.is_tensor(X) or getattr(first, "reads_input", True):
            return False
        A.fixed_input.release(A.pool)
        give_back_memory()
        return True

    def close(self) -> None:
        """Drop the logits of an epoch that was begun and not trained."""
        self._Z_nC = None


def backward(step: FullStep, loss: torch.Tensor) -> None:
    """Compute the gradient of the sum of all ranks' losses. Collective."""
    with on_this_thread(step.dgraph.A):
        loss.backward()
    trained = [p for p in step.model.parameters() if p.requires_grad]
    sum_gradients(trained, step.comm, step.dgraph.is_counted)


def check_gradient(optimizer: Optimizer) -> None:
    """Raise NumericalError where a gradient of a weight is not finite."""
    for weight in (weight for weights, _ in optimizer.groups for weight in weights):
        G = weight.grad
        if not (G is None or math.isfinite(G.sum()) or G.isfinite().all()):  # the sum alone may be too large
            raise NumericalError("the gradient is not finite")


def _fetch_ghosts(rows: StepRows, dgraph: DistGraph) -> None:
    """Fetch the ghost rows of X that steps and evaluations read, at set-up: no epoch counts them. Collective."""
    if dgraph.A.fixed_input is None or (run := rows.step_run) is None:
        return
    read_in = {product.pass_name for product in run.products if product.kind == "cached ghosts"}
    for pass_name, A in (("forward", rows.layer(1)), ("evaluate", rows.operators[0])):
        if pass_name in read_in:
            assert A.fixed_input is not None
            A.fixed_input.ghosts(A)


def check_trained(model: torch.nn.Module, optimizer: Optimizer) -> None:
    """Raise UsageError where every weight is frozen, or others are than when the optimizer was made, or without gradients."""
    if not torch.is_grad_enabled():
        raise UsageError("training needs gradients; call it outside of torch.no_grad() and torch.inference_mode()")
    if not optimizer.groups:
        raise UsageError("no weight of the model requires a gradient; there is nothing to train")
    held = {id(parameter) for parameters, _ in optimizer.groups for parameter in parameters}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad != (id(parameter) in held):
            what = "requires a gradient now" if parameter.requires_grad else "requires no gradient now"
            raise UsageError(f"weight {name} {what}, unlike when the Trainer was made; make a new Trainer")
