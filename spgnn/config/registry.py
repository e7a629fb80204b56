"""Registry: entries by name, built in or registered by a user: families of models, samplers, partitioners."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ..errors import UsageError, nearest

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """name -> entry. A name can be registered again, except a built-in one.

    Args: what      an entry, as errors call it; built_in: names that spgnn registers itself.
          example   how a user registers one.
    """

    def __init__(self, what: str, built_in: Collection[str], example: str):
        super().__init__()
        self.what, self.built_in, self.example = what, frozenset(built_in), example

    def check_name(self, name: str) -> None:
        """Raise UsageError unless a user, or spgnn for the first time, may register this name."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"a {self.what}'s name is {name!r}; expected text, such as {self.example}")
        if name in self and name in self.built_in:
            raise UsageError(f"{self.what} {name!r} is built in; choose another name")

    def find(self, name: str, called: str = "") -> Entry:
        """Return the entry of a name. Raises: UsageError with the nearest name; called: what it names, such as --model."""
        if name not in self:
            raise UsageError(f"{called or self.what} {name!r} is not known{nearest(name, self)}")
        return self[name]


def keyword_options(f: Callable) -> dict[str, Any]:
    """Return {name: default} of the keyword-only parameters of a function: the options of what it makes."""
    return {p.name: p.default for p in inspect.signature(f).parameters.values() if p.kind is p.KEYWORD_ONLY}


def check_known(what: str, given: Mapping[str, Any], options: Collection[str]) -> None:
    """Raise UsageError for an option that `what` does not have."""
    for option in given:
        if option not in options:
            hint = nearest(option, options) if options else "; it has none"
            raise UsageError(f"{what} has no option {option!r}{hint}")
