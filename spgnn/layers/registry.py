"""Families of models that options describe: a name, the options that a family takes, and what builds its Stack.

FAMILIES["sage"] = Family(("hidden", "layers", "aggregator"), sage_stack)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ..config import TrainConfig, build
from ..errors import UsageError, check_integer, nearest
from .gcn import gcn_stack
from .stack import Stack


@dataclass(frozen=True, slots=True)
class Family:
    """Models of one kind.

    options  the fields of TrainConfig that describe a model of the family.
    make     (f_in, n_classes, options) -> Stack; options is a TrainConfig.
    """

    options: tuple[str, ...]
    make: Callable[[int, int, TrainConfig], Stack]


FAMILIES = {
    "gcn": Family(("hidden", "layers", "dropout", "input_dropout", "norm", "residual", "bias"), gcn_stack),
}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Family and arguments of a model: JSON values that rebuild it without its weights.

    arguments  f_in, n_classes and every option of the family.
    """

    family: str
    arguments: dict[str, Any]

    @classmethod
    def of(cls, config: TrainConfig, f_in: int, n_classes: int) -> ModelSpec:
        """Return the model that options describe for a graph with f_in features and n_classes classes.

        Raises: UsageError, see check_model.
        """
        check_model(config)
        options = {name: getattr(config, name) for name in FAMILIES[config.model].options}
        return cls(config.model, {"f_in": f_in, "n_classes": n_classes} | options)

    def build(self) -> Stack:
        """Return a new model, with weights that are not trained.

        Raises: UsageError for a family that is not known, and for arguments that are missing, unknown or out of bounds.
        """
        _check_family(self.family)
        family, options = FAMILIES[self.family], dict(self.arguments)
        sizes = [options.pop(name, None) for name in ("f_in", "n_classes")]
        for name, size in zip(("f_in", "n_classes"), sizes):
            check_integer(name, size, 1)
        if set(options) != set(family.options):
            raise UsageError(f"a {self.family} has {', '.join(options)}; expected {', '.join(family.options)}")
        return family.make(*sizes, build(TrainConfig, options | {"model": self.family}))


def check_model(config: TrainConfig) -> None:
    """Raise UsageError for a family that is not known, and for an option that only other families take."""
    _check_family(config.model)
    for field in fields(config):
        takers = [name for name, family in FAMILIES.items() if field.name in family.options]
        if takers and config.model not in takers and getattr(config, field.name) != field.default:
            flag = field.name.replace("_", "-")
            raise UsageError(f"--{flag} is an option of --model {' and '.join(takers)}; {config.model} has none")


def _check_family(name: str) -> None:
    if name not in FAMILIES:
        raise UsageError(f"--model {name!r} is not known{nearest(name, FAMILIES)}")
