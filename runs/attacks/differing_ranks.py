"""Ranks that differ in options, graph, partition, type, counts, order, model, version: named before the first epoch."""

import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from attack import ROOT, folder

QUICK, FULL = 1, 20  # times that every option and every case is tried, each on another rank
LOCAL = ("threads", "sampler_threads", "resume", "overwrite", "config", "watchdog")  # may differ, or are of the launch
GRAPH = "sbm:n=60,seed=1"


def attack(seed: int, amount: int):
    """Let one of three ranks differ in every option of train, and in the cases of tests/training/test_mismatches.py."""
    sys.path[:0] = [str(ROOT / "tests" / "training")]
    import test_mismatches

    failures, options, cases = [], 0, 0
    rng = np.random.default_rng(seed)
    for name, value in amount * list(differing().items()):
        options += 1
        if said := differ(name, value, int(rng.integers(3))):
            failures.append(f"option {name} = {value!r}: {said}")
    for name in amount * list(test_mismatches.CASES):
        cases += 1
        with folder() as home:
            if said := mismatch(test_mismatches, name, home):
                failures.append(f"{name}: {said}")
    return {"options": options, "other differences": cases}, failures


def differing() -> dict[str, object]:
    """Return option of train -> another value than its default."""
    from spgnn.config import TrainConfig

    found = {}
    for field in fields(TrainConfig):
        usual = getattr(TrainConfig(), field.name)
        if field.name not in LOCAL and isinstance(usual, (int, float)):
            found[field.name] = not usual if isinstance(usual, bool) else usual + 1
    return found


def differ(name: str, value, odd: int) -> str:
    """Train on three thread ranks, one of which has another value; return what is wrong."""
    from spgnn.config import TrainConfig
    from spgnn.dist import run_threads
    from spgnn.errors import SpgnnError
    from spgnn.experiment import run

    epochs: list[int] = []

    def rank(comm):
        config = TrainConfig(epochs=2, hidden=4)
        run(GRAPH, replace(config, **{name: value}) if comm.rank == odd else config, comm, report=epochs.append)

    try:
        run_threads(3, rank)
    except SpgnnError as error:
        if epochs:
            return "after the first epoch"
        said = str(error)
        return (
            ""
            if f"option.{name} " in said or name.replace("_", "-") in said or name in said
            else f"is not named: {said[:300]}"
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "trained"


def mismatch(cases, name: str, home: Path) -> str:
    """Run one case of the tests, which has an error and a pattern of what it says."""
    from spgnn.dist import run_threads

    body, expected, told = cases.CASES[name]
    try:
        run_threads(3, lambda comm: body(comm, comm.rank == 1, home))
    except Exception as error:
        is_right = isinstance(error, expected) and re.search(told, str(error))
        return "" if is_right else f"{type(error).__name__}: {error}"[:300]
    return "was not seen"


def plant() -> None:
    """Ranks do not compare their options."""
    from spgnn.dist import consistency

    consistency.check_same = lambda *args, **options: None
