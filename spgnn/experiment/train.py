"""run: one training from a GRAPH and options to a folder of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..config import TrainConfig
from ..cost.grid import ProcessGrid
from ..cost.machines import load_machine
from ..dist.consistency import check_same
from ..dist.launch import share_of_threads
from ..distgraph import DistGraph
from ..errors import together
from ..layers.registry import ModelSpec, check_model
from ..machine import peak_rss_mb
from ..training.consistency import run_values
from ..training.steps.captured import CapturedStep
from ..training.steps.full import check_trainable
from ..training.trainer import Trainer
from .checkpoint import finite
from .device import device_facts, explaining_memory, set_up_device
from .folder import Log, RunFolder, check_outputs, held_folder
from .observe import observed, time_operations
from .opened import distribute_source, open_source


def run(
    source: str,
    config: TrainConfig,
    comm,
    report: Callable[[dict], Any] | None = None,
    show: Callable[[str], None] | None = None,
) -> dict:
    """Train on GRAPH and return the summary; with config.out, write the files of the run there.

    Files: config.toml, env.json, metrics.jsonl (an object an epoch), summary.json, predictions.npy
           (original node order), checkpoints/ (best and newest).
    Args:  source  built-in name, file or folder; with config.partition it only names the graph; or a partition folder.
           report  called on this rank with the record of each epoch.
           show    called on rank 0 with the table of config.log_view.
    Collective.
    """
    check_same(comm, run_values(source, config))
    check_outputs(config)
    with observed(config, comm, show) as (comm, recorder):
        check_model(config)
        set_up_device(config, comm.size)
        ProcessGrid(comm.size, config.replication)  # before anything is read
        together(comm, load_machine, config.machine, root=0)
        opened = open_source(source, config, comm)
        with held_folder(config, comm) as folder:
            dgraph = distribute_source(opened, replace(config, threads=set_threads(comm, config.threads)), comm)
            del opened  # and with it the owners of all nodes
            return _train_into(folder, source, config, comm, dgraph, report, recorder)


def _train_into(
    folder: RunFolder | None, source: str, config: TrainConfig, comm, dgraph: DistGraph, report, recorder
) -> dict:
    comm.phase = "set up training"
    check_trainable(dgraph)
    spec = ModelSpec.of(config, dgraph.n_features, dgraph.n_classes)
    trainer = Trainer(spec.build(), dgraph, config)
    trainer.release_input()
    if config.cuda_graph:
        trainer.steps = CapturedStep(trainer.steps)
    time_operations(recorder, trainer)
    if config.out:
        together(comm, lambda: folder.begin(source, config, comm, torch.get_num_threads()), root=0)
    log = Log(folder, trainer, report, spec)
    with explaining_memory(trainer):
        history = trainer.fit(log.record)
        comm.phase = "write results"
        log.close()
        summary = _summary(config, trainer, history)
        predictions_N = dgraph.collect(predicted(trainer.logits(), dgraph.is_multilabel))
    if config.out:
        together(comm, lambda: folder.write_results(summary, predictions_N, history), root=0)
    return summary


def set_threads(comm, threads: int = 0) -> int:
    """Give this rank its threads: those asked for, else its share of the host's cores. Collective."""
    share = share_of_threads(comm)
    threads = threads or share
    torch.set_num_threads(threads)
    return threads


def predicted(Z_nC: torch.Tensor, is_multilabel: bool) -> np.ndarray:
    """Return the predicted class of each own node (n,) int64, or 0/1 for each class (n, C) int8."""
    if is_multilabel:
        return (Z_nC > 0).cpu().numpy().astype(np.int8)
    return Z_nC.argmax(dim=1).cpu().numpy() if len(Z_nC) else np.empty(0, np.int64)


def _summary(config: TrainConfig, trainer: Trainer, history) -> dict:
    dgraph, comm = trainer.dgraph, trainer.comm
    peak_mb = np.array([peak_rss_mb()])
    comm.all_reduce(peak_mb, "max")
    names = ("best_epoch", "train", "val", "test", "metric", "epoch_s", "bytes_sent", "bytes_predicted", "setup_bytes")
    return finite(
        {"graph": dgraph.name, "n": dgraph.n_nodes, "nnz": dgraph.nnz, "model": config.model}
        | {name: getattr(history, name) for name in names}
        | {"epochs": len(history.records), "peak_rss_mb": float(peak_mb[0]), "ranks": comm.size}
        | {
            "scheme": dgraph.scheme,
            "replication": dgraph.replication,
            "method": dgraph.method,
            "seed": config.seed,
            "scores": history.scores,
        }
        | device_facts(dgraph.A.device)
    )
