"""Every operator keeps the protocol SpMM: products, adjoint, chains in both orders, gradients, labels and attributes."""

import inspect

import numpy as np
import pytest
import torch
from dense_operator import DenseOperator, near
from graphs import dense_operator, random_graph
from subgraphs import blocks, induced, subgraph_of
from torch_operator import TorchOperator
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Stack
from spgnn.spmm import LayerView, SpMM
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.operator.place import Place
from spgnn.spmm.operator.subgraph import SubgraphOperators
from spgnn.training.trainer import Trainer

GRAPH = random_graph(use="directed", weighted=True)
A_NN = dense_operator(GRAPH)
OF_TYPES = ("relations", "node_types", "node_type_n", "typed_sum", "by_type")  # tests/layers, of graphs that have them


def attributes():
    """The facts and primitives of an operator, and the calls of layers."""
    methods = {name for of in (SpMM, LayerView) for name, value in vars(of).items() if inspect.isfunction(value)}
    facts = {*methods, *SpMM.__annotations__} - {"drawn_key", "edge_attr", *OF_TYPES}
    return {name for name in facts if not name.startswith("_")}


def dgraph_of(comm, **options):
    return distribute(GRAPH, comm, method="random", dtype=torch.float64, **options)


def pruned(comm, scheme="cover"):
    """The operators of a pruned training step, layers 1 and 2, which read rows of X and H_1."""
    config = TrainConfig(split="given", prune="always")
    trainer = Trainer(Stack(GCN(6, 5), GCN(5, 3)), dgraph_of(comm, scheme=scheme, keep=False), config)
    return [trainer.steps.rows.A.at(layer) for layer in (1, 2)]


def on_subgraph(comm):
    """The operators of an induced subgraph, in any order of its nodes, and of the blocks of two layers."""
    induced_, blocks_ = (subgraph_of(GRAPH, *of) for of in (induced(GRAPH), blocks(GRAPH, keep=1.0)))
    one, two = (SubgraphOperators(of, BufferPool(), torch.float64) for of in (induced_, blocks_))
    return [one, one.at(2), two.at(1), two.at(2, is_last=True)]


OPERATORS = {
    "ranks, cover": lambda comm: [dgraph_of(comm, scheme="cover").A],
    "ranks, columns": lambda comm: [dgraph_of(comm, scheme="columns").A],
    "ranks, broadcast": lambda comm: [dgraph_of(comm, scheme="broadcast").A],
    "a grid": lambda comm: [dgraph_of(comm, scheme="cover", replication=2 if comm.size == 4 else 1).A],
    "a layer": lambda comm: [dgraph_of(comm).A.at(2)],
    "the last layer of a layer": lambda comm: [dgraph_of(comm).A.at(2).at(1, is_last=True)],
    "pruned": pruned,
    "on a subgraph": on_subgraph,
    "on a page": lambda comm: [TorchOperator(A_NN)],
    "dense": lambda comm: [DenseOperator(A_NN), LayerView(DenseOperator(A_NN), 3)],
}


def dense_of(A, comm):
    """The matrix (rows, N) that A multiplies with, and the original ids of its rows of H."""
    rows = A.select(torch.from_numpy(A.node_n)).numpy()
    return torch.from_numpy(A_NN[rows]), torch.from_numpy(A.node_n)


def whole(comm, A, seed):
    """A matrix (N, 6) that is the same on all ranks, zero where no rank has the row."""
    held = np.zeros(GRAPH.n_nodes)
    held[A.node_n] = 1
    comm.all_reduce(held)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(GRAPH.n_nodes, 6, dtype=torch.float64, generator=generator) * torch.from_numpy(held > 0)[:, None]


def is_counted(A):
    layout = getattr(A, "layout", None) or getattr(getattr(A, "operator", None), "layout", None)
    return layout is None or layout.is_counted


