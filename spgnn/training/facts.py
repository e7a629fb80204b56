"""What has to be the same on all ranks before a training starts, as facts for `check_same`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from ..config import TrainConfig
from ..dist.consistency import versions

OWN = frozenset({"threads"})  # options that a rank may have of its own


def run_facts(source: str, config: TrainConfig) -> dict[str, Any]:
    """Return GRAPH, every option and the versions, before anything is read."""
    return {"option.graph": str(source)} | _options(config) | versions()


def training_facts(model: torch.nn.Module, config: TrainConfig) -> dict[str, Any]:
    """Return the options, the layers of a model, and the shapes and types of its weights."""
    weights = {f"option.weights of {name}": f"{p.dtype} {tuple(p.shape)}" for name, p in model.named_parameters()}
    return _options(config) | weights | {"option.model": " ".join(repr(model).split())}


def _options(config: TrainConfig) -> dict[str, Any]:
    return {f"option.{f.name}": getattr(config, f.name) for f in fields(config) if f.name not in OWN}
