"""Negative weights: no operator divides by a sum of 0 or less; what it divides by otherwise is said."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import dense_operator, random_graph
from worlds import parallel

from spgnn import save_graph, train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import Parts, distribute
from spgnn.errors import GraphError, together
from spgnn.experiment import run
from spgnn.graph import DIVIDES, Graph, normalise
from spgnn.layers import GAT, GIN, MLP, SAGE, Stack
from spgnn.partition import part_graph
from spgnn.samplers import Maker, Node, Walk, graph_arrays, make_sampler
from spgnn.training.notes import data_notes


def signed(share: float, use="directed") -> Graph:
    """A weighted graph, some of whose weights are negative; a small share leaves all sums above 0."""
    graph = random_graph(weighted=True, use="directed", seed=5)
    A = sp.csr_array(graph.A)
    A.data = np.where(np.random.default_rng(0).random(A.nnz) < share, -A.data, A.data)
    return replace(graph, A=A, edges=use)


def mild() -> Graph:
    """The same with one weight that is a little below 0, in a row and a column of others."""
    graph = random_graph(weighted=True, use="directed", seed=5)
    A, loops = sp.csr_array(graph.A), np.eye(graph.n_nodes)
    u, v = next((u, v) for u, v in zip(*A.nonzero()) if u != v and A[[u]].nnz > 2 and A[:, [v]].nnz > 2)
    A.data = A.data.copy()
    A[u, v] = -0.01
    assert (A.sum(1) + loops.sum(1) > 0).all()
    return replace(graph, A=A)


def lost_by_hand(graph: Graph, how: str) -> tuple[int, int, int]:
    """Rows and columns that have entries and a sum of 0 or less, and the first node of them, by plain numpy."""
    A = graph.A.toarray().astype(np.float64)
    if how != "row":
        A = A + np.diag((np.diag(A) == 0).astype(float))
    rows, columns = ((A.sum(axis) <= 0) & (A != 0).any(axis) for axis in (1, 0))
    columns = columns & (how == "gcn")
    return int(rows.sum()), int(columns.sum()), int(np.flatnonzero(rows | columns)[0])


@parallel([1, 2, 3, 4], mpi=[])
@pytest.mark.parametrize("how", DIVIDES)
def test_sums_of_0_or_less_are_refused_by_number_and_first_node(comm, how):
    graph = signed(0.4)
    rows, columns, node = lost_by_hand(graph, how)
    lost = f"{rows} rows" + (f" and {columns} columns" if how == "gcn" else "")
    message = f"{(graph.A.data < 0).sum()} of {graph.nnz} weights are negative, and {lost} of A.*, node {node} first: "
    c = 2 if comm.size == 4 else 1
    with pytest.raises(GraphError, match=message):
        distribute(graph, comm, operator=how, method="random", replication=c)
    A = distribute(graph, comm, operator="none", method="random", replication=c).A
    with pytest.raises(GraphError, match=message):
        A.with_norm(how)
    with pytest.raises(GraphError, match=message):
        normalise(graph.A, how)
    with pytest.raises(GraphError, match=message):
        graph_arrays(graph).factors(how)


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("how", [*DIVIDES, "none", "loops"])
def test_negative_weights_whose_sums_are_above_0_are_exact_and_noted(comm, how):
    graph = mild()
    dgraph = distribute(graph, comm, operator=how, dtype="float64", method="random")
    H = np.random.default_rng(0).standard_normal((graph.n_nodes, 3))
    expected = (dense_operator(graph, how) @ H)[dgraph.node_n]
    np.testing.assert_allclose((dgraph.A @ torch.from_numpy(H[dgraph.node_n])).numpy(), expected, 1e-12, 1e-12)
    note = f"1 of {graph.nnz} weights are negative; the sums that the operator {how} divides by are above 0"
    assert data_notes(dgraph) == ([note] if how in DIVIDES else [])
    assert not data_notes(distribute(random_graph(weighted=True), comm, operator=how, method="random"))


@parallel([1, 2, 3], mpi=[])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_that_is_0_up_to_rounding_counts_as_0_on_any_ranks(comm, dtype):
    weights = np.array([0.1, 0.2, -0.3, 1, 1, 1], dtype)
    A = sp.csr_array((weights, [1, 2, 3, 0, 0, 0], [0, 3, 4, 5, 6]), shape=(4, 4))
    assert abs(weights[:3].astype(np.float64).sum()) > 0
    with pytest.raises(
        GraphError, match="1 of 6 weights are negative, and 1 rows of A have a sum of 0 or less, node 0"
    ):
        distribute(Graph(A, edges="directed"), comm, operator="row", method="block")


def test_weights_whose_sums_overflow_are_refused():
    A = sp.csr_array(np.array([[0, 1e308, 1e308], [1, 0, 0], [1, 0, 0]]))
    with pytest.raises(GraphError, match="2 weights are larger than 1e"):
        distribute(Graph(A, edges="directed"), SelfCommunicator(), operator="row")
    with pytest.raises(GraphError, match="2 weights are larger than 1e"):
        normalise(A, "row")


@pytest.mark.parametrize("how", DIVIDES)
def test_subgraphs_divide_by_sums_of_the_whole_graph_or_not_at_all(how):
    for graph, is_lost in ((signed(0.4), True), (mild(), False)):
        train_N = np.arange(graph.n_nodes) < 20
        walk = Walk(graph, budget=20)
        with pytest.raises(GraphError, match="of a subgraph divides by sums that may be 0"):
            Maker(walk, graph, train_N, [how], degrees="own")
        blocks = make_sampler("neighbour", graph, {"fanout": (3,)}, train_N)
        if is_lost:
            with pytest.raises(GraphError, match="weights are negative, and"):
                Maker(blocks, graph, train_N, [how])
            with pytest.raises(GraphError, match="weights are negative, and"):
                Node(graph, budget=5)
        else:
            Maker(blocks, graph, train_N, [how]).draw(0, 0)
        Maker(walk, graph, train_N, ["none", "loops"]).draw(0, 0)


@pytest.mark.parametrize("how", ["gcn", "none"])
def test_rows_of_a_part_that_are_cut_off_are_not_scaled_by_sums_of_0_or_less(how):
    graph = signed(0.4)
    parts = Parts.of_graph(graph, part_graph(graph, 3, "random"), SelfCommunicator(), hops=0, operator=how)
    with pytest.raises(GraphError, match="rows of a part that are cut off .* scaled by these sums"):
        for p in range(3):
            parts.open(p)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
@pytest.mark.parametrize("how", DIVIDES)
def test_integers_are_normalised_as_the_same_floats(dtype, how):
    A = np.zeros((4, 4), dtype)
    A[0, 1], A[1, 0], A[0, 2], A[3, 1], A[2, 2] = 100, 100, -1, 3, 5
    expected = normalise(sp.csr_array(A.astype(np.float64)), how).toarray()
    np.testing.assert_array_equal(normalise(sp.csr_array(A), how).toarray(), expected.astype(np.float32))
    dgraph = distribute(Graph(sp.csr_array(A), edges="directed"), SelfCommunicator(), operator=how, method="block")
    made = (dgraph.A @ torch.eye(4))[np.argsort(dgraph.node_n)][:, dgraph.node_n.argsort()]
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    A[0, 2] = -128
    message = "1 of 5 weights are negative, and 1 rows"
    with pytest.raises(GraphError, match=message):
        normalise(sp.csr_array(A), how)
    with pytest.raises(GraphError, match=message):
        distribute(Graph(sp.csr_array(A), edges="directed"), SelfCommunicator(), operator=how)


def test_weights_of_any_size_are_used_where_no_subgraph_divides():
    A = sp.csr_array(np.array([[0, 1e300, 1], [1e300, 0, 0], [1, 0, 0]]))
    graph = Graph(A, edges="directed")
    Maker(Walk(graph, budget=3), graph, np.ones(3, bool), ["none", "loops"], degrees="own").draw(0, 0)
    with pytest.raises(GraphError, match="2 weights are larger than 1e"):
        Maker(Walk(graph, budget=3), graph, np.ones(3, bool), ["row"], degrees="own")


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("mode", [{}, {"sampler": "walk"}, {"mode": "average", "hops": 0}])
def test_a_model_that_multiplies_by_no_matrix_trains_on_any_weights(comm, mode, tmp_path):
    together(comm, lambda: save_graph(signed(0.4), tmp_path / "graph"), root=0)
    config = TrainConfig(model="mlp", epochs=2, edges="directed", method="random", **mode)
    summary = run(str(tmp_path / "graph"), config, comm)
    assert np.isfinite(summary["test"])


def test_the_refusal_names_what_python_can_do_instead():
    graph = signed(0.4)
    with pytest.raises(GraphError, match=r'distribute\(..., operator="none"\) for a Stack of SAGE\("sum"\)'):
        distribute(graph, SelfCommunicator())
    for layer in (SAGE(6, 3, "sum"), SAGE(6, 3, "max"), GIN(6, 3), GAT(6, 3, 1), MLP(6, 3)):
        history = train(Stack(layer), distribute(graph, SelfCommunicator(), operator="none"), epochs=1)
        assert np.isfinite(history.records[0]["loss"])
