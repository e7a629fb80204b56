"""Trainings that differ in their seed: their options, and the mean and spread of their scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..config import TrainConfig, continued
from ..errors import together

FILE = "seeds.json"  # in the folder that has the folders of the runs


def seed_configs(source: str, config: TrainConfig, count: int, is_resumed: bool, comm) -> Iterator[TrainConfig]:
    """Yield the options of a training for each of the seeds from config.seed on, whose folders are OUT/seed-NUMBER.

    Args: is_resumed  a run that is there is continued.
    Collective.
    """
    for seed in range(config.seed, config.seed + count):
        one = replace(config, seed=seed, out=str(Path(config.out) / f"seed-{seed}") if config.out else "")
        if is_resumed:
            _, one = together(comm, continued, source, asdict(one) | {"resume": "auto"})
        yield one


def spread(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the seeds, and of test and val the mean, the sample's standard deviation and the values; None without a score."""
    scores = {name: [summary[name] for summary in summaries] for name in ("test", "val")}
    return {"seeds": [summary["seed"] for summary in summaries], "metric": summaries[0]["metric"]} | {
        name: None if None in of else {"mean": mean(of), "std": stdev(of) if len(of) > 1 else 0.0, "values": of}
        for name, of in scores.items()
    }
