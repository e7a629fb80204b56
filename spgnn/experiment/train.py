"""run: one training from a GRAPH and options to a folder of results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config import Distribution, TrainConfig, select
from ..cost.grid import ProcessGrid
from ..data import File, Named, is_built_in, load_graph, resolve
from ..data.readers.make_graph import graph_name
from ..dist.consistency import check_same
from ..dist.launch import share_of_threads
from ..distgraph import DistGraph, Parts
from ..distgraph.distribute import make_dgraph
from ..distgraph.merged_parts import feature_count, merge_parts
from ..errors import CheckpointError, InputError, PartitionError, UsageError, together
from ..graph import Graph
from ..layers.registry import ModelSpec, check_model, operator_of
from ..machine import give_back_memory, peak_rss_mb
from ..partition import Partition, PartitionFolder
from ..samplers.options import options_of
from ..training.average_options import check_average
from ..training.consistency import run_values
from ..training.evaluation import evaluated
from ..training.notes import data_notes
from ..training.personal import personalise
from ..training.steps.captured import CapturedStep
from ..training.steps.full import check_trainable
from ..training.trainer import Trainer, step_maker
from .averaging import average_facts, open_parts
from .checkpoint import finite
from .device import check_device, device_facts, explaining_memory
from .folder import Log, RunFolder, check_outputs, held_folder
from .observe import observed, time_operations
from .personal_files import personal_facts, write_personal
from .restoring import Found, share_newest
from .saving import Checkpoints
from .stopping import StopSignals
from .whole_graph import check_whole, whole_graph

Source = Named | File | PartitionFolder
Show = Callable[[str], None] | None
UNNAMED = ("graph", "stream", "")  # names of graphs and streams that were made of arrays


def run(
    source: str,
    config: TrainConfig,
    comm,
    report: Callable[[dict], Any] | None = None,
    show: Show = None,
) -> dict:
    """Train on GRAPH and return the summary; with config.out, write the files of the run there.

    Files: config.toml, env.json, metrics.jsonl (one object per epoch), summary.json, predictions.npy
           (original node order), checkpoints/ (best and newest); with config.personal also parts.jsonl (one object
           per part) and checkpoints/personal/.
    Args:  source  built-in name, file or folder; with config.partition it only names the graph; or a partition folder.
           report  called on this rank with the record of each epoch.
           show    called on rank 0 with the table of config.trace and with messages.
    Raises: StoppedError on all ranks after a signal and a checkpoint, see StopSignals.
    Collective.
    """
    check_same(comm, run_values(source, config))
    together(comm, check_outputs, source, config)
    with (
        observed(config, comm, show) as (comm, recorder),
        StopSignals(show) if config.out else nullcontext() as stop,
    ):
        check_model(config)
        check_average(config)
        check_device(config, comm.size)
        ProcessGrid(comm.size, config.replication)  # before anything is read
        opened = open_source(source, config, comm)
        graph = parts = workload = None
        with held_folder(config, comm) as folder, ExitStack() as stack:
            found = share_newest(comm, Path(config.out) / "checkpoints", show) if config.resume else None
            _check_found(found, config)
            how = replace(config, operator=operator_of(config), threads=set_threads(comm, config.threads))
            if config.mode == "average":
                given = open_parts(opened, partial(_read, opened, config, show), config, how, comm, folder, show)
                parts, workload = stack.enter_context(given)
                config, dgraph = _evaluated(parts, config)
            elif config.sampler == "none":
                dgraph = distribute_source(opened, how, comm, show)
            else:
                together(comm, check_whole, opened, config)
                graph = stack.enter_context(whole_graph(partial(_read, opened, config, show), comm))
                dgraph = make_dgraph(graph, comm, None, select(Distribution, how))
            del opened  # and with it the owners of all nodes
            training = _Training(source, config, comm, report, show, stop, folder, found)
            return training.run(dgraph, recorder, graph, parts, workload)


@dataclass(frozen=True, slots=True)
class _Training:
    """One training: what `run` was given and has opened."""

    source: str
    config: TrainConfig
    comm: Any
    report: Callable[[dict], Any] | None
    show: Show
    stop: StopSignals | None
    folder: RunFolder | None
    found: Found | None

    def run(self, dgraph: DistGraph, recorder, graph: Graph | None, parts: Parts | None, workload: dict | None) -> dict:
        """Train and return the summary; graph: from which subgraphs are drawn, parts: that are averaged. Collective."""
        config, comm = self.config, self.comm
        comm.phase = "set up training"
        check_trainable(dgraph)
        spec = ModelSpec.of(config, dgraph.n_features, dgraph.n_classes)
        trainer = Trainer(spec.build(), dgraph, config, step_maker(config, graph, parts=parts))
        notes = data_notes(dgraph, trainer.steps.scorer) + (trainer.steps.notes() if graph is not None else [])
        if notes and comm.rank == 0 and self.show is not None:
            self.show("".join(f"spgnn: {note}\n" for note in notes).rstrip())
        checkpoints = self._checkpoints(trainer, spec)
        trainer.release_input()
        if config.cuda_graph:
            trainer.steps = CapturedStep(trainer.steps)
        time_operations(recorder, trainer)
        if self.found is not None:
            checkpoints.restore(self.found, self.show)
        if config.out:
            lines = checkpoints.lines()
            begin = lambda: self.folder.begin(self.source, config, comm, torch.get_num_threads(), lines)
            together(comm, begin, root=0)
        with explaining_memory(trainer), ExitStack() as stack:
            if checkpoints is not None:
                stack.callback(checkpoints.abandon)
            history = self._fit(trainer, checkpoints)
            comm.phase = "write results"
            summary = _summary(config, trainer, history)
            if parts is not None:
                summary |= average_facts(config, trainer, workload)
            if config.personal:
                predictions_N = self._personal(trainer.model, parts, spec, summary)
            else:
                predictions_N = trainer.steps.scorer.predictions()
        if config.out:
            together(comm, lambda: self.folder.write_results(summary, predictions_N, history), root=0)
        return summary

    def _personal(self, model: torch.nn.Module, parts: Parts, spec: ModelSpec, summary: dict) -> np.ndarray:
        """Train parts alone, add the scores to a summary, write their files; return the predictions (N, ...). Collective."""
        result = personalise(model, parts, self.config)
        self.comm.phase = "write results"
        summary["personal"] = personal_facts(result)
        if self.config.out:
            write_personal(Path(self.config.out), result, spec, self.comm)
        return result.predictions_N

    def _checkpoints(self, trainer: Trainer, spec: ModelSpec) -> Checkpoints | None:
        config, folder = self.config, self.folder
        if not config.out:
            return None
        where = Path(config.out) / "checkpoints" if folder is None else folder.new_checkpoints
        moved = None if folder is None else folder.after_checkpoint
        return Checkpoints(where, trainer, config.checkpoint_every, spec, moved)

    def _fit(self, trainer: Trainer, checkpoints: Checkpoints | None):
        if self.stop is not None:
            self.stop.begin()
        history = trainer.fit(Log(self.folder, checkpoints, self.report, self.stop).record)
        if checkpoints is not None:
            checkpoints.close()
        if self.stop is not None:
            self.stop.end()
        return history


def _evaluated(parts: Parts, config: TrainConfig) -> tuple[TrainConfig, DistGraph]:
    """Return the options with how a training on parts is evaluated, and its DistGraph. Collective."""
    n_features = feature_count(parts)
    if not n_features or not parts.n_classes:
        return config, merge_parts(parts)  # which is refused as other graphs without them
    model = ModelSpec.of(config, n_features, parts.n_classes).build()
    chosen, dgraph = evaluated(model, parts, config.evaluation, config.memory, config.correct != "none")
    return replace(config, evaluation=chosen), dgraph


def _check_found(found: Found | None, config: TrainConfig) -> None:
    """Raise unless --resume has a checkpoint to go on from, and epochs after it. The same on all ranks."""
    if config.resume and found is None:
        raise CheckpointError(f"--resume {config.resume}: has no checkpoint; train again with --out {config.resume}")
    if found is not None and found[1]["epoch"] > config.epochs:
        raise UsageError(
            f"--epochs {config.epochs} is less than the {found[1]['epoch']} that {config.resume} has; give that or more"
        )


def set_threads(comm, threads: int = 0) -> int:
    """Give this rank its threads: those asked for, else its share of the host's cores. Collective."""
    share = share_of_threads(comm)
    threads = threads or share
    torch.set_num_threads(threads)
    return threads


