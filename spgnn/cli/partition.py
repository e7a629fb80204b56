"""spgnn partition: GRAPH, k -> the owner of each node, and one folder per part."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import PartitionConfig
from ..config.names import LONG_EDGES
from ..errors import UsageError
from .console import PassBars, fields_table, say, write, write_json, write_table
from .options import (
    BALANCE_HELP,
    EDGES_HELP,
    GRAPH_HELP,
    METHOD_HELP,
    OneProcess,
    config_options,
    flag,
    integers,
    output_options,
    words,
)
from .source import EDGES_TEXT, load

if TYPE_CHECKING:
    from ..graph import Graph
    from ..partition import Partition

COLUMNS = {
    "k": "k", "method": "method", "total_rows": "rows sent", "max_send_rows": "max sent",
    "max_over_mean_send": "max/mean", "messages": "messages", "edge_cut": "edge cut", "replication_factor": "copies",
    "label_entropy": "entropy", "nnz_imbalance": "work", "node_imbalance": "nodes", "seconds": "s",
}  # fmt: skip
OMIT = ("messages", "label_entropy", "max_send_rows", "edge_cut")  # left out, in this order, until the table fits

# An option of some methods only, and which.
OPTIONS = {
    "objective": ("metis", "volume"),
    **dict.fromkeys(("effort", "start", "minimise", "receive"), ("volume",)),
    **dict.fromkeys(("c", "fanout"), ("entropy",)),
}
FIRST = "config k out method balance seed features labels split edges format hops memory objective effort"


@click.command(cls=OneProcess, first=FIRST, epilog=f"{METHOD_HELP}{BALANCE_HELP}", tables=f"{GRAPH_HELP}\n{EDGES_HELP}")
@config_options(PartitionConfig)
@output_options
def partition(graph: str, config: PartitionConfig, as_json: bool) -> None:
    """Cut GRAPH into k parts; --out DIR writes owner.npy, in original node order, and one folder per part.

    \b
      spgnn partition wordnet --ranks 2,4 --method metis,volume
      spgnn partition wordnet --ranks 4 --method volume --out parts
      mpirun -n 4 spgnn train parts
      spgnn measure wordnet --partition parts

    With --memory, GRAPH is an edge file that may be larger than memory: text, gzip, binary or Parquet. Edges and
    features are read as a stream. If it is interrupted, the same command continues.

    \b
      spgnn partition edges.bin -k 32 --features X.npy --labels y.npy \\
          --memory 2GB --out parts
    """
    methods = words("method", config.method) if config.method else [""]
    choices = [(k, method) for k in integers("k", config.k) for method in methods]
    if len(choices) > 1 and (config.out or config.memory):
        raise UsageError(
            f"--{'out' if config.out else 'memory'} takes one partition, got --ranks {config.k} and "
            f"{len(methods)} methods; omit it to compare them, or name one"
        )
    if config.memory:
        edges, reports = "undirected" if config.edges == "auto" else config.edges, [_out_of_core(graph, config)]
    else:
        edges, reports = _in_memory(graph, config, choices)
    for report in reports if as_json else ():
        write_json(report)
    if not as_json:
        _show(f"{graph}, {EDGES_TEXT[LONG_EDGES.get(edges, edges)]}", reports)
    if not config.out:
        say("nothing was written; --out DIR writes the parts")


def _show(title: str, reports: list[dict]) -> None:
    """Write one partition as a list, several as a table with a line each."""
    if len(reports) == 1:
        hidden = ("label_entropies", "starts")
        write(fields_table(title, {name: value for name, value in reports[0].items() if name not in hidden}))
        if starts := reports[0].get("starts"):
            columns = {"start": "start", "total_rows": "rows sent", "max_send_rows": "max sent", "seconds": "s"}
            write_table(starts, columns)
        return
    write(f"{title}: {reports[0]['n']:,} nodes, {reports[0]['nnz']:,} nonzeros")
    write_table(reports, {name: text for name, text in COLUMNS.items() if name in reports[0]}, OMIT)


def _out_of_core(graph: str, config: PartitionConfig) -> dict:
    from ..data.readers.edge_features import column_numbers
    from ..machine import peak_rss_mb
    from ..partition import part_to_folder
    from ..partition.stream import STREAMING

    if not config.out:
        raise UsageError("--memory requires --out DIR, the folder that receives the parts")
    method = config.method or "spring"
    if method not in STREAMING:
        choices = ", ".join(STREAMING)
        raise UsageError(f"--method {method} needs the graph in memory; omit --memory, or choose {choices}")
    for name in _given(config, OPTIONS):
        methods = " or ".join(OPTIONS[name])
        raise UsageError(f"{flag(name)} is for {methods}, which needs the graph in memory; omit --memory")
    if config.hosts > 1:
        raise UsageError("--hosts needs the graph in memory; omit --memory")
    files = {name: getattr(config, name) or None for name in ("features", "labels", "split", "format", "edge_features")}
    flipped = column_numbers(config.antisymmetric)
    try:
        with PassBars(graph) as progress:
            report = part_to_folder(
                graph, integers("k", config.k)[0], config.out, method, config.seed, config.balance, memory=config.memory, edges=config.edges,
                hops=config.hops, n_nodes=config.nodes or None, relabel=config.relabel, progress=progress, note=progress.note, antisymmetric=flipped, **files,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(f"{config.out}: interrupted; continue by the same command, or remove .{Path(config.out).name}.partial")
        raise
    return report | {"peak_rss_mb": peak_rss_mb(), "out": config.out}


def _in_memory(graph: str, config: PartitionConfig, choices: list[tuple[int, str]]) -> tuple[str, list[dict]]:
    """Return how the edges are used, and a report for each k and method; the one partition of --out is written."""
    from ..partition import part_graph, save_partition
    from ..partition.folder.store import check_free

    for name in _given(config, ("nodes", "relabel", "edge_features", "antisymmetric")):
        convert = "; or give it to `spgnn convert`" if name in ("edge_features", "antisymmetric") else ""
        raise UsageError(f"{flag(name)} requires --memory{convert}")
    options = _given(config, OPTIONS)
    choices = [(k, method or "metis") for k, method in choices]
    for name, value in options.items():
        for _, method in choices:
            if method not in OPTIONS[name]:
                raise UsageError(f"--{name} {value} is for --method {' or '.join(OPTIONS[name])}; {method} has none")
    if config.out:
        check_free(Path(config.out))  # before the work
    loaded = load(graph, config.format, config.features, config.labels, config.split).with_edges(config.edges)
    reports = []
    for k, method in choices:
        tried: list[dict] = []
        hosts = max(config.hosts, 1)
        more: dict[str, Any] = options | ({"tried": tried} if method == "volume" and hosts == 1 else {})
        part = part_graph(loaded, k, method, config.seed, config.balance, hosts=hosts, **more)
        reports.append(part.describe(loaded) | ({"starts": tried} if tried else {}))
        if config.out:
            save_partition(part, config.out, loaded, hops=config.hops)
        reports[-1] |= _measured(loaded, part) | ({"out": config.out} if config.out else {})
    return loaded.edges, reports


def _given(config: PartitionConfig, names: Iterable[str]) -> dict[str, Any]:
    """Return the options that differ from their defaults."""
    values = {name: getattr(config, name) for name in names}
    return {name: value for name, value in values.items() if value != getattr(PartitionConfig, name)}


def _measured(loaded: Graph, part: Partition) -> dict:
    """Return the peak memory, and the entropies of the labels of each part."""
    from ..machine import peak_rss_mb
    from ..partition.metrics import label_entropies

    found = {"peak_rss_mb": peak_rss_mb()}
    if loaded.y is not None and not loaded.is_regression:
        entropies_k, mean = label_entropies(loaded.y, part.owner_N, part.k)
        found |= {"label_entropy": mean, "label_entropies": entropies_k.tolist()}
    return found
