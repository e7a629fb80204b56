"""The personal phase of a run: its part of the summary, parts.jsonl, and the weights of the parts that chose theirs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..config import PARTS_FILE
from ..errors import ResourceError, together
from ..layers.registry import ModelSpec
from ..training.parts.personal import PersonalResult
from .checkpoint import WEIGHTS, finite, save_checkpoint, to_bytes

FOLDER = "personal"  # in OUT/checkpoints
SCORES = ("micro_f1", "macro_f1", "weighted_f1")


def personal_facts(result: PersonalResult) -> dict[str, Any]:
    """Return the JSON object `personal` of a summary: scores of the chosen models, and of the general one on the parts.

    val and test are micro F1, the others of the test nodes; chosen: parts that took their own weights.
    """
    return finite(_scores(result.scores) | {"chosen": result.chosen, "general": _scores(result.general)})


def write_personal(out: Path, result: PersonalResult, spec: ModelSpec, comm) -> None:
    """Write OUT/parts.jsonl and checkpoints/personal/part-00003/epoch-000012, each rank the weights of its parts.

    Parts that keep the general weights have no folder. Raises: ResourceError on all ranks. Collective.
    """
    home = out / "checkpoints" / FOLDER
    together(comm, _begin, out, home, result, root=0)
    together(comm, _write_weights, home, result, spec)


def _begin(out: Path, home: Path, result: PersonalResult) -> None:
    try:
        if home.is_dir():
            shutil.rmtree(home)  # of the phase that a continued run has had
        home.mkdir(parents=True)
    except OSError as error:
        raise ResourceError(f"{home}: cannot be written: {error.strerror or error}") from error
    write_text(out / PARTS_FILE, "".join(json.dumps(finite(part)) + "\n" for part in result.parts))


def _write_weights(home: Path, result: PersonalResult, spec: ModelSpec) -> None:
    for p, weights in result.weights.items():
        part = result.parts[p]
        facts = {
            "val": part["val_personal"],
            "test": part["test_personal"],
            "metric": "micro_f1",
            "model": asdict(spec),
        }
        save_checkpoint(home / f"part-{p:05d}", part["best"], {WEIGHTS: partial(to_bytes, weights)}, facts)


def _scores(by_split: dict[str, dict[str, float]]) -> dict[str, float]:
    test = by_split["test"]
    return {"val": by_split["val"]["micro_f1"], "test": test["micro_f1"]} | {name: test[name] for name in SCORES}
