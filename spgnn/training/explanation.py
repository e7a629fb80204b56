"""explain: what a training will compute and send in each layer, and why; the model stays as it is."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch

from ..config import TrainConfig, build
from ..cost.schedule import LayerPlan
from ..distgraph import DistGraph
from ..errors import UsageError
from ..spmm.counts import multiplied_nnz, sent_bytes, sent_rows
from .steps.step_rows import gradients_asked, left_factor, multiply_adds
from .trainer import Trainer

ORDERS = {"spmm_first": "(A H) W", "gemm_first": "A (H W)"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The schedule of a training; print it to read it.

    layers  a dict each: layer f_in f_out order kept width rows rows_sent bytes_forward bytes_backward
            multiply_adds why; rows are those that a training step computes, the other counts those of
            forward and backward. All ranks together; what c ranks compute alike counts c times.
    """

    graph: str
    scheme: str
    rows: str
    layers: list[dict]

    def __str__(self) -> str:
        lines = [self.graph, f"  scheme   {self.scheme}", f"  rows     {self.rows}"]
        for layer in self.layers:
            product = "(A X) W, A X kept" if layer["kept"] else ORDERS[layer["order"]]
            sent = layer["bytes_forward"] + layer["bytes_backward"]
            lines += [
                f"  layer {layer['layer']}  {layer['f_in']} -> {layer['f_out']}: {product}, because {layer['why']}",
                f"           {layer['rows']:,} rows, {layer['multiply_adds']:,} multiply-adds; "
                f"{layer['rows_sent']:,} rows of width {layer['width']} sent, {sent:,} bytes",
            ]
        return "\n".join(lines)


def explain(model: torch.nn.Module, dgraph: DistGraph, **options) -> Explanation:
    """Return what `train(model, dgraph, **options)` will compute and send in each layer, and why.

    Raises: UsageError where a layer is not a chain A H W. Collective.
    """
    return explanation_of(Trainer(deepcopy(model), dgraph, build(TrainConfig, options)))


def explanation_of(trainer: Trainer) -> Explanation:
    """Return the Explanation of a Trainer. Collective."""
    rows, dgraph = trainer.steps.rows, trainer.dgraph
    if rows.plans is None:
        raise UsageError(
            "explain knows layers that are chains A H W, such as GCN; a layer of one's own multiplies with A as it likes"
        )
    ranks = (
        "1 rank"
        if dgraph.comm.size == 1
        else f"{dgraph.comm.size} ranks, {dgraph.method} parts, replication {dgraph.replication}"
    )
    layers = [_explained(trainer, plan) for plan in rows.plans]
    return Explanation(
        f"{dgraph.name} on {ranks}", dgraph.A.layout.why or f"{dgraph.scheme}: as asked", rows.why, layers
    )


def _explained(trainer: Trainer, plan: LayerPlan) -> dict:
    A, dgraph = trainer.steps.rows.layer(plan.layer), trainer.dgraph
    rows_out, rows_in = A.n if A.selected is None else len(A.selected), A.m
    forward = plan.exchanges_forward * sent_bytes(A, plan.width, "forward")
    backward = plan.exchanges_backward * sent_bytes(A, plan.width, "backward")
    sent = (plan.exchanges_forward + plan.exchanges_backward) * sent_rows(A)
    left = left_factor(A, trainer.steps.rows.X, plan)
    entries = (rows_out if plan.order == "spmm_first" else rows_in) * plan.f_in if left is None else left.csr.nnz
    own = multiply_adds(plan, multiplied_nnz(A), entries)
    products = plan.exchanges_backward * multiplied_nnz(A) * plan.width
    total = own + products + entries * plan.f_out * sum(gradients_asked(trainer.model, dgraph.X)[plan.layer - 1])
    sums = np.array([rows_out if dgraph.is_counted else 0, sent, forward, backward, total], np.int64)
    dgraph.comm.all_reduce(sums)
    rows, rows_sent, bytes_forward, bytes_backward, work = map(int, sums)
    return {
        "layer": plan.layer, "f_in": plan.f_in, "f_out": plan.f_out, "order": plan.order, "kept": plan.is_kept, "width": plan.width,
        "rows": rows, "rows_sent": rows_sent, "bytes_forward": bytes_forward, "bytes_backward": bytes_backward,
        "multiply_adds": work, "why": plan.why + _not_kept(trainer.steps.rows.operators[0], plan),
    }  # fmt: skip


def _not_kept(A, plan: LayerPlan) -> str:
    """Return why the first product is made in every epoch, where it is."""
    if plan.layer > 1 or plan.is_kept:
        return ""
    if A.fixed_input is None:
        return "; A X is not kept: X may change (keep = False)"
    return "; A X is not kept: it would fill up" if A.kept is None else "; A X is not kept: dropout acts on X"
