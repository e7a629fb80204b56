"""FieldsStep: each update on B snapshots of one graph, whose rows travel together; FieldsScorer: scores over all of them.

Shapes: S snapshots, B of an update, n own nodes, r rows of a target, F inputs, C targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch

from ...config import TrainConfig
from ...config.names import Task
from ...distgraph.snapshots import Fields
from ...errors import GraphError, NumericalError, ShapeError, SpgnnError
from ...graph import TRAIN
from ...layers.stack import Units, layers_of, set_epoch
from ...spmm.chains.autograd import mixed_precision, on_this_thread
from ...spmm.chains.loss import number_loss
from ...spmm.dry.dry import dry_run
from ...spmm.dry.dry_operator import Setting, exchanged_rows
from ...spmm.edges.edge_table import edge_features_of
from ...spmm.operator.batched import Batched
from ...spmm.operator.counts import sent_bytes
from ..metrics import number_means, number_sums
from ..optimizer import make_optimizer
from .full import check_trained
from .row_loss import is_new, units_of
from .step import Step, sum_gradients


class FieldsStep(Step):
    """A Step of an update for each B of the training snapshots, in an order drawn from seed and epoch.

    loss = sum w_i l((Z_sic - y_sic) / s_c) / sum w_i over the snapshots of an update, nodes or edges, and columns, of all
    ranks, where y is known. A new Stack gets Units of the training snapshots, for its inputs and for its outputs.
    Collective, as every method but the state's.
    """

    def __init__(self, model: torch.nn.Module, fields: Fields, config: TrainConfig):
        self.model, self.fields, self.config = model, fields, config
        self.train_S = np.flatnonzero(fields.split_S == TRAIN)
        self.deviation_C = self._fit_units()
        self.operators: dict[int, Batched] = {}
        self.optimizer = make_optimizer(model, config)
        self.scorer = FieldsScorer(model, fields, self)
        fields.dgraph.A.prepare_adjoint()

    comm = property(lambda self: self.fields.dgraph.comm)
    size = property(lambda self: self.config.batch or 1)  # snapshots of an update

    def operator(self, B: int) -> Batched:
        """Return A for B snapshots."""
        if B not in self.operators:
            self.operators[B] = Batched(self.fields.dgraph.A, B)
        return self.operators[B]

    def update(self, first: int, last: int) -> float:
        """Train one epoch, first = last, and return its loss over all numbers."""
        check_trained(self.model, self.optimizer)
        order = np.random.default_rng([self.config.seed, last]).permutation(self.train_S).tolist()
        batches = [order[start : start + self.size] for start in range(0, len(order), self.size)]
        sums = np.zeros(2)
        for number, snapshots in enumerate(batches):
            sums += self.one_update(snapshots, (last - 1) * len(batches) + number + 1)
        if not np.isfinite(sums[0]):
            raise NumericalError(f"the loss is {sums[0]}; expected a finite number")
        self.measured = {"steps": len(batches)}
        return float(sums[0] / sums[1])

    def one_update(self, snapshots: Sequence[int], number: int) -> np.ndarray:
        """Move the weights along the gradient of the loss of some snapshots; return its sum and the sum of weights, all ranks."""
        fields, A = self.fields, self.operator(len(snapshots))
        self.model.train()
        self.optimizer.zero_grad()
        set_epoch(self.model, self.config.seed, number)
        Y_BrC = torch.stack([fields.targets(s) for s in snapshots])
        total = np.array([float(self.weights_of(Y_BrC).sum())])
        self.comm.all_reduce(total)
        if not total[0]:
            raise GraphError(f"snapshots {list(map(int, snapshots))} have no target that counts")
        with mixed_precision(A):
            Z_BrC = self.outputs(A, snapshots)
        Z, Y = Z_BrC.reshape(-1, Z_BrC.shape[2]), Y_BrC.reshape(-1, Y_BrC.shape[2])
        rows = torch.arange(len(Z), device=Z.device)
        weight = None if fields.weight_n is None else fields.weight_n.repeat(len(snapshots))
        how = cast(Any, "mse" if self.config.loss == "auto" else self.config.loss)
        loss = number_loss(Z, Y, rows, how, self.deviation_C, float(total[0]), weight)
        with on_this_thread(fields.dgraph.A):
            loss.backward()
        sum_gradients([p for p in self.model.parameters() if p.requires_grad], self.comm)
        self.optimizer.step()
        summed = np.array([float(loss.detach()) * total[0]])
        self.comm.all_reduce(summed)
        return np.concatenate([summed, total])

    def outputs(self, A: Batched, snapshots: Sequence[int]) -> torch.Tensor:
        """Return what the model makes of some snapshots, (B, r, C). Raises: ShapeError where it does not fit the targets."""
        fields = self.fields
        Z = self.model(A, fields.batch(snapshots))
        rows = A.with_norm("none").n_edges if fields.on == "edges" else A.n
        if Z.shape != (rows, fields.n_targets):
            raise ShapeError(
                f"the model returns {tuple(Z.shape)}; expected ({rows}, {fields.n_targets}), a row per {fields.on[:-1]} and "
                f"snapshot and a column per target"
            )
        return fields.of_batch(A, Z)

    def weights_of(self, Y_BrC: torch.Tensor) -> torch.Tensor:
        """Return how much each number counts, (B, r, C) float64: 0 where it is not known."""
        is_known = (~torch.isnan(Y_BrC)).double()
        return is_known if self.fields.weight_n is None else is_known * self.fields.weight_n[:, None]

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes that this rank sends in an epoch; None where the model cannot run without data. Collective."""
        sizes = [len(self.train_S[start : start + self.size]) for start in range(0, len(self.train_S), self.size)]
        try:
            run = dry_run(self.model, self._setting(), shared=(self.fields.dgraph, self.fields))
        except SpgnnError:
            run = None
        is_known = all(self.comm.all_gather_json(run is not None))
        if run is None or not is_known:
            return None
        products = run.passes("forward", "backward").exchanges
        of = lambda product, B: sent_bytes(
            self._whole(product.layer or 0), B * product.width, product.pass_name, product.kind
        )
        return sum(of(product, B) for B in sizes for product in products)

    def _setting(self) -> Setting:
        """Return what the dry run of a step depends on, of one snapshot: others make rows wider."""
        A = self.fields.dgraph.A
        return Setting(
            features=self.fields.n_features, is_exchanged=bool(A.stages), dtype=A.dtype, order=A.order, operator=A.name,
            is_cached=False, step_is_cached=False, counts={"n": A.n, "n_train": A.n} | exchanged_rows(A),
            is_multilabel=True, edge_features=edge_features_of(A),
        )  # fmt: skip

    def _whole(self, number: int):
        """Return the operator of a layer of the model."""
        layers = layers_of(self.model)
        A = self.fields.dgraph.A
        return A.with_norm(getattr(layers[number - 1], "operator", None)) if 1 <= number <= len(layers) else A

    def _fit_units(self) -> torch.Tensor:
        """Give a new Stack the Units of inputs and targets, and return the deviations of the targets, (C,)."""
        model, fields = self.model, self.fields
        units = getattr(model, "units", None)
        if isinstance(units, Units):
            return units.deviation_C
        rows = lambda values: (values(int(s)).double() for s in self.train_S)
        of_targets = units_of(lambda: ((Y, self.weights_of(Y[None])[0]) for Y in rows(fields.targets)), fields.dgraph)
        if is_new(model):
            of_inputs = units_of(lambda: ((X, torch.ones_like(X)) for X in rows(fields.inputs)), fields.dgraph)
            model.units, model.inputs = of_targets, of_inputs
        return of_targets.deviation_C


