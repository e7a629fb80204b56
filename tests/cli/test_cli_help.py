"""Help is quick, complete, and starts neither torch nor MPI."""

import re
import typing
from dataclasses import fields

import click
import pytest
from command_line import in_python
from test_frozen_options import CONFIGS

from spgnn import cli
from spgnn.cli.options import _help_row
from spgnn.config.names import PARTITIONERS

COMMANDS = tuple(cli.COMMANDS)
RUN = """
import sys, time
from spgnn.cli import main
for line in sys.argv[1:]:
    main(line.split())
modules = [name for name in ("torch", "scipy", "numpy", "mpi4py") if name in sys.modules]
print(time.process_time(), *modules, file=sys.stderr)
"""


def options_of(command: str) -> dict:
    """Options and arguments that help shows."""
    return {p.name: p for p in cli.spgnn.get_command(None, command).params if not getattr(p, "hidden", 0)}


@pytest.mark.parametrize("lines", [["train --help"], ["--help", "--version", *(f"{c} --help" for c in COMMANDS)]])
def test_help_takes_under_half_a_second_and_imports_no_library_of_numbers(lines):
    seconds, *modules = in_python(RUN, *lines).stderr.splitlines()[-1].split()
    assert modules == []
    # Processor seconds from the start of the interpreter: other tests may keep the machine busy.
    assert float(seconds) < 0.5


def test_the_first_help_reads_no_options_of_commands():
    assert in_python("import sys, spgnn.cli; sys.exit('spgnn.config' in sys.modules)").returncode == 0


@pytest.mark.parametrize("command", CONFIGS)
def test_every_field_of_the_config_is_an_option_with_its_default_choices_and_help(command, capsys):
    cls, options = CONFIGS[command], options_of(command)
    hints = typing.get_type_hints(cls)
    for field in fields(cls):
        option = options[field.name]
        assert "--" + field.name.replace("_", "-") in option.opts
        assert option.default == field.default
        assert option.help == field.metadata["help"]
        if typing.get_origin(hints[field.name]) is typing.Literal:
            assert tuple(option.type.choices) == typing.get_args(hints[field.name])
        if hints[field.name] in (int, float):
            assert (option.type.min, option.type.max) == (field.metadata["low"], field.metadata["high"])


@pytest.mark.parametrize("command", CONFIGS)
def test_help_lists_every_option_once(command, capsys):
    cli.main([command, "--help", "all"])
    listing = capsys.readouterr().out.partition("[brackets]")[2]
    lines = [line.split() for line in listing.splitlines() if line.startswith("  -")]
    listed = [word.rstrip(",").replace("[no-]", "") for words in lines for word in words[:3] if word.startswith("--")]
    expected = [opt for p in options_of(command).values() for opt in p.opts if opt.startswith("--")]
    assert sorted(listed) == sorted(expected)
    cli.main([command, "-h"])
    short = capsys.readouterr().out
    shown = set(re.findall(r"^  (?:-\w, )?(--[^\s,]+)", short.partition("[brackets]")[2], re.M))
    assert len(short.splitlines()) <= 100 and {"--help", "--json", "--config"} < shown < set(
        re.findall(r"--[^\s,]+", listing)
    )
    assert (
        f"{len(options_of(command).keys() - {'graph', 'made'}) - len(shown)} more options: spgnn {command} --help all"
        in short
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_the_text_of_an_option_its_line(command, capsys):
    cli.main([command, "--help", "all"] if command in CONFIGS else [command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if len(line) > 80]
    helps = {param.name: _help_row(param) for param in options_of(command).values() if isinstance(param, click.Option)}
    broken = [name for name, (_, text) in helps.items() if not any(line.endswith(text) for line in lines)]
    assert not broken


def test_help_names_every_partitioner_and_format(capsys):
    from spgnn.data import known_formats

    for command, names in (("convert", known_formats()), ("train", PARTITIONERS), ("measure", PARTITIONERS)):
        cli.main([command, "--help", "all"] if command in CONFIGS else [command, "--help"])
        words = set(re.split(r"[\s,;]+|\.\s", capsys.readouterr().out))
        assert not [name for name in names if name not in words]


def test_without_a_command_help_is_shown_and_the_exit_code_is_2(capsys):
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Commands:" in err


def test_balance_is_ignored_by_the_methods_of_which_help_says_so(capsys):
    from spgnn import load_graph, part_graph

    assert cli.main(["partition", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "bounds the work of a part; with entropy, spring and spring+ its nodes; the others ignore it" in said
    graph = load_graph("sbm:n=300")
    for method in ("block", "random", "dbh", "greedy", "hdrf", "2psl"):
        tight, loose = (part_graph(graph, 8, method, balance=balance) for balance in (1.0, 3.0))
        assert (tight.owner_N == loose.owner_N).all(), method
