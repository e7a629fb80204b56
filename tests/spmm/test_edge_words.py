"""Words on edges have the values and gradients of lists of edges in float64, on any ranks, directed, with empty rows."""

import numpy as np
import pytest
import torch
from dense_attention import DenseRowWords
from dense_operator import random
from graphs import random_graph
from worlds import parallel

from spgnn import train
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import ShapeError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph
from spgnn.spmm.chains.autograd import mixed_precision

GRAPH = random_graph(n=24, edges=70, use="directed", weighted=True)
_RNG = np.random.default_rng(5)
_ENDS = _RNG.integers(0, 12, (2, 90))  # of few nodes, so that many edges are parallel; nodes 12 to 15 have none
MULTI = graph_from_coo(*_ENDS, 16, edge_attr=_RNG.standard_normal((90, 3))).with_edges("directed")
TINY = random_graph(n=3, edges=4, use="directed")
N, F = GRAPH.n_nodes, 5


def operator(comm, graph=GRAPH, scheme="cover", **options):
    dgraph = distribute(graph, comm, method="random", scheme=scheme, dtype=torch.float64, **options)
    return dgraph.A.with_norm("none")


class List(DenseRowWords):
    """The edges of a graph in the order of its CSR, equal ones too, and the words on them in plain torch."""

    ends = None

    def __init__(self, graph):
        self.n, indptr, columns = graph.n_nodes, graph.A.indptr, graph.A.indices
        self.row = torch.from_numpy(np.repeat(np.arange(self.n), np.diff(indptr)).astype(np.int64))
        self.col = torch.from_numpy(columns.astype(np.int64))
        self.ends = self.row, self.col
        self.place = {}
        for e, pair in enumerate(zip(self.row.tolist(), self.col.tolist())):
            self.place.setdefault(pair, []).append(e)

    def own(self, A):
        """The places in the list of a rank's nonzeros."""
        column, row = A.edge_index.numpy()
        left = {pair: list(of) for pair, of in self.place.items()}
        return torch.tensor([left[int(A.column_ids[i]), int(A.column_ids[j])].pop(0) for j, i in zip(column, row)], dtype=torch.int64)  # fmt: skip


def messages(A, X, E, W):
    """An edge MLP with a mean, in which rows of nodes and of edges meet."""
    S = torch.tanh(A.on_edges(X @ W[0], X @ W[1], E @ W[2]))
    T = A.rows(X @ W[1]) * torch.sigmoid(A.cols(X @ W[0])) + S
    return A.sum(T) + A.mean(S * T)


def attention(A, X, E, W):
    """Attention of two heads with a term of edges."""
    S = A.dot(X @ W[0], X @ W[1], heads=2) + torch.tanh(E @ W[2])[:, :2]
    return A.sum(A.softmax(S), X @ W[0])


def statistics(A, X, E, W):
    """Largest, smallest and deviation, with ties: a sign has two values."""
    S = A.on_edges(X @ W[0], X @ W[1], E @ W[2])
    T = torch.sign(S.detach()) / 3 + (S - S.detach())
    return A.max(S) * A.min(S) + A.std(S) + A.max(T) + A.std(T)


def compare(comm, A, edges, words):
    """Values at own rows, and the gradients of rows, edges and weights, equal those of the list of edges."""
    mine = edges.own(A)
    given = [random(edges.n, F), random(len(edges.row), 3, seed=1), *(random(k, 4, seed=k) for k in (F, F, 3))]
    G = random(edges.n, 4, seed=9)
    theirs, ours = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    Z_N = words(edges, theirs[0], theirs[1], theirs[2:])
    (Z_N * G).sum().backward()
    ids = torch.from_numpy(A.out_ids)
    Z = words(A, ours[0][A.node_n], ours[1][mine], ours[2:])
    torch.testing.assert_close(Z, Z_N[ids], rtol=1e-10, atol=1e-10)
    (Z * G[ids]).sum().backward()
    for x, y in zip(ours, theirs):
        total = torch.from_numpy(comm.all_reduce(x.grad.numpy().copy()))
        torch.testing.assert_close(total, y.grad, rtol=1e-10, atol=1e-10)


WORDS = {"messages": messages, "attention": attention, "statistics": statistics}


@parallel([1, 2, 3, 4, 7], mpi=[3])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("words", WORDS)
def test_values_and_gradients_are_those_of_the_list_of_edges(comm, words, scheme):
    for graph in (GRAPH, TINY):  # of which most ranks have no rows
        compare(comm, operator(comm, graph, scheme), List(graph), WORDS[words])


@parallel([1, 2, 3, 4, 7], mpi=[2])
@pytest.mark.parametrize("words", WORDS)
def test_parallel_edges_have_attributes_of_their_own(comm, words):
    edges, A = List(MULTI), operator(comm, MULTI)
    assert len(edges.row) == 90 > len(edges.place)
    torch.testing.assert_close(A.edges, torch.from_numpy(MULTI.edge_attr.copy())[edges.own(A)], rtol=0, atol=0)
    compare(comm, A, edges, WORDS[words])


