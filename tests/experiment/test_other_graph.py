"""A training goes on with the graph that it was begun on alone."""

import numpy as np
import pytest
import torch

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import distribute
from spgnn.errors import CheckpointError
from spgnn.experiment import Checkpoints
from spgnn.graph import graph_from_coo
from spgnn.layers import GCN, Stack
from spgnn.training import Trainer


def made(comm, folder, graph):
    dgraph = distribute(graph, comm, method="random", dtype=torch.float64)
    trainer = Trainer(Stack(GCN(4, 3, act="relu"), GCN(3, 2)), dgraph, TrainConfig(epochs=6))
    return trainer, Checkpoints(folder, trainer, every_s=0)


def edges(pairs, weights=None):
    source, target = np.array(pairs).T
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 2
    return graph_from_coo(
        source, target, 40, weights=weights, X=X, y=y, split=(np.arange(40) % 3).astype(np.int8)
    ).with_edges("directed")


RING = [(i, (i + 1) % 40) for i in range(40)]
BACK = [(j, i) for i, j in RING]
SWAPPED = [*RING[:3], *RING[4:10], *RING[11:], (3, 11), (10, 4)]
OTHERS = {
    "the other way round": edges(BACK),
    "two ends exchanged": edges(SWAPPED),
    "weights": edges(RING, np.r_[2.0, np.ones(39)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
def test_a_graph_with_the_same_degrees_and_other_edges_is_refused(tmp_path, other):
    trainer, checkpoints = made(SelfCommunicator(), tmp_path, edges(RING))
    checkpoints.close() if trainer.step(1) is not None else None
    run_threads(3, lambda comm: made(comm, tmp_path, edges(RING))[1].restore())  # the same on other ranks
    with pytest.raises(CheckpointError, match="was made on another graph .edges [0-9a-f]{16}, here"):
        made(SelfCommunicator(), tmp_path, OTHERS[other])[1].restore()
