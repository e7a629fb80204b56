"""Make command-line options of the dataclasses in spgnn.config: one field, one option, one TOML key."""

from __future__ import annotations

import functools
import inspect
import os
import re
import typing
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ..config import PRESETS, SourceConfig, TrainConfig, continued, layered, preset_options, sections, toml_values
from ..config.names import FORMATS, MODELS, PARTITIONERS, SAMPLERS, SCHEMES
from ..errors import UsageError

GRAPH_HELP = """\b
GRAPH is one of:
  a name    wordnet, or a generated graph such as rmat:scale=12,degree=16
  a folder  of `spgnn convert`, GraphSAINT or OGB; tables with tables.toml
  a file    edge list, MatrixMarket, METIS, .npz ...; Planetoid's prefix
"""
EDGES_HELP = """\b
Of an edge u -> v in GRAPH, --edges makes
  in    v read u, as in PyG and DGL (also: reversed)
  out   u read v (also: directed)
  both  each read the other (also: undirected)
  auto  in for graphs of from_pyg and from_dgl, both for others
"""
MODEL_HELP = "\b\nFamilies of models:\n" + "".join(f"  {name:14}{what}\n" for name, what in MODELS.items())
SAMPLER_HELP = (
    "\b\nSamplers, each with its options; a step then trains on subgraphs:\n"
    + "".join(f"  {name:11}{what}\n" for name, what in SAMPLERS.items())
    + "The first four are corrected for how often they draw a node (--normalise).\n"
)
METHOD_HELP = """\b
Partitioners:
  metis                    METIS k-way, minimises the edge cut
  volume                   minimises the rows sent, from several starts
  entropy                  METIS, edges weighted by similarity of features
  spring, spring+          streaming clustering, spring+ in levels, refined
  dbh, greedy, hdrf, 2psl  streaming vertex cuts
  block, random            contiguous nodes, random nodes
"""
BALANCE_HELP = """\
With metis and volume, --balance bounds the work of a part; with entropy,
spring and spring+ its nodes; the others ignore it.
"""
PRESET_HELP = "\n".join(("\b\nPresets:", *(f"  {name:17}{preset.source}" for name, preset in PRESETS.items())))
# What a shell completes: values of parameters, and files or folders by what help shows as the value.
NAMES = {
    **dict.fromkeys(("method", "start"), PARTITIONERS), "model": MODELS, "sampler": ("none", *SAMPLERS),
    "scheme": ("auto", "flat", *SCHEMES), "objective": ("columns", "cover", "cut", "vol"),
    "split": ("auto", "given", "random"), "format": FORMATS, "features": ("degree", "ones", "identity"),
    "preset": tuple(PRESETS), "help": ("all",),
}  # fmt: skip
FILES = {"file": {"FILE", "GRAPH", "SRC"}, "dir": {"DIR", "RUN", "DST"}}
# How several are given at once.
TABLES = "FILE:COLUMN,COLUMN takes columns of one table; join several by their ids first, in pandas A.merge(B, on=ID)"
TWICE = dict.fromkeys(("features", "labels", "split"), TABLES)
TWICE |= dict.fromkeys(("one_hot", "edge_features", "antisymmetric"), "separate columns by commas: A,B")
FLAGS_WIDTH = 24  # columns of the flags; help text has the rest of 80


class Sections(click.Command):
    """A command whose help lists the options of its config under the headings of their groups.

    Args: first  names of the options that --help shows; "": all. --help all shows the others too, and `tables`.
    """

    def __init__(self, *args: Any, first: str = "", tables: str = "", **settings: Any):
        super().__init__(*args, **settings, add_help_option=False)
        self.first, self.tables = first.split(), tables
        settings = {"help": "show this text", "is_flag": True}
        if first:
            settings = {"help": "show these options, or all", "flag_value": "short", "metavar": "[all]"}
            settings |= {"is_flag": False, "shell_complete": complete}
        flags = ["-h", "--help"]
        self.params.append(click.Option(flags, callback=_show_help, expose_value=False, is_eager=True, **settings))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; of an option that is given twice click takes the last one, but not of columns."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for param in dict.fromkeys(given):
                if given.count(param) > 1 and param.name in TWICE:
                    flags, way = max(param.opts, key=len), TWICE[param.name]
                    raise UsageError(f"{flags} is given {given.count(param)} times; {way}")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = {p.name: p for p in self.get_params(ctx) if isinstance(p, click.Option)}
        groups = dict(getattr(self.callback, "sections", {}))
        named = {name for names in groups.values() for name in names}
        groups["Options"] = tuple(name for name in params if name not in named)
        is_short = bool(self.first) and ctx.meta.get("help") != "all"
        if len(groups) > 1:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text("Defaults are in [brackets].")
        for heading, names in groups.items():
            shown = [name for name in names if not is_short or heading == "Options" or name in self.first]
            if shown:
                with formatter.section(heading):
                    formatter.write_dl([_help_row(params[name]) for name in shown], col_max=FLAGS_WIDTH)
        if is_short:
            more = sum(name not in self.first for name in named)
            formatter.write_paragraph()
            formatter.write_text(f"{more} more options: {ctx.command_path} --help all")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        is_all = not self.first or ctx.meta.get("help") == "all"
        for text in (self.epilog, self.tables if is_all else ""):
            if text:
                formatter.write_paragraph()
                with formatter.indentation():
                    formatter.write_text(inspect.cleandoc(text))


