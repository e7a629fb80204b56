"""What a Step keeps between epochs is in the checkpoints: each rank its own, and all of it for other ranks."""

import math

import numpy as np
import pytest
import torch

from spgnn.config import TrainConfig
from spgnn.data import load_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import distribute
from spgnn.errors import CheckpointError
from spgnn.experiment import Checkpoints
from spgnn.experiment.checkpoint import has_content, pack_state, to_bytes, to_tensors, unpack_state
from spgnn.graph import graph_from_coo
from spgnn.layers import GCN, Stack
from spgnn.training import Trainer
from spgnn.training.steps import FullStep, WrappedStep

GRAPH = "sbm:n=40,classes=2,features=4,seed=1"


class Summed(WrappedStep):
    """Keeps the sum of the ids of the own nodes times the epochs, as moments of a part would be kept."""

    def __init__(self, step: FullStep):
        super().__init__(step)
        self.sums = {int(node): 0.0 for node in step.dgraph.node_n}

    def run(self, first, last, on_logits=None):
        loss = self.inner.run(first, last, on_logits)
        if loss is not None:
            self.sums = {node: value + node * last for node, value in self.sums.items()}
        return loss

    def state_dict(self):
        return {"nodes": torch.tensor(list(self.sums)), "sums": torch.tensor(list(self.sums.values()))}

    def load_state_dict(self, state):
        self.sums = dict(zip(state["nodes"].tolist(), state["sums"].tolist()))

    def take_over(self, states):
        known = {node: value for of in states for node, value in zip(of["nodes"].tolist(), of["sums"].tolist())}
        self.sums = {node: known[node] for node in self.sums}
        return "" if len(known) == 40 else "some are lost"


def made(comm, folder, epochs=6, graph=None):
    dgraph = distribute(graph or load_graph(GRAPH), comm, method="random", dtype=torch.float64)
    make_step = lambda *args: Summed(FullStep(*args))
    trainer = Trainer(Stack(GCN(4, 3, act="relu"), GCN(3, 2)), dgraph, TrainConfig(epochs=epochs), make_step)
    return trainer, Checkpoints(folder, trainer, every_s=0)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_step_takes_over_the_states_of_other_ranks(tmp_path, size):
    def begin(comm):
        trainer, checkpoints = made(comm, tmp_path / "run", epochs=4)
        trainer.fit(lambda record: checkpoints.after_epoch())
        checkpoints.close()

    def go_on(comm):
        said = []
        trainer, checkpoints = made(comm, tmp_path / "run")
        assert checkpoints.restore(say=said.append) and trainer.epoch == 4 and not said
        trainer.fit(lambda record: checkpoints.after_epoch())
        checkpoints.close()
        return trainer.steps.sums

    run_threads(2, begin)
    sums = {node: value for of in run_threads(size, go_on) for node, value in of.items()}
    assert sums == {node: node * 21.0 for node in range(40)}


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
    trainer, checkpoints = made(SelfCommunicator(), tmp_path, graph=edges(RING))
    checkpoints.close() if trainer.step(1) is not None else None
    run_threads(3, lambda comm: made(comm, tmp_path, graph=edges(RING))[1].restore())  # the same on other ranks
    with pytest.raises(CheckpointError, match="was made on another graph .edges [0-9a-f]{16}, here"):
        made(SelfCommunicator(), tmp_path, graph=OTHERS[other])[1].restore()


@pytest.mark.parametrize("state, is_filled", [
    ({}, False), ({"feedback": {}}, False), ({"a": {"b": None}}, False), ({"steps": 0}, True),
    ({"a": {"b": torch.arange(3), "c": {}}, "nan": math.nan, "list": [1, "x"]}, True), ({"feedback": {"gcn.0": torch.zeros(0, 3)}}, True),
])  # fmt: skip
def test_a_state_is_what_was_packed(tmp_path, state, is_filled):
    got = unpack_state(to_tensors(to_bytes(pack_state(state)), tmp_path))
    assert has_content(state) == is_filled and repr(got) == repr(state)
    with pytest.raises(AssertionError, match="'a/b' is no key of a state"):
        pack_state({"a/b": 1})
