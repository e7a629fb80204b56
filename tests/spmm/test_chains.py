"""A.own_chain and A.powers are their equations, whichever product comes first and whatever of H is known."""

import numpy as np
import pytest
import torch
from dense_operator import DenseOperator
from graphs import dense_operator, random_graph
from worlds import parallel

from spgnn.cost.schedule import Way
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import SpgnnError
from spgnn.spmm.operator.view import LayerView

GRAPHS = {"dense": random_graph(n=24, edges=70), "sparse": random_graph(n=24, edges=70, sparse=True)}


def rows_of(graph) -> torch.Tensor:
    return torch.tensor(graph.X if isinstance(graph.X, np.ndarray) else graph.X.toarray(), dtype=torch.float64)


def weights(*shapes) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


def same(dgraph, ours, expected, of) -> None:
    """Compare values on own rows, and gradients of a sum over all ranks."""
    torch.testing.assert_close(ours, expected[dgraph.node_n], rtol=1e-10, atol=1e-10)
    grads = [np.ascontiguousarray(g.numpy()) for g in torch.autograd.grad((ours**2).sum(), of)]
    for grad, dense in zip(grads, torch.autograd.grad((expected**2).sum(), of)):
        dgraph.comm.all_reduce(grad)
        np.testing.assert_allclose(grad, dense.numpy(), rtol=1e-9, atol=1e-9)


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("order", ["spmm_first", "gemm_first"])
@pytest.mark.parametrize("kind, keep", [("dense", True), ("dense", False), ("sparse", True), ("sparse", False)])
def test_powers_and_own_chain_are_their_equations(comm, order, kind, keep, monkeypatch):
    graph = GRAPHS[kind]
    dgraph = distribute(graph, comm, dtype="float64", keep=keep)
    A_NN, X_NF, F = torch.from_numpy(dense_operator(graph, "gcn")), rows_of(graph), rows_of(graph).shape[1]
    if kind == "dense" and not keep:
        monkeypatch.setattr(LayerView, "way", lambda self, H, f_out, f_in=None, power=1: Way(F, f_out, order))
    for exponents in ((0, 1, 2), (1, 3), (2,)):
        for combine in ("cat", "sum"):
            W = weights(*[(F, 4 if combine == "sum" else 3 + j) for j in range(len(exponents))])
            parts = [torch.linalg.matrix_power(A_NN, j) @ X_NF @ W_j for j, W_j in zip(exponents, W)]
            expected = torch.cat(parts, dim=1) if combine == "cat" else sum(parts)
            same(dgraph, dgraph.A.powers(dgraph.X, W, exponents, combine), expected, W)
    W, bias, own = *weights((F, 5), (5,)), torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    expected = torch.relu(own * (X_NF @ W) + A_NN @ X_NF @ W + bias)
    same(dgraph, dgraph.A.own_chain(dgraph.X, W, own, bias, relu=True), expected, [W, bias, own])
    W, V, bias = weights((F, 5), (F, 5), (5,))
    for relu in (True, False):
        expected = A_NN @ X_NF @ W + X_NF @ V + bias
        expected = torch.relu(expected) if relu else expected
        same(dgraph, dgraph.A.chain(dgraph.X, W, bias, relu, V_FC=V), expected, [W, V, bias])


@parallel([3], mpi=[])
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("combine", ["cat", "sum"])
@pytest.mark.parametrize("exponents", [(0, 1, 2), (1, 3), (0, 1)])
def test_powers_of_a_dropped_input_are_made_of_cached_ghosts(comm, exponents, combine, kind):
    graph, rate = GRAPHS[kind], 0.5
    A = distribute(graph, comm, dtype="float64").A
    view, whole = A.at(1, key=5), DenseOperator(dense_operator(graph, "gcn")).at(1, key=5)
    H_NF, W = whole.drop(rows_of(graph), rate), weights(*[(graph.n_features, 1)] * len(exponents))
    expected = whole.powers(H_NF, W, exponents, combine)[A.node_n]
    ours = view.powers(view.drop(A.fixed_input.X, rate), W, exponents, combine)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    assert view.way(view.drop(A.fixed_input.X, rate), 1).reads_ghosts
    sends = comm.traffic.sent_bytes(label="layer 1 forward").sum() > 0
    assert sends == (exponents[-1] > 1), "the first product reads cached ghosts, those after it travel"


@pytest.mark.parametrize("exponents, widths, combine, message", [
    ((1, 0), (3, 3), "cat", "ascending"), ((1, 1), (3, 3), "sum", "ascending"), ((0,), (3,), "cat", "up to 1"),
    ((0, 1), (3,), "cat", "1 weights for 2 exponents"), ((0, 1), (3, 4), "sum", "equal numbers"),
    ((0, 1), (3, 3), "add", "expected cat or sum"),
])  # fmt: skip
def test_powers_that_do_not_fit_are_refused(exponents, widths, combine, message):
    dgraph = distribute(GRAPHS["dense"], SelfCommunicator(), dtype="float64")
    W = weights(*[(dgraph.X.shape[1], width) for width in widths])
    with pytest.raises(SpgnnError, match=message):
        dgraph.A.powers(dgraph.X, W, exponents, combine)
