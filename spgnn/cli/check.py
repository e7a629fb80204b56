"""spgnn check: every array of a graph, and every checksum of a native folder."""

from __future__ import annotations

import click

from ..config.groups import SplitFileConfig
from .console import PassBars, ProgressBar, write_report
from .options import GRAPH_HELP, OneProcess, graph_argument, group_options, output_options, source_options


@click.command(cls=OneProcess, epilog=GRAPH_HELP)
@graph_argument
@source_options
@group_options(SplitFileConfig)
@output_options
def check(graph: str, as_json: bool, **files: str) -> None:
    """Check every array of GRAPH, and the checksums of a native folder; or of the parts that `spgnn partition` wrote.

    The exit code is 0 if the graph is valid; else it is 3, and the first error is printed.
    """
    from ..data import check as check_graph
    from ..partition.folder.check import check_parts
    from ..partition.folder.store import is_partition

    files = {name: value for name, value in files.items() if value}
    if is_partition(graph) and not files:
        with PassBars(graph) as passes:
            report = check_parts(graph, lambda done, total: passes("check parts", done, total))
    else:
        with ProgressBar(f"checking {graph}") as progress:
            report = check_graph(graph, progress=progress, **files)
    write_report(f"{graph} is valid", report, as_json)