class FieldsScorer:
    """Scores of a model over all snapshots of a split, each number with the weight of its node; see Scorer.

    Collective, as every method.
    """

    task: Task = "numbers"

    def __init__(self, model: torch.nn.Module, fields: Fields, steps: FieldsStep):
        self.model, self.fields, self.steps = model, fields, steps
        of_splits = ((self._targets(s), self._weights(s)) for s in self._scored())
        self.number_sC, self.mean_sC = number_means(of_splits, fields.dgraph.comm)

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield nothing: numbers have no classes."""
        yield from ()

    def split(self) -> np.ndarray:
        """Return the split of the snapshots, (S,) int8."""
        return self.fields.split_S

    @torch.no_grad()
    def outputs(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each snapshot of a split, and what the model makes of it, (r, C) float64."""
        self.model.eval()
        scored, size = self._scored(), self.steps.size
        for start in range(0, len(scored), size):
            snapshots = scored[start : start + size]
            A = self.steps.operator(len(snapshots))
            with mixed_precision(A):
                Z_BrC = self.steps.outputs(A, snapshots)
            yield from zip(snapshots, Z_BrC.double().cpu().numpy())

    def logits(self) -> torch.Tensor:
        """Return what the model makes of the snapshots that are in a split, (S, r, C)."""
        return torch.from_numpy(np.stack([Z_rC for _, Z_rC in self.outputs()]))

    def counts(self, Z_nC: torch.Tensor | None = None) -> np.ndarray:
        """Return (3, C, 5) float64, see metrics.count_numbers. Raises: NumericalError where an output is not finite."""
        given = self.outputs() if Z_nC is None else zip(self._scored(), Z_nC.numpy())
        own = np.zeros((3, self.fields.n_targets, 4))
        for s, Z_rC in given:
            own += number_sums(Z_rC, self._targets(s), self._weights(s), self.mean_sC)
        self.fields.dgraph.comm.all_reduce(own)
        if not np.isfinite(own).all():
            raise NumericalError("the outputs are not finite")
        return np.concatenate([self.number_sC[:, :, None], own], axis=2)

    def predictions(self) -> np.ndarray:
        """Return what the model makes of the snapshots that are in a split, in the order of the input, (S, N or L, C)."""
        return np.stack([self.fields.collect(Z_rC) for _, Z_rC in self.outputs()])

    def _scored(self) -> list[int]:
        return np.flatnonzero(self.fields.split_S >= 0).tolist()

    def _targets(self, s: int) -> np.ndarray:
        return self.fields.targets(s).double().cpu().numpy()

    def _weights(self, s: int) -> np.ndarray:
        weight_rC = self.steps.weights_of(self.fields.targets(s)[None])[0].cpu().numpy()
        return weight_rC * (np.arange(3) == self.fields.split_S[s])[:, None, None]
