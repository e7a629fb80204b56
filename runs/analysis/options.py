"""What the scripts of this folder share: a study is read from its folder, or made of a GRAPH."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import click

from spgnn import __version__
from spgnn.analysis.study import Study, study
from spgnn.analysis.study_files import check_folder, load_study
from spgnn.cli import run_command
from spgnn.cli.console import say
from spgnn.cli.options import METHOD_HELP, OneProcess, config_options, integers, widths_of, words
from spgnn.cli.source import load
from spgnn.config import SourceConfig, changed, option
from spgnn.config.groups import EdgesConfig, ExchangeConfig, PartitionerConfig, SeedConfig, WidthsConfig
from spgnn.machine import cores, cpu_name

EPILOG = f"""{METHOD_HELP}

Options of a partitioner follow colons: metis:objective=vol. "all" is every registered partitioner.
"""


@dataclass(frozen=True, kw_only=True)
class StudyConfig(PartitionerConfig, SourceConfig, EdgesConfig):
    """The options of a study; lists are comma-separated."""

    heading = "Study"
    k: str = option("4,16,64", "numbers of parts", short=True, metavar="4,16,...")
    method: str = changed(PartitionerConfig, "method", "all", metavar="NAME,...", help="partitioners, see below")
    scheme: str = changed(
        ExchangeConfig, "scheme", "columns,cover", metavar="NAME,...", help="exchange schemes", heading="Study"
    )
    replication: str = changed(ExchangeConfig, "replication", "1", metavar="1,2,...", heading="Study")
    widths: str = changed(WidthsConfig, "widths", "", help="layer widths [features,128,classes]", heading="Study")
    width: int = option(0, "columns of the SpMM in MB; 0: the first width", low=0, high=999_999_999)
    seed: int = changed(SeedConfig, "seed", 0, heading="Partition")


def command(summary: str, check_out: Callable = check_folder) -> Callable:
    """Make f(study, source, **own options) a command of GRAPH or STUDY with the options of a study.

    What check_out refuses as --out is refused before anything is cut.
    """

    def decorate(f: Callable) -> click.Command:
        @functools.wraps(f)
        def body(graph: str, config: StudyConfig, **own) -> None:
            path = Path(graph)
            if own["out"]:
                check_out(Path(own["out"]))
            found = (
                load_study(path) if (path / "study.json").is_file() or path.suffix == ".jsonl" else make(graph, config)
            )
            f(found, path, **own)

        return click.command(
            cls=OneProcess, short_help=summary, epilog=EPILOG, context_settings={"max_content_width": 110}
        )(config_options(StudyConfig)(body))

    return decorate


def make(graph: str, config: StudyConfig) -> Study:
    """Return the study of a graph, with what repeats it."""
    ks, replications = integers("k", config.k), integers("replication", config.replication)
    widths = widths_of(config.widths) if config.widths else ()
    schemes, methods = words("scheme", config.scheme), words("method", config.method)
    loaded = load(graph, config.format, config.features, config.labels).with_edges(config.edges)
    made = {
        "command": shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "version": f"spgnn {__version__}, Python {platform.python_version()}",
        "machine": f"{cpu_name()}, {cores()} cores",
    }
    return study(
        loaded, ks, methods, schemes, replications, widths, config.width, config.seed, config.balance, made, say
    )


def main(command: click.Command) -> int:
    """Run a script and return its exit code; errors look like those of spgnn."""
    return run_command(command, os.path.basename(sys.argv[0]))