def open_source(source: str, config: TrainConfig, comm) -> Source | None:
    """Return what GRAPH, or --partition, names: a partition folder on all ranks, or a graph on rank 0, None elsewhere.

    Raises: InputError or PartitionError for what does not exist or fit; UsageError for options that do not fit it.
    Collective.
    """
    comm.phase = "load"
    found = together(comm, _find, source, config, root=0)
    is_folder = comm.all_gather_json(isinstance(found, PartitionFolder))[0]
    return PartitionFolder(config.partition or source) if is_folder and comm.rank else found


def distribute_source(
    source: Source | None, config: TrainConfig, comm, show: Show = None, check: Callable[[Graph], None] | None = None
) -> DistGraph:
    """Distribute what open_source returned; the options name the operator and the threads of this rank.

    check: called on rank 0 with a graph that is no partition folder, before it is distributed. Collective.
    """
    given = source if isinstance(source, PartitionFolder) else partial(_read, source, config, show, check)
    return make_dgraph(given, comm, None, select(Distribution, config))


def _find(source: str, config: TrainConfig) -> Source:
    folder = PartitionFolder(config.partition or source)
    if not config.partition and (is_built_in(source) or not folder.is_valid):
        return resolve(source, config.format or None)
    _check_options(folder.partition(), config, str(folder.path))
    if config.partition:
        _check_graph(folder.partition(), source, config.partition)
    return folder


