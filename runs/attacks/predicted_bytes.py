"""Predicted bytes of random configurations: those that the communicator counts, by pair of ranks, layer and direction."""

import sys

import numpy as np
from attack import ROOT

QUICK, FULL = 25, 500  # configurations
GRIDS = ((2, 1), (3, 1), (5, 1), (4, 2), (9, 3))  # ranks and replication
WIRES = ("float32", "bfloat16", "float16")


def attack(seed: int, amount: int):
    """Measure and train amount random configurations; return how many, the bytes in all, and which differed."""
    sys.path[:0] = [str(ROOT / "tests" / "distgraph")]
    failures, bytes_sent = [], 0
    for number in range(amount):
        words, body = draw(np.random.default_rng([seed, number]))
        try:
            bytes_sent += body()
        except Exception as error:
            failures.append(f"configuration {number}, {words}: {type(error).__name__}: {error}"[:700])
    return {"configurations": amount, "bytes": f"{bytes_sent:,}", "different": len(failures)}, failures


def draw(rng):
    """Return the words of a random configuration, and what trains it and returns its bytes per epoch."""
    import torch
    from counted_bytes import train_and_compare
    from graphs import random_graph
    from test_predicted_families import PRUNED, WHOLE

    from spgnn.analysis import measure
    from spgnn.dist import run_threads
    from spgnn.distgraph import distribute
    from spgnn.partition import part_graph

    pick = lambda values: list(values)[int(rng.integers(len(values)))]
    ranks, replication = pick(GRIDS)
    name, prune = pick([*PRUNED, *WHOLE]), pick(("never", "always"))
    prune = "never" if name in WHOLE else prune
    make = PRUNED[name] if name in PRUNED else WHOLE[name][0]
    graph = random_graph(
        n=int(rng.integers(30, 90)), edges=int(rng.integers(60, 400)), use=pick(("directed", "undirected")),
        seed=int(rng.integers(1 << 30)), train_every=int(pick((5, 10))),
    )  # fmt: skip
    part = part_graph(graph, ranks // replication, method=pick(("random", "block", "metis")))
    dtype = pick(("float32", "float64"))
    options = {
        "scheme": pick(("cover", "columns", "broadcast")),
        "replication": replication,
        "keep": bool(rng.random() < 0.7),
    }
    if dtype == "float32" and rng.random() < 0.5:
        options |= {"wire": pick(WIRES), "wire_gradients": pick(WIRES)}
    train_N = (graph.split == 0) & (graph.y >= 0) if prune == "always" else None

    def body() -> int:
        itemsize = 8 if dtype == "float64" else 4
        report = measure(graph, part, model=make(), itemsize=itemsize, train_N=train_N, **options)
        rank = lambda comm: train_and_compare(
            comm, report, distribute(graph, comm, part, dtype=getattr(torch, dtype), **options), make(), prune
        )
        return run_threads(ranks, rank)[0].bytes_per_epoch

    return f"{name}, {ranks} ranks, prune {prune}, {dtype}, {options}", body


def plant() -> None:
    """A message carries four bytes that nobody predicts."""
    from spgnn.dist.traffic import Traffic

    count = Traffic.count_sent
    Traffic.count_sent = lambda self, kind, bytes_P, label=None: count(self, kind, bytes_P + 4 * (bytes_P > 0), label)
