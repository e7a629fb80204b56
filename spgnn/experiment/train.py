"""run: one training from a GRAPH and options to a folder of results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ..config import TrainConfig, continued, ended_summary
from ..errors import together
from ..layers.registry import LISTED, ModelSpec
from ..machine import peak_rss_mb
from ..partition.folder.pipeline.memory_budget import memory_bytes_of
from ..samplers.options import options_of
from ..training.consistency import check_trainable
from ..training.notes import data_notes, end_note, host_notes
from ..training.steps.captured import CapturedStep
from ..training.trainer import Trainer
from .checkpoint import finite
from .details import run_details
from .device import device_facts, explaining_memory
from .folder import RunFolder, hold_folder
from .named import Names
from .observe import observed, time_operations
from .opening import Show, Source
from .prepare import prepare
from .restoring import Found, found_checkpoint
from .saving import Checkpoints, Log
from .stopping import StopSignals
from .ways import WAYS


def run(source: str, config: TrainConfig, comm, report: Callable[[dict], Any] | None = None, show: Show = None) -> dict:
    """Train on GRAPH and return the summary; with config.out, write the files of the run there.

    Files: config.toml, env.json, metrics.jsonl (one object per epoch), details.json (see run_details), summary.json,
           split.npy and predictions.npy (original node order), checkpoints/ (best and newest); with config.personal also parts.jsonl (one object
           per part) and checkpoints/personal/.
    Args:  source  built-in name, file or folder; with config.partition it only names the graph; or a partition folder.
           report  called on this rank with the record of each epoch.
           show    called on rank 0 with the table of config.trace and with messages.
    Raises: StoppedError on all ranks after a signal and a checkpoint, see StopSignals.
    Collective.
    """
    prepared = prepare(source, config, comm)
    if config.resume and (ended := comm.all_gather_json(together(comm, ended_summary, source, config, root=0))[0]):
        if comm.rank == 0 and show is not None:
            show(f"spgnn: {config.resume} has ended: nothing is trained, its results follow")
        return ended
    with observed(config, comm, show) as (comm, recorder), StopSignals(show) if config.out else nullcontext() as stop:
        opened = Source.open(source, config, comm, show)
        with ExitStack() as stack:
            folder = together(comm, hold_folder, config, stack, root=0) if config.out else None
            found = found_checkpoint(config, comm, show) if config.resume else None
            way = WAYS[prepared.way](prepared, comm, folder)
            dgraph = way.open(opened, stack)
            names = opened.names
            del opened  # and with it the owners of all nodes
            comm.phase = "set up training"
            check_trainable(dgraph)
            spec = _spec_of(found) or ModelSpec.of(config, dgraph.n_features, dgraph.n_classes, dgraph.n_edge_features)
            trainer = Trainer(spec.build(), dgraph, way.config, way.step)
            notes = data_notes(dgraph, trainer.steps.scorer) + trainer.steps.notes()
            _show_notes(comm, show, host_notes(comm) + notes)
            checkpoints = Checkpoints.of_run(trainer, spec, folder) if config.out else None
            if found is not None:
                checkpoints.restore(found, show)
            trainer.release_input()
            if config.cuda_graph:
                trainer.steps = CapturedStep(trainer.steps)
            time_operations(recorder, trainer)
            if config.out:
                together(comm, RunFolder.begin, folder, source, trainer.config, comm, checkpoints.lines(), root=0)
            with explaining_memory(trainer):
                with Log(folder, checkpoints, report, stop) as log:
                    trainer.fit(log.record)
                comm.phase = "write results"
                summary = summary_of(trainer)
                _show_notes(comm, show, [end_note(trainer), _memory_note(config.memory, summary["peak_rss_mb"])])
                predictions_N = way.finish(trainer, spec, summary)
            if config.out:
                keep_results(trainer, folder, names, summary, predictions_N)
            return summary


def resume(
    folder: str | Path,
    comm,
    report: Callable[[dict], Any] | None = None,
    show: Callable[[str], None] | None = None,
    graph: str = "",
    **options,
) -> dict:
    """Continue the run that `spgnn train --out` left in a folder, and return its summary.

    Args:   graph, options  that differ from the run's: epochs, scheme, partition, ... see config.continued.
            report, show    as those of experiment.run.
    Raises: UsageError naming options that a run cannot be continued with; CheckpointError without a whole checkpoint.
    Collective, on any number of ranks, which all see the folder.
    """
    source, config = together(comm, continued, graph, {**options, "resume": str(folder)})
    return run(source, config, comm, report, show)


def _show_notes(comm, show: Show, notes: list[str]) -> None:
    """Show the notes that are not empty, on rank 0."""
    if any(notes) and comm.rank == 0 and show is not None:
        show("\n".join(f"spgnn: {note}" for note in notes if note))


def _memory_note(memory: str, peak_mb: float) -> str:
    """Return what to say of a training that took more memory than it was to have, "" of others."""
    if not memory or peak_mb * 1e6 <= memory_bytes_of(memory):
        return ""
    return f"a rank took {peak_mb:.0f} MB at its peak, more than --memory {memory}, which is an estimate; set it lower"


def _spec_of(found: Found | None) -> ModelSpec | None:
    """Return the model of a checkpoint whose layers are listed, as Python made them; None: as the options say."""
    model = None if found is None else found[1].get("model")
    return ModelSpec(**model) if model is not None and model["family"] == LISTED else None


def keep_results(
    trainer: Trainer, folder: RunFolder | None, names: Names, summary: dict[str, Any], predictions_N: np.ndarray | None
) -> None:
    """Write summary, details, split and predictions of a training that has ended; folder: on rank 0. Collective."""
    details = run_details(trainer, predictions_N)
    arrays = {"split": trainer.history.split_N, "predictions": predictions_N}
    summary = summary | {"per_class": trainer.history.per_class}
    together(trainer.comm, RunFolder.write_results, folder, summary, details, arrays, names, root=0)


def summary_of(trainer: Trainer) -> dict[str, Any]:
    """Return the summary of a training. Collective."""
    config, dgraph, history, comm = trainer.config, trainer.dgraph, trainer.history, trainer.comm
    peak_mb = np.array([peak_rss_mb()])
    comm.all_reduce(peak_mb, "max")
    names = ("best_epoch", "train", "val", "test", "metric", "epoch_s", "bytes_sent", "bytes_predicted", "setup_bytes")
    sampler = {} if config.sampler == "none" else options_of(config) | {"subgraphs": config.subgraphs}
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
        | sampler
        | trainer.steps.facts(history.records)
        | device_facts(dgraph.A.device)
    )
