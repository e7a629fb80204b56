"""What a training that has ended writes and returns: its summary, details.json, arrays, and the personal models of parts.

Shapes: N nodes, n own rows, C classes, P ranks.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic import write_text
from ..config import PARTS_FILE
from ..dist import Communicator
from ..errors import ResourceError, together
from ..layers.registry import ModelSpec
from ..machine import peak_rss_mb
from ..samplers import options_of
from ..training.explanation import explanation_of
from ..training.metrics import confusion
from ..training.parts.personal import PersonalResult
from ..training.trainer import Trainer
from .checkpoint import WEIGHTS, finite, save_checkpoint, to_bytes
from .folder import RunFolder
from .named import Names

MOST_RANKS = 128  # and classes of a table
PERSONAL = "personal"  # in OUT/checkpoints
SCORES = ("micro_f1", "macro_f1", "weighted_f1")


def summary_of(trainer: Trainer) -> dict[str, Any]:
    """Return the summary of a training. Collective."""
    config, dgraph, history, comm = trainer.config, trainer.dgraph, trainer.history, trainer.comm
    peak_mb = np.array([peak_rss_mb()])
    comm.all_reduce(peak_mb, "max")
    names = ("best_epoch", "train", "val", "test", "metric", "epoch_s", "bytes_sent", "bytes_predicted", "setup_bytes")
    sampler = {} if config.sampler == "none" else options_of(config) | {"subgraphs": config.subgraphs}
    return finite(
        {"graph": dgraph.name, "n": dgraph.n_nodes, "nnz": dgraph.nnz, "on": config.on, "model": config.model}
        | {name: getattr(history, name) for name in names}
        | {"epochs": trainer.epoch, "peak_rss_mb": float(peak_mb[0]), "ranks": comm.size}
        | {"scheme": dgraph.scheme, "replication": dgraph.replication, "method": dgraph.method, "seed": config.seed}
        | {"scores": history.scores, "mode": config.mode, "sampler": config.sampler}
        | sampler
        | trainer.steps.facts(history.records)
        | _device_facts(dgraph.A.device)
    )


def keep_results(
    trainer: Trainer, folder: RunFolder | None, names: Names, summary: dict[str, Any], predictions_N: np.ndarray | None
) -> None:
    """Write summary, details, split and predictions of a training that has ended; folder: on rank 0. Collective."""
    details = run_details(trainer, predictions_N)
    arrays = {"split": trainer.history.split_N, "predictions": predictions_N}
    names.ends_L2 = None if trainer.dgraph.on == "nodes" else trainer.dgraph.edge_ends()
    names.keep_types(trainer.dgraph.A.node_types, trainer.dgraph.names.target_types)
    named = trainer.dgraph.names.written()
    summary = summary | ({"names": named} if named else {}) | {"per_class": trainer.history.per_class}
    together(trainer.comm, RunFolder.write_results, folder, summary, details, arrays, names, root=0)


def _device_facts(device: torch.device) -> dict[str, Any]:
    """Return name, memory and peak memory of a device for the summary of a run; {} for the CPU."""
    if device.type == "cpu":
        return {}
    found = torch.cuda.get_device_properties(device)
    peak = torch.cuda.max_memory_allocated(device)
    return {"device": found.name, "device_memory_mb": found.total_memory / 1e6, "peak_device_mb": peak / 1e6}


def run_details(trainer: Trainer, predictions_N: np.ndarray | None) -> dict[str, Any]:
    """Return the tables of a training that has ended, for details.json and the page of the run. Collective.

    explanation   what each layer computes and sends, and why, see training.explain; not in mode average.
    sent_PP       bytes that rank q sends rank p in the last epoch.
    confusion_CC  test nodes of class c that were predicted as class d; not of several labels, nor of models that were
                  scored part by part, or trained further.
    """
    config, dgraph, comm = trainer.config, trainer.dgraph, trainer.comm
    details: dict[str, Any] = {}
    is_whole = config.mode == "full"
    if is_whole:
        details["explanation"] = asdict(explanation_of(trainer))
    if comm.size <= MOST_RANKS:
        details["sent_PP"] = comm.all_gather(trainer.sent_P).reshape(comm.size, comm.size).tolist()
    is_scored = is_whole or (config.evaluation == "together" and not config.personal)
    if is_scored and trainer.steps.scorer.task == "classes" and dgraph.n_classes <= MOST_RANKS:
        y_n = split_n = predicted_n = np.zeros(0, int)
        if dgraph.is_counted:
            ((y_n, split_n),) = trainer.steps.scorer.labels()
            predicted_n = dgraph.own_rows(np.asarray(predictions_N))
        is_test_n = split_n == 2
        details["confusion_CC"] = confusion(predicted_n[is_test_n], y_n[is_test_n], dgraph.n_classes, comm).tolist()
    return details


def personal_facts(result: PersonalResult) -> dict[str, Any]:
    """Return the JSON object `personal` of a summary: scores of the chosen models, and of the general one on the parts.

    val and test are micro F1, the others of the test nodes; chosen: parts that took their own weights.
    """
    return finite(_scores(result.scores) | {"chosen": result.chosen, "general": _scores(result.general)})


def write_personal(out: Path, result: PersonalResult, spec: ModelSpec, comm: Communicator) -> None:
    """Write OUT/parts.jsonl and checkpoints/personal/part-00003/epoch-000012, each rank the weights of its parts.

    Parts that keep the general weights have no folder. Raises: ResourceError on all ranks. Collective.
    """
    home = out / "checkpoints" / PERSONAL
    together(comm, _begin_personal, out, home, result, root=0)
    together(comm, _write_weights, home, result, spec)


def _begin_personal(out: Path, home: Path, result: PersonalResult) -> None:
    try:
        if home.is_dir():
            shutil.rmtree(home)  # of the phase that a continued run has had
        home.mkdir(parents=True)
    except OSError as error:
        raise ResourceError(f"{home}: cannot be written: {error.strerror or error}") from error
    write_text(out / PARTS_FILE, "".join(json.dumps(finite(part)) + "\n" for part in result.parts))


def _write_weights(home: Path, result: PersonalResult, spec: ModelSpec) -> None:
    for p, weights in result.weights.items():
        part = result.parts[p]
        facts = {
            "val": part["val_personal"],
            "test": part["test_personal"],
            "metric": "micro_f1",
            "model": asdict(spec),
        }
        save_checkpoint(home / f"part-{p:05d}", part["best"], {WEIGHTS: partial(to_bytes, weights)}, facts)


def _scores(by_split: dict[str, dict[str, float]]) -> dict[str, float]:
    test = by_split["test"]
    return {"val": by_split["val"]["micro_f1"], "test": test["micro_f1"]} | {name: test[name] for name in SCORES}
