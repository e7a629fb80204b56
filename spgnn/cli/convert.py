"""spgnn convert: any known graph file -> native folder."""

from __future__ import annotations

import click

from ..config.groups import SplitFileConfig, TableConfig
from ..config.names import FORMATS
from .console import ProgressBar, say, write_report
from .options import OneProcess, complete, group_options, output_options, source_options

SRC_HELP = f"""\b
SRC is a file, a folder, or the common prefix of Planetoid's files, in one of
the formats
  {", ".join(FORMATS[:5])},
  {", ".join(FORMATS[5:])}.
"""


@click.command(cls=OneProcess, epilog=SRC_HELP)
@click.argument("src", metavar="SRC", shell_complete=complete)
@click.argument("dst", metavar="DST", shell_complete=complete)
@source_options
@group_options(SplitFileConfig)
@group_options(TableConfig)
@output_options
def convert(src: str, dst: str, as_json: bool, **options) -> None:
    """Read the graph SRC and write it as the native folder DST.

    \b
      spgnn convert planetoid/ind.cora graphs/cora
      spgnn convert edges.txt.gz graphs/web --features X.npy --labels y.npy

    Edges are stored as they are. DST appears complete or not at all. The report has the numbers of nodes,
    nonzeros, duplicates, self-loops, isolated nodes and dropped lines, and whether the graph is symmetric.
    """
    from ..data import convert as convert_graph

    with ProgressBar(f"reading {src}") as progress:
        report = convert_graph(
            src, dst, progress=progress, **{name: value for name, value in options.items() if value != ""}
        )
    write_report(f"{src} -> {dst}", report, as_json)
    say(f"wrote {dst}; try: spgnn info {dst}")
