"""spgnn check: every array of a graph, and every checksum of a native folder."""

from __future__ import annotations

import click

from ..config import SourceConfig
from .console import PassBars, ProgressBar, fields_table, say, write, write_json
from .options import GRAPH_HELP, OneProcess, field_option, graph_argument, output_options


@click.command(cls=OneProcess, epilog=GRAPH_HELP)
@graph_argument
@field_option(SourceConfig, "format")
@output_options
def check(graph: str, format: str, as_json: bool) -> None:
    """Check every array of GRAPH, and the checksums of a native folder; or of the parts that `spgnn partition` wrote.

    The exit code is 0 if the graph is valid; else it is 3, and the first error is printed.
    """
    from ..data import check as check_graph
    from ..partition.folder.check import check_parts
    from ..partition.folder.store import is_partition

    if not format and is_partition(graph):
        with PassBars(graph) as passes:
            report = check_parts(graph, lambda done, total: passes("check parts", done, total))
    else:
        with ProgressBar(f"checking {graph}") as progress:
            report = check_graph(graph, format=format or None, progress=progress)
    if not as_json:
        for note in report.pop("notes", ()):
            say(note)
    if as_json:
        write_json(report)
    else:
        write(fields_table(f"{graph} is valid", report))
