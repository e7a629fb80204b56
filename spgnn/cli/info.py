"""spgnn info: sizes, features, labels and splits of a graph."""

from __future__ import annotations

import click

from ..config.groups import SplitFileConfig
from .console import say, write_report
from .options import GRAPH_HELP, OneProcess, graph_argument, group_options, output_options, source_options
from .source import load


@click.command(cls=OneProcess, epilog=GRAPH_HELP)
@graph_argument
@source_options
@group_options(SplitFileConfig)
@output_options
def info(graph: str, format: str, features: str, labels: str, split: str, as_json: bool) -> None:
    """Show sizes, features, labels and splits of GRAPH, or of the parts that `spgnn partition` wrote."""
    from ..graph import loaded_line
    from ..partition.folder.store import PartitionFolder, is_partition

    if is_partition(graph) and not (format or features or labels or split):
        report = PartitionFolder(graph).describe()
    else:
        read = load(graph, format, features, labels, split)
        say(loaded_line(read))
        report = read.describe()
    write_report(graph, report, as_json)
