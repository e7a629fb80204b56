"""Read the files that pages are made of; a value that no page can show is an error with file, line and key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ..atomic import read_regular
from ..config.names import SCHEMES
from ..errors import InputError


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300  # nor nan, nor inf


def _is_whole(value) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _are_alike(value) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and one.keys() == value[0].keys() for one in value)


def _have_counts(value, *names: str) -> bool:
    return _are_alike(value) and all(_is_whole(one.get(name)) for one in value for name in names)


def _is_square(value) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list) and len(row) == len(value) and all(map(_is_whole, row)) for row in value
    )


SQUARE = "rows of as many whole numbers"
SCHEME = "one of " + ", ".join(SCHEMES)
# In the words of a message -> the test.
KINDS = {
    "a name": lambda value: isinstance(value, str) and value.isprintable(),
    SCHEME: lambda value: isinstance(value, str) and value in SCHEMES,
    "a number": _is_number,
    "a whole number": _is_whole,
    "a whole number above 0": lambda value: _is_whole(value) and value > 0,
    "an object": lambda value: isinstance(value, dict),
    "a list of names": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "a list of classes": lambda value: _have_counts(value, "class", "support"),
    "an explanation": lambda value: (
        isinstance(value, dict) and _have_counts(value.get("layers"), "layer", "bytes_forward", "bytes_backward")
    ),
    "a list of layers": lambda value: _are_alike(value) and all(_is_whole(one.get("f_in") or 0) for one in value),
    SQUARE: _is_square,
}


def _fault_of(values: Mapping, needed: Mapping[str, str], known: Mapping[str, str]) -> str:
    """Return what is wrong with an object, "" if nothing is.

    Args: needed  key -> kind of a value that must be there; known: of one that may be.
    """
    if missing := [name for name in needed if name not in values]:
        return f"lacks {', '.join(missing)}"
    for name, kind in {**needed, **known}.items():
        is_null = kind.endswith(" or null") and values.get(name) is None
        if name in values and not (is_null or KINDS[kind.removesuffix(" or null")](values[name])):
            return f"{name} is {values[name]!r:.60}; expected {kind}"
    return ""


def read_text(path: Path) -> str:
    """Return the text of a file. Raises: InputError if it cannot be read."""
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def read_object(path: Path, needed: Mapping[str, str], known: Mapping[str, str]) -> dict:
    """Return the object of a JSON file, {} if there is none. Raises: InputError if something else is there."""
    what = f"the {path.stem} that `spgnn train` writes"
    return parsed(read_text(path), str(path), needed, known, what) if path.exists() else {}


def read_lines(path: Path, needed: Mapping[str, str], known: Mapping[str, str], what: str) -> list[dict]:
    """Return the objects of a file of JSON lines.

    Args:   what  a line is, for messages.
    Raises: InputError with the first line that is not one.
    """
    lines = enumerate(read_text(path).splitlines(), 1)
    records = [parsed(line, f"{path}:{number}", needed, known, what) for number, line in lines]
    if not records:
        raise InputError(f"{path}: is empty; expected {what}")
    return records


def parsed(
    text: str, where: str, needed: Mapping, known: Mapping, what: str, parse: Callable[[str], object] = json.loads
) -> dict:
    """Return the object that a text is. Raises: InputError if it is something else than `what`."""
    try:
        value = parse(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: contains {type(value).__name__}; expected an object")
    if fault := _fault_of(value, needed, known):
        raise InputError(f"{where}: {fault}; expected {what}")
    return value
