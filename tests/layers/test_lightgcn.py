"""LightGCN is the mean of powers of D^-1/2 A D^-1/2 on any ranks, as PyG has it, with the gradient of the rows it reads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_model import relative
from graphs import dense_operator, random_graph
from worlds import parallel

import spgnn
from spgnn.analysis import measure
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import MLP, LightGCN, Stack
from spgnn.layers.registry import ModelSpec, operator_of
from spgnn.partition import part_graph
from spgnn.training.trainer import Trainer


def mean_of_powers(A_NN, H_NF, powers):
    return sum(np.linalg.matrix_power(A_NN, j) @ H_NF for j in range(powers + 1)) / (powers + 1)


def of_learned_rows(dgraph, model, G):
    """Z of X that requires a gradient, the gradient of sum Z G, and the bytes that each rank sent in both."""
    X, node_n = dgraph.X.clone().requires_grad_(), torch.from_numpy(dgraph.node_n)
    dgraph.comm.traffic.reset()
    Z = model(dgraph.A, X)
    (Z * torch.from_numpy(G).to(Z.dtype)[node_n]).sum().backward()
    return Z.detach(), X.grad, dgraph.comm.traffic.sent_bytes("all_to_all")


@parallel([1, 2, 3, 4], mpi=[3])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("use, weighted", [("directed", True), ("undirected", False)])
def test_rows_and_their_gradient_are_the_dense_ones_and_bytes_those_that_are_predicted(comm, scheme, use, weighted):
    graph, c = random_graph(use=use, weighted=weighted), 2 if comm.size == 4 else 1
    A_NN = dense_operator(graph, "sym")
    part = part_graph(graph, comm.size // c, "random")
    options = {"scheme": scheme, "replication": c, "keep": False}
    dgraph = distribute(graph, comm, part, operator="sym", dtype="float64", **options)
    G = np.random.default_rng(0).standard_normal(graph.X.shape)
    for powers in (1, 3):
        model = Stack(LightGCN(6, powers))
        Z, dX, sent = of_learned_rows(dgraph, model, G)
        assert relative(dgraph.collect(Z.numpy()), mean_of_powers(A_NN, graph.X, powers)) <= 1e-10
        assert relative(dgraph.collect(dX.numpy()), mean_of_powers(A_NN.T, G, powers)) <= 1e-10
        report = measure(graph, part, itemsize=8, model=model, input_gradient=True, **options)
        both = sum(report.bytes_PP(1, direction) for direction in ("forward", "backward"))
        np.testing.assert_array_equal(sent, both[comm.rank])


@parallel([1, 3, 4], mpi=[])
def test_powers_of_a_fixed_x_are_cached_and_the_layer_then_sends_nothing(comm):
    graph = random_graph(weighted=True)
    dgraph = distribute(graph, comm, dtype="float64", method="random", replication=2 if comm.size == 4 else 1)
    trainer = Trainer(Stack(LightGCN(6, 2), MLP(6, 3)).double(), dgraph, TrainConfig())
    comm.traffic.reset()
    trainer.step(1)
    assert comm.traffic.sent_bytes("all_to_all").sum() == trainer.steps.sent_bytes() == 0
    Z = LightGCN(6, 2)(dgraph.A.at(1, operator="sym"), dgraph.X)
    assert relative(dgraph.collect(Z.numpy()), mean_of_powers(dense_operator(graph, "sym"), graph.X, 2)) <= 1e-12


@parallel([1, 3], mpi=[])
def test_x_is_trained_through_it_without_any_weights(comm):
    dgraph = distribute(random_graph(), comm, dtype="float64", method="random", keep=False)
    dgraph = replace(dgraph, X=torch.nn.Parameter(dgraph.X.clone()))
    trainer = Trainer(Stack(LightGCN(6), MLP(6, 3)).double(), dgraph, TrainConfig(prune="auto"))
    comm.traffic.reset()
    trainer.step(1)
    assert comm.traffic.sent_bytes("all_to_all").sum() == trainer.steps.sent_bytes() and dgraph.X.grad.any()
    assert spgnn.verify(Stack(LightGCN(6)), random_graph(weighted=True), ranks=(1, 2)).ok if comm.size == 1 else True


def test_a_step_holds_two_matrices_besides_its_input_and_output():
    dgraph = distribute(random_graph(n=4000, edges=8000, f=64), SelfCommunicator(), operator="sym", keep=False)
    before, matrix = dgraph.A.pool.most_used, 4000 * 64 * 4
    Z = Stack(LightGCN(64, 4))(dgraph.A, dgraph.X.requires_grad_())
    assert dgraph.A.pool.most_used - before == 2 * matrix
    Z.backward(torch.ones(4000, 64))
    assert dgraph.A.pool.most_used - before == 3 * matrix  # Z is held


def test_it_is_the_embedding_of_pyg():
    nn = pytest.importorskip("torch_geometric.nn")
    graph = random_graph(use="undirected", weighted=True)
    A = graph.A.tocoo()
    theirs = nn.LightGCN(graph.n_nodes, 6, num_layers=3).double()
    edges, weights = torch.from_numpy(np.stack([A.col, A.row]).astype(np.int64)), torch.tensor(A.data).double()
    expected = theirs.get_embedding(edges, weights)
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", keep=False)
    X = theirs.embedding.weight.detach()[torch.from_numpy(dgraph.node_n)].requires_grad_()
    Z = Stack(LightGCN(6, 3))(dgraph.A, X)
    G = torch.linspace(-1, 1, X.numel(), dtype=torch.float64).view(X.shape)
    Z.backward(G)
    expected.backward(torch.from_numpy(dgraph.collect(G.numpy())))
    assert relative(dgraph.collect(Z.detach().numpy()), expected.detach().numpy()) <= 1e-10
    assert relative(dgraph.collect(X.grad.numpy()), theirs.embedding.weight.grad.numpy()) <= 1e-10


def test_the_family_has_no_weights_and_the_width_of_its_input():
    config = TrainConfig(model="lightgcn", layers=4, dropout=0.2)
    model = ModelSpec.of(config, 8, 8).build()
    assert [(layer.f_in, layer.powers) for layer in model.layers] == [(8, 4)] and not [*model.parameters()]
    assert model.dropout == 0.2 and operator_of(config) == "sym"
    with pytest.raises(
        UsageError, match="has no weights, and makes 8 columns of 8, not 3: it is for --task links, with features"
    ):
        ModelSpec.of(config, 8, 3).build()
