"""Layers on edges have the rows and gradients of plain torch on the list of edges, in float64, on any ranks."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from counted_bytes import losses_are_those_of_one_rank
from dense_model import relative
from models import drawn
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GINE, MLP, PNA, EdgeDecoder, EdgeEncoder, EdgeMLP, GatedGCN, NNConv, Stack, Transformer
from spgnn.spmm.edges import edge_update
from spgnn.spmm.operator.batched import Batched
from spgnn.training.trainer import Trainer

N, F, FE = 40, 5, 3
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N - 3, (2, 150))  # three nodes without edges
SRC[1], DST[1] = SRC[0], DST[0]  # two edges between the same nodes
EDGES, X = RNG.normal(size=(150, FE)), RNG.normal(size=(N, F))
GRAPH = spgnn.graph_from_coo(SRC, DST, N, edge_attr=EDGES, X=X, y=RNG.integers(0, 4, N)).with_edges("directed")
ROW, COL, E = torch.from_numpy(SRC), torch.from_numpy(DST), torch.from_numpy(EDGES)


def total(M):
    """The sum over the edges of each row."""
    return torch.zeros(N, M.shape[1], dtype=M.dtype).index_add(0, ROW, M)


def over_rows(M, function):
    """What a function of (edges, F) makes of the edges of each row; 0 for an empty row."""
    return torch.stack([function(M[ROW == i]) if (ROW == i).any() else M.new_zeros(M.shape[1]) for i in range(N)])


def edge_mlp(of, H, S):
    S = S + of.edge(torch.cat([H[ROW], H[COL], S], 1) @ of.W + of.b)
    return H + of.node(torch.cat([H, total(S)], 1)), S


def gated(of, H, S):
    x = (H @ of.W_i)[ROW] + (H @ of.W_j)[COL] + S @ of.W_e + of.b_x
    gate = torch.sigmoid(x)
    Z = H @ of.U + of.b + total(gate * (H @ of.V)[COL]) / (total(gate) + 1e-6)
    return H + torch.relu(of.norm_h(Z)), S + torch.relu(of.norm_x(x))


def gine(of, H):
    Z = (1 + of.eps) * H + total(torch.relu(H[COL] + E @ of.W_e))
    return torch.relu(Z @ of.W_1 + of.b_1) @ of.W_2 + of.b_C


def nnconv(of, H):
    c = torch.relu(E @ of.W_e + of.b_e) @ of.W_c
    W_E = torch.einsum("eb,fcb->efc", c, of.W_FCB.view(len(of.W), -1, of.basis))
    return H @ of.W + total(torch.einsum("ef,efc->ec", H[COL], W_E)) + of.b_C


def transformer(of, H):
    K, e = of.heads, E @ of.W_e
    split = lambda M: M.view(len(M), -1, K)
    q, k, v = split((H @ of.W_q)[ROW]), split((H @ of.W_k)[COL] + e), split((H @ of.W_v)[COL] + e)
    S = (q * k).sum(1) / math.sqrt(q.shape[1])
    weights = torch.exp(S)
    alpha = weights / total(weights)[ROW]
    return H @ of.W + total((v * alpha[:, None]).flatten(1)) + of.b_C


def pna(of, H):
    M = torch.relu((H @ of.W_i)[ROW] + (H @ of.W_j)[COL] + E @ of.W_e + of.b_m)
    sums = (lambda m: m.mean(0), lambda m: m.amax(0), lambda m: m.amin(0), lambda m: m.std(0, correction=0))
    joined = torch.cat([over_rows(M, f) for f in sums], 1)
    degree = torch.log(torch.bincount(ROW, minlength=N).double() + 1)[:, None] / of.delta
    attenuated = torch.where(degree > 0, joined / degree, 0)
    return torch.cat([H, joined, joined * degree, attenuated], 1) @ of.W + of.b_C


DENSE = {EdgeMLP: edge_mlp, GatedGCN: gated, GINE: gine, NNConv: nnconv, Transformer: transformer, PNA: pna}
MODELS = {
    "EdgeMLP": lambda: Stack(EdgeEncoder(FE, F, 6), MLP(F, 6), EdgeMLP(6), EdgeMLP(6, hidden=7, act="elu"), MLP(6, 4)),
    "GatedGCN": lambda: Stack(MLP(F, 6), EdgeEncoder(FE, 6, 6, "tanh"), GatedGCN(6), GatedGCN(6), MLP(6, 4)),
    "GINE": lambda: Stack(GINE(F, 6, FE, eps=0.5, hidden=3), GINE(6, 4, FE)),
    "NNConv": lambda: Stack(NNConv(F, 6, FE), NNConv(6, 4, FE, basis=1, hidden=2)),
    "Transformer": lambda: Stack(Transformer(F, 6, FE, heads=3), Transformer(6, 4, FE)),
    "PNA": lambda: Stack(PNA(F, 6, FE, hidden=2, delta=1.3), PNA(6, 4, FE)),
}


def on_the_list(model):
    """Rows of all nodes and gradients of the weights, by plain torch."""
    H, S = torch.from_numpy(X), None
    for layer in model.layers:
        if isinstance(layer, MLP):
            H = H @ layer.W[0] + layer.b_C
        elif isinstance(layer, EdgeEncoder):
            S = layer.mlp(E)
        elif layer.carries_edges:
            H, S = DENSE[type(layer)](layer, H, S)
        else:
            H = DENSE[type(layer)](layer, H)
    return H


@parallel([1, 2, 3])
def test_a_decoder_of_edges_has_the_rows_of_the_list_of_edges_in_its_order(comm):
    torch.manual_seed(4)
    model = Stack(MLP(F, 6), EdgeEncoder(FE, 6, 6), EdgeMLP(6), EdgeDecoder(6, 2, hidden=5)).double()
    dense, of = Stack(*list(model.layers)[:-1]), model.layers[-1]
    dgraph = distribute(GRAPH, comm, method="random", operator="none", dtype="float64")
    with torch.no_grad():
        H, S = torch.from_numpy(X), None
        H, S = H @ dense.layers[0].W[0] + dense.layers[0].b_C, dense.layers[1].mlp(E)
        H, S = edge_mlp(dense.layers[2], H, S)
        Z = torch.relu(H[ROW] @ of.W_i + H[COL] @ of.W_j + S @ of.W_e + of.b) @ of.W + of.b_o
        found = dgraph.collect_edges(model(dgraph.A, dgraph.X).numpy())
    assert np.abs(found - Z.numpy()).max() <= 1e-10 * float(Z.abs().max())


@parallel([1, 2, 3, 4, 7], mpi=[3])
@pytest.mark.parametrize("name", MODELS)
def test_rows_and_gradients_are_the_ones_of_the_list_of_edges(comm, name):
    G = torch.randn(N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    theirs, ours = drawn(MODELS[name]()), drawn(MODELS[name]())
    Z = on_the_list(theirs)
    (Z * G).sum().backward()
    dgraph = distribute(GRAPH, comm, method="random", operator="none", dtype="float64")
    own, chunk = torch.from_numpy(dgraph.A.node_n), edge_update.CHUNK_BYTES
    edge_update.CHUNK_BYTES = 5 * 6 * 8  # several chunks
    try:
        out = ours(dgraph.A, dgraph.X)
        (out * G[own]).sum().backward()
    finally:
        edge_update.CHUNK_BYTES = chunk
    assert torch.allclose(out, Z[own], rtol=0, atol=1e-10 * float(Z.detach().abs().max()))
    for (which, weight), expected in zip(ours.named_parameters(), theirs.parameters()):
        if expected.grad is None:  # of E' behind the last layer
            assert weight.grad is None
            continue
        gradient = weight.grad.numpy().copy()
        comm.all_reduce(gradient)
        assert relative(gradient, expected.grad.numpy()) <= 1e-10, which


def test_layers_say_what_is_missing():
    without = distribute(spgnn.load_graph("sbm:n=60,seed=1"), SelfCommunicator(), operator="none")
    with pytest.raises(UsageError, match="needs a graph with attributes of edges"):
        GINE(without.n_features, 3, 2)(without.A, without.X)
    dgraph = distribute(GRAPH, SelfCommunicator(), operator="none", dtype="float64")
    for layer in (GINE(F, 3, 2), Transformer(F, 3, 2), EdgeEncoder(2, F, 3)):
        with pytest.raises(UsageError, match=f"edges have {FE} attributes, and the layer was made with f_edge = 2"):
            Stack(layer).double()(dgraph.A, dgraph.X)
    for layer in (EdgeMLP(F), GatedGCN(F)):
        with pytest.raises(UsageError, match="put an EdgeEncoder"):
            Stack(layer)(dgraph.A, dgraph.X)
    with pytest.raises(UsageError, match="heads = 4 do not divide f_out = 6"):
        Transformer(F, 6, FE, heads=4)


@parallel([1, 2, 3], mpi=[2])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_sends_what_is_predicted_and_has_the_losses_of_one_rank(comm, name):
    split = np.where(np.arange(N) % 3 == 0, 1, 0).astype(np.int8)
    losses_are_those_of_one_rank(comm, replace(GRAPH, split=split), MODELS[name])


@parallel([1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_in_bfloat16_they_train_near_to_float32(comm, name):
    losses = []
    for dtype in ("float32", "bfloat16"):
        dgraph = distribute(GRAPH, comm, method="random", operator="none", dtype=dtype)
        history = Trainer(MODELS[name](), dgraph, TrainConfig(epochs=4)).fit()
        losses.append([record["loss"] for record in history.records])
    assert losses[1] == pytest.approx(losses[0], rel=0.03) and losses[1] != losses[0]


@parallel([1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_three_snapshots_at_once_are_three_runs(comm, name):
    model = drawn(MODELS[name]())
    A = distribute(GRAPH, comm, method="random", operator="none", dtype="float64", keep=False).A
    H_nBF = torch.randn(A.n, 3, F, dtype=torch.float64, generator=torch.Generator().manual_seed(comm.rank))
    together = model(Batched(A, 3), H_nBF.reshape(-1, F)).view(A.n, 3, -1)
    for b in range(3):
        assert torch.allclose(together[:, b], model(A, H_nBF[:, b].contiguous()), rtol=0, atol=1e-12)
