"""Read the GRAPH that a command names; the commands info, check and convert.

They take what any known file or folder of a graph holds, of the parts of `spgnn partition` too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config.groups import EdgesConfig, OnConfig, SeedConfig, SplitFileConfig, TableConfig
from ..config.names import FORMATS, Edges, On
from ..errors import UsageError
from .console import PassBars, ProgressBar, say, write_json, write_report
from .console import write as write_lines
from .options import (
    GRAPH_HELP,
    OneProcess,
    complete,
    field_option,
    graph_argument,
    group_options,
    output_options,
    source_options,
)

if TYPE_CHECKING:
    from ..graph import Graph

EDGES_TEXT = {"undirected": "edges both ways", "directed": "edges out", "reversed": "edges in"}
SRC_HELP = f"""\b
SRC is a file, a folder, or the common prefix of files, as of Planetoid's and
of train, valid and test of triples, in one of the formats
  {", ".join(FORMATS[:7])},
  {", ".join(FORMATS[7:16])},
  {", ".join(FORMATS[16:])}.
"""


def load(graph: str, format: str = "", features: str = "", labels: str = "", split: str = "") -> Graph:
    """Return the Graph of a built-in name, a file or a folder, of parts too; an empty option is guessed."""
    from ..data import load_graph
    from ..partition.folder.store import PartitionFolder, is_partition

    with ProgressBar(f"reading {graph}") as progress:
        files = {"format": format, "features": features, "labels": labels, "split": split}
        files = {name: value for name, value in files.items() if value}
        if not is_partition(graph):
            read = load_graph(graph, **files, progress=progress)
        elif files:
            name = min(files)
            raise UsageError(f"--{name} {files[name]}: {graph} is a partition folder, which has its own; omit it")
        else:
            read = PartitionFolder(graph).graph()
    for note in read.notes() + read.label_notes():
        say(note)
    return read


@click.command(cls=OneProcess, epilog=GRAPH_HELP)
@graph_argument
@source_options
@group_options(SplitFileConfig)
@click.option("--write", is_flag=True, help="of tables: write tables.toml, guessed")
@output_options
def info(graph: str, format: str, features: str, labels: str, split: str, write: bool, as_json: bool) -> None:
    """Show sizes, features, labels and splits of GRAPH, or of the parts that `spgnn partition` wrote.

    Of a folder of tables it draws keys, foreign keys and what does not fit.
    """
    from ..data.table_schema import described, drawn, holds_tables, read_schema
    from ..graph import loaded_line
    from ..partition.folder.store import PartitionFolder, is_partition

    is_alone = not (format or features or labels or split)
    if write or (is_alone and holds_tables(Path(graph))):
        schema = read_schema(Path(graph), write)
        if as_json:
            write_json(described(schema))
        else:
            write_lines(drawn(schema))
        return
    if is_partition(graph) and is_alone:
        report = PartitionFolder(graph).describe()
    else:
        read = load(graph, format, features, labels, split)
        say(loaded_line(read))
        report = read.describe()
    write_report(graph, report, as_json)


@click.command(cls=OneProcess, epilog=GRAPH_HELP)
@graph_argument
@source_options
@group_options(SplitFileConfig)
@field_option(OnConfig, "on")
@field_option(EdgesConfig, "edges")
@field_option(SeedConfig, "seed")
@output_options
def check(graph: str, on: On, edges: Edges, seed: int, as_json: bool, **files: str) -> None:
    """Check every array of GRAPH, and the checksums of a native folder; or of the parts that `spgnn partition` wrote.

    With --task links its edges are split as `train` with the same --split, --edges and --seed does, and what leaks is
    shown. The exit code is 0 if the graph is valid; else it is 3, and the first error is printed. A split that was given
    may leak; one that was drawn may not.
    """
    from ..data import check as check_graph
    from ..partition.folder.check import check_parts
    from ..partition.folder.store import is_partition

    links = (edges, files.pop("split") or "auto", seed) if on == "links" else None
    if links is None and (edges, seed) != ("auto", 0):
        raise UsageError("--edges and --seed say how --task links splits edges; omit them")
    files = {name: value for name, value in files.items() if value}
    if is_partition(graph) and not files and links is None:
        with PassBars(graph) as passes:
            report = check_parts(graph, lambda done, total: passes("check parts", done, total))
    else:
        with ProgressBar(f"checking {graph}") as progress:
            report = check_graph(graph, progress=progress, links=links, **files)
    write_report(f"{graph} is valid", report, as_json)


@click.command(cls=OneProcess, epilog=SRC_HELP)
@click.argument("src", metavar="SRC", shell_complete=complete)
@click.argument("dst", metavar="DST", shell_complete=complete)
@source_options
@group_options(SplitFileConfig)
@group_options(TableConfig)
@output_options
def convert(src: str, dst: str, as_json: bool, **options: Any) -> None:
    """Read the graph SRC and write it as the native folder DST.

    \b
      spgnn convert planetoid/ind.cora graphs/cora
      spgnn convert edges.txt.gz graphs/web --features X.npy --labels y.npy

    Edges are stored as they are. DST appears complete or not at all. The report has the numbers of nodes,
    nonzeros, duplicates, self-loops, isolated nodes and dropped lines, and whether the graph is symmetric.
    """
    from ..data import convert as convert_graph

    given = {name: value for name, value in options.items() if value != ""}
    with ProgressBar(f"reading {src}") as progress:
        report = convert_graph(src, dst, progress=progress, **given)
    write_report(f"{src} -> {dst}", report, as_json)
    say(f"wrote {dst}; try: spgnn info {dst}")
