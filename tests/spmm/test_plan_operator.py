"""pull and push_add are adjoint; the operator on any ranks equals the dense one; bytes are as predicted."""

import numpy as np
import pytest
import torch
from graphs import dense_operator, random_graph
from worlds import parallel, some

from spgnn.distgraph import distribute, scatter
from spgnn.errors import ShapeError
from spgnn.graph import graph_from_coo
from spgnn.partition import Partition

THREADS = [1, 3, 7]
GRIDS = [4, 16]  # ranks, of which 2 or 4 may hold the same rows


def owners(graph, size, kind):
    rng = np.random.default_rng(3)
    n = graph.n_nodes
    if kind == "block":
        return (np.arange(n) * size // max(n, 1)).astype(np.int32)
    if kind == "random":
        return rng.permutation(np.arange(n) % size).astype(np.int32)
    return np.maximum(0, np.arange(n) - n + size).astype(np.int32)  # one node a rank, the rest on rank 0


def dist(graph, comm, kind="random", **options):
    k = comm.size // options.get("replication", 1)
    part = Partition(owners(graph, k, kind), k, method=kind)
    return distribute(graph, comm, part, dtype=torch.float64, **options)


@parallel(THREADS, mpi=[3])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("kind", ["block", "random", "lopsided"])
@pytest.mark.parametrize("how", ["gcn", "sym", "row", "none"])
def test_the_product_and_its_adjoint_equal_the_dense_ones(comm, scheme, kind, how):
    for seed, weighted, use in (
        (0, False, "directed"),
        (1, True, "directed"),
        (2, False, "undirected"),
        (3, True, "reversed"),
    ):
        graph = random_graph(seed=seed, weighted=weighted, use=use)
        dgraph = dist(graph, comm, kind, scheme=scheme, operator=how)
        A_NN = dense_operator(graph, how)
        H = np.random.default_rng(seed).standard_normal((graph.n_nodes, 5))
        H_nF = torch.from_numpy(H[dgraph.node_n])
        Z = dgraph.collect(dgraph.A.apply(H_nF).numpy())
        np.testing.assert_allclose(Z, A_NN @ H, rtol=1e-12, atol=1e-12)
        U = dgraph.collect(dgraph.A.adjoint(H_nF).numpy())
        np.testing.assert_allclose(U, A_NN.T @ H, rtol=1e-12, atol=1e-12)


@parallel(GRIDS, mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("how", ["gcn", "row"])
def test_the_product_on_a_grid_equals_the_dense_one_on_every_copy(comm, scheme, how):
    for c in [c for c in (2, 4) if comm.size % (c * c) == 0]:
        for seed, kind, use in some(comm, ((0, "random", "directed"), (2, "lopsided", "undirected"))):
            graph = random_graph(seed=seed, weighted=True, use=use)
            dgraph = dist(graph, comm, kind, scheme=scheme, operator=how, replication=c)
            A_NN = dense_operator(graph, how)
            H = np.random.default_rng(seed).standard_normal((graph.n_nodes, 5))
            H_nF, rows = torch.from_numpy(H[dgraph.node_n]), dgraph.node_n
            bias = torch.arange(5.0, dtype=torch.float64) - 2
            Z_nF = dgraph.A.apply(H_nF, bias, relu=True).numpy()
            np.testing.assert_allclose(Z_nF, np.maximum(A_NN @ H + bias.numpy(), 0)[rows], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(dgraph.A.adjoint(H_nF).numpy(), (A_NN.T @ H)[rows], rtol=1e-12, atol=1e-12)
            assert len(dgraph.collect(Z_nF)) == graph.n_nodes


@parallel([2, 3], mpi=[])
def test_pull_refuses_a_matrix_of_another_height(comm):
    dgraph = dist(random_graph(), comm)
    with pytest.raises(ShapeError, match="one row for each own node"):
        dgraph.A.plan.pull(torch.ones(dgraph.A.n + 1, 2, dtype=torch.float64))
    comm.barrier()


@parallel([1, 2, 5, 7], mpi=[4])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_graphs_smaller_than_the_ranks(comm, n):
    graph = random_graph(n=n, edges=n)
    dgraph = dist(graph, comm)
    H = np.arange(n * 2, dtype=np.float64).reshape(n, 2)
    Z = dgraph.collect(dgraph.A.apply(torch.from_numpy(H[dgraph.node_n])).numpy())
    np.testing.assert_allclose(Z, dense_operator(graph) @ H)


@parallel([1, 2, 3], mpi=[4])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("round_bytes", [1 << 26, 0])  # one round; a round a rank
def test_rows_sent_by_rank_0_equal_rows_that_each_rank_cuts(comm, sparse, round_bytes):
    graph = random_graph(sparse=sparse, weighted=True)
    part = Partition(owners(graph, comm.size, "random"), comm.size)
    cut = distribute(graph, comm, part, dtype=torch.float64)
    scatter.ROUND_BYTES = round_bytes  # of all ranks, where they are threads
    try:
        sent = distribute(
            graph if comm.rank == 0 else None, comm, part if comm.rank == 0 else None, dtype=torch.float64
        )
        comm.barrier()
    finally:
        scatter.ROUND_BYTES = 1 << 26
    assert np.array_equal(cut.node_n, sent.node_n) and np.array_equal(cut.split_n, sent.split_n)
    assert torch.equal(cut.y_n, sent.y_n)
    for block in ("A_oo", "A_og"):
        one, two = getattr(cut.A.blocks, block), getattr(sent.A.blocks, block)
        assert np.array_equal(one.indptr, two.indptr) and np.array_equal(one.indices, two.indices)
        assert np.array_equal(one.data, two.data)
    X, Y = (d.X.csr.to_scipy().toarray() if sparse else d.X.numpy() for d in (cut, sent))
    assert np.array_equal(X, Y)


@parallel(GRIDS, mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_on_a_grid_needs_are_told_inside_the_process_column_alone(comm, scheme):
    for c in [c for c in (2, 4) if comm.size % (c * c) == 0]:
        comm.traffic.reset()
        dist(random_graph(), comm, scheme=scheme, replication=c, keep=False)
        told = comm.traffic.sent_bytes("all_to_all")
        assert set(np.flatnonzero(told) % c) <= {comm.rank % c}, (
            "rows of H travel in process columns, and so do the lists of what is read"
        )
        assert comm.all_reduce(np.array([told.sum()]))[0] > 0


@parallel([4, 8], mpi=[])
@pytest.mark.parametrize("scheme", ["cover", "columns"])
def test_a_product_takes_the_memory_of_own_and_ghost_rows_not_of_all(comm, scheme):
    n = 4000 * comm.size
    ring = graph_from_coo(np.arange(n), (np.arange(n) + 1) % n, n).with_edges("undirected")
    A = dist(ring, comm, "block", scheme=scheme).A
    before = A.pool.held_bytes
    Z_nF = A.adjoint(A.apply(torch.ones(A.n, 16, dtype=torch.float64)))
    assert A.pool.held_bytes - before <= 2.1 * Z_nF.nbytes, "two results of n rows, and ghosts of two rows"


@parallel([2, 4, 8], mpi=[4])
def test_rank_0_sends_each_row_of_its_graph_once_whatever_the_ranks(comm):
    n = 6000
    ring = graph_from_coo(np.arange(n), (np.arange(n) + 1) % n, n, X=np.ones((n, 8)), y=np.zeros(n, int)).with_edges(
        "undirected"
    )
    part = Partition(owners(ring, comm.size, "block"), comm.size)
    comm.traffic.reset()
    distribute(ring if comm.rank == 0 else None, comm, part if comm.rank == 0 else None, keep=False)
    sent = np.array([comm.traffic.sent_bytes().sum()])
    comm.all_reduce(sent)
    ids_and_lengths = 4 * 8 * n  # of rows, nonzeros and labels, 8 bytes at most
    assert 0 < sent[0] <= ring.A.nnz * (8 + 8) + ring.X.nbytes + ids_and_lengths
