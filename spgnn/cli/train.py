"""spgnn train: GRAPH, TrainConfig -> weights, predictions, metrics; alone or under a launcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import TrainConfig, continued
from ..errors import UsageError, together
from ..machine import host_load
from .console import bytes_text, fields_table, say, write, write_error, write_json
from .failure import explaining
from .options import (
    EDGES_HELP,
    GRAPH_HELP,
    METHOD_HELP,
    MODEL_HELP,
    PRESET_HELP,
    SAMPLER_HELP,
    Sections,
    config_options,
    output_options,
)

if TYPE_CHECKING:  # importing torch and MPI takes seconds
    from ..dist import Communicator

SHOWN_RELATIONS = 5
SEEDS = "seeds.json"  # in the folder that has the folders of the runs
FIRST = """
    preset config on model hidden layers dropout epochs lr weight_decay patience seed mode out overwrite resume split edges
    features labels method partition device threads sampler batch memory
"""


@click.command(
    cls=Sections,
    first=FIRST,
    epilog=f"{GRAPH_HELP}\n{MODEL_HELP}",
    tables=f"{EDGES_HELP}\n{SAMPLER_HELP}\n{METHOD_HELP}\n{PRESET_HELP}",
)
@config_options(TrainConfig)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, metavar="N", help="N trainings, mean and spread of their scores"
)
@output_options
def train(graph: str, config: TrainConfig, seeds: int, as_json: bool) -> int:
    """Train a model on all nodes of GRAPH, or on subgraphs of it, in one process or on the ranks of a launcher.

    \b
      spgnn train wordnet --epochs 60
      mpirun -n 4 spgnn train wordnet --epochs 60 --out runs/out/demo
      spgnn train shop --task links --model lightgcn --features embedding
      spgnn train --resume runs/out/demo --epochs 100

    GRAPH may also be a partition folder of `spgnn partition --out`. The result does not depend on the number of ranks.
    What does not fit --memory trains out of core, with the same result. With --mode average parts train alone, and
    the weights become their mean.

    --out, by default a new folder runs/GRAPH-NUMBER, receives options, metrics, checkpoints and predictions; with
    --seeds in OUT/seed-0 ... SIGTERM, SIGUSR1 and Ctrl-C write a checkpoint after the epoch and stop.
    """
    from ..dist.launch import this_job
    from ..experiment.stopping import StopSignals

    is_resumed = click.get_current_context().params.get("resume") == "auto"
    if seeds > 1 and config.resume:
        raise UsageError(f"--seeds continues the runs in --out DIR by --resume auto; got --resume {config.resume}")
    config = replace(config, out={"": "auto", "none": ""}.get(config.out, config.out))
    launcher = this_job().launcher
    is_shared = launcher is not None and launcher.size > 1
    with (
        StopSignals(is_shared=is_shared) if config.out else nullcontext()
    ):  # from here on: torch and MPI take seconds to start
        return _train(graph, config, as_json, seeds, is_resumed)


def _train(graph: str, config: TrainConfig, as_json: bool, seeds: int, is_resumed: bool) -> int:
    """Train and return the exit code."""
    from ..dist import world
    from ..dist.launch import share_of_threads
    from ..doctor.health import crowded_host
    from ..experiment.folder import resolved_out

    with world() as comm, explaining(), resolved_out(graph, config, comm) as config, explaining(config.out):
        crowded = crowded_host(comm, config.threads or share_of_threads(comm))
        if crowded and comm.rank == 0:
            say(crowded)
        if seeds == 1:
            _run(graph, config, comm, as_json)
        else:
            _run_seeds(graph, config, comm, as_json, seeds, is_resumed)
    return 0


def _run(graph: str, config: TrainConfig, comm: Communicator, as_json: bool) -> dict[str, Any]:
    """Train, show how it goes and what came out, and return the summary. Collective."""
    from ..dist.launch import share_of_threads
    from ..experiment import run
    from ..layers.registry import model_title
    from ..training.epoch_lines import EpochLines

    lines, share = EpochLines(config.epochs), share_of_threads(comm)
    if comm.rank == 0:
        after = f"; continues {config.resume}" if config.resume else f", into {config.out}" if config.out else ""
        say(f"{graph}: {model_title(config)}, {_ranks(comm.size)} of {_cores(config.threads or share)}{after}")
    try:
        summary = run(graph, config, comm, report=lines if comm.rank == 0 else None, show=write_error)
    finally:
        lines.end()
    if comm.rank == 0 and as_json:
        write_json(summary | ({"out": config.out} if config.out else {}))
    elif comm.rank == 0:
        write(fields_table(f"{graph} on {_ranks(summary['ranks'])}", _readable(summary, config)))
    return summary


def _run_seeds(
    graph: str, config: TrainConfig, comm: Communicator, as_json: bool, seeds: int, is_resumed: bool
) -> None:
    """Train with several seeds, and show and keep the mean and spread of the scores. Collective."""
    from ..experiment.checkpoint import write_json as write_file

    configs = seed_configs(graph, config, seeds, is_resumed, comm)
    found = spread([_run(graph, one, comm, as_json) for one in configs])
    if config.out:
        together(comm, write_file, Path(config.out) / SEEDS, found, root=0)
        found["out"] = config.out
    if comm.rank == 0 and as_json:
        write_json(found)
    elif comm.rank == 0:
        scores = {"test": found["test"], "validation": found["val"]}
        shown = {
            f"{name} {found['metric']}": f"{of['mean']:.4f} +- {of['std']:.4f}" for name, of in scores.items() if of
        }
        write(fields_table(f"{graph}, {seeds} seeds from {config.seed}", shown | {"results": config.out or "not kept"}))


def seed_configs(
    source: str, config: TrainConfig, count: int, is_resumed: bool, comm: Communicator
) -> Iterator[TrainConfig]:
    """Yield the options of a training for each of the seeds from config.seed on, whose folders are OUT/seed-NUMBER.

    Args: is_resumed  a run that is there is continued.
    Collective.
    """
    for seed in range(config.seed, config.seed + count):
        one = replace(config, seed=seed, out=str(Path(config.out) / f"seed-{seed}") if config.out else "")
        if is_resumed:
            _, one = together(comm, continued, source, asdict(one) | {"resume": "auto"})
        yield one


def spread(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the seeds, and of test and val the mean, the sample's standard deviation and the values; None without a score."""
    from statistics import mean, stdev

    scores = {name: [summary[name] for summary in summaries] for name in ("test", "val")}
    return {"seeds": [summary["seed"] for summary in summaries], "metric": summaries[0]["metric"]} | {
        name: None if None in of else {"mean": mean(of), "std": stdev(of) if len(of) > 1 else 0.0, "values": of}
        for name, of in scores.items()
    }


