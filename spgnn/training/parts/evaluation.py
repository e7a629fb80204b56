"""How a model is evaluated on the parts of a graph: together, over all ranks, or layer by layer, where memory is short.

Shapes: N nodes, n own nodes of a part, g nodes of its halo, F columns, P ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...config.names import ITEMSIZE, Evaluation
from ...cost.memory import OWNER_BYTES, SETUP_BYTES, nonzero_bytes
from ...distgraph import DistGraph, Parts, merge_parts
from ...errors import ResourceError, UsageError
from ...layers import Stack
from ...layers.layer import width_of
from ...machine import rss_bytes
from .average import memory_of_rank
from .passes import passes_of

Say = Callable[[str], Any] | None


def choose_evaluation(model: torch.nn.Module, parts: Parts, how: Evaluation = "auto", memory: str = "") -> Evaluation:
    """Return together or layerwise; for auto together, unless its predicted memory is more than a rank has.

    Args:   memory  of a rank, such as 2GB; "": an equal share of the host's.
    Raises: UsageError where a model cannot be evaluated layer by layer and that is requested; ResourceError, on all ranks,
            where a rank has too little memory for one of its parts. Collective.
    """
    if how == "together":
        return how
    try:
        passes_of(model)
    except UsageError:
        if how == "layerwise":
            raise
        return "together"
    limit = memory_of_rank(parts.comm, memory)
    together_needed, part_needed = (_held_bytes(of, model, parts) for of in (together_bytes, layerwise_bytes))
    if how == "auto" and together_needed <= limit:
        return "together"
    if memory and part_needed > limit:
        raise ResourceError(
            f"--memory {memory}: layer by layer, a rank needs {part_needed / 1e6:.0f} MB for its largest part; give more, "
            "or partition the graph into more parts"
        )
    return "layerwise"


def memory_note(model: torch.nn.Module, parts: Parts, chosen: Evaluation, memory: str) -> str:
    """Return what to say where a rank is predicted to need more than memory, "" where it is not. Collective."""
    needed = _held_bytes({"together": together_bytes, "layerwise": layerwise_bytes}[chosen], model, parts)
    if needed <= memory_of_rank(parts.comm, memory):
        return ""
    advice = "more parts" if chosen == "layerwise" else "--evaluation layerwise, which needs parts with --hops 1"
    return f"--memory {memory} may be exceeded: to evaluate {chosen} takes up to {needed / 1e6:.0f} MB; use {advice}"


def evaluated(
    model: torch.nn.Module, parts: Parts, how: Evaluation, memory: str, is_corrected: bool = False, say: Say = None
) -> tuple[Evaluation, DistGraph]:
    """Return how a model that is trained on parts is evaluated, and the DistGraph of its Trainer.

    Its ranks hold the rows of all their parts, or none if it is evaluated layer by layer.
    Args:   is_corrected  by passes over the whole graph, for which all rows are needed.
            say           called on rank 0 with a line where a rank may need more than memory.
    Raises: as choose_evaluation; UsageError for parts whose labels are numbers. Collective.
    """
    if parts.source.facts.task == "numbers":
        raise UsageError(f"{parts.name} has numbers to predict, which --mode average does not train on; omit it")
    needs_rows = is_corrected or not parts.hops or parts.how.device != "cpu"
    chosen = "together" if how == "auto" and needs_rows else choose_evaluation(model, parts, how, memory)
    note = memory_note(model, parts, chosen, memory) if memory else ""
    if note and say is not None and parts.comm.rank == 0:
        say(f"spgnn: {note}")
    return chosen, merge_parts(parts, has_rows=chosen == "together")


def _held_bytes(added: Callable[[torch.nn.Module, Parts], int], model: torch.nn.Module, parts: Parts) -> int:
    """Return what a rank holds now and what is added, on the rank where that is most. Collective."""
    held = np.array([rss_bytes() + added(model, parts)], np.int64)
    parts.comm.all_reduce(held, "max")
    return int(held[0])


def together_bytes(model: torch.nn.Module, parts: Parts) -> int:
    """Return the predicted bytes that this rank needs for all its parts at once, X and A X among them."""
    n, g, nnz = (sum(parts.sizes(p)[name] for p in parts.own) for name in ("n", "g", "nnz"))
    g = min(g, parts.n_nodes - n)  # the rows of other ranks
    f_in = next((width_of(layer, "f_in") or 0 for layer in model.modules() if hasattr(layer, "f_in")), 0)
    return _bytes_of(model, parts, n, g, nnz) + 2 * (n + g) * f_in * ITEMSIZE[parts.how.dtype]


def layerwise_bytes(model: torch.nn.Module, parts: Parts) -> int:
    """Return the predicted bytes that this rank needs for the largest of its parts."""
    return max((_bytes_of(model, parts, **parts.sizes(p)) for p in parts.own), default=0)


def _bytes_of(model: torch.nn.Module, parts: Parts, n: int, g: int, nnz: int, nbytes: int = 0) -> int:
    """Return bytes of n own and g other rows with nnz nonzeros: the operator, and the widest input and output of a layer."""
    itemsize = ITEMSIZE[parts.how.dtype]
    layers = model.layers if isinstance(model, Stack) else [model]
    widths = [[getattr(layer, name, 0) for name in ("f_in", "f_out")] for layer in layers]
    rows = max((n + g) * (f_in + f_out) + 2 * n * f_out for f_in, f_out in widths)
    return OWNER_BYTES * parts.n_nodes + nnz * (SETUP_BYTES + nonzero_bytes(itemsize)) + rows * itemsize
