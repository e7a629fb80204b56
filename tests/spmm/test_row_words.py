"""attend, attend2 and maximum have the values and gradients of dense matrices on any ranks; ties do not depend on parts."""

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones
from dense_operator import DenseOperator, near, random
from graphs import dense_operator, random_graph
from worlds import parallel

from spgnn import train
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph

GRAPH = random_graph(n=24, edges=70, use="directed", weighted=True)
DENSE = DenseOperator(dense_operator(GRAPH, "loops"))
N, K, D = GRAPH.n_nodes, 3, 4
SCHEMES = ("cover", "columns", "broadcast")


def operator(comm, scheme="cover", graph=GRAPH, how="loops", **options):
    c = 2 if comm.size >= 4 else 1
    dgraph = distribute(graph, comm, method="random", scheme=scheme, replication=c, dtype=torch.float64, **options)
    return dgraph.A.with_norm(how)


def of_columns(A, H_N):
    """Own rows of a matrix of all nodes, differentiable in it, where gradients of all ranks are then added."""
    return H_N[torch.from_numpy(A.node_n)]


def gradients_are_equal(comm, A, ours, dense, inputs, G_N):
    """Compare Z and the gradients of <Z, G>: of rows at their owners, of weights summed over ranks."""
    copies = [[x.clone().requires_grad_() for x in inputs] for _ in range(2)]
    Z_N = dense(*copies[0])
    (Z_N * G_N).sum().backward()
    Z = ours(*copies[1])
    near(Z, Z_N[A.node_n])
    (Z * G_N[A.node_n]).sum().backward()
    for theirs, mine in zip(*copies):
        if not A.layout.is_counted:
            mine.grad.zero_()
        near(torch.from_numpy(comm.all_reduce(mine.grad.numpy().copy())), theirs.grad)


@parallel([1, 2, 3, 4], mpi=[4])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("act", ["none", "relu", "elu"])
def test_attention_with_its_bias_and_activation_is_that_of_dense_matrices(comm, scheme, act):
    A = operator(comm, scheme)
    x, left, right, G = random(N, K * D), random(D, K, seed=1), random(D, K, seed=2), random(N, K * D, seed=3)
    bias = random(K * D, seed=4)
    ours = lambda x, left, right, b: A.attend(of_columns(A, x), left, right, end=(b, act))
    dense = lambda x, left, right, b: DENSE.attend(x, left, right, end=(b, act))
    gradients_are_equal(comm, A, ours, dense, (x, left, right, bias), G)
    two = lambda l, r, a, b: A.attend2(of_columns(A, l), of_columns(A, r), a, end=(b, act))
    dense = lambda l, r, a, b: DENSE.attend2(l, r, a, end=(b, act))
    gradients_are_equal(comm, A, two, dense, (x, random(N, K * D, seed=5), left, bias), G)


@parallel([1, 3, 4], mpi=[])
def test_weights_of_scores_of_1e8_are_as_exact_as_those_of_small_ones(comm):
    """Scores are whole numbers or halves, so that both compute the same ones."""
    A = operator(comm)
    x, y, left, right = (random(*shape, seed=s).round() for s, shape in enumerate([(N, K * D)] * 2 + [(D, K)] * 2))
    x[:, :K], left[0], G = 1e8, 1.0, random(N, K * D, seed=4)
    G[:, :K] = 0
    ours = lambda x: A.attend(of_columns(A, x), left, right, slope=0.5)
    gradients_are_equal(comm, A, ours, lambda x: DENSE.attend(x, left, right, slope=0.5), (x,), G)
    two = lambda l, r: A.attend2(of_columns(A, l), of_columns(A, r), left, slope=0.5)
    gradients_are_equal(comm, A, two, lambda l, r: DENSE.attend2(l, r, left, slope=0.5), (x, y), G)


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_maximum_is_that_of_dense_matrices_with_isolated_nodes(comm, scheme):
    A, dense = operator(comm, scheme, how="none"), DenseOperator(dense_operator(GRAPH, "none"))
    assert (np.asarray(dense.A).sum(1) == 0).any()
    gradients_are_equal(
        comm, A, lambda x: A.maximum(of_columns(A, x)), dense.maximum, (random(N, 5),), random(N, 5, seed=3)
    )


