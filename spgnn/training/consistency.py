"""What has to be the same on all ranks before a training starts, as facts for `check_same`, and what must not be."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import torch

from ..config import TrainConfig
from ..dist.consistency import versions
from ..errors import UsageError
from ..machine import host_id

OWN = frozenset({"threads"})  # options that a rank may have of its own


def run_facts(source: str, config: TrainConfig) -> dict[str, Any]:
    """Return GRAPH, every option and the versions, before anything is read."""
    return {"option.graph": str(source)} | _options(config) | versions()


def training_facts(model: torch.nn.Module, config: TrainConfig) -> dict[str, Any]:
    """Return the options, the layers of a model, and the shapes and types of its weights, and which are frozen."""
    weights = {
        f"option.weights of {name}": f"{p.dtype} {tuple(p.shape)}{'' if p.requires_grad else ' frozen'}"
        for name, p in model.named_parameters()
    }
    return _options(config) | weights | {"option.model": " ".join(repr(model).split())}


def check_own(comm, model: torch.nn.Module) -> None:
    """Raise UsageError on all ranks where some, as threads of one process, were given the same weights. Collective."""
    if len(set(comm.all_gather_json(f"{host_id()} {os.getpid()}"))) == comm.size:
        return
    weights = [set(ids) for ids in comm.all_gather_json([id(p) for p in model.parameters()])]
    shared = [
        str(rank)
        for rank, mine in enumerate(weights)
        if any(mine & theirs for theirs in weights[:rank] + weights[rank + 1 :])
    ]
    if shared:
        raise UsageError(
            f"ranks {', '.join(shared)} have weights in common, and would write over each other's; make a model on each rank, "
            "in the function that run_threads calls"
        )


def _options(config: TrainConfig) -> dict[str, Any]:
    return {f"option.{f.name}": getattr(config, f.name) for f in fields(config) if f.name not in OWN}
