"""Layers run as they are on an induced subgraph, on blocks of a sampler and on a block-diagonal one: exactly the dense model."""

import models
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from dense_model import Residual, gradients_are_the_dense_ones, relative
from graphs import random_graph
from subgraphs import DenseSubgraph, blocks, induced, subgraph_of

from spgnn.dist import SelfCommunicator
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import APPNP, GCN, GCNII, MLP, SAGE, Layer, LightGCN, Stack
from spgnn.layers.stack import block_hops, set_epoch
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.operator.features import SparseRows
from spgnn.spmm.operator.subgraph import SubgraphOperators


class Composed(Layer):
    """Attention by values of edges, on the rows of columns."""

    hops = 1

    def __init__(self, f_in, f_out, op="add"):
        super().__init__(f_in, f_out)
        self.W_FC, self.a_CK, self.op = self.weight(f_in, f_out), self.weight(f_out, f_out), op

    def forward(self, A, H):
        x = H @ self.W_FC
        S = A.dot(x, x) if self.op == "dot" else A.on_edges(x @ self.a_CK, x @ self.a_CK)
        return A.sum(A.softmax(torch.tanh(S)), x)


ONE_HOP = models.ONE_HOP | {
    "residual": lambda: Stack(GCN(6, 6, act="relu", residual=True), models.Custom(6, 3)),
    "composed": models.two(Composed, lambda f, c: Composed(f, c, "dot")),
    "custom": models.two(models.Custom, GCN),
    "jump cat": lambda: Stack(MLP(6, 4), GCN(4, 5, act="relu"), SAGE(5, 4, act="relu"), MLP(13, 3), jump="cat"),
    "jump max": lambda: Stack(GCN(6, 5, act="relu"), MLP(5, 5), GCN(5, 3), jump="max"),
}
SEVERAL_HOPS = models.SEVERAL_HOPS | {
    "nested": lambda: Stack(GCN(6, 5), Stack(GCN(5, 4), GCN(4, 5), jump="cat"), GCN(5, 3)),
    "add": lambda: Stack(GCN(6, 6), Residual(6), GCN(6, 3)),
}
KINDS = {"induced": induced, "blocks": blocks}


def loss_of(Z, graph, subgraph):
    y = torch.from_numpy(graph.y[subgraph.node_m[subgraph.target_t]])
    each = torch.nn.functional.cross_entropy(Z[torch.from_numpy(subgraph.target_t)], y, reduction="none")
    return (each * torch.from_numpy(subgraph.weight_t).to(each.dtype)).sum()


def step(model, A, X, graph, subgraph):
    """Loss, logits and gradients of a training pass in epoch 3 of seed 5."""
    model = model.double().train()
    set_epoch(model, 5, 3)
    Z = model(A, X)
    loss = loss_of(Z, graph, subgraph)
    loss.backward()
    return float(loss.detach()), Z.detach().numpy(), [p.grad.numpy() for p in model.parameters() if p.grad is not None]


def compare(make, graph, kind, seed=0, dropout=0.0):
    def model():
        made = make()
        made.dropout = dropout
        return made

    node_m, matrices = KINDS[kind](graph, seed=seed)
    subgraph, pool = subgraph_of(graph, node_m, matrices), BufferPool()
    hops = block_hops(model(), len(matrices)) if kind == "blocks" else None
    rows = sp.csr_array(graph.X)[node_m] if sp.issparse(graph.X) else graph.X[node_m].astype(np.float64)
    dense = torch.tensor(rows.toarray() if sp.issparse(rows) else rows, dtype=torch.float64)
    X = SparseRows(sp.csr_array(rows), pool, torch.float64) if sp.issparse(rows) else dense
    A = SubgraphOperators(subgraph, pool, torch.float64, hops=hops)
    ours = step(model(), A, X, graph, subgraph)
    expected = step(model(), DenseSubgraph(node_m, matrices, hops), dense, graph, subgraph)
    assert abs(ours[0] - expected[0]) <= 1e-10 * expected[0]
    assert ours[1].shape == (A.n_out, 3) and relative(ours[1], expected[1]) <= 1e-10
    assert len(ours[2]) == len(expected[2]) > 0
    for gradient, dense_gradient in zip(ours[2], expected[2]):
        assert relative(gradient, dense_gradient) <= 1e-10 or np.abs(gradient - dense_gradient).max() < 1e-12


