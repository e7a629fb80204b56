"""StepRows: the operator, input and rows of the loss of a training step, pruned where that saves work.

Shapes: n own rows, L layers, F and C widths of a layer.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from ...config import TrainConfig
from ...cost.auto import MEMORY_SHARE, pruning_saves
from ...distgraph import DistGraph
from ...errors import SpgnnError, UsageError
from ...layers import Stack
from ...layers.stack import norms_of
from ...spmm.counts import sent_bytes
from ...spmm.dry import DryRun, dry_run
from ...spmm.dry_operator import setting_of
from ...spmm.features import SparseRows
from ...spmm.pruning import PrunedSpMM, needed_rows
from .step_memory import step_memory


class StepRows:
    """Operator, input and rows of the loss of a training step.

    A, X      operator and input of the model: those of the DistGraph, or pruned ones.
    rows      own rows of which a step computes logits, (n_L,) indices; None: all.
    why       the reason for pruning or not; problem: why the model has no dry run, "" where it has.
    Raises: UsageError where prune = "always" and the layers or an X with a gradient do not allow it.
    Collective to make, and where `run` is needed first.
    """

    def __init__(self, dgraph: DistGraph, model, config: TrainConfig, split_n: np.ndarray):
        self.A, self.X, self.rows = dgraph.A, dgraph.X, None
        self.operators = [dgraph.A.with_norm(norm) for norm in norms_of(model)]  # of the layers, the first one's first
        self.dgraph, self.model, self.problem = dgraph, model, ""
        self._run: tuple[DryRun | None] | None = None
        self.train_n = (split_n == 0) & _has_label(dgraph.y_n)
        self.is_pruned, self.why = False, "all rows: prune = never"
        if config.prune == "never":
            return
        if not isinstance(model, Stack) or model.widths is None or self.run is None:
            self.why = "all rows: a layer is not a chain A H W"
            if config.prune == "always":
                raise UsageError(
                    "prune = always requires layers that are chains A H W, such as GCN: the rows that a custom layer reads are not known"
                )
            return
        if getattr(dgraph.X, "requires_grad", False):
            self.why = "all rows: X requires a gradient"
            if config.prune == "always":
                raise UsageError(
                    "prune = always copies the rows of X that a step reads, but X requires a gradient; use prune = auto"
                )
            return
        train_n, layers = self.train_n, self.run.layers
        n_layers, everything = len(layers), np.ones_like(train_n)
        full = self._work(dgraph, [everything] * (n_layers + 1))
        saves = partial(pruning_saves, full, eval_every=config.eval_every, is_random=getattr(model, "is_random", True))
        # No layer has fewer rows than the last: if that alone is too much, the others need not be counted.
        at_least = self._work(dgraph, [train_n] * (n_layers + 1))
        if config.prune == "auto" and not saves(at_least):
            self.why = f"all rows: those that train take {at_least / max(full, 1):.0%} of the multiply-adds of all rows or more"
            return
        masks = needed_rows(dgraph.A, train_n, n_layers)
        pruned = self._work(dgraph, masks)
        share = f"{pruned / max(full, 1):.0%} of the multiply-adds of all rows"
        if config.prune == "auto" and not saves(pruned):
            self.why = (
                f"all rows: those that reach a training node take {share}, and scores would need a pass of their own"
            )
            return
        if config.prune == "auto" and dgraph.A.device.type == "cpu":
            memory = step_memory(dgraph, self.operators[0], model, self.run, masks)
            if not memory.fits:
                self.why = (
                    f"all rows: with pruned steps a host would need {memory.pruned / 1e9:.1f} GB, "
                    f"over {MEMORY_SHARE:.0%} of its {memory.available / 1e9:.1f} GB"
                )
                return
        self.is_pruned, self.why = True, f"rows that reach a training node: {share}"
        self.A = PrunedSpMM(
            dgraph.A, dgraph.X, masks, layers[0].is_cached, [self._whole(layer.number) for layer in layers]
        )
        self.X, self.rows = self.A.X, np.flatnonzero(train_n)

    @property
    def run(self) -> DryRun | None:
        """The dry run of the model on this rank, without pruned rows; None where a rank has none. Collective."""
        if self._run is None:  # functools.cached_property would have ranks that are threads wait for one another
            run, problem = self._dry_run(None)
            self.problem = next((said for said in self.dgraph.comm.all_gather_json(problem) if said), "")
            self._run = (None if self.problem else run,)
        return self._run[0]

    @property
    def step_run(self) -> DryRun | None:
        """The dry run with the rows that a step computes. Collective where `run` is."""
        return self._dry_run(self.A)[0] if self.is_pruned else self.run

    def layer(self, number: int):
        """Return the operator of a layer, which may compute some rows only."""
        return self.A.layers[number - 1] if self.is_pruned else self._whole(number)

    def of(self, values_n: torch.Tensor) -> torch.Tensor:
        """Return the values of the rows of which a step computes logits."""
        return values_n if self.rows is None else values_n[torch.from_numpy(self.rows)]

    def prepare_adjoint(self) -> None:
        """Make the transposes that backward multiplies with."""
        if self.is_pruned:
            self.A.prepare_adjoint([layer.has_backward for layer in self.run.layers])
            return
        for A in self.operators:
            A.prepare_adjoint()

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes that this rank sends in one training epoch; None without a dry run. Collective."""
        if self.run is None:
            return None
        products = self.run.of_pass("forward", "backward")
        return sum(sent_bytes(self.layer(p.layer or 0), p.width, p.pass_name, p.rows) for p in products)

    def _whole(self, number: int):
        """Return the operator of a layer of the model, with all rows."""
        layers = list(getattr(self.model, "layers", ()))
        if not 1 <= number <= len(layers):  # of a Stack in a layer, or outside of layers
            return self.operators[0]
        return self.dgraph.A.with_norm(getattr(layers[number - 1], "operator", None))

    def _dry_run(self, step: PrunedSpMM | None) -> tuple[DryRun | None, str]:
        n_train = int(self.train_n.sum()) if self.dgraph.is_multilabel else None
        setting = setting_of(self.operators[0], self.dgraph.X, step, n_train)
        try:
            return dry_run(self.model, setting, shared=(self.dgraph,)), ""
        except SpgnnError as error:  # training raises it too, unless it is a DryRunError
            return None, str(error)

    def _work(self, dgraph: DistGraph, masks: list[np.ndarray]) -> float:
        """Return the multiply-adds of one forward pass over these rows, all ranks."""
        lengths_n = np.diff(dgraph.A.blocks.A_oo.indptr) + np.diff(dgraph.A.blocks.A_og.indptr)
        total = np.zeros(1)
        for layer, in_n, out_n in zip(self.run.layers, masks, masks[1:]):
            chain, (f_in, f_out) = layer.chain, layer.chain.shape
            left = (self.operators[0].kept if chain.is_cached else dgraph.X) if layer.number == 1 else None
            rows = out_n if chain.order == "spmm_first" else in_n
            is_sparse = isinstance(left, SparseRows)
            entries = int(np.diff(left.csr.indptr)[rows].sum()) if is_sparse else int(rows.sum()) * f_in
            total += entries * f_out + (0 if chain.is_cached else int(lengths_n[out_n].sum()) * chain.width)
        dgraph.comm.all_reduce(total)
        return float(total[0])


def _has_label(y_n: torch.Tensor) -> np.ndarray:
    return np.ones(len(y_n), bool) if y_n.ndim == 2 else (y_n >= 0).numpy()
