"""explain: what a training will compute and send in each layer, and why; the model stays as it is."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from ..config import TrainConfig, build
from ..distgraph import DistGraph
from ..spmm.dry.dry import DryRun
from ..spmm.operator.counts import Rows, crossing_bytes, multiplied_nnz, sent_bytes, sent_rows
from .custom import Custom
from .steps.step_rows import StepRows
from .trainer import Trainer

# Keywords of `train` that change nothing that is computed or sent.
UNREAD = (*Custom.__dataclass_fields__, "callbacks", "report", "progress", "out", "resume", "graph")
ORDERS = {"spmm_first": "(A H) W", "gemm_first": "A (H W)", "rows": "rows of neighbours", None: "A H"}


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The schedule of a training; print it to read it.

    layers   a dict each: layer f_in f_out order product kept width rows rows_sent bytes_forward bytes_backward
             multiply_adds why; rows are those that a training step computes, the other counts those of
             forward and backward. All ranks together; what c ranks compute alike counts c times. f_in, f_out and
             are None where a layer is not one chain A H W, width where its products differ in it; order is then rows
             (attention, maximum: rows of neighbours themselves) or None (products A H).
    problem  why the model cannot run without data, so that its layers are not known; "" where they are.
    """

    graph: str
    scheme: str
    rows: str
    layers: list[dict]
    problem: str = ""

    def __str__(self) -> str:
        lines = [self.graph, f"  scheme   {self.scheme}", f"  rows     {self.rows}"]
        if self.problem:
            lines.append(f"  bytes    not predicted: {self.problem}")
        for layer in self.layers:
            sent = layer["bytes_forward"] + layer["bytes_backward"]
            widths = "" if layer["f_in"] is None else f"  {layer['f_in']} -> {layer['f_out']}"
            of_width = "" if layer["width"] is None else f" of width {layer['width']}"
            lines += [
                f"  layer {layer['layer']}{widths}: {layer['product']}, because {layer['why']}",
                f"           {layer['rows']:,} rows, {layer['multiply_adds']:,} multiply-adds; "
                f"{layer['rows_sent']:,} rows{of_width} sent, {sent:,} bytes"
                + (f", {layer['bytes_between_hosts']:,} between hosts" if "bytes_between_hosts" in layer else ""),
            ]
        return "\n".join(lines)

    __repr__ = __str__  # a notebook shows it


def explain(model: torch.nn.Module, dgraph: DistGraph, **options) -> Explanation:
    """Return what `train(model, dgraph, **options)` will compute and send in each layer, and why. Collective."""
    read = {name: value for name, value in options.items() if name not in UNREAD and not callable(value)}
    return explanation_of(Trainer(deepcopy(model), dgraph, build(TrainConfig, read, "explain")))


def explanation_of(trainer: Trainer) -> Explanation:
    """Return the Explanation of a Trainer. Collective."""
    dgraph = trainer.dgraph
    if trainer.config.sampler != "none":
        rows = f"subgraphs of {trainer.config.sampler}, which exchange nothing; evaluations have all rows"
        return Explanation(dgraph.name, dgraph.scheme, rows, [])
    rows = _rows(trainer)
    ranks = (
        "1 rank"
        if dgraph.comm.size == 1
        else f"{dgraph.comm.size} ranks, {dgraph.method} parts, replication {dgraph.replication}"
    )
    run = rows.step_run
    layers = [] if run is None else [_explained(trainer, layer) for layer in run.layers]
    scheme = dgraph.A.layout.why or f"{dgraph.scheme}: as asked"
    return Explanation(f"{dgraph.name} on {ranks}", scheme, rows.why, layers, rows.problem)


def _rows(trainer: Trainer) -> StepRows:
    return trainer.steps.rows  # pyrefly: ignore[missing-attribute]  # of a Step without a sampler


def _explained(trainer: Trainer, layer: DryRun) -> dict:
    A, dgraph, tiers = _rows(trainer).layer(layer.number), trainer.dgraph, trainer.dgraph.A.layout.grid.is_tiered
    bytes_of = lambda of, name: sum(of(A, p.width, name, p.kind) for p in layer.passes(name).exchanges)
    products = sum((multiplied_nnz(A) if of.kind == "scheme" else A.nnz) * of.width for of in layer.multiplied)
    rows_out = A.n if A.selected is None else len(A.selected)
    own = {
        "rows": rows_out if dgraph.is_counted else 0,
        "rows_sent": sum(sent_rows(A, cast(Rows, product.kind)) for product in layer.exchanges),
        "bytes_forward": bytes_of(sent_bytes, "forward"),
        "bytes_backward": bytes_of(sent_bytes, "backward"),
        "multiply_adds": layer.multiply_adds + products,
    }
    if tiers:
        own["bytes_between_hosts"] = sum(bytes_of(crossing_bytes, name) for name in ("forward", "backward"))
    sums = np.array(list(own.values()), np.int64)
    dgraph.comm.all_reduce(sums)
    f_in, f_out = layer.shape
    product = "(A X) W, A X kept" if layer.is_cached else ORDERS[layer.order]
    head = {"layer": layer.number, "f_in": f_in, "f_out": f_out, "order": layer.order, "product": product}
    head |= {"kept": layer.is_cached, "width": layer.width}
    return head | dict(zip(own, map(int, sums))) | {"why": layer.why + _not_kept(_rows(trainer).operators[0], layer)}


def _not_kept(A, layer: DryRun) -> str:
    """Return why the first product is made in every epoch, where it is."""
    if layer.number != 1 or layer.chain is None or layer.is_cached or layer.reads_rows:
        return ""
    if A.fixed_input is None:
        return "; A X is not kept: X may change (keep = False)"
    return "; A X is not kept: it would fill up" if A.kept is None else "; A X is not kept: dropout acts on X"