GRAPHS = {
    "directed, weighted": random_graph(use="directed", weighted=True),
    "undirected, sparse X": random_graph(use="undirected", sparse=True, seed=1),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", ONE_HOP)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_logits_and_gradients_are_those_of_the_dense_submatrix(kind, name, graph):
    compare(ONE_HOP[name], GRAPHS[graph], kind, dropout=0.4 if "directed, weighted" == graph else 0.0)


@pytest.mark.parametrize("name", SEVERAL_HOPS)
def test_layers_of_several_hops_run_on_one_operator_for_all_layers(name):
    for graph in GRAPHS.values():
        compare(SEVERAL_HOPS[name], graph, "induced", dropout=0.3)


@pytest.mark.parametrize("name", SEVERAL_HOPS)
def test_layers_of_several_hops_cannot_use_blocks(name):
    with pytest.raises(UsageError, match=r"use a sampler of one subgraph for all layers \(frontier, walk"):
        block_hops(SEVERAL_HOPS[name](), 2)


def test_the_layers_that_multiply_are_as_many_as_the_blocks():
    graph = random_graph()
    subgraph = subgraph_of(graph, *blocks(graph, 2))
    model, X = Stack(GCN(6, 5), GCN(5, 5), GCN(5, 3)), torch.ones(len(subgraph.node_m), 6)
    with pytest.raises(
        UsageError, match="blocks for 2 layers, 3 layers of the model multiply with A: give it 3 fan-outs"
    ):
        block_hops(model, 2)
    for layers in (model, Stack(GCN(6, 3)), Stack(GCN(6, 3), GCN(3, 3), MLP(3, 3))):
        with pytest.raises(UsageError, match="has blocks for 2 layers, the model has"):
            layers(SubgraphOperators(subgraph, BufferPool()), X)
    with pytest.raises(UsageError, match="has blocks for 2 layers, the model has 1:"):
        SubgraphOperators(subgraph, BufferPool(), hops=(1, 0))
    assert block_hops(Stack(MLP(6, 5), GCN(5, 5), models.Custom(5, 5), MLP(5, 3)), 2) == (0, 1, 1, 0)


@pytest.mark.parametrize("jump", ["cat", "max"])
def test_jumping_knowledge_on_blocks_joins_the_rows_of_the_same_nodes(jump):
    graph = random_graph(use="directed", weighted=True)
    node_m, matrices = blocks(graph, 3)
    A1, A2, A3 = (torch.from_numpy(of["gcn"]) for of in matrices)
    A = SubgraphOperators(subgraph_of(graph, node_m, matrices), BufferPool(), torch.float64)
    X = torch.from_numpy(graph.X[node_m]).double()
    model = Stack(GCN(6, 4), GCN(4, 4), GCN(8 if jump == "cat" else 4, 3), jump=jump).double().eval()
    H1 = A1 @ X @ model.layers[0].W_FC + model.layers[0].b_C
    H2 = A2 @ H1 @ model.layers[1].W_FC + model.layers[1].b_C
    H = torch.cat([H1[: len(H2)], H2], 1) if jump == "cat" else torch.maximum(H1[: len(H2)], H2)
    Z = A3 @ H @ model.layers[2].W_FC + model.layers[2].b_C
    assert len(H1) > len(H2) > len(Z) and relative(model(A, X).detach().numpy(), Z.detach().numpy()) <= 1e-12


class Twice(models.Custom):
    def forward(self, A, H):
        return A @ (A @ (H @ self.W))


class Declared(models.Custom):
    hops = 0

    def forward(self, A, H):
        return A @ (H @ self.W)


def test_a_product_that_a_block_does_not_have_is_refused():
    graph = random_graph()
    subgraph, pool = subgraph_of(graph, *blocks(graph, 2)), BufferPool()
    X = torch.ones(len(subgraph.node_m), 6)
    with pytest.raises(
        ShapeError, match="block 1: H has shape .* a layer that multiplies several times cannot use a block"
    ):
        Stack(Twice(6, 5), GCN(5, 3))(SubgraphOperators(subgraph, pool), X)
    model = Stack(GCN(6, 5), Declared(5, 5), GCN(5, 3))
    with pytest.raises(UsageError, match="layer 2 declares hops = 0, and multiplies with A"):
        model(SubgraphOperators(subgraph, pool, hops=block_hops(model, 2)), X)
    with pytest.raises(UsageError, match="a model that is not a Stack cannot use a block for each layer"):
        SubgraphOperators(subgraph, pool) @ X


def test_a_normalisation_that_was_not_drawn_is_named():
    graph = random_graph()
    node_m, (matrices,) = induced(graph)
    subgraph = subgraph_of(graph, node_m, [{how: matrices[how] for how in ("gcn", "none")}], index=12)
    with pytest.raises(UsageError, match="subgraph 12 has no operator of normalisation 'row', only gcn, none"):
        Stack(GCN(6, 5), SAGE(5, 3))(SubgraphOperators(subgraph, BufferPool()), torch.ones(25, 6))


def test_a_model_that_is_no_stack_multiplies_with_the_operator_of_all_layers():
    graph = random_graph()
    node_m, matrices = induced(graph)
    A = SubgraphOperators(subgraph_of(graph, node_m, matrices), BufferPool(), torch.float64)
    H = torch.from_numpy(graph.X[node_m]).double()
    assert relative((A @ (A @ H)).numpy(), matrices[0]["gcn"] @ (matrices[0]["gcn"] @ H.numpy())) <= 1e-12


def test_a_pruned_step_of_one_product_selects_the_rows_that_are_teleported():
    graph = random_graph(use="directed", train_every=9)
    for last in (lambda: APPNP(3, 1, 0.2), lambda: LightGCN(3, 1), lambda: GCNII(3, 1)):
        gradients_are_the_dense_ones(SelfCommunicator(), graph, lambda: Stack(GCN(6, 3), last()), "gcn", prune="always")
