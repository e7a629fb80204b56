"""Trainer asks a Step for no more than the protocol says: ways to train that are not the full graph's fit in."""

import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import NumericalError
from spgnn.experiment.train import ObservedStep
from spgnn.layers import GCN, Stack
from spgnn.timeline.recorder import Recorder
from spgnn.training import Trainer
from spgnn.training.steps import FullStep, Scorer, Step, WrappedStep


def made(comm, step=FullStep, **options) -> Trainer:
    dgraph = distribute(random_graph(n=60, edges=300, use="undirected"), comm, method="random", dtype=torch.float64)
    model = Stack(GCN(6, 5, act="relu"), GCN(5, 3))
    return Trainer(model, dgraph, TrainConfig(**{"epochs": 8, "lr": 0.05} | options), step)


class Batches(WrappedStep):
    """Three updates an epoch, as a sampler's batches make them: no logits of all nodes, keys of its own."""

    gives_logits = False

    def forward(self, epoch):
        return None

    def update(self, first, last):
        assert first == last
        losses = []
        for number in range(3 * last - 2, 3 * last + 1):
            self.inner.forward(number)
            losses.append(self.inner.update(number, number))
        self.measured = {"steps": len(losses)}
        return sum(losses) / 3


@parallel([1, 2], mpi=[])
def test_a_step_of_several_updates_an_epoch_is_scored_by_evaluations(comm):
    trainer = made(comm, lambda *args: Batches(FullStep(*args)), epochs=4, eval_every=2)
    history = trainer.fit()
    assert [record["steps"] for record in history.records] == [3] * 4
    assert [record["val"] is not None for record in history.records] == [False, True] * 2
    plain = made(comm, epochs=12, eval_every=3)
    losses = [record["loss"] for record in plain.fit().records]
    assert [record["loss"] for record in history.records] == [sum(losses[e : e + 3]) / 3 for e in range(0, 12, 3)]
    assert history.records[-1]["val"] == plain.history.records[-1]["val"]


def test_every_step_and_scorer_has_what_the_protocol_names():
    full = made(SelfCommunicator()).steps
    steps = [full, WrappedStep(full), ObservedStep(full, Recorder()), Batches(full)]
    assert all(isinstance(step, Step) and isinstance(step.scorer, Scorer) for step in steps)
    assert not isinstance(object(), Step)


def test_an_epoch_whose_loss_is_not_finite_is_named_by_the_trainer_whatever_step_raises_it():
    class Fails(WrappedStep):
        def update(self, first, last):
            raise NumericalError(f"part 3: the loss is {float('nan')}")

    with pytest.raises(NumericalError, match=r"^epoch 1: part 3: the loss is nan\. Lower lr \(now 0.05\)"):
        made(SelfCommunicator(), lambda *args: Fails(FullStep(*args))).fit()
