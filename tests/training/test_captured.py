"""Captured steps on a stand-in for CUDA graphs that does the work again: epochs equal plain ones, bitwise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from emulated_cuda import emulated_kernels
from graphs import random_graph

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import UsageError
from spgnn.layers import GCN, Stack
from spgnn.spmm.kernels import backend
from spgnn.training import Trainer
from spgnn.training.steps import Step
from spgnn.training.steps.captured import EAGER, CapturedStep

pytestmark = pytest.mark.slow

CASES = {
    "dropout": {"dropout": 0.4, "optimizer": "sgd"},
    "sparse dropout": {"sparse": True, "dropout": 0.4},
    "pruned": {"prune": "always", "residual": True, "norm": "layer"},
    "multilabel": {"is_multilabel": True},
    "bfloat16": {"dtype": torch.bfloat16},
}


def trainer_of(*, sparse=False, dropout=0.0, norm=None, residual=False, is_multilabel=False, dtype=None, **options):
    graph = random_graph(n=60, edges=400, f=9, sparse=sparse)
    if is_multilabel:
        graph = replace(graph, y=np.eye(3, dtype=np.int8)[np.maximum(graph.y, 0)])
    dgraph = spgnn.distribute(graph, SelfCommunicator(), dtype=dtype or torch.float64, keep=dropout == 0)
    first = GCN(9, 9, act="relu", norm=norm, residual=residual)
    model = Stack(first, GCN(9, 8, act="relu"), GCN(8, 3), dropout=dropout)
    return Trainer(model, dgraph, TrainConfig(epochs=EAGER + 4, lr=0.05, **options))


def captured(trainer: Trainer) -> CapturedStep:
    """Return the trainer's captured steps; a replay of this stand-in calls its function and keeps what it returns."""

    def capture(function):
        # Nodes of the weights from an earlier step belong to another stream, and torch refuses them in a capture.
        assert function is not steps._forward.function or steps._Z_nC is None

        def replay():
            owner = next(r for r in (steps._forward, steps._update, steps.scorer.logits) if r.graph is graph)
            owner.result = function()

        graph = SimpleNamespace(replay=replay)
        return graph, None

    trainer.steps = steps = CapturedStep(trainer.steps, capture)
    return steps


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setattr(backend, "HOST", emulated_kernels())


@pytest.mark.parametrize("case", CASES)
def test_replayed_epochs_are_those_that_run_as_they_stand(case, kernels):
    plain, replayed = trainer_of(**CASES[case]), trainer_of(**CASES[case])
    steps = captured(replayed)
    expected, got = plain.fit(), replayed.fit()
    keys = ("loss", "train", "val")
    assert [[r[key] for key in keys] for r in got.records] == [[r[key] for key in keys] for r in expected.records]
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), replayed.model.parameters()))
    logits = steps.scorer.logits
    assert isinstance(steps, Step) and steps._forward.graph and steps._update.graph
    assert (logits.graph is not None) == (logits.calls > EAGER)


def test_several_ranks_and_the_cpu_are_refused():
    def body(comm):
        dgraph = spgnn.distribute(random_graph(n=30, edges=90), comm, method="block")
        message = "requires one rank, got 2" if comm.size == 2 else "captured steps require a GPU"
        with pytest.raises(UsageError, match=message):
            CapturedStep(Trainer(Stack(GCN(6, 3)), dgraph, TrainConfig()).steps)

    run_threads(2, body), run_threads(1, body)


@pytest.mark.parametrize("options, message", [
    (["--cuda-graph"], "--cuda-graph requires --device cuda"),
    (["--cuda-graph", "--device", "cuda", "--trace", "t.json"], "inside which --trace sees nothing"),
])  # fmt: skip
def test_what_cannot_be_captured_is_refused_by_the_command(options, message, capsys):
    assert cli.main(["train", "sbm:n=100,seed=0", "--epochs", "1", *options]) == 2
    assert message in capsys.readouterr().err
