"""NaN and infinity in features, weights, outputs and gradients: refused, or named with layer, rank and node."""

import random
import re

import numpy as np

QUICK, FULL = 40, 2_000  # numbers that are not finite
PLACES = ("feature", "edge weight", "weight", "output", "gradient", "target")
NUMBER = "-?(nan|inf)"
VALUES = (float("nan"), float("inf"), -float("inf"))


def attack(seed: int, amount: int):
    """Put one number that is not finite into one place of a training, amount times; return how often, and what went on."""
    failures, counts = [], {"numbers": amount, "refused": 0, "named with layer, rank and node": 0}
    for number in range(amount):
        dice = random.Random(f"{seed} {number}")
        place, value, ranks = dice.choice(PLACES), dice.choice(VALUES), dice.choice((1, 2, 3))
        said, code, source = trained(place, value, ranks, dice)
        counts["refused"] += code == 3
        counts["named with layer, rank and node"] += code == 5
        on_rank = f", rank {ranks - 1}" if ranks > 1 else ""
        if code not in (3, 5) or (code == 5 and not re.match(f"epoch 2: .*: {source}{on_rank}. Lower lr", said)):
            failures.append(f"{value} as {place} on {ranks} ranks: exit code {code}, expected {source}: {said[:400]}")
    return counts, failures


def trained(place: str, value: float, ranks: int, dice: random.Random) -> tuple[str, int, str]:
    """Train with a number in a place; return what the error says and its exit code, or ("", 0), and what it has to name."""
    from graphs import random_graph

    from spgnn.dist import run_threads
    from spgnn.errors import exit_code_of

    node, column = dice.randrange(40), dice.randrange(6)
    hurt = []
    try:
        graph = random_graph(use="undirected")
        run_threads(ranks, rank, hurt_graph(graph, place, value, node, column), place, value, hurt)
    except Exception as error:
        return " ".join([str(error), *getattr(error, "__notes__", ())]), exit_code_of(error), "".join(hurt[:1])
    return "", 0, ""


def hurt_graph(graph, place: str, value: float, node: int, column: int):
    """Return the graph, with the number where it is in a file."""
    import spgnn

    if place not in ("feature", "edge weight", "target"):
        return graph
    coo = graph.A.tocoo()
    X, y, weights = graph.X.copy(), graph.y.astype(float), coo.data.astype(float)
    if place == "feature":
        X[node, column] = value
    elif place == "target":
        y[node] = value if not np.isnan(value) else np.inf  # NaN is a node without one
        y[(node + 1) % len(y)] = 0.5
    else:
        weights[node] = value
    return spgnn.graph_from_coo(coo.row, coo.col, graph.n_nodes, weights=weights, X=X, y=y, split=graph.split)


def rank(comm, graph, place: str, value: float, hurt: list[str]) -> None:
    """Train two layers, one of which is hurt on the last rank from the second epoch on; hurt gets what is to be named."""
    import torch

    import spgnn
    from spgnn.layers import GCN, Stack

    calls = []

    class Hurt(GCN):
        def forward(self, A, H):
            is_due = H.device.type != "meta" and self.training and comm.rank == comm.size - 1
            if is_due and place == "weight" and len(calls) == 1:
                self.W_FC.data[0, 0] = value
            Z = super().forward(A, H)
            if not is_due:
                return Z
            calls.append(1)
            if len(calls) < 2 or not len(Z):
                return Z
            row_nC = torch.zeros_like(Z)
            row_nC[len(Z) // 2] = value
            of = rf"of layers.0 \(Hurt\) is {NUMBER} at node {A.out_ids[len(Z) // 2]}"
            hurt.append(rf"weight layers.0.W_FC is {NUMBER} at \[0, 0\]" if place == "weight" else f"the output {of}")
            if place == "output":
                Z = Z + row_nC
            if place == "gradient":
                hurt[-1] = f"the gradient of the output {of}"
                Z.register_hook(lambda G: G + row_nC)
            return Z

    model = Stack(Hurt(6, 5), GCN(5, 3))
    spgnn.train(model, spgnn.distribute(graph, comm, method="block"), epochs=6, lr=0.1)


def plant() -> None:
    """A loss is not looked at."""
    from spgnn.training import trainer

    trainer.NumericalError = type("Unseen", (Exception,), {"exit_code": 0})
    from spgnn.training.steps import step

    step.NumericalError = trainer.NumericalError
