"""Objects of PyG at every door: read, with a line for what is not, or refused with what to give; skipped without PyG."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import spgnn
from spgnn.errors import UsageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    g = pytest.importorskip("torch_geometric.nn")
from torch_geometric.data import Batch, Data, TemporalData  # noqa: E402

EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 1]])  # 0 -> 1 twice
X, Y = torch.eye(3, dtype=torch.float64), torch.tensor([0, 1, 0])


def data(**more):
    return Data(**{"x": X, "y": Y, "edge_index": EDGES[:, :3]} | more)


def test_load_graph_reads_a_data_as_from_pyg_does():
    graph = spgnn.load_graph(data())
    assert (graph.n_nodes, graph.nnz, graph.n_features) == (3, 3, 3) and graph.meta["edges"] == "in"


def test_one_column_of_edge_attr_stays_attributes_and_a_line_says_how_it_becomes_weights(capsys):
    attr = torch.tensor([[2.0], [3.0], [4.0]])
    graph = spgnn.from_pyg(data(edge_attr=attr))
    assert graph.edge_attr.tolist() == [[2.0], [3.0], [4.0]] and set(graph.A.data) == {1.0}
    said = capsys.readouterr().err
    assert "all weights are 1" in said and "data.edge_weight, data.edge_attr = data.edge_attr.view(-1), None" in said
    assert spgnn.from_pyg(data(edge_weight=attr.view(-1), edge_attr=None)).A.data.sum() == 9
    assert spgnn.from_pyg(data(edge_attr=attr), edge_attr=None).edge_attr is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("make, said", [
    (lambda: Batch.from_data_list([data(), data()]), "does not read batch; those of edges: from_pyg(data, edge_attr=...); all graphs of a batch are one"),
    (lambda: data(edge_type=Y), "does not read edge_type; those of edges: from_pyg(data, edge_attr=...)"),
    (lambda: TemporalData(src=EDGES[0, :3], dst=EDGES[1, :3], t=Y, msg=X), "does not read msg, t;"),
    (lambda: data(edge_index=EDGES), "1 edge is there again and became one with the first, all of weight 1"),
    (lambda: data(edge_index=EDGES, edge_weight=torch.ones(4)), "became one with the first, their weights added up"),
    (lambda: data(edge_index=EDGES, edge_attr=torch.ones(4, 2)), ""),
    (lambda: data(edge_index=EDGES, edge_attr=torch.ones(4, 2), edge_weight=torch.ones(4)), ""),
])  # fmt: skip
def test_what_is_not_read_or_became_one_is_said(make, said, capsys):
    spgnn.from_pyg(make())
    line = " ".join(capsys.readouterr().err.split())
    assert said in line if said else not line


@pytest.mark.parametrize("more", [{}, {"edge_attr": torch.ones(3, 2)}])
def test_unknown_values_of_duplicates_are_refused(more):
    with pytest.raises(UsageError, match="duplicates = 'foo' is not known.*auto"):
        spgnn.from_pyg(data(**more), duplicates="foo")
    with pytest.raises(UsageError, match="did you mean 'mean'"):
        spgnn.from_scipy(spgnn.from_pyg(data()).A, duplicates="men")


class ByData(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = g.GCNConv(3, 2)

    def forward(self, data):
        return self.conv(data.x, data.edge_index)


REFUSED = {
    "distribute": (lambda net, dgraph: spgnn.distribute(data()), r"distribute got a Data; give spgnn.from_pyg\(...\)"),
    "predict": (lambda net, dgraph: spgnn.predict(spgnn.wrap(net), data()), r"give spgnn.from_pyg\(...\)"),
    "train": (lambda net, dgraph: spgnn.train(net, dgraph), r"called as model\(A, X\).*give spgnn.wrap\(model\)$"),
    "verify": (lambda net, dgraph: spgnn.verify(net, spgnn.from_pyg(data())), r"give spgnn.wrap\(model\)$"),
    "predict of a net": (lambda net, dgraph: spgnn.predict(net, dgraph), r"give spgnn.wrap\(model\)$"),
    "a net of data": (lambda net, dgraph: spgnn.train(ByData(), dgraph), r"ByData as model\(data\).*call=lambda"),
    "wrap of a net of data": (lambda net, dgraph: spgnn.train(spgnn.wrap(ByData()), dgraph), "takes data: give call="),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_takes_a_graph_or_a_wrapped_module_names_from_pyg_and_wrap(name):
    call, message = REFUSED[name]
    dgraph = spgnn.distribute(spgnn.from_pyg(data()))
    with pytest.raises(UsageError, match=message):
        call(g.GCN(3, 4, 2, 2), dgraph)


def test_an_operator_shows_its_sizes():
    assert repr(spgnn.distribute(spgnn.from_pyg(data())).A) == "DistSpMM(gcn: one rank, 3 rows, 6 nonzeros, 0 ghosts)"


class Plain(nn.Module):
    """A convolution that is given no weights, or those of the graph."""

    def __init__(self, conv, is_given):
        super().__init__()
        self.conv, self.is_given = conv.double(), is_given

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, *[edge_weight] * self.is_given)


CONVOLUTIONS = {
    "GCNConv": lambda: g.GCNConv(3, 2), "SAGEConv": lambda: g.SAGEConv(3, 2), "GATConv": lambda: g.GATConv(3, 2),
    "GATv2Conv": lambda: g.GATv2Conv(3, 2), "GINConv": lambda: g.GINConv(nn.Linear(3, 2)), "GraphConv": lambda: g.GraphConv(3, 2),
}  # fmt: skip


@pytest.mark.parametrize("name, is_given", [*((name, False) for name in CONVOLUTIONS), ("GCNConv", True)])
def test_weights_of_the_graph_reach_a_convolution_only_where_its_module_passes_them(name, is_given):
    weight, net = torch.tensor([1.0, 5.0, 9.0], dtype=torch.float64), Plain(CONVOLUTIONS[name](), is_given)
    expected = net(X, EDGES[:, :3], weight).detach().numpy()
    graph = spgnn.from_pyg(data(edge_weight=weight)).in_use()

    def body(comm):
        dgraph = spgnn.distribute(graph, comm, method="random", dtype="float64")
        return dgraph.collect(spgnn.wrap(Plain(net.conv, is_given))(dgraph.A, dgraph.X).detach().numpy())

    for ranks in (1, 2):
        np.testing.assert_allclose(spgnn.run_threads(ranks, body)[0], expected, atol=1e-12)
