"""Negative weights: what divides by sums of weights refuses them, and names an edge; what does not is exact."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from command_line import run as command
from graphs import dense_operator, random_graph
from part_folders import parts_of
from worlds import parallel

from spgnn import save_graph, train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import GraphError, RankError, together
from spgnn.experiment import run
from spgnn.graph import DIVIDES, Graph, normalise
from spgnn.layers import GAT, GIN, MLP, SAGE, Stack
from spgnn.partition import part_graph
from spgnn.samplers import Coefficients, Maker, Node, Walk, graph_arrays, make_sampler

WAY_OUT = "divides by sums of weights, none of which may be negative. Use operator none"


def signed(use="directed") -> Graph:
    """A weighted graph, one of whose weights is negative: -0.01 in a row and a column of others."""
    graph = random_graph(weighted=True, use=use, seed=5)
    A = sp.csr_array(graph.A)
    u, v = next((u, v) for u, v in zip(*A.nonzero()) if u != v and A[[u]].nnz > 2 and A[:, [v]].nnz > 2)
    A.data = A.data.copy()
    A[u, v] = -0.01
    return replace(graph, A=A)


def message(graph: Graph, how: str) -> str:
    u, v = (int(ids[0]) for ids in np.nonzero(graph.A.toarray() < 0))
    return re.escape(f"the edge between nodes {u} and {v} has weight -0.01; operator {how} {WAY_OUT}")


@parallel([1, 2, 3, 4], mpi=[2])
@pytest.mark.parametrize("how", DIVIDES)
def test_a_negative_weight_is_refused_by_edge_on_all_ranks(comm, how):
    graph = signed()
    expected, c = message(graph, how), 2 if comm.size == 4 else 1
    with pytest.raises(GraphError, match=expected):
        distribute(graph, comm, operator=how, method="random", replication=c)
    A = distribute(graph, comm, operator="none", method="random", replication=c).A
    with pytest.raises(GraphError, match=expected):
        A.with_norm(how)
    with pytest.raises(GraphError, match=expected):
        normalise(graph.A, how)
    with pytest.raises(GraphError, match=expected):
        graph_arrays(graph).factors(how)


@parallel([1, 3], mpi=[])
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("how", ["none", "loops"])
def test_negative_weights_are_exact_where_no_sum_is_divided_by(comm, how):
    graph = signed()
    dgraph = distribute(graph, comm, operator=how, dtype="float64", method="random")
    H = np.random.default_rng(0).standard_normal((graph.n_nodes, 3))
    expected = (dense_operator(graph, how) @ H)[dgraph.node_n]
    np.testing.assert_allclose((dgraph.A @ torch.from_numpy(H[dgraph.node_n])).numpy(), expected, 1e-12, 1e-12)


def test_weights_whose_sums_overflow_are_refused():
    A = sp.csr_array(np.array([[0, 1e308, 1e308], [1, 0, 0], [1, 0, 0]]))
    with pytest.raises(GraphError, match="nodes 0 and 1 has weight 1e.308, .* Divide all weights by the largest"):
        distribute(Graph(A, edges="directed"), SelfCommunicator(), operator="row")
    with pytest.raises(GraphError, match="Divide all weights by the largest"):
        normalise(A, "row")


@pytest.mark.parametrize("how", DIVIDES)
def test_subgraphs_of_negative_weights_are_refused_before_they_are_drawn(how):
    graph, train_N = signed(), np.arange(40) < 20
    alpha = Coefficients(None, np.ones(graph.nnz, np.float32))
    walk, blocks = Walk(graph, budget=20), make_sampler("neighbour", graph, {"fanout": (3,)}, train_N)
    for sampler, coefficients in ((walk, None), (walk, alpha), (blocks, None)):
        with pytest.raises(GraphError, match=message(graph, how)):
            Maker(sampler, graph, train_N, [how], coefficients=coefficients)
        Maker(sampler, graph, train_N, ["none", "loops"], coefficients=coefficients).draw(0, 0)


def test_the_sampler_of_columns_names_another_way_out():
    with pytest.raises(GraphError, match="sampler node divides by .* Use another sampler, or give absolute values"):
        Node(signed(), budget=5)


@pytest.mark.parametrize("how, way_out", [("gcn", "Use operator none"), ("none", r"Train on the whole graph \(mode")])
def test_parts_of_negative_weights_are_refused_also_where_rows_that_are_cut_off_are_scaled(how, way_out):
    graph = signed()
    parts = parts_of(graph, part_graph(graph, 3, "random"), SelfCommunicator(), hops=0, operator=how)
    with pytest.raises(GraphError, match=f"has weight -0.01; .* divides by sums of weights, .* {way_out}"):
        for p in range(3):
            parts.open(p)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
@pytest.mark.parametrize("how", DIVIDES)
def test_integers_are_normalised_as_the_same_floats(dtype, how):
    A = np.zeros((4, 4), dtype)
    A[0, 1], A[1, 0], A[0, 2], A[3, 1], A[2, 2] = 100, 100, 1, 3, 5
    expected = normalise(sp.csr_array(A.astype(np.float64)), how).toarray()
    np.testing.assert_array_equal(normalise(sp.csr_array(A), how).toarray(), expected.astype(np.float32))
    dgraph = distribute(Graph(sp.csr_array(A), edges="directed"), SelfCommunicator(), operator=how, method="block")
    made = (dgraph.A @ torch.eye(4))[np.argsort(dgraph.node_n)][:, dgraph.node_n.argsort()]
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    A[0, 2] = -128
    with pytest.raises(GraphError, match="nodes 0 and 2 has weight -128"):
        normalise(sp.csr_array(A), how)


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("mode", [{}, {"sampler": "walk"}, {"mode": "average", "hops": 0}])
def test_trainings_of_any_mode_refuse_negative_weights_or_multiply_by_no_matrix(comm, mode, tmp_path):
    together(comm, lambda: save_graph(signed(), tmp_path / "graph"), root=0)
    options = {"epochs": 2, "edges": "directed", "method": "random"} | mode
    summary = run(str(tmp_path / "graph"), TrainConfig(model="mlp", **options), comm)
    assert np.isfinite(summary["test"])
    with pytest.raises((GraphError, RankError), match="has weight -0.01; operator gcn") as caught:
        run(str(tmp_path / "graph"), TrainConfig(model="gcn", **options), comm)
    assert caught.value.exit_code == 3


def test_commands_refuse_negative_weights_before_an_epoch_and_a_prediction(tmp_path, capsys):
    graph, bad, parts, trained = (tmp_path / name for name in ("graph", "signed", "parts", "trained"))
    save_graph(random_graph(weighted=True, use="directed", seed=5), graph)
    save_graph(signed(), bad)
    directed, few = ("--edges", "directed"), ("--epochs", "1", "--hidden", "4", "--out", trained)
    cut = ("partition", bad, "-k", "2", "--method", "random", "--hops", "1", "--out", parts)
    assert command(capsys, *cut, *directed)[0] == command(capsys, "train", graph, *directed, *few)[0] == 0
    few = (*few[:4], "--out", "none")
    for words in (
        ("train", bad, *directed, *few),
        ("train", bad, *directed, *few, "--model", "sage"),
        ("train", bad, *directed, "--partition", parts, *few, "--mode", "average", "--evaluation", "layerwise"),
        ("predict", trained, "--graph", bad, "--out", tmp_path / "predicted"),
    ):
        code, out, err = command(capsys, *words)
        assert (
            code == 3
            and "has weight -0.01; operator" in err
            and WAY_OUT.replace("operator none", "--operator none") in err
        ), (words, out, err)
        assert "accuracy" not in out


@pytest.mark.parametrize("layer", [SAGE(6, 3, "sum"), SAGE(6, 3, "max"), GIN(6, 3), GAT(6, 3, 1), MLP(6, 3)], ids=repr)
def test_layers_that_divide_by_no_sum_train_on_the_way_out(layer):
    history = train(Stack(layer), distribute(signed(), SelfCommunicator(), operator="none"), epochs=1)
    assert np.isfinite(history.records[0]["loss"])
