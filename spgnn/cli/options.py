"""Make command-line options of the dataclasses in spgnn.config: one field, one option, one TOML key."""

from __future__ import annotations

import functools
import os
import tomllib
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path

import click
from click.core import ParameterSource

from ..config import SourceConfig, build, read_toml
from ..errors import UsageError

GRAPH_HELP = """\b
GRAPH is one of:
  a built-in name   wordnet, or a generated graph such as rmat:scale=12,degree=16
  a folder          that `spgnn convert` wrote, or GraphSAINT's, or OGB's raw one
  a file            edge list, MatrixMarket, METIS, .npz ...; Planetoid's common prefix
"""

METAVARS = {
    "features": "FILE",
    "labels": "FILE",
    "partition": "DIR",
    "out": "DIR",
    "trace": "FILE",
    "split": "WHICH",
    "k": "4,16,...",
    "method": "NAME",
    "replication": "1,2,...",
    "widths": "300,16,...",
    "ranks": "4,16,...",
    "machine": "NAME|FILE",
}


class Sections(click.Command):
    """A command whose help lists its options under headings.

    Args: sections  {heading: names of options}; what none names stands under "Options".
    """

    def __init__(self, *args, sections: Mapping[str, tuple[str, ...]] | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.sections = dict(sections or {})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = {name for names in self.sections.values() for name in names}
        params = {p.name: p for p in self.get_params(ctx) if isinstance(p, click.Option)}
        groups = self.sections | {"Options": tuple(name for name in params if name not in named)}
        for heading, names in groups.items():
            with formatter.section(heading):
                formatter.write_dl([params[name].get_help_record(ctx) for name in names])


class OneProcess(Sections):
    """A command for one process: under a launcher each rank would do the same and write over the others."""

    def invoke(self, ctx: click.Context):
        from ..dist.launch import find_launcher

        launcher = find_launcher(os.environ)
        if launcher is not None and launcher.size > 1:
            raise UsageError(
                f"{ctx.command_path} is one process, {launcher.name} started {launcher.size}; run it without a launcher"
            )
        return super().invoke(ctx)


def graph_argument(command: Callable) -> Callable:
    """Add the argument GRAPH."""
    return click.argument("graph", metavar="GRAPH")(command)


def source_options(command: Callable) -> Callable:
    """Add --format, --features, --labels: what a graph's own files do not say."""
    for f in reversed(fields(SourceConfig)):
        command = _option(f, str)(command)
    return command


def output_options(command: Callable) -> Callable:
    """Add --json and --debug, which every command has."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="show the traceback of an error"
    )(command)
    return click.option("--json", "as_json", is_flag=True, help="print JSON, one object a line, instead of a table")(
        command
    )


def config_options(cls: type) -> Callable:
    """Return the decorator that adds GRAPH, --config and an option for each field of cls.

    The command gets `graph` and `config`: what the TOML file says, the command line on top.
    """

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def body(graph, config, **values):
            given = {f.name: values.pop(f.name) for f in fields(cls)}
            source_of = click.get_current_context().get_parameter_source
            given = {name: value for name, value in given.items() if source_of(name) != ParameterSource.DEFAULT}
            settings = read_toml(cls, config, given) if config else build(cls, given, "command line")
            out = getattr(settings, "out", "")
            if config and out and "out" not in given and Path(out).resolve() == Path(config).resolve().parent:
                raise UsageError(
                    f"--config {config} is of the results in {out}, which would be replaced; name a folder with --out, that one or another"
                )
            return command(graph=graph or _graph_in(config), config=settings, **values)

        hints = typing.get_type_hints(cls)
        for f in reversed(fields(cls)):
            body = _option(f, hints[f.name])(body)
        body = click.option(
            "--config", metavar="FILE", help="TOML file of these options; the command line goes on top"
        )(body)
        return click.argument("graph", metavar="GRAPH", required=False)(body)

    return decorate


def flag(name: str) -> str:
    """Return the long flag of a field: weight_decay -> --weight-decay."""
    return "--" + name.replace("_", "-")


def words(name: str, text: str) -> list[str]:
    """Return the words of a list option, separated by commas, each once."""
    return list(dict.fromkeys(_listed(name, text)))


def integers(name: str, text: str) -> tuple[int, ...]:
    """Return the positive integers of a list option, separated by commas, each once."""
    return tuple(dict.fromkeys(widths_of(text, name)))


def widths_of(text: str, name: str = "widths") -> tuple[int, ...]:
    """Return the positive integers of --widths, which may repeat."""
    found = _listed(name, text)
    if len(found) <= text.count(",") or not all(
        word.isascii() and word.isdecimal() and len(word) < 10 and int(word) > 0 for word in found
    ):
        raise UsageError(f"{flag(name)} {text!r}; expected positive integers separated by commas, such as 4,16")
    return tuple(int(word) for word in found)


def _listed(name: str, text: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise UsageError(f"{flag(name)} is empty; expected one or more, separated by commas")
    return found


def _option(f: Field, hint: type) -> Callable:
    """Return the decorator of the option of a field: its type, choices, bounds, default and help."""
    flags = ([f"-{f.metadata['short']}"] if f.metadata["short"] == f.name else []) + [flag(f.name)]
    if hint is bool:
        flags = [f"{flag(f.name)}/--no-{f.name.replace('_', '-')}"]
    low, high = f.metadata["low"], f.metadata["high"]
    kind, metavar = hint, None
    if typing.get_origin(hint) is typing.Literal:
        kind = click.Choice(typing.get_args(hint))
        metavar = "|".join(typing.get_args(hint))
    elif hint in (int, float):
        kind, metavar = (click.IntRange(low, high), "N") if hint is int else (click.FloatRange(low, high), "X")
    elif hint is str:
        metavar = f.metadata["metavar"] or METAVARS.get(f.name, "NAME")
    return click.option(
        *flags,
        f.name,
        type=kind,
        default=f.default,
        metavar=metavar,
        help=f.metadata["help"],
        show_default=f.default != "",
    )


def _graph_in(config: str | None) -> str:
    """Return the `graph` of a TOML file, which the config.toml of a run has."""
    graph = tomllib.loads(Path(config).read_text(encoding="utf-8")).get("graph") if config else None
    if not isinstance(graph, str) or not graph:
        raise UsageError("GRAPH is missing: a built-in name such as wordnet, a file or a folder")
    return graph


def _set_debug(_, __, value: bool) -> None:
    if value:
        # spgnn.dist reads it, on this rank and wherever an error ends the job.
        os.environ["SPGNN_DEBUG"] = "1"
