"""Predicted = counted: the bytes of an epoch by pair of ranks, layer and direction."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from spgnn.analysis import measure
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.experiment.fit import train
from spgnn.partition import part_graph
from spgnn.training.trainer import Trainer

LOCK = threading.Lock()
REPORTS: dict[tuple, object] = {}


def once(key: tuple, make: Callable):
    """Return make() of the first thread rank that asks for the key; the others share it."""
    with LOCK:
        if key not in REPORTS:
            REPORTS[key] = make()
    return REPORTS[key]


def losses_are_those_of_one_rank(comm, graph, make: Callable):
    """Train what make() returns, with all rows and with pruned ones: the bytes are those predicted, the losses equal."""
    config, of = TrainConfig(split="given", epochs=2), dict(method="random", operator="none", dtype="float64")
    alone = Trainer(make(), distribute(graph, SelfCommunicator(), **of), config).fit()
    for prune in ("never", "auto"):
        history = Trainer(make(), distribute(graph, comm, **of), replace(config, prune=prune)).fit()
        assert history.bytes_predicted == history.records[-1]["bytes_sent"]
        np.testing.assert_allclose(*([r["loss"] for r in h.records] for h in (history, alone)), rtol=1e-10)


def predict_and_compare(comm, graph, make: Callable, key: tuple, prune="never", dtype=torch.float64, **options):
    """Compare what make() sends in an epoch on random parts of a graph with what measure predicts; return its report.

    Args: key  of graph and model: thread ranks share a prediction; options: of measure and distribute.
    """
    part = part_graph(graph, comm.size // options.get("replication", 1), method="random")
    train_N = (graph.split == 0) & (graph.y >= 0) if prune == "always" else None
    predict = lambda: measure(graph, part, model=make(), itemsize=dtype.itemsize, train_N=train_N, **options)
    report = once((*key, prune, dtype, comm.size, *options.items()), predict)
    return train_and_compare(comm, report, distribute(graph, comm, part, dtype=dtype, **options), make(), prune)


def train_and_compare(comm, report, dgraph, model, prune="auto"):
    """Train for an epoch and compare what this rank sends each other with the report; return the report."""
    comm.traffic.reset()
    history = train(model, dgraph, epochs=1, prune=prune)
    counted, layers = np.zeros(1, np.int64), [volume.layer for volume in report.layers]
    for layer in filter(None, layers):
        for direction in ("forward", "backward"):
            labels = [f"layer {layer} {direction}", f"layer {layer} {direction} sum"]
            sent = sum(comm.traffic.sent_bytes(label=label) for label in labels)
            np.testing.assert_array_equal(sent, report.bytes_PP(layer, direction)[comm.rank], f"{layer} {direction}")
            counted += sent.sum()
    comm.all_reduce(counted)
    assert history.bytes_sent == history.bytes_predicted == report.bytes_per_epoch
    assert counted[0] == history.bytes_sent or not all(layers)  # a model without a Stack has products of no layer
    return report
