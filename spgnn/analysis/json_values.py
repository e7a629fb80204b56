"""What the values of a JSON object have to be before tables and pictures are made of them."""

from __future__ import annotations

from collections.abc import Mapping

from ..config.names import SCHEMES

SCHEME = "one of " + ", ".join(SCHEMES)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300  # nor nan, nor inf


def _is_whole(value) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _are_alike(value) -> bool:
    """Whether value is a list of objects with the same keys."""
    return isinstance(value, list) and all(isinstance(one, dict) and one.keys() == value[0].keys() for one in value)


# In the words of a message -> the test.
KINDS = {
    "a name": lambda value: isinstance(value, str) and value.isprintable(),
    "a text": lambda value: isinstance(value, str),
    SCHEME: lambda value: isinstance(value, str) and value in SCHEMES,
    "a number": _is_number,
    "a number or null": lambda value: value is None or _is_number(value),
    "a whole number": _is_whole,
    "a whole number or null": lambda value: value is None or _is_whole(value),
    "a whole number above 0": lambda value: _is_whole(value) and value > 0,
    "a list": lambda value: isinstance(value, list),
    "an object": lambda value: isinstance(value, dict),
    "a list of objects of the same keys": _are_alike,
    "a list of layers": lambda value: _are_alike(value) and all(_is_whole(one.get("f_in")) for one in value),
    "a list of exchanges": lambda value: (
        _are_alike(value) and all(_is_whole(one.get("rows")) and "direction" in one for one in value)
    ),
}


def fault_of(values: object, needed: Mapping[str, str], known: Mapping[str, str] | None = None) -> str:
    """Return what is wrong with an object, "" where nothing is.

    Args: needed  name -> kind of what has to be there; known: of what may be.
    """
    if not isinstance(values, dict):
        return "lacks an object"
    missing = [name for name in needed if name not in values]
    if missing:
        return f"lacks {', '.join(missing)}"
    for name, kind in {**needed, **(known or {})}.items():
        if name in values and not KINDS[kind](values[name]):
            return f"{name} is {values[name]!r:.60}; expected {kind}"
    return ""
