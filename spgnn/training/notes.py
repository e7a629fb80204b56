"""What a user should know of the labels of a graph before it is trained on, and of a training that ended early.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

import socket

import numpy as np

from ..dist import Communicator
from ..distgraph import DistGraph
from ..errors import together
from ..graph import Links, count_labels, label_notes, labelled
from ..graph.links import MESSAGE
from ..spmm.kernels.cpu import BUILD_ALL, slow_loops
from .link_scorer import note_of
from .steps import Scorer
from .trainer import Trainer

LEAST, FEW = 10, 500  # epochs from which on, and updates up to which, a training is judged
FALLS, DONE = 0.95, 0.1  # loss of the last epoch over an earlier one: below which it falls; over the first: is small


def data_notes(dgraph: DistGraph, scorer: Scorer) -> list[str]:
    """Return the notes on the labels of a graph, a sentence each; scorer: has labels and split. Collective."""
    if dgraph.links is not None and scorer.task == "links":
        return _link_notes(dgraph.links)
    if scorer.task != "classes":
        return _edge_notes(dgraph, scorer)
    C = dgraph.n_classes
    counts = np.zeros((2, 1 + C), np.int64)
    for of_rows in together(dgraph.comm, lambda: [count_labels(y_n, C, split_n) for y_n, split_n in scorer.labels()]):
        counts += of_rows
    dgraph.comm.all_reduce(counts)
    return _edge_notes(dgraph, scorer) + label_notes(counts, dgraph.on[:-1])


def _edge_notes(dgraph: DistGraph, scorer: Scorer) -> list[str]:
    """Return the sizes of the splits of edges; of a training on nodes, that edges have labels. Collective."""
    if dgraph.on == "nodes":
        return ["edges have labels: --on edges trains on them"] if dgraph.has_edge_labels else []
    ((y_E, split_E),) = scorer.labels()
    counts = np.bincount(split_E[labelled(y_E)] + 1, minlength=4)
    dgraph.comm.all_reduce(counts)
    _, train, val, test = counts.tolist()
    return [f"labelled edges: {train:,} train, {val:,} validate, {test:,} test"]


def _link_notes(links: Links) -> list[str]:
    """Return the sizes of the splits of links, what looks like a leak, and of how many val is while a model trains."""
    counts = [f"{len(links.of(role)):,} {name}" for role, name in enumerate(("train", "validate", "test"))]
    message = f"; {len(links.of(MESSAGE)):,} are messages alone" if links.is_supervised else ""
    given = "links without direction" if links.is_both else "links"
    note = note_of(links)
    return [f"{given}: {', '.join(counts)}{message}", *links.notes, *([note] if note else [])]


def host_notes(comm: Communicator) -> list[str]:
    """Return a sentence if processors of some hosts run the baseline loops for want of their own. Collective."""
    slow = comm.all_gather_json([socket.gethostname(), slow_loops()])
    hosts = [*dict.fromkeys(host for host, line in slow if line)]
    if not hosts:
        return []
    line = next(line for _, line in slow if line)
    return [f"{line} ({', '.join(hosts[:3])}{' ...' if len(hosts) > 3 else ''}): {BUILD_ALL}"]


def end_note(trainer: Trainer) -> str:
    """Return what to raise where few updates were made, the last epochs are the best and the loss still falls; else ""."""
    records, epochs = trainer.history.records, trainer.epoch
    updates = epochs * getattr(trainer.steps, "n_updates", 1)
    if len(records) < LEAST or updates > FEW or trainer.history.best_epoch <= 0.9 * epochs:
        return ""
    before, last = (records[place]["loss"] for place in (int(0.8 * len(records)) - 1, -1))
    if last > FALLS * before or last < DONE * records[0]["loss"]:
        return ""
    config = trainer.config
    return (
        f"the loss still falls after {updates} updates, by {1 - last / before:.0%} in the last fifth of them: "
        f"raise --epochs ({config.epochs}) or --lr ({config.lr:g})"
    )
