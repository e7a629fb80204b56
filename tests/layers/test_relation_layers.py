"""Layers on relations have the rows and gradients of plain torch, relation by relation, in float64, on any ranks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from counted_bytes import losses_are_those_of_one_rank
from models import drawn
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import HGT, RGAT, RGCN, Stack
from spgnn.spmm.edges import relations
from spgnn.training.trainer import Trainer

N, F, R, T = 40, 6, 5, 3
RNG = np.random.default_rng(0)
STARTS, ENDS = [0, 15, 28, N], [(0, 1), (1, 2), (0, 0), (2, 0), (2, 2)]  # types of source and target of each relation
TYPE = np.repeat(np.arange(T), np.diff(STARTS))
REL = RNG.integers(0, 3, 150)
REL[0], REL[1:20] = 4, 2  # relation 3 has no edge, 4 has one
SRC, DST = (
    RNG.integers(np.array(STARTS)[of], np.array(STARTS)[of + 1] - 1) for of in np.array(ENDS)[REL].T
)  # the last of a type is alone
DST[1:20] = 7  # more columns than rows: (A_r H) W_r
SRC[30], DST[30], REL[30] = SRC[31], DST[31], REL[31]  # twice
SRC[19] = DST[19]
X = RNG.normal(size=(N, F))
SPLIT = np.where(np.arange(N) % 3 == 0, 1, 0).astype(np.int8)
META = {"typed": True, "node_types": {"names": ["a", "b", "c"], "starts": STARTS}}
NAMES = tuple(f"{'abc'[s]} r{r} {'abc'[t]}" for r, (s, t) in enumerate(ENDS))
GRAPH = spgnn.graph_from_coo(
    SRC, DST, N, edge_y=REL, edge_classes=NAMES, X=X, y=RNG.integers(0, 4, N), split=SPLIT, meta=META
)  # fmt: skip


def messages(use):
    """Row, column and relation of each message."""
    if use == "undirected":
        return np.r_[SRC, DST], np.r_[DST, SRC], np.r_[2 * REL, 2 * REL + 1], 2 * R
    return (SRC, DST, REL, R) if use == "directed" else (DST, SRC, REL, R)


def rgcn(of, H, use):
    row, column, relation, R = messages(use)
    W = of.W if of.a_RB is None else torch.tensordot(of.a_RB, of.W, 1)
    if W.ndim == 4:
        W = torch.stack([torch.block_diag(*W_r) for W_r in W])
    Z = H @ of.W_FC + of.b_C
    all_n = np.bincount(row, minlength=N)
    for r in range(R):
        A = np.zeros((N, N))
        np.add.at(A, (row[relation == r], column[relation == r]), 1)
        count = {"relation": A.sum(1), "all": all_n, "none": np.ones(N)}[of.mean]
        Z = Z + torch.from_numpy(A / np.maximum(count, 1)[:, None]) @ H @ W[r]
    return Z


def softmax(S, row):
    alpha = torch.exp(S)
    return alpha / torch.zeros(N, S.shape[1], dtype=S.dtype).index_add(0, row, alpha)[row]


def rgat(of, H, use):
    row, column, relation = (torch.from_numpy(x) for x in messages(use)[:3])
    K = of.heads
    left, right = (torch.einsum("ef,efc->ec", H[at], of.W_RFC[relation]) for at in (row, column))
    alpha = softmax(torch.nn.functional.leaky_relu(left @ of.q_CK + right @ of.k_CK, of.slope), row)
    M = (right.view(len(row), -1, K) * alpha[:, None]).flatten(1)
    return torch.zeros(N, M.shape[1], dtype=M.dtype).index_add(0, row, M) + of.b_C


def hgt(of, H, use):
    row, column, relation = (torch.from_numpy(x) for x in messages(use)[:3])
    type_N, K = torch.from_numpy(TYPE), of.heads
    by_type = lambda H, W, b: torch.einsum("nf,nfc->nc", H, W[type_N]) + b[type_N]
    heads = lambda M: M.view(len(M), -1, K)
    q, k, v = (heads(by_type(H, W, b)) for W, b in ((of.Q, of.b_Q), (of.K, of.b_K), (of.V, of.b_V)))
    k, v = (torch.einsum("edk,ekdc->eck", M[column], W[relation]) for M, W in ((k, of.A_r), (v, of.M_r)))
    S = (q[row] * k).sum(1) * of.mu[relation] / np.sqrt(q.shape[1])
    M = (v * softmax(S, row)[:, None]).flatten(1)
    Z = by_type(torch.nn.functional.gelu(torch.zeros(N, M.shape[1], dtype=M.dtype).index_add(0, row, M)), of.O, of.b_O)
    if of.skip is None:
        return Z
    s = torch.sigmoid(of.skip)[type_N, None]
    return s * Z + (1 - s) * H


MODELS = {
    "attention": lambda R: Stack(RGAT(F, 6, R, heads=3), RGAT(6, 4, R, slope=0.1)),
    "types": lambda R: Stack(HGT(F, 6, R, T, heads=3), HGT(6, 4, R, T, heads=2)),
    "full": lambda R: Stack(RGCN(F, 6, R), RGCN(6, 4, R)),
    "bases": lambda R: Stack(RGCN(F, 6, R, bases=2, mean="all"), RGCN(6, 4, R, bases=3)),
    "blocks": lambda R: Stack(RGCN(F, 6, R, blocks=3, mean="none"), RGCN(6, 4, R, blocks=2)),
}
DENSE = {RGCN: rgcn, RGAT: rgat, HGT: hgt}


@parallel([1, 2, 3, 4, 7], mpi=[3])
@pytest.mark.parametrize("use", ["undirected", "directed", "reversed"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_and_gradients_are_the_ones_of_the_relations(comm, name, use):
    R = messages(use)[3]
    G = torch.randn(N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    theirs, ours = drawn(MODELS[name](R)), drawn(MODELS[name](R))
    Z = torch.from_numpy(X).requires_grad_()
    H = Z
    for layer in theirs.layers:
        Z = DENSE[type(layer)](layer, Z, use)
    (Z * G).sum().backward()
    graph = GRAPH.with_edges(use)
    dgraph = distribute(graph, comm, method="random", operator="none", dtype="float64", keep=False)
    own, rows = torch.from_numpy(dgraph.A.node_n), relations.LEAST_ROWS
    relations.LEAST_ROWS = 9  # several at once
    try:
        X_own = dgraph.X.clone().requires_grad_()
        out = ours(dgraph.A, X_own)
        (out * G[own]).sum().backward()
    finally:
        relations.LEAST_ROWS = rows
    assert torch.allclose(out, Z[own], rtol=0, atol=1e-10 * float(Z.detach().abs().max()))
    assert torch.allclose(X_own.grad, H.grad[own], rtol=0, atol=1e-10 * float(H.grad.abs().max()))
    for (which, weight), expected in zip(ours.named_parameters(), theirs.parameters()):
        gradient = weight.grad.numpy().copy()
        comm.all_reduce(gradient)
        gap = np.abs(gradient - expected.grad.numpy()).max()
        assert gap <= 1e-10 * float(expected.grad.abs().max()), which


@parallel([1, 2, 3], mpi=[2])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_sends_what_is_predicted_and_has_the_losses_of_one_rank(comm, name):
    losses_are_those_of_one_rank(comm, GRAPH, lambda: MODELS[name](2 * R))


def test_layers_say_what_is_missing():
    alone = SelfCommunicator()
    without = distribute(replace(GRAPH, edge_y=None), alone, operator="none")
    with pytest.raises(UsageError, match="in this graph some or all edges have none"):
        RGCN(F, 3, 2)(without.A, without.X)
    dgraph = distribute(GRAPH, alone, operator="none")
    with pytest.raises(UsageError, match="edges have 10 relations, and W has 2: make the layer with relations=10"):
        RGCN(F, 3, 2)(dgraph.A, dgraph.X)
    with pytest.raises(UsageError, match="blocks = 4 do not divide f_in = 6"):
        RGCN(F, 8, 2, blocks=4)
    with pytest.raises(UsageError, match="two forms of W_r"):
        RGCN(F, 8, 2, blocks=2, bases=2)


@parallel([2, 3])
def test_a_relation_may_join_several_types(comm):
    graph = spgnn.graph_from_coo(
        SRC, DST, N, edge_y=np.arange(150) % 2, X=X, y=np.arange(N) % 3, split=SPLIT, meta=META
    )

    def losses(comm):
        dgraph = distribute(graph, comm, method="random", operator="none", dtype="float64")
        model = Stack(HGT(F, 6, *dgraph.typed_sizes, heads=2), HGT(6, 3, *dgraph.typed_sizes))
        return [record["loss"] for record in Trainer(model, dgraph, TrainConfig(split="given", epochs=2)).fit().records]

    assert losses(comm) == pytest.approx(losses(SelfCommunicator()), rel=1e-10)
