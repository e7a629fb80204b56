"""Trainer asks a Step for no more than the protocol says: ways to train that are not the full graph's fit in."""

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import NumericalError
from spgnn.experiment.observe import ObservedStep
from spgnn.layers import GCN, Stack
from spgnn.timeline.recorder import Recorder
from spgnn.training import Trainer
from spgnn.training.steps import FullStep, Scorer, Step, WrappedStep
from spgnn.training.steps.step import sum_loss


def made(comm, step=FullStep, **options) -> Trainer:
    dgraph = distribute(random_graph(n=60, edges=300, use="undirected"), comm, method="random", dtype=torch.float64)
    model = Stack(GCN(6, 5, act="relu"), GCN(5, 3))
    return Trainer(model, dgraph, TrainConfig(**{"epochs": 8, "lr": 0.05} | options), step)


class Batches(WrappedStep):
    """Three updates an epoch, as a sampler's batches make them: no logits of all nodes, keys of its own."""

    gives_logits = False

    def run(self, first, last, on_logits=None):
        assert on_logits is None and first == last
        losses = [self.inner.run(number, number) for number in range(3 * last - 2, 3 * last + 1)]
        self.measured = {"steps": len(losses)}
        return sum(losses) / 3


class Averaged(WrappedStep):
    """Each rank trains alone for three epochs on its own rows; then weights are averaged by training nodes."""

    gives_logits, interval = False, 3

    def __init__(self, step: FullStep):
        super().__init__(step)
        self.sums = 0
        own = torch.from_numpy(step.dgraph.node_n)
        graph = random_graph(n=60, edges=300, use="undirected")
        y_N = torch.full((60,), -1)
        y_N[own] = torch.tensor(graph.y)[own]  # other nodes are halo: no label, no split
        split_N = np.full(60, -1, np.int8)
        split_N[own] = graph.split[own]
        part = distribute(
            random_graph(n=60, edges=300, use="undirected"), SelfCommunicator(), dtype=torch.float64, locality=False
        )
        object.__setattr__(part, "y_n", y_N)
        object.__setattr__(part, "split_n", split_N)
        self.local = FullStep(step.model, part, step.config)

    def run(self, first, last, on_logits=None):
        for number in range(first, last + 1):
            loss = self.local.run(number, number)
        share = self.local.n_train / self.inner.n_train
        for parameter in self.model.parameters():
            parameter.data.mul_(share)
            self.comm.all_reduce(parameter.data)
        self.sums += 1
        return sum_loss(loss * share, self.comm)


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


@parallel([1, 2, 3], mpi=[])
def test_a_step_without_communication_between_averages_is_one_record_an_interval(comm):
    trainer = made(comm, lambda *args: Averaged(FullStep(*args)))
    history = trainer.fit()
    assert [record["epoch"] for record in history.records] == [3, 6, 8] and trainer.steps.sums == 3
    assert all(record["val"] is not None for record in history.records)
    weights = comm.all_gather(np.stack([torch.cat([v.ravel() for v in trainer.last_state.values()]).numpy()]))
    assert (weights == weights[0]).all()
    if comm.size == 1:  # one part is the whole graph
        losses = [record["loss"] for record in made(comm).fit().records]
        assert [record["loss"] for record in history.records] == [losses[2], losses[5], losses[7]]


@parallel([1, 2], mpi=[])
def test_a_scorer_of_several_models_adds_their_counts(comm):
    class PerPart:
        """Half of the nodes are scored with a model that was negated."""

        task = "classes"

        def __init__(self, scorer):
            self.inner = scorer

        def split(self):
            return self.inner.split()

        def logits(self):
            return self.inner.logits()

        def predictions(self):
            return self.inner.predictions()

        def counts(self, Z_nC=None):
            Z_nC = self.logits() if Z_nC is None else Z_nC
            is_second_n = torch.from_numpy(self.inner.dgraph.node_n % 2 == 1)[:, None]
            return self.inner.counts(torch.where(is_second_n, -Z_nC, Z_nC))

    trainer = made(comm, epochs=3)
    trainer.steps.scorer = PerPart(trainer.steps.scorer)
    assert isinstance(trainer.steps.scorer, Scorer)
    history = trainer.fit()
    y_N, split_N = random_graph(n=60, edges=300, use="undirected").y, trainer.dgraph.collect(trainer.steps.split_n)
    Z_NC = trainer.dgraph.collect(trainer.logits().numpy())
    Z_NC[1::2] *= -1
    is_test_N = (split_N == 2) & (y_N >= 0)
    assert history.test == pytest.approx((Z_NC.argmax(1) == y_N)[is_test_N].mean())


def test_every_step_and_scorer_has_what_the_protocol_names():
    full = made(SelfCommunicator()).steps
    steps = [full, WrappedStep(full), ObservedStep(full, Recorder()), Batches(full), Averaged(full)]
    assert all(isinstance(step, Step) and isinstance(step.scorer, Scorer) for step in steps)
    assert not isinstance(object(), Step)


def test_an_epoch_whose_loss_is_not_finite_is_named_by_the_trainer_whatever_step_raises_it():
    class Fails(WrappedStep):
        def run(self, first, last, on_logits=None):
            raise NumericalError(f"part 3: the loss is {float('nan')}")

    with pytest.raises(NumericalError, match=r"^epoch 1: part 3: the loss is nan\. Lower --lr \(now 0.05\)"):
        made(SelfCommunicator(), lambda *args: Fails(FullStep(*args))).fit()