def _ranks(size: int) -> str:
    return "1 rank" if size == 1 else f"{size} ranks"


def _cores(threads: int) -> str:
    """Return the threads of a rank, and how busy its host is."""
    load, cores = host_load()
    return f"{threads} thread{'s'[: threads > 1]}, load {load:.1f} of {cores} core{'s'[: cores > 1]}"


def _groups(summary: dict[str, Any]) -> dict[str, str]:
    """Return scores of links with an unseen end, and of the most frequent relations, a line each."""
    rows, unseen = summary.get("per_relation", ()), summary.get("unseen", {})
    said = lambda row: f"mrr {row['mrr']:.4f}, hits@10 {row['hits@10']:.4f}, {row['links']:,} links"
    found = {"unseen ends": said(unseen) if unseen["links"] else "no test link"} if unseen else {}
    return found | {f"{n + 1}: {row['relation'][-26:]}": said(row) for n, row in enumerate(rows[:SHOWN_RELATIONS])}


def _readable(summary: dict[str, Any], config: TrainConfig) -> dict[str, Any]:
    """Return the summary for a reader: scores, time, bytes sent, memory and where the results are."""
    metric, sent = summary["metric"], f"{bytes_text(summary['bytes_sent'])} per epoch"
    if summary["bytes_predicted"] is not None:
        is_equal = summary["bytes_predicted"] == summary["bytes_sent"]
        sent += ", as predicted" if is_equal else f"; {bytes_text(summary['bytes_predicted'])} were predicted"
    averages = {}
    if config.mode == "average":
        every = "every epoch" if summary["interval"] == 1 else f"every {summary['interval']} epochs"
        runs = every if summary["sync"] == "weights" else "gradients, every epoch"
        averages = {
            "averages": f"{summary['parts']} parts, {runs}",
            "bytes averaged": f"{bytes_text(summary['sync_bytes'])} of each rank in all",
        }
    if "disk_bytes" in summary:
        read = bytes_text(summary["disk_read_bytes"] or 0)
        parts = f"{summary['parts']} part{'s'[: summary['parts'] > 1]}"
        averages = {"out of core": f"{parts}, {bytes_text(summary['disk_bytes'])} on disk, {read} read per epoch"}
    personal = {}
    if config.personal:
        of = summary["personal"]
        personal = {
            "personal test micro_f1": of["test"],
            "personal validation micro_f1": of["val"],
            "personal models": f"{of['chosen']} of {summary['parts']} parts chose their own",
        }
    return {
        f"test {metric}": summary["test"], f"validation {metric}": summary["val"], **_groups(summary), **personal,
        "best epoch": summary["best_epoch"], "epoch time": f"{summary['epoch_s']:.4f} s", "bytes sent": sent,
        **averages, "peak memory": f"{summary['peak_rss_mb']:.0f} MB, the largest rank",
        "results": config.out or "not kept",
    }  # fmt: skip