class OneProcess(Sections):
    """A command for one process; under a launcher every rank would do the same work and overwrite the same files."""

    def invoke(self, ctx: click.Context) -> Any:
        from ..dist.job.protect import find_launcher

        launcher = find_launcher(os.environ)
        if launcher is not None and launcher.size > 1:
            started = f"{launcher.name} started {launcher.size}"
            raise UsageError(f"{ctx.command_path} runs in one process, {started}; run it without a launcher")
        return super().invoke(ctx)


def complete(_: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return what a shell completes a value to: names of what the parameter takes, the last of a list; files or folders."""
    listed, comma, last = incomplete.rpartition(",")
    kinds = [kind for kind, metavars in FILES.items() if set(re.findall(r"\w+", str(param.metavar))) & metavars][:1]
    known = NAMES.get(param.name, ())
    if param.name in ("graph", "src"):
        from ..data.load import BUILT_IN as known
    elif param.name == "machine":
        from ..cost.machines import machine_names

        known = machine_names()
    is_shown = incomplete or not kinds  # bash completes files only where there is no name
    names = [CompletionItem(listed + comma + name) for name in known if name.startswith(last) and is_shown]
    return [CompletionItem(incomplete, type=kind) for kind in kinds] + names


def graph_argument(command: Callable) -> Callable:
    """Add the argument GRAPH."""
    return click.argument("graph", metavar="GRAPH", shell_complete=complete)(command)


def group_options(group: type) -> Callable:
    """Return the decorator that adds the options of a group or config."""

    def decorate(command: Callable) -> Callable:
        hints = typing.get_type_hints(group)
        for f in reversed(fields(group)):
            command = _option(f, hints[f.name])(command)
        return command

    return decorate


def field_option(group: type, name: str) -> Callable:
    """Return the decorator that adds one option of a group."""
    return _option(group.__dataclass_fields__[name], typing.get_type_hints(group)[name])


source_options = group_options(SourceConfig)


def output_options(command: Callable) -> Callable:
    """Add --json and --debug, which every command has."""
    text = "show the traceback of an error"
    command = click.option("--debug", is_flag=True, expose_value=False, callback=_set_debug, help=text)(command)
    return click.option("--json", "as_json", is_flag=True, help="print JSON, one object per line")(command)


def config_options(cls: type) -> Callable:
    """Return the decorator that adds GRAPH, --config, of a training --preset, and an option for each field of cls.

    The command gets `graph` and `config`.
    """
    text = "TOML file of options; the command line wins"
    layers = {"config": click.option("--config", metavar="FILE", help=text, shell_complete=complete)}
    if cls is TrainConfig:
        text = "options of a paper; given ones win"
        layers = {"preset": click.option("--preset", metavar="NAME", help=text, shell_complete=complete)} | layers

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def body(graph: str | None, config: str | None, preset: str | None = None, **values: Any) -> Any:
            given = {f.name: values.pop(f.name) for f in fields(cls)}
            source_of = click.get_current_context().get_parameter_source
            given = {name: value for name, value in given.items() if source_of(name) != ParameterSource.DEFAULT}
            graph, settings = _settings(cls, graph or "", config, preset or "", given)
            return command(graph=graph, config=settings, **values)

        vars(body)["sections"] = {"Many options at once": tuple(layers)} | sections(cls)
        added = [*layers.values(), group_options(cls)]
        for add in reversed(added):
            body = add(body)
        return click.argument("graph", metavar="GRAPH", required=False, shell_complete=complete)(body)

    return decorate


def _settings(cls: type, graph: str, file: str | None, preset: str, given: dict[str, Any]) -> tuple[str, Any]:
    """Return GRAPH and a cls: the preset, overridden by the TOML file, and that by the options that are given.

    The file may name GRAPH and, of a training, the preset. A training with --resume has the options of its run.
    """
    in_file = {name.replace("-", "_"): value for name, value in (toml_values(file) if file else {}).items()}
    named = in_file.pop("graph", "")
    graph = graph or named
    if cls is TrainConfig:
        named = in_file.pop("preset", "")
        preset = preset or str(named)
    first = preset_options(preset) if preset else {}
    # cli.failure reads it: a message about one of these options says that the preset has set it.
    click.get_current_context().meta["preset"] = preset, first.keys() - in_file.keys() - given.keys()
    settings = layered(cls, first | in_file, file or "command line", given)
    if getattr(settings, "resume", ""):
        graph, settings = continued(graph, first | in_file | given)
    if not isinstance(graph, str) or not graph:
        raise UsageError("GRAPH is missing; give a built-in name such as wordnet, a file or a folder")
    return graph, settings


def flag(name: str) -> str:
    """Return the long flag of a field, weight_decay -> --weight-decay."""
    return "--" + name.replace("_", "-")


def words(name: str, text: str) -> list[str]:
    """Return the words of a list option, separated by commas, each once."""
    return list(dict.fromkeys(_listed(name, text)))


def integers(name: str, text: str) -> tuple[int, ...]:
    """Return the positive integers of a list option, separated by commas, each once."""
    found = _listed(name, text)
    if len(found) <= text.count(",") or not all(
        word.isascii() and word.isdecimal() and len(word) < 10 and int(word) > 0 for word in found
    ):
        raise UsageError(f"{_typed(name)} {text!r}; expected positive integers separated by commas, such as 4,16")
    return tuple(dict.fromkeys(map(int, found)))


def _typed(name: str) -> str:
    """Return the flag that people type: -k, --method."""
    return flag(name) if len(name) > 1 else f"-{name}"


def _listed(name: str, text: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise UsageError(f"{_typed(name)} is empty; expected one or more, separated by commas")
    return found


def _option(f: Field, hint: Any) -> Callable:
    """Return the decorator of the option of a field: its type, choices, bounds, default and help."""
    alias = f.metadata["alias"]
    flags = [f"-{f.name}"] * (len(f.name) == 1) + [flag(f.name)] + [flag(alias)] * bool(alias)
    low, high = f.metadata["low"], f.metadata["high"]
    kind, metavar = hint, f.metadata["metavar"] or "NAME"
    more: dict[str, Any] = {}
    if hint is bool:
        flags = [f"{flag(f.name)}/--no-{f.name.replace('_', '-')}"]
    elif typing.get_origin(hint) is typing.Literal:
        kind, metavar = click.Choice(typing.get_args(hint)), f.metadata["metavar"] or "|".join(typing.get_args(hint))
    elif hint in (int, float):
        kind, metavar = (click.IntRange(low, high), "N") if hint is int else (click.FloatRange(low, high), "X")
    if f.metadata["alone"]:
        more = {"is_flag": False, "flag_value": f.metadata["alone"]}
    if kind is str:
        more["shell_complete"] = complete
    return click.option(*flags, f.name, type=kind, metavar=metavar, default=f.default, help=f.metadata["help"], **more)


def _help_row(option: click.Option) -> tuple[str, str]:
    """Return flags and help of an option, its default in brackets."""
    value = option.default
    if option.secondary_opts:
        return f"--[no-]{option.opts[0][2:]}", f"{option.help} [{'on' if value else 'off'}]"
    if option.is_flag:
        return ", ".join(option.opts), str(option.help)
    if isinstance(value, (int, float)):
        value = f"{value:g}"
    default = f" [{value}]" if isinstance(value, str) and value else ""
    return f"{', '.join(option.opts)} {option.metavar}", f"{option.help}{default}"


def _show_help(ctx: click.Context, _: click.Parameter, value: str | bool | None) -> None:
    """Print the help and leave; ctx.meta["help"] is what --help was given."""
    if value and not ctx.resilient_parsing:
        ctx.meta["help"] = value
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _set_debug(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        os.environ["SPGNN_DEBUG"] = "1"  # spgnn.dist reads it where an error ends the job
