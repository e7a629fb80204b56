"""spgnn partition: GRAPH, k -> who owns which node, and one folder a part."""

from __future__ import annotations

import click

from ..config import PartitionConfig
from ..errors import UsageError
from .console import fields_table, say, write, write_json
from .options import GRAPH_HELP, OneProcess, config_options, output_options
from .source import load

SECTIONS = {
    "Partition": ("k", "method", "objective", "effort", "start", "send", "receive", "c", "floor", "fanout", "similarity", "balance", "seed", "out"),
    "Graph": ("edges", "format", "features", "labels"),
}
# An option of some methods only, and which.
OPTIONS = {
    "objective": ("metis", "volume"),
    **dict.fromkeys(("effort", "start", "send", "receive"), ("volume",)),
    **dict.fromkeys(("c", "floor", "fanout", "similarity"), ("entropy",)),
}


@click.command(cls=OneProcess, sections=SECTIONS, short_help="Cut a graph into k parts.", epilog=GRAPH_HELP)
@config_options(PartitionConfig)
@output_options
def partition(graph: str, config: PartitionConfig, as_json: bool) -> None:
    """Cut GRAPH into k parts and, with --out, write owner.npy and one folder a part.

    `spgnn train --partition DIR` and `spgnn measure --partition DIR` use the folder.
    owner.npy is in original node order.
    """
    from ..machine import peak_rss_mb
    from ..partition import label_entropies, part_graph

    options = {name: getattr(config, name) for name in OPTIONS if getattr(config, name) != getattr(PartitionConfig(), name)}
    for name, value in options.items():
        if config.method not in OPTIONS[name]:
            raise UsageError(f"--{name} {value} is an option of --method {' and '.join(OPTIONS[name])}; {config.method} has none")
    loaded = load(graph, config.format, config.features, config.labels).with_edges(config.edges)
    part = part_graph(loaded, config.k, config.method, seed=config.seed, balance=config.balance, **options)
    report = part.describe(loaded) | {"peak_rss_mb": peak_rss_mb()}
    entropies_k = None
    if loaded.y is not None:
        entropies_k, report["label_entropy"] = label_entropies(loaded.y, part.owner_N, part.k)
    if config.out:
        part.save(config.out, loaded)
        report["out"] = config.out
    if as_json:
        write_json(report | ({} if entropies_k is None else {"label_entropies": entropies_k.tolist()}))
    else:
        write(fields_table(f"{graph}, {config.edges} edges", report))
    if not config.out:
        say("nothing was written; --out DIR keeps the parts")
