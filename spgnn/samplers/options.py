"""The options of samplers in a config: which sampler has which, and what is refused beside the others."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..config.groups import SamplerConfig
from ..errors import UsageError
from .registry import SAMPLERS

NONE = "none"  # --sampler of a training on all nodes at once


def options_of(config) -> dict[str, Any]:
    """Return the options of the sampler that a config names, by keyword.

    Raises: UsageError for a name that is not known, and for an option that is given but of other samplers.
    """
    check_options(config)
    kind, defaults = SAMPLERS[config.sampler], {field.name: field.default for field in fields(SamplerConfig)}
    if config.sampler in SAMPLERS.built_in:
        given = {name: getattr(config, name) for name in kind.options if hasattr(config, name)}
        return given | ({"batch": kind.options["batch"]} if given.get("batch") == 0 else {})
    # The default of a user's function holds unless the option was given.
    names = [name for name in kind.options if name in defaults]
    return {name: value for name in names if (value := getattr(config, name)) != defaults[name]}


def check_options(config) -> None:
    """Raise UsageError for a sampler that is not known, and for an option that it does not have."""
    names = [name for name in SAMPLERS if name != NONE]
    if config.sampler != NONE:
        SAMPLERS.find(config.sampler, "--sampler")
    for field in fields(SamplerConfig):
        if field.name == "sampler" or getattr(config, field.name) == field.default:
            continue
        flag = "--" + field.name.replace("_", "-")
        takers = [name for name in names if field.name in SAMPLERS[name].options]
        if config.sampler == NONE:
            wanted = " or ".join(takers) if takers else "NAME"
            raise UsageError(f"{flag} requires --sampler {wanted}; omit it to train on all nodes at once")
        if takers and config.sampler not in takers:
            raise UsageError(
                f"{flag} is an option of --sampler {' and '.join(takers)}; omit it with --sampler {config.sampler}"
            )
