"""--dtype bfloat16: float32 weights, loss and sums around bfloat16 rows, on any ranks, near the float64 model."""

from dataclasses import replace

import dense_model
import numpy as np
import pytest
import torch
from graphs import random_graph
from models import Residual
from worlds import parallel

from spgnn import train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Stack
from spgnn.training.trainer import Trainer

RANKS = [1, 4]


class Biased(Residual):
    """Adding a float32 bias makes float32 rows: A takes those too."""

    def __init__(self, f):
        super().__init__(f)
        self.b_F = self.weight(f)

    def forward(self, A, H_nF):
        return A.chain(torch.relu(super().forward(A, H_nF) + self.b_F), self.W_FF, relu=True)


def make(name, f=16, c=3):
    if name in ("wide", "residual"):
        return dense_model.make(name, f, c)
    if name == "narrow":  # the last layer multiplies with A first
        return Stack(GCN(f, 2, act="relu"), GCN(2, c))
    return Stack(GCN(f, f), Residual(f), Biased(f), GCN(f, c))


def graph_of(sparse=False, **options):
    return random_graph(n=60, edges=300, f=16, sparse=sparse, weighted=True, **options)


def distance(a, b):
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


@parallel(RANKS, mpi=[4])
@pytest.mark.parametrize(
    "name, sparse", [("wide", False), ("residual", True), ("narrow", False), ("own", False), ("own", True)]
)
def test_loss_logits_and_gradients_are_within_bfloat16_of_the_dense_model(comm, name, sparse):
    graph = graph_of(sparse, use="directed")
    dgraph = distribute(graph, comm, method="random", dtype=torch.bfloat16)
    trainer = Trainer(make(name), dgraph, TrainConfig(lr=0.0, optimizer="sgd", split="given"))
    loss = trainer.step(1)
    expected, Z, gradients = dense_model.dense_gradients(graph, make(name), "gcn")
    logits = trainer.logits()
    assert logits.dtype == torch.float32 and abs(loss - expected) <= 1e-2 * expected
    assert distance(dgraph.collect(logits.detach().numpy()), Z) <= 1e-2
    parameters = list(trainer.model.parameters())
    assert {p.dtype for p in parameters} == {p.grad.dtype for p in parameters} == {torch.float32}
    sums = [p.grad for name, p in trainer.model.named_parameters() if name.endswith("b_C")]
    assert not any(torch.equal(g, g.bfloat16().float()) for g in sums)  # float32 sums, not rounded ones
    # Of all weights together: a bias gradient is a small sum of large terms.
    ours, theirs = ([p.grad.numpy().ravel() for p in parameters], [g.ravel() for g in gradients])
    assert distance(np.concatenate(ours), np.concatenate(theirs)) <= 1e-2


@parallel(RANKS, mpi=[4])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_bfloat16_training_follows_the_float32_one_on_any_ranks(comm, sparse):
    graph = graph_of(sparse, use="undirected")

    def losses(comm, dtype):
        model = Stack(GCN(16, 24, act="relu"), GCN(24, 3), dropout=0.3)
        dgraph = distribute(graph, comm, method="random", dtype=dtype)
        return [r["loss"] for r in train(model, dgraph, epochs=10, lr=0.02, seed=1).records]

    spread = losses(comm, torch.bfloat16)
    np.testing.assert_allclose(spread, losses(SelfCommunicator(), torch.float32), rtol=1e-2)
    np.testing.assert_allclose(spread, losses(SelfCommunicator(), torch.bfloat16), rtol=2e-3)


@parallel([2, 3], mpi=[4])
def test_bfloat16_rows_send_half_the_bytes_of_float32_and_as_many_as_predicted(comm):
    graph, sent = graph_of(use="undirected"), {}
    for dtype in (torch.float32, torch.bfloat16):
        dgraph = distribute(graph, comm, method="random", dtype=dtype)
        history = train(Stack(GCN(16, 9, act="relu"), GCN(9, 3)), dgraph, epochs=1)
        assert history.bytes_sent == history.bytes_predicted
        sent[dtype] = history.bytes_sent
    assert sent[torch.float32] == 2 * sent[torch.bfloat16]


@parallel([1, 2], mpi=[])
def test_labels_of_several_classes_and_a_model_without_a_stack_train_in_bfloat16(comm):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(16, 8), torch.nn.Linear(8, 3)
            generator = torch.Generator().manual_seed(0)
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter, -0.3, 0.3, generator=generator)

        def forward(self, A, X):
            return self.last(A @ torch.relu(self.first(A @ X)))

    graph = graph_of(use="undirected")
    several = replace(graph, y=np.random.default_rng(0).integers(0, 2, (60, 3)))
    for labelled in (graph, several):
        curves = []
        for dtype in (torch.float32, torch.bfloat16):
            dgraph = distribute(labelled, comm, method="random", dtype=dtype)
            curves.append([r["loss"] for r in train(Own(), dgraph, epochs=5, split="given").records])
        np.testing.assert_allclose(*curves, rtol=1e-2)


@pytest.mark.slow
@parallel([4], mpi=[])
@pytest.mark.parametrize("scheme, replication", [("columns", 1), ("cover", 1), ("cover", 2), ("broadcast", 2)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("wire", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("prune", ["never", "always"])
def test_schemes_replication_pruning_and_wires_stay_near_the_one_rank_curve(
    comm, scheme, replication, dtype, wire, prune
):
    graph, widths = graph_of(use="undirected"), (16, 24, 9, 3)

    def trained(comm, prune="never", **options):
        model = Stack(*[GCN(f, c, act="relu") for f, c in zip(widths, widths[1:])])
        dgraph = distribute(graph, comm, method="random", **options)
        return train(model, dgraph, epochs=6, lr=0.02, seed=1, prune=prune)

    expected = [r["loss"] for r in trained(SelfCommunicator(), dtype=torch.float32).records]
    options = dict(dtype=dtype, scheme=scheme, replication=replication, wire=wire, wire_gradients=wire)
    history = trained(comm, prune, **options)
    np.testing.assert_allclose([r["loss"] for r in history.records], expected, rtol=1e-2)
    assert history.bytes_sent == history.bytes_predicted > 0
