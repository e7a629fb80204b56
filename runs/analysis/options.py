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
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import click

from spgnn import __version__
from spgnn.analysis.study import Study, study
from spgnn.analysis.study_files import check_folder, load_study
from spgnn.cli import run_command
from spgnn.cli.console import say
from spgnn.cli.options import OneProcess, config_options, integers, widths_of, words
from spgnn.cli.source import load
from spgnn.config import BALANCE, MOST_BALANCE, MOST_SEED, SourceConfig, option
from spgnn.machine import cores, cpu_name

SECTIONS = {
    "What to compare": ("k", "method", "scheme", "replication", "widths", "width", "seed", "balance"),
    "Graph": ("edges", "format", "features", "labels"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig(SourceConfig):
    """The options of a study; lists are comma-separated."""

    k: str = option("4,16,64", "numbers of parts", short="k")
    method: str = option(
        "all", "partitioners, options behind colons (metis:objective=vol); all: every one that is registered"
    )
    scheme: str = option("columns,cover", "exchange schemes: broadcast, columns, cover")
    replication: str = option("1", "replication factors c of 1.5D, each a divisor of k")
    widths: str = option("", "layer widths, input to output; default: features, 128, classes")
    width: int = option(
        0, "columns of the one SpMM whose MB are shown; 0: the first of the widths", low=0, high=999_999_999
    )
    seed: int = option(0, "seed", low=0, high=MOST_SEED)
    balance: float = option(1.03, BALANCE, low=1, high=MOST_BALANCE)
    edges: Literal["undirected", "directed", "reversed"] = option("undirected", "how the stored edges are used")


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
            cls=OneProcess, sections=SECTIONS, short_help=summary, context_settings={"max_content_width": 110}
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