@parallel([1, 2, 4], mpi=[])
def test_of_equal_entries_the_smallest_id_gets_the_gradient_whatever_the_parts(comm):
    x, G = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (N, 5)).astype(np.float64)), random(N, 5, seed=3)
    dense = DenseOperator(dense_operator(GRAPH, "none"))
    for seed in (0, 1):
        part = part_graph(GRAPH, comm.size // (2 if comm.size == 4 else 1), method="random", seed=seed)
        A = operator(comm, how="none", partition=part) if comm.size > 1 else operator(comm, how="none")
        gradients_are_equal(comm, A, lambda x: A.maximum(of_columns(A, x)), dense.maximum, (x,), G)


@parallel([1, 3, 4], mpi=[])
def test_linear_gives_the_rows_of_columns_where_h_is_narrow(comm):
    A = operator(comm, how="none")
    W, b = random(2, 5, seed=1), random(5, seed=2)
    dense = DenseOperator(dense_operator(GRAPH, "none"))
    ours = lambda x, W, b: A.maximum(A.linear(of_columns(A, x), W, b, relu=True))
    theirs = lambda x, W, b: dense.maximum(dense.linear(x, W, b, relu=True))
    gradients_are_equal(comm, A, ours, theirs, (random(N, 2), W, b), random(N, 5, seed=3))


@pytest.mark.parametrize("call, said", [
    (lambda A, x, a: A.attend(x[:, 0], a, a), r"H has shape \(24,\); expected \(m, F\)"), (lambda A, x, a: A.maximum(x[:, 0]), r"H has shape \(24,\)"),
    (lambda A, x, a: A.attend(x, random(5, 3), random(5, 3)), "the weights of an attention have shape"),
    (lambda A, x, a: A.attend(x, a, a, rate=0.5), "dropout within a layer needs a Stack"),
    (lambda A, x, a: A.attend2(x[:5], x, a), r"left of attend2 has shape \(5, 12\); expected \(24, 12\)"),
    (lambda A, x, a: A.attend(x, a, a, slope=-0.1), "slope = -0.1; expected a finite number of 0 or more"),
    (lambda A, x, a: A.at(1, key=5).attend(x, a, a, rate=1.0), "rate = 1.0; expected a number of 0 or more, below 1"),
    (lambda A, x, a: A.at(1, key=5).drop(x, 1), "rate = 1; expected a number"), (lambda A, x, a: A.dot(x, x, heads=3.0), "heads = 3.0; expected an integer"),
    (lambda A, x, a: A.linear(x, a), r"H W of shapes \(24, 12\) and \(4, 3\)"), (lambda A, x, a: A.chain(x, a), r"H W of shapes \(24, 12\) and \(4, 3\)"),
    (lambda A, x, a: A.linear(x, x.t(), a[0]), r"the bias of linear has shape \(3,\); expected one number for each column of W, \(24,\)"), (lambda A, x, a: A.chain(x, x.t(), power=0), "power = 0; expected an integer of 1 or more"),
])  # fmt: skip
def test_arguments_that_no_call_can_have_are_refused_in_its_words(call, said):
    with pytest.raises((ShapeError, UsageError), match=said):
        call(operator(SelfCommunicator()), random(N, 12), random(4, 3))


class Attention(Layer):
    """Attention of dot products; where weights act: before A.fetch, on its rows of keys or of values, or on values of edges."""

    operator = "loops"

    def __init__(self, f_in, f_out, place="before"):
        super().__init__(f_in, f_out)
        self.place = place
        self.Q, self.K, self.V = self.weight(f_in, 4), self.weight(f_in, 4), self.weight(f_in, f_out)
        self.scale = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, A, H):
        own = lambda name, W: H @ W if self.place != name else A.fetch(H).map(lambda rows: rows @ W)
        scale = 1.0 if self.place == "edges" else self.scale
        S = A.dot(H @ self.Q * scale, own("keys", self.K), heads=2)
        S = S * self.scale if self.place == "edges" else S
        return A.sum(A.softmax(S), own("values", self.V))


@parallel([1, 3, 4], mpi=[])
@pytest.mark.parametrize("place", ["before", "keys", "values", "edges"])
def test_weights_that_act_on_rows_of_columns_have_whole_gradients_or_are_refused(comm, place):
    """With replication, a rank has a part of the columns, and would have a part of the gradient."""
    graph, c = random_graph(use="directed"), 2 if comm.size == 4 else 1
    model = lambda: Stack(Attention(6, 6, place), GCN(6, 3))
    if c == 1 or place == "before":
        gradients_are_the_dense_ones(comm, graph, model, "gcn", method="random", replication=c)
        return
    dgraph = distribute(graph, comm, method="random", replication=c, dtype=torch.float64)
    with pytest.raises(UsageError, match="weights act on rows of columns or edges.*replication = 2"):
        train(model(), dgraph, epochs=1)
    with torch.no_grad():  # an evaluation has no gradients
        assert model().double().eval()(dgraph.A, dgraph.X).shape == (dgraph.A.n, 3)