class Shares(Layer):
    """H, where the softmax over a row of values near `size` is that of torch, and adds up to 1."""

    operator, hops = "none", 1

    def __init__(self, f_in, size):
        super().__init__(f_in, f_in)
        self.size = size

    def forward(self, A, H):
        S = (self.size + 3 * A.cols(H.detach())).round()
        alpha, bound = A.softmax(S), 64 * torch.finfo(S.dtype).eps
        has_edges = A.sum(torch.ones_like(S)) > 0
        if H.device.type == "meta":  # what a pruned step needs is found without numbers
            return A.select(H)
        torch.testing.assert_close(A.sum(alpha), has_edges.to(S.dtype), rtol=bound, atol=bound)
        if A.row_sum is None:
            row = A.edge_index[1]
            for i in range(A.n):
                torch.testing.assert_close(alpha[row == i], torch.softmax(S[row == i], 0), rtol=bound, atol=bound)
        return A.select(H)


@parallel([1, 3, 4], mpi=[])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0, 1e5, 1e8])
def test_shares_of_large_values_add_up_to_1_in_whole_and_pruned_steps(comm, size, dtype):
    graph, c = random_graph(n=24, edges=70, use="directed", train_every=6), 2 if comm.size == 4 else 1
    dgraph = distribute(graph, comm, method="random", dtype=dtype, replication=c)
    for prune in ("never", "always"):
        train(Stack(Shares(6, size), GCN(6, 3)), dgraph, epochs=1, prune=prune)


@parallel([1, 2, 3, 4], mpi=[])
def test_values_of_minus_infinity_have_no_share_whatever_the_parts(comm):
    graph = random_graph(n=24, edges=900, use="directed")
    S = random(graph.A.nnz, 3)
    S[random(*S.shape, seed=1) > 0] = -torch.inf  # the only values of many a row on a rank
    A, edges = operator(comm, graph, replication=2 if comm.size == 4 else 1), List(graph)
    S[edges.row == 5], S[edges.row == 6] = (
        -torch.inf,
        torch.where(S[edges.row == 6] > 0.5, torch.nan, S[edges.row == 6]),
    )
    mine = edges.own(A)
    torch.testing.assert_close(A.softmax(S[mine]), edges.softmax(S)[mine], rtol=1e-13, atol=1e-14, equal_nan=True)


@parallel([1, 2, 4], mpi=[])
def test_attributes_of_8_bits_are_scores(comm):
    E = np.random.default_rng(1).integers(0, 256, (90, 3)).astype(np.uint8)
    graph = graph_from_coo(*_ENDS, 16, edge_attr=E).with_edges("directed")
    dgraph = distribute(
        graph, comm, method="random", operator="none", dtype="float32", replication=2 if comm.size == 4 else 1
    )
    A, edges = dgraph.A, List(graph)
    expected = edges.softmax(torch.from_numpy(graph.edge_attr.copy()).double())[edges.own(A)]
    for S in (A.edges, A.edges.to(torch.uint8)):
        torch.testing.assert_close(A.softmax(S).double(), expected, rtol=1e-6, atol=1e-7)


@parallel([1, 2, 4], mpi=[])
def test_of_equal_values_the_smallest_id_of_a_column_counts_whatever_the_parts(comm):
    edges = List(GRAPH)
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (len(edges.row), F)).astype(np.float64))
    theirs = values.clone().requires_grad_()
    (edges.max(theirs) * random(N, F)).sum().backward()
    for seed in (0, 1):
        A = operator(comm, partition=part_graph(GRAPH, comm.size, method="random", seed=seed))
        ours = values[edges.own(A)].requires_grad_()
        (A.max(ours) * random(N, F)[A.node_n]).sum().backward()
        assert torch.equal(ours.grad, theirs.grad[edges.own(A)])


