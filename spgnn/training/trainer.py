"""The full-graph loop: forward, loss, backward, one all-reduce, step; scores from the same pass.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..config import TrainConfig, build
from ..dist.consistency import check_same
from ..distgraph import DistGraph
from ..errors import GraphError, NumericalError, ShapeError, UsageError
from ..layers import Stack
from ..layers.stack import set_epoch
from ..machine import give_back_memory
from ..spmm.autograd import mixed_precision, on_this_thread
from ..spmm.dropout import EpochKeys
from ..spmm.kernels.buffers import sum_dtype
from ..spmm.loss import binary_cross_entropy, cross_entropy
from .consistency import check_own, training_facts
from .history import History
from .metrics import SPLITS, count, per_class, scores
from .optimizer import make_optimizer
from .splits import split_of
from .step import StepRows

if TYPE_CHECKING:
    from .captured import CapturedSteps


# The options that training itself reads; the others describe the graph, the model or the files.
READ = frozenset(
    {"epochs", "lr", "optimizer", "weight_decay", "decay_layers", "patience", "eval_every", "seed", "split", "prune"}
)


class Trainer:
    """One model on one DistGraph: `fit()` runs all epochs, `step` one, `logits` evaluates.

    Args: model    Stack, or any module called as model(A, X). A Stack that was neither trained nor loaded
                   (is_trained) is drawn anew from config.seed; then all ranks take rank 0's weights
                   and buffers. Modules that see all rows at once, such as torch's BatchNorm and Dropout, see
                   those of their rank alone: with them the result depends on the ranks.
          dgraph   of `distribute`.
          config   TrainConfig; model, hidden and the other keys that describe the Stack are not read.
    Collective, as every method.
    """

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig):
        if not isinstance(dgraph, DistGraph):
            raise UsageError(
                f"got a {type(dgraph).__name__} in place of a DistGraph: train(model, spgnn.distribute(graph, comm))"
            )
        self.model, self.dgraph, self.config, self.comm = model, dgraph, config, dgraph.comm
        if dgraph.n_features == 0:
            raise GraphError(f"{dgraph.name} has no features; give them with --features FILE")
        if dgraph.y_n is None:
            raise GraphError(f"{dgraph.name} has no labels; give them with --labels FILE")
        f_in = getattr(model.layers[0], "f_in", None) if isinstance(model, Stack) else None
        if f_in not in (None, dgraph.n_features):
            raise ShapeError(f"{dgraph.name} has {dgraph.n_features} features; layer 1 reads {f_in}")
        check_same(self.comm, training_facts(model, config))
        check_own(self.comm, model)
        self.split_n = split_of(dgraph, config.split, config.seed)
        if dgraph.A.fixed_input is not None:
            dgraph.keep()
        self.rows = StepRows(dgraph, model, config, self.split_n)
        # Error feedback starts from nothing, and needs to know which product of a layer it is in.
        self.feedback = None if self.rows.plans is None else {}
        self._count_rows()
        self.rows.prepare_adjoint()
        if isinstance(model, Stack) and not model.is_trained:
            model.initialise(config.seed)  # torch's modules draw other numbers in float64
        model.to(device=dgraph.A.device, dtype=sum_dtype(dgraph.A.dtype))
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.contiguous()
            self.comm.broadcast(tensor.detach())
        self.optimizer = make_optimizer(model, config)
        self.captured: CapturedSteps | None = None
        self.history = History(metric="micro_f1" if dgraph.is_multilabel else "accuracy")
        self.best_state: dict[str, torch.Tensor] = self._state()
        give_back_memory()

    def step(self, epoch: int, on_logits: Callable[[torch.Tensor], bool] | None = None) -> float | None:
        """Run one training epoch and return the global loss.

        on_logits sees the logits before the loss, which writes over them; where it returns True the step is left out.
        """
        if not self.optimizer.groups:
            raise UsageError("no weight of the model requires a gradient; there is nothing to train")
        Z_nC = self.forward(epoch) if self.captured is None else self.captured.forward(epoch)
        if on_logits is not None and on_logits(Z_nC.detach()):
            return None
        if self.captured is None:
            loss = self.loss(Z_nC, overwrite=True)
            del Z_nC
            self.update(loss)
        else:
            self.captured.update()
        return self._global_loss(epoch)

    def release_input(self) -> bool:
        """Give up X where training and evaluation read the kept A X alone, and return whether.

        Nothing can read the X of the DistGraph any more: for who is done with it. A Graph that shares X's memory
        keeps it. Not where X is sparse, dropout acts on it, or the first layer adds it to its output.
        """
        A, X, plans, first = (
            self.dgraph.A,
            self.dgraph.X,
            self.rows.plans,
            next(iter(getattr(self.model, "layers", ())), None),
        )
        if plans is None or not plans[0].is_kept or not torch.is_tensor(X) or getattr(first, "reads_input", True):
            return False
        A.fixed_input.release(A.pool)
        give_back_memory()
        return True

    def logits(self) -> torch.Tensor:
        """Return the logits of the own nodes (n, C) in evaluation mode."""
        return self.evaluate() if self.captured is None else self.captured.logits()

    def fit(self, report: Callable[[dict], Any] | None = None) -> History:
        """Train; keep the weights of the best validation score; return the History.

        A model without dropout is scored from the next epoch's forward pass, which computes the very
        logits that an evaluation would; the last epoch is evaluated by itself.
        """
        config, comm = self.config, self.comm
        self.history = History(metric=self.history.metric)
        is_apart = self.rows.is_pruned or getattr(self.model, "is_random", True)  # scores need a pass of their own
        waiting: dict | None = None  # a record whose scores come with the next forward pass
        stopped = False

        def score_waiting(Z_nC) -> bool:
            return waiting is not None and self._finish(waiting, Z_nC, report)

        for epoch in range(1, config.epochs + 1):
            comm.phase = f"epoch {epoch}"
            start_bytes, start = self._sent_bytes(), time.perf_counter()
            scoring = 0.0

            def timed(Z_nC) -> bool:
                nonlocal scoring
                begin = time.perf_counter()
                stop = score_waiting(Z_nC)
                scoring = time.perf_counter() - begin
                return stop

            loss = self.step(epoch, None if is_apart else timed)
            if loss is None:
                stopped = True
                break
            record = {"epoch": epoch, "loss": loss, "train": None, "val": None, "test": None}
            record["epoch_s"] = time.perf_counter() - start - scoring
            record["bytes_sent"] = self._all_ranks(self._sent_bytes() - start_bytes)
            due = epoch % config.eval_every == 0 or epoch == config.epochs
            waiting = record if due else None
            if not due:
                self._append(record, report)
            elif is_apart:
                waiting = None
                if self._finish(record, self.logits(), report):
                    stopped = True
                    break
        if waiting is not None and not stopped:
            self._finish(waiting, self.logits(), report)
        return self._close()

    def forward(self, epoch: int | EpochKeys) -> torch.Tensor:
        """Return the logits of a training pass, (n, C)."""
        dgraph = self.dgraph
        self.model.train()
        self.optimizer.zero_grad()
        dgraph.A.layout.feedback = self.feedback
        Z_nC = self._call(epoch)
        if Z_nC.shape != (len(self._y_n), dgraph.n_classes):  # the same on all ranks
            if Z_nC.ndim != 2 or len(Z_nC) != len(self._y_n):
                raise ShapeError(
                    f"the model returns {tuple(Z_nC.shape)}; expected a row for each of this rank's {len(self._y_n)} nodes and {dgraph.n_classes} columns"
                )
            raise ShapeError(
                f"the model returns {Z_nC.shape[1]} columns, {dgraph.name} has {dgraph.n_classes} classes; the last layer writes one a class"
            )
        return Z_nC

    def loss(self, Z_nC, overwrite: bool = False) -> torch.Tensor:
        """Return this rank's part of the loss; with overwrite its gradient may take the memory of Z."""
        dgraph = self.dgraph
        if dgraph.is_multilabel:
            loss = binary_cross_entropy(Z_nC, self._y_n, self._train_rows, self.n_train)
        else:
            loss = dgraph.A.ops.run(
                "loss", cross_entropy, Z_nC, self._y_n, self.n_train, dgraph.A.pool, dgraph.A.threads, overwrite
            )
        self._own_loss = loss.detach() if dgraph.is_counted else 0.0
        return loss

    def update(self, loss: torch.Tensor) -> None:
        """Move the weights along the gradients of a loss; the gradients of all ranks are added, those of a term on the weights too."""
        with on_this_thread(self.dgraph.A):
            loss.backward()
        self._sum_gradients()
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> torch.Tensor:
        """Return the logits of an evaluation, (n, C)."""
        self.model.eval()
        with mixed_precision(self.dgraph.A):
            return self.model(self.dgraph.A, self.dgraph.X)

    def _call(self, epoch: int | EpochKeys) -> torch.Tensor:
        set_epoch(self.model, self.config.seed, epoch)
        with mixed_precision(self.dgraph.A):
            return self.model(self.rows.A, self.rows.X)

    def _sum_gradients(self) -> None:
        """Add the gradients of all weights over the ranks, in one all-reduce."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:  # on one rank as on several: weight decay acts on it
                parameter.grad = torch.zeros_like(parameter)
        if self.comm.size == 1:
            return
        flat = torch.cat([p.grad.ravel() for p in parameters])
        if not self.dgraph.is_counted:  # of the ranks that hold the same rows, one counts
            flat.zero_()
        self.comm.all_reduce(flat)
        for parameter, gradient in zip(parameters, flat.split([p.numel() for p in parameters])):
            parameter.grad = gradient.view_as(parameter)

    def _global_loss(self, epoch: int) -> float:
        loss = np.array([float(self._own_loss)])  # a device is waited for here, not before backward
        self.comm.all_reduce(loss)
        if not np.isfinite(loss[0]):
            raise NumericalError(
                f"epoch {epoch}: the loss is {loss[0]}; expected a finite number. Lower --lr (now {self.config.lr:g}) or normalise the features"
            )
        return float(loss[0])

    def _finish(self, record: dict, Z_nC, report) -> bool:
        """Score a record, keep the weights if they are the best, and return whether to stop."""
        self._check_finite(record["epoch"], Z_nC)
        counts = count(Z_nC, self.dgraph.y_n, self._scored_n, self.dgraph.n_classes, self.comm)
        multilabel, history = self.dgraph.is_multilabel, self.history
        by_split = {name: scores(counts[s], multilabel) for s, name in enumerate(SPLITS)}
        for name in SPLITS:
            record[name] = by_split[name][history.metric]
        self._append(record, report)
        # Without validation nodes the newest weights count as the best.
        if not record["val"] <= history.val:
            history.best_epoch, history.scores = record["epoch"], by_split
            history.train, history.val, history.test = (record[name] for name in SPLITS)
            history.per_class = per_class(counts[2])
            self.best_state = self._state()
        return 0 < self.config.patience <= record["epoch"] - history.best_epoch

    def _check_finite(self, epoch: int, Z_nC) -> None:
        bad = np.array([0 if torch.isfinite(Z_nC.sum()) else 1], np.int64)  # a NaN or infinity is in the sum
        self.comm.all_reduce(bad, "max")
        if bad[0]:
            raise NumericalError(
                f"epoch {epoch}: the logits are not finite. Lower --lr (now {self.config.lr:g}) or normalise the features"
            )

    def _append(self, record: dict, report) -> None:
        self.history.records.append(record)
        if report is not None:
            report(record)

    def _close(self) -> History:
        history = self.history
        history.epoch_s = float(np.median([r["epoch_s"] for r in history.records[1:] or history.records]))
        history.bytes_sent = int(np.median([r["bytes_sent"] for r in history.records]))
        own_bytes = self.rows.sent_bytes()
        history.bytes_predicted = None if own_bytes is None else self._all_ranks(own_bytes)
        history.setup_bytes = self._all_ranks(self.dgraph.setup_bytes)
        if isinstance(self.model, Stack):
            self.model.is_trained = True
        self.last_state = self._state()
        self.model.load_state_dict(self.best_state)
        return history

    def _count_rows(self) -> None:
        y_n, dgraph = self.dgraph.y_n, self.dgraph
        is_train_n = torch.from_numpy(self.split_n == 0)
        if y_n.ndim == 2:
            self._y_n, self._train_rows = self.rows.of(y_n), self.rows.of(is_train_n)
        else:
            self._y_n = self.rows.of(torch.where(is_train_n, y_n, -1))
            self._train_rows = self._y_n >= 0
        self._y_n, self._train_rows = (rows.to(dgraph.A.device) for rows in (self._y_n, self._train_rows))
        # Rows that several ranks hold are counted on one of them.
        self._scored_n = self.split_n if dgraph.is_counted else np.full_like(self.split_n, -1)
        self._train_rows = self._train_rows.nonzero().squeeze(1)
        self.n_train = self._all_ranks(len(self._train_rows) if dgraph.is_counted else 0)
        if self.n_train == 0:
            raise GraphError(f"{self.dgraph.name}: no training node has a label; the split has to put some into train")

    def _sent_bytes(self) -> int:
        return int(self.comm.traffic.sent_bytes().sum())

    def _all_ranks(self, value: int) -> int:
        total = np.array([value], np.int64)
        self.comm.all_reduce(total)
        return int(total[0])

    def _state(self) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}


def train(
    model: torch.nn.Module, dgraph: DistGraph, *, report: Callable[[dict], Any] | None = None, **options
) -> History:
    """Train a model on all nodes at once; it ends with the weights of the best validation score.

    A Stack is drawn anew from the seed, unless it was trained or its weights were loaded: then training goes on from
    them, with a new optimizer and epochs from 1.

    Args:   options  fields of TrainConfig: epochs, lr, seed, optimizer, weight_decay, patience, split ...
            report   called on every rank with the record of each epoch.
    Raises: UsageError for an unknown option; NumericalError when the loss is not finite.
    Collective.
    """
    unread = [name for name in options if name not in READ and name in TrainConfig.__dataclass_fields__]
    if unread:
        raise UsageError(
            f"train does not read {unread[0]!r}; give it to distribute, to the layers, or to `spgnn train`"
        )
    return Trainer(model, dgraph, build(TrainConfig, options)).fit(report)
