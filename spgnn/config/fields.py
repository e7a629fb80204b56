"""An option is a field of a frozen dataclass: one TOML key, one command-line option, one keyword.

A group is a dataclass of options that belong together, with a heading. The options of a command are a dataclass that
inherits its groups, so that each option is declared once. Registry: families, samplers and partitioners by name.
"""

from __future__ import annotations

import inspect
import json
import math
import numbers
import os
import tomllib
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..atomic import read_regular
from ..errors import InputError, UsageError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Config = TypeVar("Config", bound="DataclassInstance")  # a dataclass of options
MOST_COUNT = 10**12  # of what is counted in integers without a bound of its own
HUGE = 2**1000  # an integer that no float holds
MOST_TOML = 1 << 15  # bytes


def option(
    default: Any, help: str, low: float | None = None, high: float | None = None, metavar: str = "", heading: str = "",
    **more: Any,
) -> Any:  # fmt: skip
    """Return a dataclass field with its help text and bounds; the command line reads them too.

    Args: metavar  what help shows as the value.
          heading  what help lists it under, if not under its group's.
          more     alone: value of an option that is given without one; per_rank: ranks may have different values;
                   alias: another name of the option, in files and on the command line.
    """
    if high is None and type(default) is int:
        high = MOST_COUNT
    facts = {"help": help, "low": low, "high": high, "metavar": metavar, "heading": heading}
    return field(default=default, metadata=facts | {"alone": "", "per_rank": False, "alias": ""} | more)


def changed(group: type, name: str, default: Any, **facts: Any) -> Any:
    """Return the option `name` of a group with another default and, if given, other help, bounds or metavar."""
    known = group.__dataclass_fields__[name].metadata
    return field(default=default, metadata=known | {"heading": known["heading"] or group.heading} | facts)


def sections(cls: type) -> dict[str, tuple[str, ...]]:
    """Return {heading: names of options}: the class's own, then its groups' in order."""
    declared = {name: group for group in cls.__mro__ for name in inspect.get_annotations(group)}
    found: dict[str, list[str]] = {}
    for name, group in sorted(declared.items(), key=lambda item: cls.__mro__.index(item[1])):
        heading = cls.__dataclass_fields__[name].metadata["heading"] or group.heading
        found.setdefault(heading, []).append(name)
    return {heading: tuple(names) for heading, names in found.items()}


def select(cls: type[Config], config: object) -> Config:
    """Return the config cls of the values that another config has for its options; the others have their defaults."""
    return cls(**{f.name: getattr(config, f.name, f.default) for f in fields(cls)})


def shared_values(config: DataclassInstance) -> dict[str, Any]:
    """Return {"option.NAME": value} of the options that have to be the same on all ranks, for check_same."""
    return {f"option.{f.name}": getattr(config, f.name) for f in fields(config) if not f.metadata["per_rank"]}


def build(cls: type[Config], values: Mapping[str, Any], where: str = "options") -> Config:
    """Return cls(**values), each value checked against its field.

    Raises: UsageError with the nearest known name for an unknown key, and with the bounds or choices.
    """
    known, hints = {f.name: f for f in fields(cls)}, typing.get_type_hints(cls)
    aliases = {f.metadata["alias"]: f.name for f in fields(cls) if f.metadata["alias"]}
    checked = {}
    for name, value in values.items():
        name = aliases.get(name.replace("-", "_"), name.replace("-", "_"))
        if name not in known:
            raise UsageError(f"{where}: unknown key {name!r}{nearest(name, known)}")
        checked[name] = _checked(f"{where}: {name}", value, hints[name], known[name])
    return cls(**checked)


def read_toml(cls: type[Config], path: str | Path) -> Config:
    """Return cls from a TOML file.

    Raises: InputError where the file is not TOML; UsageError for an unknown key or a bad value.
    """
    values = toml_values(path)
    values.pop("graph", None)
    return build(cls, values, str(path))


def toml_values(path: str | Path) -> dict[str, Any]:
    """Return what a TOML file has. Raises: InputError where it is none."""
    try:
        content = read_regular(path)
        if len(content) > MOST_TOML:  # tables of many levels take tomllib minutes
            raise ValueError(f"it has {len(content):,} bytes, options at most {MOST_TOML:,}")
        return tomllib.loads(content.decode())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected TOML, as config.toml of a run") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from None


def layered(cls: type[Config], values: Mapping[str, Any], where: str, overrides: Mapping[str, Any]) -> Config:
    """Return cls from values of a file, `where`, and options of the command line, which override them."""
    config, given = build(cls, values, where), build(cls, overrides, "command line")
    return replace(config, **{name: getattr(given, name) for name in overrides})


def to_toml(config: DataclassInstance, extra: dict[str, Any] | None = None) -> str:
    """Return the TOML text of a config; reading it gives the same config."""
    names = [name for group in sections(type(config)).values() for name in group]
    values = (extra or {}) | {name: getattr(config, name) for name in names}
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items())


def _checked(what: str, value: Any, hint: Any, known: Field) -> Any:
    """Return a value as its field has it. Raises: UsageError."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if not isinstance(value, str) or value not in choices:
            raise UsageError(f"{what} = {value!r} is not known{nearest(str(value), choices)}")
        return value
    value = _plain(value, hint)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UsageError(f"{what} = {value!r} is {type(value).__name__}; expected {hint.__name__}")
    if hint is str and not _is_text(value):
        raise UsageError(f"{what} = {value!r}; expected text that UTF-8 can hold, without a zero byte")
    if hint in (int, float):
        _check_bounds(what, value, known.metadata["low"], known.metadata["high"])
    return value


def _plain(value: Any, hint: type) -> Any:
    """Return NumPy's numbers as Python's, an integer as the float or text that is expected, paths and lists as text."""
    if hint is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if hint is str and isinstance(value, (list, tuple)):  # fanout=(10, 5), one_hot=["colour", "size"]
        return ",".join(map(str, value))
    if hint in (int, float) and isinstance(value, numbers.Number) and hasattr(value, "item"):
        value = value.item()
    if hint is bool and type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if hint is float:
        return float(value) if abs(value) < HUGE else math.inf if value > 0 else -math.inf
    return str(value) if hint is str else value


def _check_bounds(what: str, value: float, low: float | None, high: float | None) -> None:
    is_finite = math.isfinite(value) if isinstance(value, float) else True
    if is_finite and (low is None or value >= low) and (high is None or value <= high):
        return
    if isinstance(value, float):
        shown = f"{value:g}"
    else:
        shown = str(value) if abs(value) < HUGE else f"an integer of {value.bit_length()} bits"
    limits = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    raise UsageError(f"{what} = {shown}; expected {' and '.join(limits + ['finite'] * (not is_finite))}")


def _is_text(value: str) -> bool:
    try:
        return b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:
        return False


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # the one difference to TOML
    return repr(value)


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
