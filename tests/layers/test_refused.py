"""What a layer, a stack or distribute does not know is refused by name, and what sums below zero is divided by."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import random_graph

import spgnn
from spgnn.dist import SelfCommunicator
from spgnn.errors import InputError, ShapeError, UsageError
from spgnn.layers import GAT, GCN, GCNII, GIN, MLP, NGNN, SAGE, Layer, MixHop, Stack


@pytest.mark.parametrize("make, said", [
    (lambda: GCN(3, 3, norm="batch"), "norm 'batch' is not known"), (lambda: GCN(2, 2, act="rellu"), "did you mean 'relu'"), (lambda: GCN(3, 3, norm="Layer"), "norm 'Layer' is not known; did you mean 'layer'"),
    (lambda: Stack(), "a Stack needs at least one layer"), (lambda: Stack(GCN(3, 2), dropout=1.5), "dropout = 1.5"), (lambda: Stack(GCN(3, 2), dropout=float("nan")), "dropout = nan"),
    (lambda: Stack(GCN(3, 2), dropout="0.5"), "dropout = '0.5'"), (lambda: Stack(GCN(3, 2), dropout=None), "dropout = None"), (lambda: GCN(True, 2), "f_in = True"),
    (lambda: GCN(0, 2), "f_in = 0; expected"), (lambda: GCN(3, 2.0), "f_out = 2.0; expected"),
    (lambda: Stack([GCN(3, 2)]), r"layer 1 is a list; .*Stack\(\*layers\)"), (lambda: Stack(GCN(3, 2), "relu"), "layer 2 is a str"),
    (lambda: GAT(4, 4, 2, slope=-0.1), "slope = -0.1; expected a finite number of 0 or more"), (lambda: GAT(4, 4, 2, slope=float("inf")), "slope = inf"),
    (lambda: GIN(3, 3, eps="a"), "eps = 'a'; expected a finite number"), (lambda: GCNII(3, theta=float("nan")), "theta = nan; expected a finite number of 0"),
    (lambda: SAGE(3, 3, "max", pool=-1), "pool = -1; expected an integer of 0 or more"), (lambda: SAGE(3, 3, "avg"), "aggregator = 'avg' is not known; expected one of: gcn, max, mean, sum$"),
    (lambda: MixHop(3, 3, 2), r"powers = 2; expected a sequence of integers, such as \(1, 2\)"), (lambda: MLP(3, 3, hidden="64"), "hidden = '64'; expected a sequence"),
    (lambda: NGNN(torch.nn.Linear(3, 3)), r"layer is a Linear; expected a Layer, such as GCN\(16, 8\)"),
    (lambda: GCN(3, 2, activation="relu"), "GCN: unknown key 'activation'; did you mean 'act'"), (lambda: SAGE(3, 2, aggr="mean"), "did you mean 'aggregator'"),
    (lambda: GAT(3, 8, concat=False), "did you mean 'merge'"), (lambda: GAT(in_channels=3, out_channels=8), "unknown key 'in_channels'; did you mean 'f_in'"),
    (lambda: Stack(GCN(3, 2), p=0.5), "did you mean 'dropout'"), (lambda: spgnn.graph_from_coo([0], [1], num_nodes=5), "did you mean 'n_nodes'"),
    (lambda: spgnn.graph_from_coo([0], [1], x=5), "did you mean 'X'"), (lambda: spgnn.Graph(random_graph().A, train_mask=3), "Graph: unknown key 'train_mask'; did you mean 'split'"),
    (lambda: spgnn.distribute(random_graph(), learning_rate=1), "'learning_rate' is an option of spgnn.train; did you mean 'lr'"),
    (lambda: spgnn.load_graph("sbm:n=60", x=3), "did you mean 'features'"), (lambda: Stack(GCN(3, 2))(torch.zeros(3, 3), torch.zeros(2, 9)), r"model\(dgraph.A, dgraph.X\)"),
])  # fmt: skip
def test_layers_are_made_of_what_is_known(make, said):
    with pytest.raises(UsageError, match=said):
        make()


@pytest.mark.parametrize("call, said", [
    (lambda graph: spgnn.part_graph("wordnet", 4), r"got a str, expected a Graph; spgnn.load_graph\('wordnet'\) makes one"),
    (lambda graph: spgnn.measure("wordnet", np.zeros(3, int), widths=(4, 2)), "got a str, expected a Graph"),
    (lambda graph: spgnn.part_graph(graph.A, 4), r"got a csr_array, expected a Graph; spgnn.load_graph\(...\)"),
    (lambda graph: spgnn.save_graph(graph.A, "nowhere"), "got a csr_array, expected a Graph"),
    (lambda graph: spgnn.distribute(SelfCommunicator(), graph), r"got a Graph instead of a communicator: with spgnn.world\(\) as comm"),
    (lambda graph: spgnn.distribute(graph, 4), "got a int instead of a communicator"),
    (lambda graph: spgnn.train(Stack(GCN(6, 3)), graph, epochs=1), r"got a Graph; expected a DistGraph: train\(model, spgnn.distribute"),
])  # fmt: skip
def test_what_is_no_graph_or_communicator_is_refused_with_what_makes_one(call, said):
    with pytest.raises(UsageError, match=said):
        call(random_graph())


def test_a_model_that_loses_rows_is_told_so():
    class Short(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.W = torch.nn.Parameter(torch.ones(5, 3))

        def forward(self, A, H):
            return (A @ (H @ self.W))[:-1]

    with pytest.raises(ShapeError, match=r"the model returns \(59, 3\); expected \(60, 3\), a row per own node"):
        spgnn.train(Stack(Short()), spgnn.distribute(random_graph(n=60, f=5, classes=3), SelfCommunicator()), epochs=1)


@pytest.mark.parametrize("returns, got", [
    (lambda Z: torch.cat([Z, Z], 1), r"shape \(60, 8\)"), (lambda Z: Z[:, 0], r"shape \(60,\)"), (lambda Z: None, "a NoneType"), (lambda Z: (Z, 1), "a tuple"),
])  # fmt: skip
def test_a_layer_that_returns_something_else_than_it_declares_is_named(returns, got):
    class Own(Layer):
        def forward(self, A, H):
            return returns(A @ H)

    dgraph = spgnn.distribute(random_graph(n=60, f=5, classes=3), SelfCommunicator())
    with pytest.raises(
        ShapeError, match=rf"layer 2, Own, returned {got}; expected 4 columns, the f_out that it declares"
    ):
        spgnn.train(Stack(GCN(5, 4), Own(4, 4), GCN(4, 3)), dgraph, epochs=1)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_features_that_float32_does_not_hold_are_named(is_sparse):
    X = np.ones((6, 2))
    X[4] = -1e300, 3e300
    graph = spgnn.load_graph(sp.csr_array(np.eye(6, k=1)), features=sp.csr_array(X) if is_sparse else X)
    with pytest.raises(InputError, match=r"node 4 has the feature -1e\+300, which float32 does not hold"):
        spgnn.distribute(graph, SelfCommunicator())
    spgnn.distribute(graph, SelfCommunicator(), dtype=torch.float64)
    spgnn.distribute(graph, SelfCommunicator(), feature_norm="row")


def test_a_graph_without_a_communicator_is_on_one_rank_unless_a_launcher_started_several(monkeypatch):
    graph = random_graph(n=60, f=5, classes=3)
    dgraph, model = spgnn.distribute(graph, method="random"), Stack(GCN(5, 3))
    assert (dgraph.comm.size, model(dgraph).shape) == (1, (60, 3)) and "5 features -> 3 classes" in repr(dgraph)
    assert "5 -> 3, dropout" in repr(model) and torch.equal(model(dgraph), model(dgraph.A, dgraph.X))
    for name, value in (("PMI_RANK", "0"), ("PMI_SIZE", "4")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="started 4 ranks, which would each train alone: with spgnn.world"):
        spgnn.distribute(graph)
