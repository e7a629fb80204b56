"""A X is computed when it is first needed, once for each operator, and only where distribute may keep it."""

import numpy as np
import pytest
import torch
from graphs import dense_operator, random_graph
from worlds import parallel

from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute

GRAPH = random_graph(use="undirected")


def dgraph_of(comm, graph=GRAPH, **options):
    return distribute(graph, comm, method="random", dtype=torch.float64, **options)


def dense_rows(graph=GRAPH):
    X = graph.X.toarray() if hasattr(graph.X, "toarray") else graph.X
    return torch.from_numpy(dense_operator(graph) @ X)


@parallel([1, 2, 4], mpi=[2])
@pytest.mark.parametrize("first", ["product", "chain", "keep", "inference"])
def test_the_first_product_with_x_makes_a_x_and_later_ones_send_nothing(comm, first):
    dgraph = dgraph_of(comm, replication=2 if comm.size == 4 else 1)
    A, X, sent = dgraph.A, dgraph.X, comm.traffic.sent_bytes().sum()
    assert A.kept is None and dgraph.setup_bytes == 0
    if first == "keep":
        dgraph.keep()
    elif first == "inference":
        with torch.inference_mode():
            A @ X
    else:
        A @ X if first == "product" else A.chain(X, torch.ones(6, 2).double())
    assert dgraph.setup_bytes == comm.traffic.sent_bytes().sum() - sent
    assert dgraph.setup_bytes == comm.traffic.sent_bytes(label="layer 1 setup").sum() + (
        comm.traffic.sent_bytes(label="layer 1 setup sum").sum()
    )
    W = torch.ones(6, 2, dtype=torch.float64).requires_grad_()
    (A.chain(X, W).sum() + (A @ X).sum()).backward()
    assert dgraph.setup_bytes == comm.traffic.sent_bytes().sum() - sent
    torch.testing.assert_close(A @ X, dense_rows()[dgraph.node_n], rtol=1e-12, atol=1e-12)


@parallel([1, 2], mpi=[])
def test_a_model_that_does_not_multiply_with_x_makes_no_product(comm):
    dgraph = dgraph_of(comm)
    dgraph.A @ (dgraph.X @ torch.ones(6, 2, dtype=torch.float64))
    assert dgraph.A.kept is None and dgraph.setup_bytes == 0


@parallel([2], mpi=[])
def test_keep_false_multiplies_with_x_in_every_product(comm):
    dgraph = dgraph_of(comm, keep=False)
    before = comm.traffic.sent_bytes().sum()
    first = (dgraph.A @ dgraph.X, comm.traffic.sent_bytes().sum() - before)
    assert torch.equal(first[0], dgraph.A @ dgraph.X)
    assert comm.traffic.sent_bytes().sum() - before == 2 * first[1]


@parallel([1, 2], mpi=[])
def test_sparse_x_is_cached_sparse_unless_a_x_fills_up(comm):
    sparse = random_graph(n=400, edges=400, f=60, sparse=True, use="undirected")
    dgraph = dgraph_of(comm, sparse)
    assert (dgraph.A @ dgraph.X) is dgraph.A.kept
    torch.testing.assert_close(dgraph.A.kept.dense(), dense_rows(sparse)[dgraph.node_n], rtol=1e-12, atol=1e-12)
    full = random_graph(n=60, edges=3000, f=60, sparse=True, use="undirected")
    dgraph = dgraph_of(comm, full)
    torch.testing.assert_close((dgraph.A @ dgraph.X).dense(), dense_rows(full)[dgraph.node_n], rtol=1e-12, atol=1e-12)
    assert dgraph.A.kept is None


@parallel([1, 2, 4], mpi=[])
@pytest.mark.parametrize("sparse", [False, True])
def test_powers_of_a_on_x_are_cached_each_from_the_one_before(comm, sparse):
    graph = random_graph(n=400, edges=400, f=60, sparse=True, use="undirected") if sparse else GRAPH
    dgraph = dgraph_of(comm, graph, replication=2 if comm.size == 4 else 1)
    A, X, sent = dgraph.A, dgraph.X, comm.traffic.sent_bytes().sum()
    A.power(X, 1)
    once = comm.traffic.sent_bytes().sum() - sent
    W = torch.ones(graph.X.shape[1], 2, dtype=torch.float64).requires_grad_()
    Z = A.chain(X, W, power=3)
    assert dgraph.setup_bytes == comm.traffic.sent_bytes().sum() - sent
    if not sparse:
        assert dgraph.setup_bytes == 3 * once
    assert set(A.fixed_input.products) == {"gcn", "gcn^3"} and A.is_cached(X, 3)
    Z.sum().backward()
    assert dgraph.setup_bytes == comm.traffic.sent_bytes().sum() - sent
    dense = torch.from_numpy(np.linalg.matrix_power(dense_operator(graph), 2)) @ dense_rows(graph)
    torch.testing.assert_close(Z.detach(), (dense @ W.detach())[dgraph.node_n], rtol=1e-10, atol=1e-10)


@parallel([1, 2], mpi=[])
def test_powers_of_a_sparse_x_that_fill_up_are_not_cached(comm):
    full = random_graph(n=60, edges=3000, f=60, sparse=True, use="undirected")
    dgraph = dgraph_of(comm, full)
    assert not dgraph.A.is_cached(dgraph.X, 2) and not dgraph.A.is_cached(dgraph.X, 3)
    W = torch.ones(60, 2, dtype=torch.float64)
    dense = (torch.from_numpy(dense_operator(full)) @ dense_rows(full))[dgraph.node_n]
    torch.testing.assert_close(dgraph.A.chain(dgraph.X, W, power=2), dense @ W, rtol=1e-10, atol=1e-10)


def test_that_x_was_released_is_known_without_reading_it(monkeypatch):
    """A step that is captured on a device must not read from it."""
    dgraph = dgraph_of(SelfCommunicator())
    dgraph.keep()
    expected = dgraph.A @ dgraph.X
    dgraph.A.fixed_input.release(dgraph.A.pool)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__bool__", None)
        found = dgraph.A @ dgraph.X
    assert torch.equal(found, expected)
