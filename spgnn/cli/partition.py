"""spgnn partition: GRAPH, k -> the owner of each node, and one folder per part."""

from __future__ import annotations

from pathlib import Path

import click

from ..config import PartitionConfig
from ..errors import UsageError
from .console import PassBars, fields_table, say, write, write_json
from .options import BALANCE_HELP, GRAPH_HELP, METHOD_HELP, OneProcess, config_options, flag, output_options
from .source import load

# An option of some methods only, and which.
OPTIONS = {
    "objective": ("metis", "volume"),
    **dict.fromkeys(("effort", "start", "send", "receive"), ("volume",)),
    **dict.fromkeys(("c", "fanout"), ("entropy",)),
}


FIRST = "config k out method balance seed features labels split edges format hops memory objective effort"


@click.command(cls=OneProcess, first=FIRST, epilog=f"{METHOD_HELP}{BALANCE_HELP}", tables=GRAPH_HELP)
@config_options(PartitionConfig)
@output_options
def partition(graph: str, config: PartitionConfig, as_json: bool) -> None:
    """Cut GRAPH into k parts; --out DIR writes owner.npy, in original node order, and one folder per part.

    \b
      spgnn partition wordnet -k 4 --method volume --out parts
      mpirun -n 4 spgnn train parts
      spgnn measure wordnet --partition parts

    With --memory, GRAPH is an edge file that may be larger than memory: text, gzip, binary or Parquet. Edges and
    features are read as a stream. If it is interrupted, the same command continues.

    \b
      spgnn partition edges.bin -k 32 --features X.npy --labels y.npy \\
          --memory 2GB --out parts
    """
    report = _out_of_core(graph, config) if config.memory else _in_memory(graph, config)
    if as_json:
        write_json(report)
    else:
        report.pop("label_entropies", None)
        write(fields_table(f"{graph}, {config.edges} edges", report))
    if not config.out:
        say("nothing was written; --out DIR writes the parts")


def _out_of_core(graph: str, config: PartitionConfig) -> dict:
    from ..machine import peak_rss_mb
    from ..partition import part_to_folder
    from ..partition.stream import STREAMING

    if not config.out:
        raise UsageError("--memory requires --out DIR, the folder that receives the parts")
    method = config.method or "spring"
    if method not in STREAMING:
        raise UsageError(
            f"--method {method} needs the graph in memory; with --memory choose one of {', '.join(STREAMING)}, or omit --memory"
        )
    for name in OPTIONS:
        if getattr(config, name) != getattr(PartitionConfig(), name):
            raise UsageError(
                f"{flag(name)} is an option of {' or '.join(OPTIONS[name])}, which needs the graph in memory; omit --memory"
            )
    files = {name: getattr(config, name) or None for name in ("features", "labels", "split", "format")}
    try:
        with PassBars(graph) as progress:
            report = part_to_folder(
                graph, config.k, config.out, method, config.seed, config.balance, memory=config.memory, edges=config.edges,
                hops=config.hops, n_nodes=config.nodes or None, relabel=config.relabel, progress=progress, note=progress.note, **files,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(
            f"{config.out}: interrupted; run the same command to continue, or remove .{Path(config.out).name}.partial next to it"
        )
        raise
    return report | {"peak_rss_mb": peak_rss_mb(), "out": config.out}


def _in_memory(graph: str, config: PartitionConfig) -> dict:
    from ..machine import peak_rss_mb
    from ..partition import part_graph, save_partition
    from ..partition.entropies import label_entropies

    for name in ("nodes", "relabel"):
        if getattr(config, name) != getattr(PartitionConfig(), name):
            raise UsageError(f"{flag(name)} requires --memory")
    method = config.method or "metis"
    options = {
        name: getattr(config, name) for name in OPTIONS if getattr(config, name) != getattr(PartitionConfig(), name)
    }
    for name, value in options.items():
        if method not in OPTIONS[name]:
            raise UsageError(
                f"--{name} {value} is an option of --method {' or '.join(OPTIONS[name])}; {method} has none"
            )
    loaded = load(graph, config.format, config.features, config.labels, config.split).with_edges(config.edges)
    part = part_graph(loaded, config.k, method, seed=config.seed, balance=config.balance, **options)
    report = part.describe(loaded)
    if config.out:
        save_partition(part, config.out, loaded, hops=config.hops)
    report |= {"peak_rss_mb": peak_rss_mb()}
    if loaded.y is not None:
        entropies_k, report["label_entropy"] = label_entropies(loaded.y, part.owner_N, part.k)
        report["label_entropies"] = entropies_k.tolist()
    if config.out:
        report["out"] = config.out
    return report
