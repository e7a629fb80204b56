"""Gradients, loss and logits of all families on random graphs, ranks, schemes and grids: the dense model's within 1e-10."""

import sys
from collections import Counter

import numpy as np
from attack import ROOT

QUICK, FULL = 40, 3_000  # configurations
EDGE_FAMILIES = ("meshgraphnet", "gine", "transformer", "pna", "gatedgcn", "gat")
GRIDS = ((1, 1), (2, 1), (3, 1), (4, 2), (4, 1), (16, 4))  # ranks and replication


def attack(seed: int, amount: int):
    """Train a step of amount random configurations, every fourth of a family on edges; return counts, and what differed."""
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("layers", "distgraph")]
    failures, counts = [], Counter()
    for number in range(amount):
        rng = np.random.default_rng([seed, number])
        kind, words, body = on_edges(rng) if number % 4 == 3 else dense(rng)
        counts[kind] += 1
        try:
            body()
        except Exception as error:
            failures.append(f"configuration {number}, {words}: {type(error).__name__}: {error}"[:700])
    return {
        "configurations": amount,
        **{f"of them {kind}": n for kind, n in counts.items()},
        "wrong": len(failures),
    }, failures


def dense(rng):
    """Return a configuration that is compared with a dense float64 model: (kind, its words, what compares it)."""
    from dense_model import gradients_are_the_dense_ones
    from graphs import random_graph
    from test_exact import MODELS
    from test_predicted_families import OTHERS, PRUNED

    from spgnn.dist import run_threads

    pick = lambda values: list(values)[int(rng.integers(len(values)))]
    (ranks, replication), is_pruned = pick(GRIDS), rng.random() < 0.4
    models = {name: make for name, make in PRUNED.items() if name not in OTHERS} if is_pruned else MODELS
    name, scheme, method, use = (
        pick(models),
        pick(SCHEMES),
        pick(("block", "random", "metis")),
        pick(("directed", "undirected")),
    )
    is_sparse = bool(rng.random() < 0.4) and name != "two products of one hop"
    options = {"scheme": scheme, "method": method, "replication": replication, "keep": bool(rng.random() < 0.7)}
    graph = random_graph(
        n=int(rng.integers(8, 60)), edges=int(rng.integers(0, 240)), use=use, seed=int(rng.integers(1 << 30)),
        sparse=is_sparse, weighted=not is_sparse, train_every=int(pick((0, 5, 9))),
    )  # fmt: skip
    how, prune = pick(("gcn", "row")), "always" if is_pruned else "never"
    words = f"{name}, {use}, {how}, {ranks} ranks, prune {prune}, {options}"

    def body():
        run_threads(ranks, lambda comm: gradients_are_the_dense_ones(comm, graph, models[name], how, prune, **options))

    return "against dense models", words, body


SCHEMES = ("cover", "columns", "broadcast")


def on_edges(rng):
    """Return a configuration of a family on edges, or of attention, that is compared with one rank and with differences."""
    import spgnn
    from spgnn.config import TrainConfig, build
    from spgnn.layers.registry import FAMILIES

    pick = lambda values: list(values)[int(rng.integers(len(values)))]
    name, n, m = pick(EDGE_FAMILIES), int(rng.integers(10, 40)), int(rng.integers(30, 120))
    edges = rng.integers(0, n - 1, (2, m))
    attributes = {} if name == "gat" else {"edge_attr": rng.normal(size=(m, 3))}
    graph = spgnn.graph_from_coo(*edges, n, X=rng.normal(size=(n, 6)), y=rng.integers(0, 3, n), **attributes)
    own = {"attention": pick(("v1", "v2"))} if name == "gat" else {}
    config = build(TrainConfig, {"model": name, "hidden": 8, "heads": 2, "dropout": float(pick((0.0, 0.4)))} | own)
    family = FAMILIES[name]
    make = lambda: family.make(6, 3, config, *([3] if family.reads else []))
    options = {"operator": "none"} if family.reads else {}
    words = f"{name}, {n} nodes, {m} edges, dropout {config.dropout}, {own}"

    def body():
        found = spgnn.verify(make, graph.with_edges("directed"), (1, 3), seed=int(rng.integers(100)), **options)
        if not found.ok:
            raise AssertionError(str(found)[-500:])

    return "on edges", words, body


def plant() -> None:
    """A rank adds what it received twice."""
    from spgnn.spmm.exchange.exchange_plan import ExchangePlan

    add = ExchangePlan.add
    ExchangePlan.add = lambda self, received_mF, out_nF: add(self, received_mF, add(self, received_mF, out_nF))
