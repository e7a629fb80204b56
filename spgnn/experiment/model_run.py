"""save_run: a model that was trained or made in Python, as a run folder that `spgnn predict` reads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from ..atomic import write_text
from ..config import TrainConfig, build, to_toml
from ..config.names import Task
from ..errors import UsageError
from ..layers.registry import listed_spec
from ..training.metrics import SCORES
from .checkpoint import WEIGHTS, save_checkpoint, to_bytes
from .folder import has_results


def save_run(folder: str | Path, model: torch.nn.Module, graph: str, multilabel: bool = False, **options) -> None:
    """Write config.toml and a checkpoint with the weights of a Stack of layers of spgnn.layers.

        spgnn.save_run("runs/net", model, "planetoid/ind.cora", feature_norm="row")
        mpirun -n 4 spgnn predict runs/net

    Args:   graph       GRAPH of `spgnn train`, on which `predict` predicts unless it is given another.
            multilabel  a node may have several classes: those with a logit above 0.
            options     of `spgnn train`, such as features, edges and feature_norm.
    Raises: UsageError for a model with a custom layer, an option that is not known, and a folder that holds a run.
    """
    spec = listed_spec(model)
    lines = to_toml(build(TrainConfig, options), {"graph": str(graph)}).splitlines(keepends=True)
    given = [line for line in lines if line.partition(" ")[0] in ("graph", *options)]
    folder = Path(folder)
    if has_results(folder):
        raise UsageError(f"{folder}: holds another run; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.toml", "".join(given))
    task: Task = "labels" if multilabel else "classes" if getattr(model, "units", None) is None else "numbers"
    manifest = {"val": None, "test": None, "metric": SCORES[task][0], "task": task, "model": asdict(spec)}
    save_checkpoint(folder / "checkpoints", 0, {WEIGHTS: lambda: to_bytes(model.state_dict())}, manifest)
