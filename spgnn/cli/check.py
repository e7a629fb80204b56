"""spgnn check: every array of a graph, and every checksum of a native folder."""

from __future__ import annotations

import click

from .console import fields_table, write, write_json
from .options import graph_argument, output_options


@click.command(short_help="Check every array and checksum of a graph.")
@graph_argument
@output_options
def check(graph: str, as_json: bool) -> None:
    """Check every array of GRAPH, and the checksums of a native folder; exit code 3 where one is wrong."""
    from ..data import check as check_graph

    report = check_graph(graph)
    if as_json:
        write_json(report)
    else:
        write(fields_table(f"{graph} is sound", report))
