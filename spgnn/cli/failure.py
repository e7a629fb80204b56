"""Explain an error to a person: one message, one exit code."""

from __future__ import annotations

import errno
import traceback

import click

from ..errors import InputError, ResourceError, SpgnnError, UsageError

INTERRUPTED = 130
UNEXPECTED = 1
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def explain(error: BaseException) -> tuple[str, int]:
    """Return the message of an error, with its end of line, and the exit code."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            return error.ctx.get_help() + "\n", UsageError.exit_code
        case click.exceptions.Exit():
            return "", error.exit_code
        case click.UsageError():
            return _usage(error), UsageError.exit_code
        case KeyboardInterrupt() | click.Abort():
            return "spgnn: interrupted\n", INTERRUPTED
        case SystemExit():
            return "", error.code if isinstance(error.code, int) else int(error.code is not None)
        case SpgnnError():
            return _line(str(error)), error.exit_code
        case BrokenPipeError():
            return "", 0
        case MemoryError():
            return _line(f"out of memory: {error or 'an allocation failed'}"), ResourceError.exit_code
        case OSError():
            code = ResourceError.exit_code if error.errno in FULL else InputError.exit_code
            where = f"{error.filename}: " if error.filename else ""
            return _line(f"{where}{error.strerror or error}"), code
        case _:
            # torch has no class of its own for a failed allocation.
            if "can't allocate memory" in str(error):
                return _line(f"out of memory: {error}"), ResourceError.exit_code
            return _line(f"unexpected {type(error).__name__}: {error}; --debug shows where"), UNEXPECTED


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error, its causes included."""
    return "".join(traceback.format_exception(error))


def _line(message: str) -> str:
    return f"spgnn: error: {message}\n"


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoSuchOption) and error.possibilities:
        message = f"no such option {error.option_name}; did you mean {' or '.join(sorted(error.possibilities))}?"
    command = error.ctx.command_path if error.ctx else "spgnn"
    return _line(f"{message[:1].lower()}{message[1:]}") + f"`{command} --help` shows what it takes.\n"
