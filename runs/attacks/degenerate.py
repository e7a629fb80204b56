"""Degenerate graphs and numbers, on more ranks than nodes too, and files of users: a finite result, or one line."""

import itertools
import math
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import user_files
from attack import folder

QUICK, FULL = 60, 2_000  # trainings
NUMBERS = (0.0, -1.0, 1e-300, 1e300, 1e-30, 1e30, 1.0)
OPTIONS = (
    {}, {"model": "sage"}, {"model": "gat", "heads": 1}, {"model": "gin"}, {"model": "mixhop"},
    {"sampler": "node", "budget": 5}, {"sampler": "neighbour", "batch": 3, "fanout": "2,2"}, {"prune": "always"},
)  # fmt: skip
SHAPES = {
    "one node": (1, []), "two nodes": (2, []), "no edges": (9, []), "one edge": (9, [(0, 1)]), "loops alone": (5, [(i, i) for i in range(5)]),
    "star": (12, [(0, i) for i in range(1, 12)]), "path": (8, [(i, i + 1) for i in range(7)]), "parallel edges": (4, [(0, 1)] * 9),
    "two halves": (8, [(0, 1), (1, 2), (5, 6), (6, 7)]), "all pairs": (6, list(itertools.product(range(6), range(6)))),
}  # fmt: skip
LABELS = {
    "classes": lambda n: np.arange(n) % 3, "one class": lambda n: np.zeros(n, int), "no labels": lambda n: np.full(n, -1),
    "one label": lambda n: np.where(np.arange(n) == 0, 0, -1), "a class per node": lambda n: np.arange(n), "signs": lambda n: 2 * (np.arange(n) % 2) - 1,
}  # fmt: skip


def attack(seed: int, amount: int):
    """Train amount random graphs of awkward shapes, numbers, labels and splits; return how many trained, and what was wrong."""
    failures, trained, refused = [], 0, 0
    for number in range(amount):
        with folder() as home:
            words, code, said, loss = one(home, np.random.default_rng([seed, number]))
        trained, refused = trained + (code == 0), refused + (code in (2, 3, 5))
        if code not in (0, 2, 3, 5) or said.count("\n") > 3 or (code == 0 and not math.isfinite(loss)):
            failures.append(f"graph {number}, {words}: exit code {code}, loss {loss}: {said[:400]}")
    checks = [user_files.attack(seed + number) for number in range(max(1, amount // 200))]
    failures += [f"files of users: {failure}" for _, found in checks for failure in found]
    counts = {"graphs": amount, "trained": trained, "one line": refused, "files of users": sum(n for n, _ in checks)}
    return counts, failures


def one(home: Path, rng):
    """Train one graph; return (its words, exit code, error, loss)."""
    import spgnn
    from spgnn.config import TrainConfig, build
    from spgnn.data import save_graph
    from spgnn.dist import run_threads
    from spgnn.errors import exit_code_of
    from spgnn.experiment import run

    pick = lambda values: list(values)[int(rng.integers(len(values)))]
    shape, labels, value, ranks, options = (
        pick(SHAPES),
        pick(LABELS),
        pick(NUMBERS),
        int(pick((1, 2, 3))),
        pick(OPTIONS),
    )
    n, edges = SHAPES[shape]
    place, is_sparse, split = pick(("weights", "features", "none")), rng.random() < 0.3, pick(("all", "one", "random"))
    words = f"{shape}, {labels}, {place} of {value}, {ranks} ranks, split {split}, {options}"
    X = rng.normal(size=(n, 4))
    X = X if place != "features" else np.full((n, 4), value)
    roles = {"all": np.zeros(n, np.int8), "one": np.where(np.arange(n) == 0, 0, 1).astype(np.int8)}.get(split)
    weights = np.full(len(edges), value) if place == "weights" else None

    losses: list[float] = []

    def rank(comm):
        config = build(TrainConfig, {"epochs": 3, "hidden": 4, "out": str(home / "run")} | options)
        run(str(home / "g"), config, comm, report=lambda record: losses.append(record["loss"]))

    try:
        ends = [edge[0] for edge in edges], [edge[1] for edge in edges]
        features = sp.csr_array(X) if is_sparse else X
        graph = spgnn.graph_from_coo(*ends, n, weights=weights, X=features, y=LABELS[labels](n), split=roles)
        save_graph(graph, home / "g")
        run_threads(ranks, rank)
        return words, 0, "", losses[-1]
    except Exception as error:
        return words, exit_code_of(error), f"{type(error).__name__}: {error}", 0.0


def plant() -> None:
    """A sum of no row is divided by."""
    from spgnn import experiment

    run = experiment.run

    def careless(*words, **options):
        run(*words, **options)
        raise ZeroDivisionError

    experiment.run = careless