@parallel([1, 3, 4], mpi=[2])
@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_keeps_the_protocol(comm, kind):
    generator = torch.Generator().manual_seed(1)
    W_narrow, W_wide = (torch.randn(6, C, dtype=torch.float64, generator=generator) for C in (2, 20))
    bias = torch.arange(2.0, dtype=torch.float64)
    for A in OPERATORS[kind](comm):
        assert not {name for name in attributes() if not hasattr(A, name)}
        D_nN, ids = dense_of(A, comm)
        H_NF = whole(comm, A, seed=2)
        H = H_NF[ids]
        assert (A.n, A.m) == (len(D_nN), len(ids)) and A.dtype == torch.float64 and A.device.type == "cpu"
        near(A.apply(H), D_nN @ H_NF)
        near(A.apply(H, torch.ones(6).double(), relu=True), torch.relu(D_nN @ H_NF + 1))
        near(A @ H, D_nN @ H_NF)
        for order in ("narrow", "wide"):  # A (H W), then (A H) W
            W = W_narrow if order == "narrow" else W_wide
            near(A.chain(H, W), D_nN @ H_NF @ W)
        near(A.chain(H, W_narrow, bias, relu=True), torch.relu(D_nN @ H_NF @ W_narrow + bias))
        if kind not in ("pruned", "on a subgraph"):  # rows and columns of one set of nodes
            near(A.power(H, 3), (torch.from_numpy(A_NN @ A_NN @ A_NN) @ H_NF)[ids])
            near(A.chain(H, W_wide, power=2), (torch.from_numpy(A_NN @ A_NN) @ H_NF @ W_wide)[ids])
            near(A.chain(H, W_narrow, bias, power=2), (torch.from_numpy(A_NN @ A_NN) @ H_NF @ W_narrow)[ids] + bias)
        way = A.way(H, 2)
        assert (way.f_in, way.f_out, way.order) == (6, 2, "gemm_first") and not way.is_cached and not way.reads_ghosts
        near(A.chain(H, W_narrow, bias, add=torch.ones(A.n, 2).double()), D_nN @ H_NF @ W_narrow + bias + 1)
        # <A x, y> = <x, A' y>, summed over ranks; rows that several ranks hold count once.
        y = torch.randn(A.n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(len(D_nN)))
        if kind == "a grid":
            y = torch.ones(A.n, 6, dtype=torch.float64)
        both = np.array([float((A.apply(H) * y).sum()), float((H * A.adjoint(y)).sum())]) * is_counted(A)
        comm.all_reduce(both)
        assert abs(both[0] - both[1]) <= 1e-10 * max(1, abs(both[0]))
        # Gradients in H and W are those of the dense matrix: dH = A' (y W'), dW = H' A' y.
        H_grad, W_grad = H.clone().requires_grad_(), W_narrow.clone().requires_grad_()
        (A.chain(H_grad, W_grad) * y[:, :2]).sum().backward()
        near(H_grad.grad, A.adjoint(y[:, :2] @ W_narrow.T))
        near(W_grad.grad, H.T @ A.adjoint(y[:, :2].contiguous()))
        H_grad = H.clone().requires_grad_()
        ((A @ H_grad) * y).sum().backward()
        near(H_grad.grad, A.adjoint(y))
        near(A.fetch(H).tensor[: A.m], H)
        W = torch.ones(3, 2, dtype=torch.float64)
        assert A.attend(H, W, W).shape == A.attend2(H, A.linear(H, torch.eye(6).double()), W).shape == (A.n, 6)
        assert (A.maximum(H) <= H_NF.max() + 0).all() and A.maximum(H).shape == (A.n, 6)
        assert A.fetch(H).shape == (len(A.column_ids), H.shape[1])


@parallel([2, 4], mpi=[2])
def test_exchanges_are_counted_under_the_layer_and_the_pass(comm):
    c = 2 if comm.size == 4 else 1
    A = dgraph_of(comm, scheme="columns", replication=c, keep=False).A
    H = torch.ones(A.m, 3, dtype=torch.float64).requires_grad_()
    comm.traffic.reset()
    with torch.no_grad():
        A.at(1) @ H
    (A.at(2) @ H).sum().backward()
    A.apply(H, place=Place(5, "setup"))
    sums = {f"{label} sum" for label in ("layer 1 evaluate", "layer 2 forward", "layer 2 backward", "layer 5 setup")}
    assert set(comm.traffic.labels()) - {""} == {label.removesuffix(" sum") for label in sums} | (
        sums if c > 1 else set()
    )
    comm.traffic.reset()
    (A @ H).sum().backward()
    assert comm.traffic.labels() == [""]
