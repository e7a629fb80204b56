"""Lines for the person at a terminal or a notebook: messages on stderr, and one line that is rewritten."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from .errors import as_given, message_lines


def say(message: str) -> None:
    """Write one message line to stderr, with options as they were given; on a terminal a line of `redraw` makes way."""
    sys.stderr.write(("\r\x1b[K" if sys.stderr.isatty() else "") + message_lines(as_given(message), sys.stderr))
    sys.stderr.flush()


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows stdout below a cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def terminal_columns() -> int:
    """Return the columns of the terminal on stderr; 80 if there is none or its size is unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return shutil.get_terminal_size().columns


def redraw(parts: Mapping[str, str], separator: str, omit: Sequence[str], in_notebook: bool = False) -> None:
    """Rewrite one line of the terminal, or of the output of a cell; it must fit, as a wrapped line would stay.

    Args: omit  names of parts to omit, in this order, until the rest fits.
    """
    parts, room = dict(parts), 100 if in_notebook else terminal_columns() - 1  # it may wrap after its last column
    for name in omit:
        if len(separator.join(parts.values())) > room:
            parts.pop(name, None)
    line, stream = separator.join(parts.values())[:room], sys.stdout if in_notebook else sys.stderr
    stream.write(f"\r{line:<{room}}" if in_notebook else f"\r\x1b[K{line}")
    stream.flush()
