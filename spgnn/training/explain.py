"""explain: what a training will compute and send in each layer, and why, from sizes alone."""

from __future__ import annotations

import numpy as np

from ..errors import UsageError
from ..spmm.schedule import LayerPlan
from .loop import Trainer
from .step import multiply_adds

ORDERS = {"spmm_first": "(A H) W", "gemm_first": "A (H W)"}


def explain(trainer: Trainer) -> list[dict]:
    """Return a dict a layer: layer f_in f_out order kept width rows rows_sent bytes_forward bytes_backward multiply_adds why.

    rows are those that a training step computes, multiply_adds those of forward and backward, both of all
    ranks, a row that c ranks hold counted c times in the latter.
    Raises: UsageError where a layer is not a chain A H W. Collective.
    """
    if trainer.rows.plans is None:
        raise UsageError("explain knows layers that are chains A H W, such as GCN; a layer of one's own multiplies with A as it likes")
    return [_explained(trainer, plan) for plan in trainer.rows.plans]


def explain_text(trainer: Trainer) -> str:
    """Return `explain` as lines for a person, with the exchange scheme and the pruning. Collective."""
    dgraph, rows = trainer.dgraph, trainer.rows
    scheme = dgraph.A.layout.why or f"{dgraph.scheme}: as asked"
    lines = [
        f"{dgraph.name} on {dgraph.comm.size} rank(s), {dgraph.method} parts, replication {dgraph.replication}",
        f"  scheme  {scheme}",
        f"  rows    {rows.why}",
    ]
    for layer in explain(trainer):
        product = "(A X) W, A X kept" if layer["kept"] else ORDERS[layer["order"]]
        sent = f"{layer['rows_sent']:,} rows of width {layer['width']} sent, {layer['bytes_forward'] + layer['bytes_backward']:,} bytes"
        lines.append(f"  layer {layer['layer']}  {layer['f_in']} -> {layer['f_out']}: {product}; {layer['rows']:,} rows, {layer['multiply_adds']:,} multiply-adds; {sent}")
        lines.append(f"           why: {layer['why']}")
    return "\n".join(lines)


def _explained(trainer: Trainer, plan: LayerPlan) -> dict:
    A, dgraph = trainer.rows.layer(plan.layer), trainer.dgraph
    rows_out, rows_in = A.n if A.selected is None else len(A.selected), A.m
    forward = plan.exchanges_forward * A.sent_bytes(plan.width, "forward")
    backward = plan.exchanges_backward * A.sent_bytes(plan.width, "backward")
    sent = (plan.exchanges_forward + plan.exchanges_backward) * A.sent_rows
    own = multiply_adds(plan, A.multiplied_nnz, rows_in, rows_out)
    dense = (rows_out if plan.order == "spmm_first" else rows_in) * plan.f_in * plan.f_out
    products = 0 if plan.is_kept or (plan.layer == 1 and plan.exchanges_backward == 0) else A.multiplied_nnz * plan.width
    total = own + products + dense * (2 if plan.layer > 1 else 1)  # dW, and dH but for the first layer
    sums = np.array([rows_out if dgraph.is_counted else 0, sent, forward, backward, total], np.int64)
    dgraph.comm.all_reduce(sums)
    rows, rows_sent, bytes_forward, bytes_backward, work = map(int, sums)
    return {
        "layer": plan.layer, "f_in": plan.f_in, "f_out": plan.f_out, "order": plan.order, "kept": plan.is_kept, "width": plan.width,
        "rows": rows, "rows_sent": rows_sent, "bytes_forward": bytes_forward, "bytes_backward": bytes_backward,
        "multiply_adds": work, "why": plan.why,
    }  # fmt: skip