def _check_options(part: Partition, config: TrainConfig, folder: str) -> None:
    """Raise UsageError for options of reading and partitioning a graph that differ from those of a partition."""
    for name in ("format", "features", "labels"):
        if value := getattr(config, name):
            raise UsageError(
                f"--{name} {value} applies when a graph is read, and {folder} is a partition folder; "
                f"omit --{name}, or partition the graph again"
            )
    if config.method not in (TrainConfig().method, part.method):
        raise UsageError(
            f"--method {config.method} differs from the method of {folder}, {part.method}; omit --method, or partition again"
        )
    if part.edges != config.edges:
        raise UsageError(
            f"{folder} was made with --edges {part.edges}; got --edges {config.edges}; give the same, or partition again"
        )


def _check_graph(part: Partition, source: str, folder: str) -> None:
    """Raise unless GRAPH may be the graph that a partition was made for; names are compared, nothing is read."""
    made_for, path = part.graph_name, Path(source)
    if is_built_in(source):
        is_same = made_for.partition("-")[0] == source.partition(":")[0]  # rmat:scale=10 is named rmat-10-16
    elif made_for in UNNAMED or source == made_for:
        is_same = True
    else:
        is_same = path.is_dir() or graph_name(path) == made_for
        if not path.exists():
            try:
                resolve(source)  # the prefix of Planetoid's files is no path
            except InputError:
                raise InputError(
                    f"{source}: no such file or folder; {folder} was made for {made_for!r}, name that graph"
                ) from None
    if not is_same:
        raise PartitionError(
            f"{folder} was made for {made_for!r}, not for {source!r}; name that graph, or partition this one"
        )


def _read(source: Named | File, config: TrainConfig, show: Show, check: Callable[[Graph], None] | None = None) -> Graph:
    graph = load_graph(source, features=config.features or None, labels=config.labels or None)
    for note in graph.notes() if show is not None else ():
        show(f"spgnn: {note}")
    graph = graph.with_edges(config.edges)
    if check is not None:
        check(graph)
    give_back_memory()  # what reading took, before partitioning takes more
    return graph


def _summary(config: TrainConfig, trainer: Trainer, history) -> dict:
    dgraph, comm = trainer.dgraph, trainer.comm
    peak_mb = np.array([peak_rss_mb()])
    comm.all_reduce(peak_mb, "max")
    names = ("best_epoch", "train", "val", "test", "metric", "epoch_s", "bytes_sent", "bytes_predicted", "setup_bytes")
    return finite(
        {"graph": dgraph.name, "n": dgraph.n_nodes, "nnz": dgraph.nnz, "model": config.model}
        | {name: getattr(history, name) for name in names}
        | {"epochs": trainer.epoch, "peak_rss_mb": float(peak_mb[0]), "ranks": comm.size}
        | {
            "scheme": dgraph.scheme,
            "replication": dgraph.replication,
            "method": dgraph.method,
            "seed": config.seed,
            "scores": history.scores,
            "mode": config.mode,
            "sampler": config.sampler,
        }
        | _of_subgraphs(config, trainer)
        | device_facts(dgraph.A.device)
    )


def _of_subgraphs(config: TrainConfig, trainer: Trainer) -> dict:
    """Return the facts of a training on subgraphs, {} without."""
    if config.sampler == "none":
        return {}
    steps = {"steps_per_epoch": trainer.steps.steps} if config.mode == "full" else {}  # each part has its own
    return options_of(config) | {"subgraphs": config.subgraphs} | steps
