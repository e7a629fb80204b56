"""Give every error the message and exit code of one of spgnn's own; spgnn.dist reports it and ends the job."""

from __future__ import annotations

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import click

from ..errors import (
    InputError,
    NumericalError,
    RankError,
    ResourceError,
    SpgnnError,
    StoppedError,
    UsageError,
    is_out_of_memory,
    nearest,
)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class CommandError(SpgnnError):
    """An error as the command line shows it, with its exit code; where the run in `out` can be continued, with the command."""

    def __init__(self, error: SpgnnError, out: str = ""):
        message = f"error: {error}{_set_by_preset(str(error))}"
        would_recur = isinstance(error, (UsageError, InputError, NumericalError))
        if out and not would_recur and _has_checkpoint(Path(out)):
            message += f"\n  spgnn train --resume {out} continues the run"
        super().__init__(message)
        self.exit_code = error.exit_code


def _has_checkpoint(run: Path) -> bool:
    from ..config.continued import has_checkpoint  # slow to import: it has all options

    return has_checkpoint(run)


@contextmanager
def explaining(out: str = "") -> Generator[None]:
    """Raise every error of the block as the command line shows it.

    RankError stays as it is, as another rank has shown it, and StoppedError, which is no failure.
    Args: out  folder of the run that the block trains.
    """
    try:
        yield
    except BaseException as error:
        found = explained(error)
        if isinstance(found, SpgnnError) and not isinstance(found, (CommandError, RankError, StoppedError)):
            raise CommandError(found, out) from error
        if found is error:
            raise
        raise found from error


def explained(error: BaseException) -> BaseException:
    """Return an error of click, Python or torch as one of spgnn's, which has an exit code; else error itself."""
    match error:
        case click.UsageError():
            return UsageError(_usage(error))
        case click.Abort():
            return KeyboardInterrupt()
        case SystemExit(code=1):
            return BrokenPipeError()  # click's exit when the reader of stdout has gone; nothing else here leaves so
        case SpgnnError() | SystemExit() | KeyboardInterrupt() | BrokenPipeError():
            return error
        case _ if is_out_of_memory(error):
            return ResourceError(f"out of memory: {str(error) or 'an allocation failed'}")
        case OSError():
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            return ResourceError(message) if error.errno in FULL else InputError(message)
        case _:
            return SpgnnError(f"unexpected {type(error).__name__}: {error}; --debug shows where")


def _set_by_preset(message: str) -> str:
    """Return a note on the options in a message that --preset has set: nobody has typed them."""
    context = click.get_current_context(silent=True)
    preset, names = (context.meta.get("preset") if context else None) or ("", ())
    flags = [f"--{name.replace('_', '-')}" for name in sorted(names)]
    named = [flag for flag in flags if re.search(rf"{flag}(?![\w-])", message)]
    return f" ({', '.join(named)}: set by --preset {preset})" if named else ""


def _of_value(message: str, kind: click.ParamType) -> str:
    """Return click's message about a value, with the nearest choice."""
    message = message.replace("valid integer range", "valid integer").replace("valid float range", "valid number")
    value = re.search("'([^']*)' is not one of ", message)
    hint = nearest(value[1], kind.choices) if value and isinstance(kind, click.Choice) else ""
    return message + (hint if "did you mean" in hint else "")


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption) and error.ctx:
        from ..config.groups import TableConfig  # slow to import

        params = error.ctx.command.get_params(error.ctx)
        known = [flag for param in params for flag in param.opts]
        of_tables = {f"--{field.name.replace('_', '-')}" for field in fields(TableConfig)}
        is_elsewhere = error.option_name in of_tables and error.ctx.info_name != "convert"
        hint = "; it is an option of `spgnn convert`" if is_elsewhere else nearest(error.option_name, known)
        message = f"no such option {error.option_name}{hint}"
    elif isinstance(error, click.BadParameter) and error.param is not None:
        message = _of_value(message, error.param.type)
    elif (
        (name := re.match("No such command '(.*?)'", message))
        and error.ctx
        and isinstance(group := error.ctx.command, click.Group)
    ):
        message = f"no such command {name[1]!r}{nearest(name[1], group.list_commands(error.ctx))}"
    command = error.ctx.command_path if error.ctx else "spgnn"
    return f"{message[:1].lower()}{message[1:]} (see `{command} --help`)"
