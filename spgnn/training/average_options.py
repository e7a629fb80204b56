"""The options of model averaging: which exclude each other, and which are refused without it."""

from __future__ import annotations

from dataclasses import fields

from ..config import TrainConfig
from ..config.groups import AverageConfig, AveragePartsConfig, PersonalConfig
from ..errors import UsageError

NEEDED_BY = (  # (option, value, other option, value that it excludes, why)
    ("sync", "gradients", "moments", "there is one optimizer"),
    ("sync", "gradients", "correct", "its gradients are those of all parts"),
    ("sync", "gradients", "interval", "gradients are averaged before every update"),
    ("optimizer", "sgd", "moments", "SGD has no moments"),
    ("halo", "stale", "hops", "a layer reads the rows of direct neighbours"),
)


def check_average(config: TrainConfig) -> None:
    """Raise UsageError, naming both options, for options of averaging that do not fit the others."""
    if config.mode != "average":
        for field in (*fields(AverageConfig), *fields(AveragePartsConfig), *fields(PersonalConfig)):
            if getattr(config, field.name) != field.default:
                raise UsageError(f"{_flag(field.name)} requires --mode average; omit it to train on the whole graph")
        return
    if config.replication != 1:
        raise UsageError(
            f"--mode average trains a part on one rank; omit --replication {config.replication}, which gives rows to several"
        )
    if config.sampler != "none" and (config.sync == "gradients" or config.correct == "drift"):
        option = "--sync gradients" if config.sync == "gradients" else "--correct drift"
        raise UsageError(
            f"{option} needs the gradient of whole parts; omit --sampler {config.sampler}, which draws subgraphs of them"
        )
    if config.halo == "stale" and (excluded := _excluded_by_stale(config)):
        raise UsageError(f"--halo stale computes all own rows of whole parts; omit {excluded}, or use --halo truncated")
    if config.gradient_check:
        raise UsageError("--gradient-check compares with the gradient of the whole graph; omit it with --mode average")
    check_personal(config)
    if config.cuda_graph:
        raise UsageError("--mode average trains many parts in turn; omit --cuda-graph, which replays one step")
    for name, value, other, why in NEEDED_BY:
        if getattr(config, name) == value and getattr(config, other) != TrainConfig.__dataclass_fields__[other].default:
            raise UsageError(
                f"{_flag(other)} {getattr(config, other)} has no effect with {_flag(name)} {value}: {why}; omit it"
            )
    if config.evaluation == "layerwise" and config.correct != "none":
        raise UsageError(
            f"--correct {config.correct} passes over the whole graph, which --evaluation layerwise does not hold; "
            "omit one of them"
        )
    if config.correct_lr and config.correct != "step":
        raise UsageError(f"--correct-lr requires --correct step; got --correct {config.correct}")


def _excluded_by_stale(config: TrainConfig) -> str:
    """Return an option that --halo stale excludes, with its value, "" without any."""
    excluded = {"sampler": config.sampler != "none", "prune": config.prune == "always"}
    return next((f"{_flag(name)} {getattr(config, name)}" for name, is_given in excluded.items() if is_given), "")


def check_personal(config: TrainConfig) -> None:
    """Raise UsageError for options of the personal phase that do not fit the others."""
    if not config.personal:
        for field in fields(PersonalConfig):
            if getattr(config, field.name) != field.default:
                raise UsageError(f"{_flag(field.name)} requires --personal EPOCHS; omit it without a personal phase")
        return
    if config.halo == "stale":
        raise UsageError("--personal trains parts that read no other ones; omit --halo stale")
    if config.optimizer == "sgd" and config.lr * config.proximal >= 1:
        raise UsageError(
            f"--proximal {config.proximal:g} diverges with --optimizer sgd and --lr {config.lr:g}; expected less than "
            f"1 / lr = {1 / config.lr:g}"
        )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
