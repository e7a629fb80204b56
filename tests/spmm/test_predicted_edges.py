"""Layers on edges: what they send, multiply and hold is predicted, with pruned rows and a cached X too."""

import numpy as np
import pytest
import torch
from counted_bytes import predict_and_compare
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from test_dry_run import held_and_predicted
from worlds import parallel

from spgnn.analysis import measure
from spgnn.analysis.epoch import FixedModel
from spgnn.analysis.plan import PlannedRanks
from spgnn.analysis.planned import PlannedGraph
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.graph import graph_from_coo
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph
from spgnn.training import explain


class Messages(Layer):
    """Z_i = sum_j tanh(U_i + V_j + E_ij w) and statistics of it, from attributes of edges where there are any."""

    operator, hops = "none", 1

    def __init__(self, f_in, f_out, attributes=0):
        super().__init__(f_in, f_out)
        self.U, self.V, self.M = self.weight(f_in, f_out), self.weight(f_in, f_out), self.weight(f_out, f_out)
        self.E = self.weight(attributes, f_out) if attributes else None

    def forward(self, A, H):
        M = torch.tanh(A.on_edges(H @ self.U, H @ self.V, None if self.E is None else A.edges @ self.E))
        M = torch.tanh(M @ self.M)
        return A.sum(M) + A.mean(M) + A.max(M) * A.std(M)


class Attention(Layer):
    """Attention of two heads, of rows that are fetched once, and the rows of X themselves."""

    operator, hops = "none", 1

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.Q, self.K, self.O = self.weight(f_in, 4), self.weight(f_in, 4), self.weight(f_in, f_out)

    def forward(self, A, H):
        T = A.fetch(torch.cat([H @ self.K, H @ self.O], 1))
        S = A.softmax(A.dot(H @ self.Q, T.map(lambda K: K[:, :4]), heads=2))
        return A.sum(S, T.map(lambda V: V[:, 4:])) + A.sum(A.rows(H) * A.cols(H)) @ self.O


def model(attributes=0, **options):
    return Stack(Attention(6, 8), Messages(8, 4, attributes), GCN(4, 3), **options)


def graph_with_attributes():
    rng = np.random.default_rng(0)
    graph = random_graph(n=50, edges=90, train_every=10)
    ends = rng.integers(0, 49, (2, 120))
    fields = {"X": graph.X, "y": graph.y, "split": graph.split}
    return graph_from_coo(*ends, 50, edge_attr=rng.standard_normal((120, 2)), **fields).with_edges("directed")


@parallel([2, 3, 4, 7], mpi=[3])
@pytest.mark.parametrize("prune", ["never", "always"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_bytes_of_every_pair_are_the_predicted_ones(comm, scheme, dropout, prune):
    graph, make = graph_with_attributes(), lambda: model(2, dropout=dropout)
    predict_and_compare(comm, graph, make, ("edges", dropout), prune, scheme=scheme)


@parallel([1, 2, 3, 4, 7], mpi=[])
@pytest.mark.parametrize("prune", ["never", "always"])
@pytest.mark.parametrize("options", [{}, {"dropout": 0.5}], ids=str)
def test_gradients_are_those_of_the_dense_model(comm, options, prune):
    graph = random_graph(n=50, edges=90, train_every=10)
    gradients_are_the_dense_ones(comm, graph, lambda: model(**options), "gcn", prune, method="random")


def large_graph():
    rng, n, count = np.random.default_rng(0), 3000, 16000
    fields = {"X": rng.standard_normal((n, 24), dtype=np.float32), "y": rng.integers(0, 9, n)}
    split = np.where(np.arange(n) % 3 == 0, 0, 1).astype(np.int8)
    E_EF = rng.standard_normal((count, 3)).astype(np.float32)
    return graph_from_coo(*rng.integers(0, n, (2, count)), n, edge_attr=E_EF, split=split, **fields).with_edges(
        "directed"
    )


@pytest.mark.slow
@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("prune", ["never", "always"])
def test_buffers_of_rows_on_edges_are_the_bytes_that_the_pool_holds(comm, prune):
    dgraph = distribute(large_graph(), comm, method="random", operator="none")
    net = Stack(GCN(24, 16, act="relu"), Messages(16, 20, 3), Messages(20, 9, 3))
    held, run = held_and_predicted(net, dgraph, prune)
    assert run.pool_bytes == held > 0
    E = dgraph.A.n_edges
    on_edges = [of for of in run.passes("forward").made if of.kind == "weights" and "edges" in of.rows[0]]
    assert prune == "always" or sum(of.multiply_adds for of in on_edges) == 3 * 20 + 20 * 20 + 3 * 9 + 9 * 9
    assert prune == "always" or run.torch_bytes > 4 * E * 20  # tanh is torch's own


@pytest.mark.parametrize("scheme", ["columns", "cover"])
def test_a_plan_multiplies_rows_on_edges_with_weights(scheme):
    graph = graph_with_attributes()
    part, planned = part_graph(graph, 2, method="random"), PlannedGraph(graph)
    report = measure(planned.graph, part, scheme, model=FixedModel(model(2)), itemsize=8)
    ranks = PlannedRanks(planned, part, report)
    second = ranks.layers("forward")[1]
    (E_P,) = {tuple(rows[0]) for *_, rows in ((of[0], of[4:]) for of in second.dense) if rows}
    assert sum(E_P) == planned.graph.nnz + graph.n_nodes  # with the self-loops of gcn
    assert [ranks.on(rank).setting.counts["edges"] for rank in (0, 1)] == list(E_P)


def test_explain_names_what_layers_on_edges_read():
    dgraph = distribute(graph_with_attributes(), SelfCommunicator())
    first, second, _ = explain(model(2), dgraph).layers
    assert "it reads its neighbours' rows themselves" in first["why"] and "width 4" in second["why"]
