"""spgnn on the command line: argv -> config -> verb.

Each command imports what it needs when it runs, so that help starts neither torch nor MPI.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

import click

from .. import __version__
from ..errors import ResourceError, SpgnnError, UsageError, is_out_of_memory, message_lines
from .console import page_width
from .failure import explaining

# In the order of a day's work.
COMMANDS = {
    "train": "Train a model on all nodes, on subgraphs or on parts.",
    "predict": "Predict with the weights of a run.",
    "report": "Write tables and figures of runs as one HTML file.",
    "info": "Show what a graph holds.",
    "check": "Check every array and checksum of a graph.",
    "convert": "Read a graph and write it as a native folder.",
    "partition": "Cut a graph into k parts.",
    "measure": "Predict what a training sends.",
    "plan": "Predict memory, bytes and time of a training.",
    "verify": "Find the module of a model that depends on the ranks.",
    "doctor": "Check launcher, threads, MPI and speed.",
}
FILES = dict.fromkeys(("info", "check", "convert"), "source")  # command -> module, if it has another name
EXIT_CODES = "Exit codes: 0 success, 2 usage, 3 bad input, 4 resources, 5 numerical, 6 not exact, 70 watchdog, 75 stopped, 130 interrupted, 1 other."


class Commands(click.Group):
    """The group of COMMANDS; a command is imported when it is called or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and self.commands.get(cmd_name) is None:
            module = import_module(f".{FILES.get(cmd_name, cmd_name)}", __name__)
            self.commands[cmd_name] = getattr(module, cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    commands=dict.fromkeys(COMMANDS),  # names for a suggestion
    epilog=EXIT_CODES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="spgnn", message="%(prog)s %(version)s")
@click.pass_context
def spgnn(ctx: click.Context) -> None:
    """Train graph neural networks on all nodes, on subgraphs or on parts; on one machine or under MPI.

    \b
    A first run, on the bundled graph:
      spgnn train wordnet --epochs 60
      mpirun -n 4 spgnn train wordnet --epochs 60

    Results go to stdout, messages to stderr. `spgnn COMMAND --help` lists the options of a command.
    """
    if ctx.invoked_subcommand is None:
        ctx.terminal_width = page_width(sys.stderr)
        click.echo(ctx.get_help(), err=True)
        ctx.exit(UsageError.exit_code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; an error becomes one message on stderr.

    Under a launcher an error ends the whole job, see spgnn.dist.job.protect.
    """
    return run_command(spgnn, "spgnn", argv)


def run_command(command: click.Command, name: str, argv: Sequence[str] | None = None) -> int:
    """Run a command as main does; scripts in runs/ have commands too."""
    _stand_in_for_closed()
    warnings.formatwarning = lambda message, category, filename, lineno, line=None: message_lines(
        str(message), sys.stderr
    )
    SpgnnError.is_of_main, was = True, SpgnnError.is_of_main
    try:
        with explaining():
            for word in sys.argv[1:] if argv is None else argv:
                if "\n" in word:  # a message with it would have lines that are not spgnn's
                    raise UsageError(f"{word!r} has a line break; expected none in names and options")
            code = command.main(argv, prog_name=name, standalone_mode=False, terminal_width=page_width(sys.stdout))
            sys.stdout.flush()
        return code or 0
    except BaseException as error:
        return _fail(error)
    finally:
        SpgnnError.is_of_main = was


def _stand_in_for_closed() -> None:
    """Give standard files that were closed a reader or writer of nothing, before a file of ours gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))


def _fail(error: BaseException) -> int:
    try:
        from ..dist import run_protected  # here: it brings NumPy, which help does not need
    except Exception as missing:
        if not is_out_of_memory(missing):
            raise
        # What reports an error does not fit.
        sys.stderr.write("spgnn: error: out of memory: an allocation failed\n")
        return ResourceError.exit_code

    def body() -> None:
        raise error

    return run_protected(body)
