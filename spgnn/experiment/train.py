"""run: one training from a GRAPH and options to a folder of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config import TrainConfig
from ..cost.grid import ProcessGrid
from ..cost.machines import load_machine
from ..data import is_built_in, load_graph
from ..data.readers.make_graph import graph_name
from ..dist.consistency import check_same
from ..dist.launch import share_of_threads
from ..distgraph import DistGraph, distribute
from ..errors import InputError, PartitionError, UsageError, together
from ..graph import Graph
from ..machine import give_back_memory, peak_rss_mb
from ..partition import PartitionFolder, load_partition
from ..training.consistency import run_values
from ..training.steps.captured import CapturedStep
from ..training.steps.full import check_trainable
from ..training.trainer import Trainer
from .checkpoint import finite
from .device import device_facts, explaining_memory, set_up_device
from .folder import Log, begin, check_outputs, held_folder, write_results
from .model import build_model
from .observe import observed, time_operations

UNNAMED = ("graph", "stream", "")  # what graphs and streams of arrays are called


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
    Args:  source  built-in name, file or folder; with config.partition it only names the graph; or a folder of parts.
           report  called on this rank with the record of each epoch.
           show    called on rank 0 with the table of config.log_view.
    Collective.
    """
    check_same(comm, run_values(source, config))
    check_outputs(config)
    with observed(config, comm, show) as (comm, recorder):
        return _run(source, config, comm, report, recorder)


def _run(source: str, config: TrainConfig, comm, report, recorder) -> dict:
    set_up_device(config, comm.size)
    ProcessGrid(comm.size, config.replication)  # both say what is wrong with them before anything is read
    together(comm, load_machine, config.machine, root=0)
    threads = set_threads(comm, config.threads)
    of_parts = _of_parts(source, config, comm)
    if of_parts.partition:
        together(comm, _check_given, of_parts, root=0)
    with held_folder(config, comm) as folder:
        return _train_into(folder, source, config, comm, report, recorder, threads)


def _train_into(folder: Path | None, source: str, config: TrainConfig, comm, report, recorder, threads: int) -> dict:
    dgraph = distribute_source(source, config, comm, threads)
    comm.phase = "set up training"
    check_trainable(dgraph)
    trainer = Trainer(build_model(config, dgraph.n_features, dgraph.n_classes), dgraph, config)
    trainer.release_input()
    if config.cuda_graph:
        trainer.steps = CapturedStep(trainer.steps)
    time_operations(recorder, trainer)
    if folder is not None:
        together(comm, begin, folder, source, config, comm, threads, root=0)
    log = Log(folder, trainer, report)
    with explaining_memory(trainer):
        history = trainer.fit(log.record)
        comm.phase = "write results"
        log.close()
        summary = _summary(config, trainer, history)
        predictions_N = dgraph.collect(predicted(trainer.logits(), dgraph.is_multilabel))
    if folder is not None:
        together(comm, write_results, folder, summary, predictions_N, history, root=0)
    return summary


def _of_parts(source: str, config: TrainConfig, comm) -> TrainConfig:
    """Return config with GRAPH as its partition where GRAPH is a folder of parts. Collective."""
    is_parts = together(comm, lambda: not is_built_in(source) and PartitionFolder(source).is_valid, root=0)
    return (
        replace(config, partition=str(source)) if comm.all_gather_json(is_parts)[0] and not config.partition else config
    )


def _check_given(config: TrainConfig) -> None:
    """Raise UsageError for what a graph is read with, or cut by, where parts are given that have all of it."""
    for name in ("format", "features", "labels"):
        if value := getattr(config, name):
            raise UsageError(
                f"--{name} {value} is of a graph, and {config.partition} holds parts, with all that they need; leave it away, or make other parts"
            )
    made_by = load_partition(config.partition).method
    if config.method not in (TrainConfig().method, made_by):
        raise UsageError(
            f"--method {config.method} cuts a graph, and {config.partition} holds parts, made by {made_by}; leave it away, or make other parts"
        )


def set_threads(comm, threads: int = 0) -> int:
    """Give this rank its threads: those asked for, else its share of the host's cores. Collective."""
    share = share_of_threads(comm)
    threads = threads or share
    torch.set_num_threads(threads)
    return threads


def distribute_source(source: str, config: TrainConfig, comm, threads: int = 0) -> DistGraph:
    """Read GRAPH on rank 0, or each rank its own part of config.partition or of a folder of parts, and distribute it. Collective."""
    comm.phase = "load"
    config = _of_parts(source, config, comm)
    if config.partition:
        together(comm, _check_parts, source, config, root=0)
    return distribute(
        config.partition or partial(_load, source, config),
        comm,
        scheme=config.scheme,
        replication=config.replication,
        operator=config.operator,
        feature_norm=config.feature_norm,
        dtype=getattr(torch, config.dtype),
        method=config.method,
        seed=config.seed,
        balance=config.balance,
        keep=config.keep,
        order=config.order,
        locality=config.locality,
        wire=config.wire,
        wire_gradients=config.wire_gradients,
        machine=config.machine,
        threads=threads,
        device=config.device,
    )


def _load(source: str, config: TrainConfig) -> Graph:
    graph = load_graph(
        source, format=config.format or None, features=config.features or None, labels=config.labels or None
    )
    graph = graph.with_edges(config.edges)
    give_back_memory()  # what reading took, before partitioning takes more
    return graph


def predicted(Z_nC: torch.Tensor, is_multilabel: bool) -> np.ndarray:
    """Return the predicted class of each own node (n,) int64, or 0/1 for each class (n, C) int8."""
    if is_multilabel:
        return (Z_nC > 0).cpu().numpy().astype(np.int8)
    return Z_nC.argmax(dim=1).cpu().numpy() if len(Z_nC) else np.empty(0, np.int64)


def _check_parts(source: str, config: TrainConfig) -> None:
    """Raise where the folder of parts was made for another graph or other edges, as far as names tell."""
    part = load_partition(config.partition)
    kind, made_for = source.partition(":")[0], part.graph_name.partition("-")[0]  # rmat:scale=10 is named rmat-10-16
    path = Path(source)
    is_named = part.graph_name not in UNNAMED
    if is_named and not (is_built_in(source) or path.exists() or source == part.graph_name):
        raise InputError(
            f"{source}: no such file or folder, and {config.partition} was made for {part.graph_name!r}; GRAPH is not read then, but must be it"
        )
    is_other = (
        made_for != kind if is_built_in(source) else path.is_file() and is_named and part.graph_name != graph_name(path)
    )
    if is_other:
        raise PartitionError(
            f"{config.partition} was made for {part.graph_name!r}, not for {source!r}; name that graph, or make parts of this one"
        )
    if part.edges != config.edges:
        raise UsageError(f"{config.partition} was made with --edges {part.edges}; got --edges {config.edges}")


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
