"""StepRows: the operator, input and rows of the loss of a training step, pruned where that saves work.

Shapes: n own rows, L layers, F and C widths of a layer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ...config import TrainConfig
from ...cost.auto import MEMORY_SHARE, pruning_saves
from ...cost.schedule import LayerPlan, plan_layers
from ...distgraph import DistGraph
from ...errors import UsageError
from ...layers import Stack
from ...layers.stack import norms_of
from ...spmm.counts import sent_bytes
from ...spmm.features import SparseRows
from ...spmm.pruning import PrunedSpMM, needed_rows
from .step_memory import step_memory


class StepRows:
    """Operator, input and rows of the loss of a training step.

    A, X      operator and input of the model: those of the DistGraph, or pruned ones.
    rows      own rows of which a step computes logits, (n_L,) indices; None: all.
    plans     of the layers, None where the model is no chain of A H W.
    why       the reason for pruning or not.
    Raises: UsageError where prune = "always" and the layers or an X with a gradient do not allow it.
    Collective to make.
    """

    def __init__(self, dgraph: DistGraph, model, config: TrainConfig, split_n: np.ndarray):
        self.A, self.X, self.rows = dgraph.A, dgraph.X, None
        self.operators = [dgraph.A.with_norm(norm) for norm in norms_of(model)]  # of the layers, the first one's first
        self.plans = layer_plans(dgraph, model)
        if self.plans is not None:
            self._by_layer = [dgraph.A.with_norm(layer.operator) for layer in model.layers]
        self.is_pruned, self.why = False, "all rows: prune = never"
        if config.prune == "never":
            return
        if self.plans is None:
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
        train_n = (split_n == 0) & _has_label(dgraph.y_n)
        n_layers, everything = len(self.plans), np.ones_like(train_n)
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
            n_train = int(train_n.sum()) if dgraph.is_multilabel else None
            memory = step_memory(dgraph, model, self.plans, masks, n_train)
            if not memory.fits:
                self.why = (
                    f"all rows: with pruned steps a host would need {memory.pruned / 1e9:.1f} GB, "
                    f"over {MEMORY_SHARE:.0%} of its {memory.available / 1e9:.1f} GB"
                )
                return
        self.is_pruned, self.why = True, f"rows that reach a training node: {share}"
        self.A = PrunedSpMM(dgraph.A, dgraph.X, masks, self.plans[0].is_kept, self._by_layer)
        self.X, self.rows = self.A.X, np.flatnonzero(train_n)

    def layer(self, number: int):
        """Return the operator of a layer."""
        return (self.A.layers if self.is_pruned else self._by_layer)[number - 1]

    def of(self, values_n: torch.Tensor) -> torch.Tensor:
        """Return the values of the rows of which a step computes logits."""
        return values_n if self.rows is None else values_n[torch.from_numpy(self.rows)]

    def prepare_adjoint(self) -> None:
        """Make the transposes that backward multiplies with."""
        if self.is_pruned:
            self.A.prepare_adjoint([plan.exchanges_backward > 0 for plan in self.plans])
            return
        for A in self.operators:
            A.prepare_adjoint()

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes that this rank sends in one training epoch; None without plans of the layers."""
        if self.plans is None:
            return None
        forward = sum(
            plan.exchanges_forward * sent_bytes(self.layer(plan.layer), plan.width, "forward") for plan in self.plans
        )
        return forward + sum(
            plan.exchanges_backward * sent_bytes(self.layer(plan.layer), plan.width, "backward") for plan in self.plans
        )

    def _work(self, dgraph: DistGraph, masks: list[np.ndarray]) -> float:
        """Return the multiply-adds of one forward pass over these rows, all ranks."""
        lengths_n = np.diff(dgraph.A.blocks.A_oo.indptr) + np.diff(dgraph.A.blocks.A_og.indptr)
        total = np.zeros(1)
        for plan, in_n, out_n in zip(self.plans, masks, masks[1:]):
            left = left_factor(self.operators[0], dgraph.X, plan)
            rows = out_n if plan.order == "spmm_first" else in_n
            entries = int(rows.sum()) * plan.f_in if left is None else int(np.diff(left.csr.indptr)[rows].sum())
            total += multiply_adds(plan, int(lengths_n[out_n].sum()), entries)
        dgraph.comm.all_reduce(total)
        return float(total[0])


def layer_plans(dgraph: DistGraph, model) -> tuple[LayerPlan, ...] | None:
    """Return the schedule of a model's layers, None where one of them is not a chain A H W."""
    widths = model.widths if isinstance(model, Stack) else None
    if widths is None:
        return None
    sparse = getattr(dgraph.X, "is_sparse", False)
    first = dgraph.A.with_norm(norms_of(model)[0])
    plans = plan_layers(widths, model.input_is_fixed and first.kept is not None, sparse, order=first.order)
    asked = gradients_asked(model, dgraph.X)
    return tuple(replace(plan, exchanges_backward=_backward(plan, *of)) for plan, of in zip(plans, asked))


def gradients_asked(model: Stack, X) -> list[tuple[bool, bool]]:
    """Return for each layer A H W whether backward makes the gradients of W and of H: below frozen weights nothing is asked."""
    is_hidden, asked = getattr(X, "requires_grad", False), []
    for layer in model.layers:
        asked.append(
            (any(p.requires_grad and p.ndim > 1 for p in layer.parameters()), is_hidden)
        )  # vectors: bias and norm
        is_hidden = is_hidden or any(p.requires_grad for p in layer.parameters())
    return asked


def _backward(plan: LayerPlan, of_W: bool, of_H: bool) -> int:
    """Return the exchanges of a layer's backward: A' dZ for both gradients, but where A H is at hand for that of W."""
    return int(not plan.is_kept and (of_H or (of_W and plan.order == "gemm_first")))


def left_factor(A, X, plan: LayerPlan) -> SparseRows | None:
    """Return the sparse S of a layer's product S W: X, or A X where that is kept; None where S is dense."""
    S = (A.kept if plan.is_kept else X) if plan.layer == 1 else None
    return S if isinstance(S, SparseRows) else None


def multiply_adds(plan: LayerPlan, nnz: int, entries: int) -> int:
    """Return the multiply-adds of A H W in the plan's order, the first product left out where it is kept.

    Args: nnz of the rows of A; entries of the left factor of the product with W, n F where it is dense.
    """
    return entries * plan.f_out + (0 if plan.is_kept else nnz * plan.width)


def _has_label(y_n: torch.Tensor) -> np.ndarray:
    return np.ones(len(y_n), bool) if y_n.ndim == 2 else (y_n >= 0).numpy()
