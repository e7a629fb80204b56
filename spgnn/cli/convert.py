"""spgnn convert: any known graph file -> native folder."""

from __future__ import annotations

import click

from .console import Progress, fields_table, say, write, write_json
from .options import OneProcess, output_options, source_options


@click.command(cls=OneProcess, short_help="Read a graph and write it as a native folder.")
@click.argument("src", metavar="SRC")
@click.argument("dst", metavar="DST")
@source_options
@click.option(
    "--split", default="", metavar="FILE", help="split in a file of its own: .npy int8, 0 train, 1 val, 2 test, -1 none"
)
@output_options
def convert(src: str, dst: str, format: str, features: str, labels: str, split: str, as_json: bool) -> None:
    """Read the graph SRC in any known format and write the native folder DST.

    SRC is a file, a folder, or Planetoid's common prefix (planetoid/ind.cora). Its format is one of
    planetoid, gnn-benchmark, graphsaint, ogb, heterophilous, edges, mtx, metis, scipy, binary,
    native; it is guessed when --format is left out. The edges are
    stored as they came. DST is complete or absent: it is written under a temporary name, then renamed.

    Prints what the import found: nodes, nonzeros, duplicates, self-loops, isolated nodes,
    whether it is symmetric, and the lines that were dropped.
    """
    from ..data import convert as convert_graph

    with Progress(f"reading {src}") as progress:
        report = convert_graph(
            src,
            dst,
            format=format or None,
            features=features or None,
            labels=labels or None,
            split=split or None,
            progress=progress,
        )
    if as_json:
        write_json(report)
    else:
        write(fields_table(f"{src} -> {dst}", report))
    say(f"wrote {dst}; try: spgnn info {dst}")
