"""Ranks that differ in options, graph, partition, type, counts, order, model, version: named before the first epoch."""

import random
import re
import sys
import typing
from dataclasses import fields, replace
from pathlib import Path

from attack import ROOT, folder

QUICK, FULL = 110, 2_200  # differences, in turn of all options and cases, each on a rank drawn
LOCAL = ("resume", "overwrite")  # of the folder of a run, which rank 0 alone has
WORDS = {
    "memory": "2GB",
    "fanout": "5,5",
    "model": "sage",
    "sampler": "node",
    "method": "block",
    "edges": "in",
    "split": "random",
}
GRAPH = "sbm:n=60,seed=1"


def attack(seed: int, amount: int):
    """Let one of three ranks differ in every option of train, and in the cases of tests/training/test_mismatches.py."""
    sys.path[:0] = [str(ROOT / "tests" / "training")]
    import test_mismatches

    dice, failures, options = random.Random(seed), [], differing()
    different = [*options, *(name for name in test_mismatches.CASES if name not in options)]
    dice.shuffle(different)
    for number in range(amount):
        name = different[number % len(different)]
        if name in options:
            said = differ(name, options[name], dice.randrange(3))
        else:
            with folder() as home:
                said = mismatch(test_mismatches, name, home)
        failures += [f"{name}: {said}"] if said else []
    counts = {"differences": amount, "options": len(options), "other kinds": len(different) - len(options)}
    return counts, failures


def differing() -> dict[str, object]:
    """Return option of train -> another value than its default."""
    from spgnn.config import TrainConfig

    found, hints = {}, typing.get_type_hints(TrainConfig)
    for field in fields(TrainConfig):
        usual = field.default
        if field.name in LOCAL or field.metadata["per_rank"]:
            continue
        if isinstance(usual, bool):
            found[field.name] = not usual
        elif isinstance(usual, (int, float)):
            found[field.name] = usual + 1
        else:
            others = [value for value in typing.get_args(hints[field.name]) if value != usual]
            found[field.name] = WORDS.get(field.name) or next(iter(others), "other")
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
        is_named = re.search(rf"option\.{name} is |\b{name}\b", said)
        return "" if is_named else f"is not named: {said[:300]}"
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