@parallel([4], mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_a_process_row_adds_up_what_its_ranks_have_and_refuses_weights_on_edges(comm, scheme):
    def words(A, x, y):
        S = torch.tanh(A.on_edges(x, y)) * A.rows(y)
        return A.sum(A.softmax(A.dot(x, y, 2)), x) + A.max(S) * A.min(A.cols(x)) + A.std(S) * A.mean(S)

    A, edges, G = operator(comm, scheme=scheme, replication=2), List(GRAPH), random(N, 4, seed=9)
    theirs, ours = ([random(N, 4, seed=k).requires_grad_() for k in (1, 2)] for _ in range(2))
    Z_N = words(edges, *theirs)
    (Z_N * G).sum().backward()
    Z = words(A, *(x[A.node_n] for x in ours))
    torch.testing.assert_close(Z, Z_N[A.node_n], rtol=1e-10, atol=1e-10)
    (Z * G[A.node_n]).sum().backward()
    for x, y in zip(ours, theirs):
        total = torch.from_numpy(comm.all_reduce(x.grad.numpy() * A.layout.is_counted))
        torch.testing.assert_close(total, y.grad, rtol=1e-10, atol=1e-10)
    weight = random(4, 4).requires_grad_()
    with pytest.raises(UsageError, match="weights act on rows of columns or edges"):
        A.sum(A.cols(ours[0][A.node_n].detach()) @ weight)
    with pytest.raises(UsageError, match="A.local_graph needs all edges of a row on its rank"):
        A.local_graph(ours[0][A.node_n])


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("dtype, accuracy", [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_narrower_types_have_sums_of_their_type_and_come_close(comm, dtype, accuracy):
    dgraph = distribute(MULTI, comm, method="random", operator="none", dtype=dtype)
    A, edges = dgraph.A, List(MULTI)
    given = [random(16, F), *(random(k, 4, seed=k) for k in (F, F, 3))]
    E_EF = torch.from_numpy(MULTI.edge_attr.copy())
    x, *W = [x.to(torch.float32) for x in given]
    with mixed_precision(A):
        Z = messages(A, x[A.node_n].to(A.dtype), A.edges, W) + attention(A, x[A.node_n].to(A.dtype), A.edges, W)
    assert (Z.dtype, A.edges.dtype, A.cols(x[A.node_n]).dtype) == (A.dtype, torch.float32, torch.float32)
    Z_N = messages(edges, given[0], E_EF, given[1:]) + attention(edges, given[0], E_EF, given[1:])
    if A.n:
        assert float((Z.double() - Z_N[A.node_n]).abs().max()) <= accuracy * float(Z_N.abs().max())


@parallel([1, 3], mpi=[])
def test_rows_that_are_fetched_serve_several_words(comm):
    A = operator(comm)
    H = random(N, F)[A.node_n].requires_grad_()
    comm.traffic.reset()
    T = A.fetch(H)
    once = comm.traffic.sent_bytes().sum()
    Z = A.sum(A.cols(T) * A.on_edges(H, T.map(torch.tanh)))
    assert comm.traffic.sent_bytes().sum() == once
    torch.testing.assert_close(Z, A.sum(A.cols(H) * A.on_edges(H, torch.tanh(H))), rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(of.square().sum(), H)[0] for of in (Z, A.sum(A.cols(H) * A.on_edges(H, torch.tanh(H)))))  # fmt: skip
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@parallel([1, 2, 3], mpi=[])
def test_the_local_graph_has_the_rows_and_edges_that_a_convolution_reads(comm):
    A, edges = operator(comm), List(GRAPH)
    H = random(N, F)
    x, (source, target), attributes = A.local_graph(H[A.node_n])
    assert attributes is None and len(source) == A.n_edges
    torch.testing.assert_close(x, H[A.column_ids])
    messages = torch.tanh(x[source] - x[target])
    Z = torch.zeros_like(x).index_add(0, target, messages)[: A.m]
    dense = edges.sum(torch.tanh(edges.cols(H) - edges.rows(H)))
    torch.testing.assert_close(Z, dense[A.node_n], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(A.sum(torch.tanh(A.cols(H[A.node_n]) - A.rows(H[A.node_n]))), Z)


def test_what_does_not_fit_is_refused():
    A = operator(SelfCommunicator())
    for call, message in (
        (lambda: A.edges, "A.edges needs a graph with attributes of edges"),
        (lambda: A.rows(random(N - 1, 3)), rf"U has shape \({N - 1}, 3\); expected \({N}, F\)"),
        (lambda: A.cols(random(N - 1, 3)), rf"V has shape \({N - 1}, 3\); expected \({N}, F\)"),
        (lambda: A.on_edges(random(N, 3), random(N, 4)), "U has 3 columns and V 4"),
        (lambda: A.sum(random(A.n_edges + 1, 3)), rf"M has shape \({A.n_edges + 1}, 3\); expected \({A.n_edges}, F\)"),
        (lambda: A.on_edges(random(N, 3), random(N, 3), random(A.n_edges, 2)), "add has 2 columns and U 3"),
        (lambda: A.dot(random(N, 3), random(N, 4)), "U has 3 columns and V 4"),
        (lambda: A.dot(random(N, 3), random(N, 3), heads=2), "a multiple of 2 heads"),
        (lambda: A.sum(random(A.n_edges, 2), random(N, 3)), "V has 3 columns; expected a multiple of the K = 2 heads"),
        (lambda: A.max(random(N, 3)[0]), r"M has shape \(3,\); expected"),
    ):
        with pytest.raises((ShapeError, UsageError), match=message):
            call()
