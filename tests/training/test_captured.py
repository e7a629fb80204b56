"""Captured steps on a stand-in for CUDA graphs: replayed epochs equal those that run as they stand, to the bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from emulated_cuda import emulated_kernels
from graphs import random_graph
from recorded import Recorded, adam_as_on_a_device

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import UsageError
from spgnn.layers import GCN, Stack
from spgnn.spmm.dropout import EpochKeys, dropout_key
from spgnn.spmm.kernels import backend
from spgnn.training import Trainer
from spgnn.training.steps import Step
from spgnn.training.steps.captured import EAGER, CapturedStep

pytestmark = pytest.mark.slow

CASES = {
    "adam": {},
    "sgd": {"optimizer": "sgd"},
    "dropout": {"dropout": 0.4},
    "sparse dropout": {"sparse": True, "dropout": 0.4},
    "norm, residual": {"norm": "layer", "residual": True},
    "pruned": {"prune": "always", "residual": True},
    "multilabel": {"is_multilabel": True},
    "bfloat16": {"dtype": torch.bfloat16},
}


@pytest.fixture
def kernels(monkeypatch):
    kernels = emulated_kernels()
    monkeypatch.setattr(backend, "HOST", kernels)
    adam_as_on_a_device(monkeypatch)
    return kernels


def trainer_of(
    *, sparse=False, dropout=0.0, norm=None, residual=False, is_multilabel=False, dtype=torch.float64, **options
) -> Trainer:
    graph = random_graph(n=60, edges=400, f=9, sparse=sparse)
    if is_multilabel:
        graph = replace(graph, y=np.eye(3, dtype=np.int8)[np.maximum(graph.y, 0)])
    dgraph = spgnn.distribute(graph, SelfCommunicator(), dtype=dtype, keep=dropout == 0)
    model = Stack(
        GCN(9, 9, act="relu", norm=norm, residual=residual), GCN(9, 8, act="relu"), GCN(8, 3), dropout=dropout
    )
    return Trainer(model, dgraph, TrainConfig(epochs=EAGER + 4, lr=0.05, **options))


@pytest.mark.parametrize("case", CASES)
def test_replayed_epochs_are_those_that_run_as_they_stand(case, kernels):
    plain, captured = trainer_of(**CASES[case]), trainer_of(**CASES[case])
    capture = Recorded(kernels, captured.dgraph.A.pool)
    captured.steps = steps = CapturedStep(captured.steps, capture)
    expected, got = plain.fit(), captured.fit()
    assert [r["loss"] for r in got.records] == [r["loss"] for r in expected.records]
    assert [(r["train"], r["val"]) for r in got.records] == [(r["train"], r["val"]) for r in expected.records]
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), captured.model.parameters()))
    logits = steps.scorer.logits
    assert isinstance(steps, Step) and steps._forward.graph and steps._update.graph
    assert (logits.graph is not None) == (logits.calls > EAGER)
    # On the CPU backward looks whether the gradient of the loss is one.
    assert capture.syncs == ({} if case == "multilabel" else {"_local_scalar_dense": 1})


def test_the_stand_in_finds_what_a_capture_would_freeze(kernels):
    frozen = trainer_of(dropout=0.4)
    full = frozen.steps
    frozen.steps = CapturedStep(full, Recorded(kernels, frozen.dgraph.A.pool))
    forward = frozen.steps._forward
    forward.function = lambda: full.forward(
        forward.calls
    )  # the epoch as the host knows it: that of the capture for ever
    expected, got = ([r["loss"] for r in t.fit().records] for t in (trainer_of(dropout=0.4), frozen))
    assert got[EAGER] == expected[EAGER] and got[EAGER + 1] != expected[EAGER + 1]


def test_a_capture_finds_no_node_of_a_step_that_ran_as_it_stands(kernels):
    """The nodes of the weights belong to the stream that they were made on, and torch refuses those of another in a capture."""
    trainer, found = trainer_of(), []
    nodes = lambda: [p.expand_as(p).grad_fn.next_functions[0][0] for p in trainer.model.parameters()]
    forward, recorded = trainer.steps.forward, Recorded(kernels, trainer.dgraph.A.pool)

    def marking(epoch):
        Z_nC = forward(epoch)
        for node in nodes():
            node.metadata["calls"] = steps._forward.calls
        return Z_nC

    def looking(function):
        found.append({node.metadata.get("calls") for node in nodes()})
        return recorded(function)

    trainer.steps.forward = marking
    trainer.steps = steps = CapturedStep(trainer.steps, looking)
    trainer.fit()
    assert found[:2] == [{None}, {EAGER + 1}]  # of the forward pass, then of its own update


def test_keys_of_an_epoch_are_those_of_the_host():
    keys = EpochKeys(7, 3, torch.device("cpu"))
    for epoch in (1, 9):
        keys.set(epoch)
        found = [dropout_key(7, keys, layer).numpy().view(np.uint64) for layer in (1, 2, 3)]
        assert found == [dropout_key(7, epoch, layer) for layer in (1, 2, 3)]


def test_several_ranks_are_refused():
    def body(comm):
        dgraph = spgnn.distribute(random_graph(n=30, edges=90), comm, method="block")
        with pytest.raises(UsageError, match="--cuda-graph requires one rank, got 2"):
            CapturedStep(Trainer(Stack(GCN(6, 3)), dgraph, TrainConfig()).steps)

    run_threads(2, body)


def test_the_cpu_is_refused():
    dgraph = spgnn.distribute(random_graph(n=30, edges=90), SelfCommunicator())
    with pytest.raises(UsageError, match="captured steps require a GPU"):
        CapturedStep(Trainer(Stack(GCN(6, 3)), dgraph, TrainConfig()).steps)


@pytest.mark.parametrize("options, message", [
    (["--cuda-graph"], "--cuda-graph requires --device cuda"),
    (["--cuda-graph", "--device", "cuda", "--trace", "t.json"], "inside which --trace sees nothing"),
])  # fmt: skip
def test_what_cannot_be_captured_is_refused_by_the_command(options, message, capsys):
    assert cli.main(["train", "sbm:n=100,seed=0", "--epochs", "1", *options]) == 2
    assert message in capsys.readouterr().err
