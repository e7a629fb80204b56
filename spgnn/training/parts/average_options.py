"""The options of model averaging: which exclude each other, and which are refused without it."""

from __future__ import annotations

from dataclasses import fields

from ...config import TrainConfig
from ...config.groups import AverageConfig, AveragePartsConfig, PersonalConfig
from ...errors import UsageError


def check_average(config: TrainConfig, takes_memory: bool = False) -> None:
    """Raise UsageError, naming both options, for options of averaging that do not fit the others.

    Args: takes_memory  --memory bounds a training on all nodes too.
    """
    if config.mode != "average":
        taken = {"memory"} if takes_memory and config.sampler == "none" else set()
        taken |= {"memory", "parts", "hops"} if config.mode == "out-of-core" else set()
        for field in (*fields(AverageConfig), *fields(AveragePartsConfig), *fields(PersonalConfig)):
            if field.name not in taken and getattr(config, field.name) != field.default:
                raise UsageError(f"{_flag(field.name)} requires --mode average; omit it to train on the whole graph")
        if config.mode == "out-of-core":
            _check_out_of_core(config)
        return
    if config.replication != 1:
        raise UsageError(
            f"--mode average trains a part on one rank; omit --replication {config.replication}, which gives rows to several"
        )
    if config.sampler != "none" and (config.sync == "gradients" or config.correct != "none"):
        option = "--sync gradients" if config.sync == "gradients" else f"--correct {config.correct}"
        raise UsageError(f"{option} needs gradients of whole parts; omit --sampler {config.sampler}, of subgraphs")
    if config.loss != "auto":
        raise UsageError(f"--loss {config.loss} is for numbers, which --mode average does not train on; omit one")
    if config.cuda_graph:
        raise UsageError("--mode average trains many parts in turn; omit --cuda-graph, which replays one step")
    if config.sync == "gradients" and (config.correct != "none" or config.interval != 1):
        option = f"--interval {config.interval}" if config.correct == "none" else f"--correct {config.correct}"
        raise UsageError(f"{option} has no effect with --sync gradients, which sums all parts' in every epoch; omit it")
    if config.evaluation == "layerwise" and config.correct != "none":
        raise UsageError(
            f"--correct {config.correct} passes over the whole graph, which --evaluation layerwise does not hold; "
            "omit one of them"
        )


def _check_out_of_core(config: TrainConfig) -> None:
    """Raise UsageError for options that a training layer by layer from disk does not have."""
    for name, only in (
        ("sampler", "none"),
        ("replication", 1),
        ("device", "cpu"),
        ("cuda_graph", False),
        ("jump", "none"),
    ):
        if (value := getattr(config, name)) != only:
            raise UsageError(f"--mode out-of-core trains layer by layer, part by part; omit {_flag(name)} {value}")
    if not config.hops:
        raise UsageError("--mode out-of-core reads the halos of parts; omit --hops 0")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
