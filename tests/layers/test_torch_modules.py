"""Modules of torch in a Stack: one argument, rows of the whole graph."""

import numpy as np
import pytest
import torch
from graphs import dense_operator, random_graph
from models import normal
from torch import nn
from torch.nn import functional
from worlds import parallel

import spgnn
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import GCN, Stack
from spgnn.layers.layer import hops_of
from spgnn.layers.stack import set_epoch

GRAPH = random_graph(n=30, edges=90)


def made(*layers, **options):
    return normal(Stack(*layers, **options))


def passed(model, comm, graph=GRAPH, **options):
    """The output of a pass in training mode, the gradients of weights and of X, and the running mean, of all ranks."""
    dgraph = spgnn.distribute(graph, comm, dtype="float64", method="random", keep=False, **options)
    X = dgraph.X.clone().requires_grad_()
    Z = model(dgraph.A, X)
    (Z * torch.cos(torch.tensor(dgraph.A.node_n).double() + 1)[:, None]).sum().backward()
    gradients = [comm.all_reduce(p.grad.clone()).numpy() for p in model.parameters()]
    return [dgraph.collect(Z.detach().numpy()), dgraph.collect(X.grad.numpy()), *gradients]


@parallel([1, 2, 3, 7], mpi=[2])
def test_a_stack_of_torchs_modules_is_the_dense_model_with_the_batch_norm_of_all_rows(comm):
    model = made(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Sequential(nn.ELU(), nn.LayerNorm(5)), GCN(5, 4), nn.SiLU())
    found = passed(model, comm)
    A, X = torch.tensor(dense_operator(GRAPH)), torch.tensor(GRAPH.X).requires_grad_()
    linear, norm, act, gcn, _ = other = made(*model.layers).layers
    dense = norm.running_mean.clone(), norm.running_var.clone()
    other.zero_grad()
    norm.reset_running_stats()
    H = act(norm(linear(X)))
    Z = functional.silu(A @ (H @ gcn.W_FC) + gcn.b_C)
    (Z * torch.cos(torch.arange(30.0, dtype=torch.float64) + 1)[:, None]).sum().backward()
    for got, expected in zip(found, [Z.detach(), X.grad, *(p.grad for p in other.parameters())], strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)
    for got, expected in zip(dense, (norm.running_mean, norm.running_var)):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@parallel([3], mpi=[])
def test_the_masks_of_torchs_dropout_are_those_of_one_rank(comm):
    model = made(nn.Linear(6, 40), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.3), nn.Linear(40, 4)))
    set_epoch(model, seed=3, epoch=2)
    alone = passed(model, spgnn.run_threads(1, lambda one: one)[0])
    model.zero_grad()
    for got, expected in zip(passed(model, comm), alone, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    set_epoch(model, seed=3, epoch=3)
    model.zero_grad()
    assert np.abs(passed(model, comm)[0] - alone[0]).max() > 0.1
    model.eval()
    first = model.layers[0](torch.tensor(GRAPH.X))
    np.testing.assert_allclose(passed(model, comm)[0], model.layers[2](first).detach(), atol=1e-12)


@parallel([2], mpi=[])
def test_a_linear_reads_sparse_features_and_a_relu_makes_them_dense(comm):
    graph = random_graph(n=30, edges=90, sparse=True)
    X = torch.tensor(graph.X.toarray())
    for layer in (nn.Linear(6, 4), nn.Linear(6, 4, bias=False), nn.ReLU()):
        dgraph = spgnn.distribute(graph, comm, dtype="float64", method="random")
        Z = made(layer)(dgraph.A, dgraph.X)
        np.testing.assert_allclose(dgraph.collect(Z.detach().numpy()), layer(X).detach(), atol=1e-12)


@parallel([3], mpi=[])
def test_a_training_prunes_rows_through_torchs_modules(comm):
    graph = random_graph(n=60, edges=90, train_every=10)

    def trained(prune):
        dgraph = spgnn.distribute(graph, comm, dtype="float64", method="random")
        model = made(nn.Linear(6, 8), GCN(8, 8), nn.ReLU(), GCN(8, 3))
        return spgnn.Trainer(model, dgraph, spgnn.config.TrainConfig(epochs=4, lr=0.05, prune=prune)), model

    losses = []
    for prune in ("always", "never"):
        trainer, model = trained(prune)
        assert trainer.steps.rows.is_pruned == (prune == "always") and not model.is_random
        losses.append([record["loss"] for record in trainer.fit().records])
    np.testing.assert_allclose(*losses, rtol=1e-12)


@parallel([4], mpi=[])
def test_a_process_row_computes_torchs_modules_of_rows(comm):
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", replication=2)
    model = made(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.5), GCN(5, 3)).eval()
    A, X, (linear, _, _, gcn) = torch.tensor(dense_operator(GRAPH)), torch.tensor(GRAPH.X), model.layers
    expected = A @ (torch.relu(linear(X)) @ gcn.W_FC) + gcn.b_C
    np.testing.assert_allclose(
        dgraph.collect(model(dgraph.A, dgraph.X).detach().numpy()), expected.detach(), atol=1e-12
    )


def test_only_what_is_row_by_row_declares_no_hops():
    assert hops_of(nn.Sequential(nn.Linear(3, 2), nn.ReLU())) == 0
    for module in (nn.BatchNorm1d(3), nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), nn.Softmax(0)):
        assert hops_of(module) is None
    hooked = nn.Linear(3, 2)
    hooked.register_forward_hook(lambda module, inputs, out: out.flip(0))
    assert hops_of(hooked) is None


def test_widths_of_linears_are_compared():
    with pytest.raises(ShapeError, match="layer 2 reads 4 columns, layer 1 writes 5"):
        Stack(nn.Linear(3, 5), GCN(4, 2))
    assert "3 -> 5 -> ? -> 2" in repr(Stack(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)))


class Convolution(nn.Module):
    def forward(self, x, edge_index):
        return x


class Three(nn.Module):
    def forward(self, A, H, more):
        return H


@pytest.mark.parametrize("layer, message", [
    (Convolution(), "layer 1, Convolution, reads an edge_index; give spgnn.wrap of it"),
    (Three(), r"layer 1, Three, cannot be called as layer\(A, H\) or layer\(H\)")])  # fmt: skip
def test_other_modules_are_refused(layer, message):
    with pytest.raises(UsageError, match=message):
        Stack(layer)


@parallel([2], mpi=[])
def test_random_numbers_of_torch_are_refused(comm):
    dgraph = spgnn.distribute(GRAPH, comm)
    with pytest.raises(UsageError, match="calls alpha_dropout, whose numbers differ between ranks"):
        Stack(nn.AlphaDropout(0.5))(dgraph.A, dgraph.X)
