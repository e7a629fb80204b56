"""A layer names the normalisation that it multiplies with: one pattern, index map and exchange plan serve them all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones
from graphs import dense_operator, random_graph
from worlds import parallel, some

from spgnn.config.names import NORMS
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, Layer, Stack


class Mean(GCN):
    """A chain with D^-1 A."""

    operator = "row"


class Total(Layer):
    """A custom layer: two products with A as the graph has it."""

    operator = "none"

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W_FC = self.weight(f_in, f_out)

    def forward(self, A, H_nF):
        S_nC = A @ (H_nF @ self.W_FC)
        return torch.tanh(A @ S_nC / 10 + S_nC)


MODELS = {
    "row and none": lambda: Stack(Mean(6, 5, act="relu"), Total(5, 3)),
    "none and the graph's": lambda: Stack(Total(6, 5), GCN(5, 3)),
    "a Stack in a Stack": lambda: Stack(Mean(6, 7), Stack(GCN(7, 7, act="relu"), Total(7, 5)), Mean(5, 3)),
    "chains": lambda: Stack(Mean(6, 5, act="relu"), GCN(5, 6, act="relu"), Mean(6, 3)),
}


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("name", MODELS)
def test_layers_with_their_own_normalisation_equal_the_dense_model(comm, scheme, name):
    for use, weighted, how in some(comm, (("directed", True, "gcn"), ("undirected", False, "row_loops"))):
        graph = random_graph(use=use, weighted=weighted)
        for c in [c for c in (1, 2) if comm.size % (c * c) == 0]:
            options = {"method": "random", "scheme": scheme, "replication": c}
            A = gradients_are_the_dense_ones(comm, graph, MODELS[name], how, **options).dgraph.A
            used = {A.name, *A.norms.made}
            assert used <= {how, "row", "none"} and len(used) > 1


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("prune", ["always", "auto"])
def test_pruned_steps_use_the_normalisation_of_each_layer(comm, keep, prune):
    graph = random_graph(n=200, edges=200, use="undirected", weighted=True, train_every=20)
    options = {"method": "random", "keep": keep, "replication": 2 if comm.size == 4 else 1}
    gradients_are_the_dense_ones(comm, graph, MODELS["chains"], "gcn", prune, **options)


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("first", NORMS)
def test_every_normalisation_is_the_dense_one_whichever_comes_first(comm, first):
    for weighted in (True, False):
        graph = random_graph(weighted=weighted)
        c = 2 if comm.size == 4 else 1
        A = distribute(graph, comm, operator=first, dtype=torch.float64, method="random", replication=c).A
        H = np.random.default_rng(0).standard_normal((graph.n_nodes, 3))
        H_nF = torch.from_numpy(H[A.node_n])
        for how in NORMS:
            A_l, expected = A.at(1, operator=how), dense_operator(graph, how)
            np.testing.assert_allclose((A_l @ H_nF).numpy(), (expected @ H)[A.node_n], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(A_l.adjoint(H_nF).numpy(), (expected.T @ H)[A.node_n], rtol=1e-12, atol=1e-12)
            assert A.with_norm(how) is A.with_norm(how)
            assert A_l.at(2, operator=first).operator is A


@parallel([1, 2, 4], mpi=[])
@pytest.mark.parametrize("first", NORMS)
def test_means_do_not_depend_on_the_scale_of_the_weights(comm, first):
    graph, c = random_graph(weighted=True), 2 if comm.size == 4 else 1
    H = np.random.default_rng(0).standard_normal((graph.n_nodes, 3))
    means = []
    for scale in (1, *(10.0**-k for k in (3, 9, 15, 17))):
        light = replace(graph, A=graph.A * scale)
        A = distribute(light, comm, operator=first, dtype="float64", method="random", replication=c).A
        means.append((A.at(1, operator="row") @ torch.from_numpy(H[A.node_n])).numpy())
    for mean in means[1:]:
        np.testing.assert_allclose(mean, means[0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("how", ["row", "none", "loops"])
def test_weighted_operators_are_bitwise_the_same_whichever_comes_first(how):
    graph, comm = random_graph(weighted=True), SelfCommunicator()
    first = distribute(graph, comm, operator=how, dtype="float64").A.A_oo
    later = distribute(graph, comm, operator="gcn", dtype="float64").A.with_norm(how).A_oo
    np.testing.assert_array_equal(later.to_scipy().toarray(), first.to_scipy().toarray())


@parallel([1, 2, 4], mpi=[])
def test_each_normalisation_has_its_own_cached_a_x(comm):
    graph = random_graph()
    dgraph = distribute(graph, comm, dtype=torch.float64, method="random", replication=2 if comm.size == 4 else 1)
    for how in ("gcn", "row"):
        expected = torch.from_numpy((dense_operator(graph, how) @ graph.X)[dgraph.node_n])
        for _ in range(2):
            torch.testing.assert_close(dgraph.A.at(1, operator=how) @ dgraph.X, expected, rtol=1e-12, atol=1e-12)
    assert set(dgraph.A.fixed_input.products) == {"gcn", "row"}


@parallel([2, 3], mpi=[])
@pytest.mark.parametrize("scheme", ["columns", "broadcast"])
def test_operators_of_a_graph_share_pattern_and_plan(comm, scheme):
    A = distribute(random_graph(), comm, scheme=scheme, method="random").A
    row, none, loops = (A.with_norm(how) for how in ("row", "none", "loops"))
    assert np.shares_memory(A.A_oo.indices, loops.A_oo.indices) or not A.A_oo.nnz
    assert np.shares_memory(row.A_oo.indices, none.A_oo.indices) or not row.A_oo.nnz
    for other in (row, none, loops):
        assert other.blocks.index is A.blocks.index and other.plan is A.plan
        assert all(ours.plan.pack is theirs.plan.pack for ours, theirs in zip(A.stages, other.stages))
        assert np.shares_memory(A.blocks.A_og.indices, other.blocks.A_og.indices) or not A.g


def test_the_raw_weights_take_no_memory_where_all_are_1():
    A = distribute(random_graph(), SelfCommunicator(), locality=False).A
    raw = A.norms.raw[True].blocks.A_oo
    assert raw.data.strides == (0,) and np.shares_memory(raw.indices, A.A_oo.indices)


def test_an_unknown_normalisation_is_refused():
    class Odd(GCN):
        operator = "rows"

    with pytest.raises(UsageError, match="layer 1: operator 'rows' is not known; did you mean 'row'"):
        Stack(Odd(3, 2))
    A = distribute(random_graph(), SelfCommunicator()).A
    with pytest.raises(UsageError, match="normalisation 'gnc' is not known; did you mean 'gcn'"):
        A.at(1, operator="gnc")
