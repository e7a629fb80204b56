"""spgnn.wrap of modules that gather and scatter by an edge_index, without PyG."""

import copy

import numpy as np
import pytest
import torch
from graphs import random_graph
from models import normal
from torch import nn
from torch.nn import functional
from worlds import parallel

import spgnn
from spgnn import cli
from spgnn.dist import SelfCommunicator
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import GCN, Stack
from spgnn.layers.registry import FAMILIES, Family
from spgnn.layers.stack import set_epoch

GRAPH = random_graph(n=30, edges=90)
WEIGHTED = random_graph(n=30, edges=90, weighted=True)


class Normed(nn.Module):
    """Z = D_in^-1/2 (A + I) D_in^-1/2 x W, by gathers and scatters as PyG's gcn_norm has them."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 4)

    def forward(self, x, edge_index, edge_weight=None):
        n = x.size(0)
        loops = torch.arange(n).expand(2, n)
        mask = edge_index[0] != edge_index[1]
        weight = torch.ones(edge_index.size(1), dtype=x.dtype) if edge_weight is None else edge_weight
        edge_index = torch.cat([edge_index[:, mask], loops], dim=1)
        weight = torch.cat([weight[mask], torch.ones(n, dtype=x.dtype)])
        row, col = edge_index
        root = torch.zeros(n, dtype=x.dtype).index_add_(0, col, weight).pow(-0.5)
        weight = root[row] * weight * root[col]
        H = self.lin(x)
        return torch.zeros_like(H).index_add_(0, col, H.index_select(0, row) * weight[:, None])


class Attention(nn.Module):
    """A softmax over the edges into a node, and a sum at the node that an edge leaves, with an MLP for each edge."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(12, 5), nn.BatchNorm1d(5), nn.ELU(), nn.Linear(5, 4))

    def forward(self, x, edge_index):
        source, target = edge_index.unbind(0)
        message = self.mlp(torch.cat([x[source], x[target]], 1))
        index = target[:, None].expand_as(message)
        top = torch.zeros(len(x), 4, dtype=x.dtype).scatter_reduce_(0, index, message, "amax", include_self=False)
        exp = (message - top.detach()[target]).exp()
        total = torch.zeros(len(x), 4, dtype=x.dtype).scatter_add_(0, index, exp)
        alpha = exp / total.index_select(0, target)
        back = torch.zeros(len(x), 4, dtype=x.dtype).scatter_add_(0, source.view(-1, 1).expand_as(alpha), alpha)
        forth = torch.zeros(len(x), 4, dtype=x.dtype).scatter_add_(0, index, alpha * message)
        return torch.cat([forth, back], 1)


class Pooled(nn.Module):
    """What a readout over all nodes gives back to each of them."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 4)

    def forward(self, x, edge_index, batch):
        H, last = self.lin(x), int(batch.max()) + 1
        index = batch.view(-1, 1).expand_as(H)
        mean = H.new_zeros(last, 4).scatter_add_(0, index, H) / H.new_zeros(last).scatter_add_(
            0, batch, H.new_ones(len(H))
        )
        top = H.new_zeros(last, 4).scatter_reduce_(0, index, H, "amax", include_self=False)
        least = H.new_zeros(last, 4).scatter_reduce_(0, index, H, "amin", include_self=False)
        return H * mean[batch] + top[batch] * least.index_select(0, batch)


def made(cls):
    return normal(cls())


def loss_of(Z, ids):
    return (Z * torch.cos(ids.double() + 1)[:, None] + Z.square() * 0.1).sum()


def of_module(cls, graph):
    """Output, loss, gradients of X and weights of a module on the whole graph."""
    module, A = made(cls), graph.A.tocoo()
    X, index = torch.tensor(graph.X).requires_grad_(), torch.tensor(np.stack([A.col, A.row])).long()
    more = {"edge_weight": torch.tensor(A.data)} if cls is Normed and graph is WEIGHTED else {}
    more |= {"batch": torch.zeros(len(X), dtype=torch.int64)} if cls is Pooled else {}
    Z = module(X, index, **more)
    loss = loss_of(Z, torch.arange(len(X)))
    loss.backward()
    return [Z.detach(), loss.detach(), X.grad, *(p.grad for p in module.parameters())]


def of_ranks(model, comm, graph):
    """The same of a wrapped module."""
    dgraph = spgnn.distribute(graph, comm, dtype="float64", method="random", keep=False)
    X = dgraph.X.clone().requires_grad_()
    Z = model(dgraph.A, X)
    loss = loss_of(Z, torch.tensor(dgraph.A.node_n))
    loss.backward()
    total = comm.all_reduce(loss.detach().view(1).clone())[0]
    gradients = [comm.all_reduce(p.grad.clone()) for p in model.parameters()]
    return [dgraph.collect(Z.detach().numpy()), total, dgraph.collect(X.grad.numpy()), *gradients]


@parallel([1, 2, 3, 7], mpi=[3])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("name", ["Normed", "Attention", "Pooled"])
def test_a_wrapped_module_computes_what_it_does_on_the_whole_graph(comm, name, is_weighted):
    cls, graph = globals()[name], WEIGHTED if is_weighted else GRAPH
    for got, expected in zip(of_ranks(spgnn.wrap(made(cls)), comm, graph), of_module(cls, graph), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_weights_of_the_graph_that_a_forward_names_are_said_once(capsys):
    dgraph, wrapped = spgnn.distribute(WEIGHTED, dtype="float64"), spgnn.wrap(made(Normed))
    for _ in range(2):
        wrapped(dgraph.A, dgraph.X)
    spgnn.wrap(made(Normed))(spgnn.distribute(GRAPH, dtype="float64").A, torch.tensor(GRAPH.X))
    assert capsys.readouterr().err.count("Normed is given the weights of the graph") == 1


@parallel([1, 3], mpi=[])
def test_a_wrapped_module_runs_in_inference_mode(comm):
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random")
    with torch.inference_mode():
        Z = spgnn.wrap(made(Normed)).eval()(dgraph.A, dgraph.X)
    np.testing.assert_allclose(dgraph.collect(Z.numpy()), of_module(Normed, GRAPH)[0], rtol=1e-10, atol=1e-10)


def test_a_wrapped_module_has_the_state_parameters_and_modes_of_the_module():
    module = made(Attention)
    wrapped = spgnn.wrap(module)
    assert list(wrapped.state_dict()) == list(module.state_dict())
    assert all(a is b for a, b in zip(wrapped.parameters(), module.parameters(), strict=True))
    assert not wrapped.eval().module.training and not module.mlp.training and module.train().training
    wrapped.load_state_dict({name: tensor + 1 for name, tensor in module.state_dict().items()})
    assert torch.equal(module.mlp[0].bias, made(Attention).mlp[0].bias + 1)
    other = copy.deepcopy(wrapped)
    assert all(a is b for a, b in zip(other.parameters(), other.module.parameters(), strict=True))
    assert next(other.parameters()) is not next(wrapped.parameters())


class Centred(nn.Module):
    def forward(self, x):
        return torch.relu(x - x.mean(0))


@parallel([1, 3], mpi=[])
def test_a_stack_of_wrapped_modules_trains_alike_on_any_ranks(comm):
    def trained(comm):
        dgraph = spgnn.distribute(WEIGHTED, comm, dtype="float64", method="random")
        model = Stack(spgnn.wrap(made(Normed)), nn.BatchNorm1d(4), spgnn.wrap(Centred()), GCN(4, 3), dropout=0.3)
        return spgnn.train(model, dgraph, epochs=5, lr=0.05)

    history, alone = trained(comm), spgnn.run_threads(1, trained)[0]
    losses = [[record["loss"] for record in of.records] for of in (history, alone)]
    np.testing.assert_allclose(*losses, rtol=1e-10)
    assert history.bytes_predicted == history.bytes_sent and (history.bytes_sent > 0) == (comm.size > 1)


def test_a_run_of_a_family_of_wrapped_modules_is_predicted_by_the_command_on_any_ranks(tmp_path, monkeypatch):
    monkeypatch.setitem(
        FAMILIES, "normed", Family((), lambda *sizes_and_options: Stack(spgnn.wrap(made(Normed).float())))
    )
    source, folder, out = "sbm:n=60,classes=4,features=6", str(tmp_path / "run"), str(tmp_path / "p.npy")
    assert cli.main(["train", source, "--model", "normed", "--epochs", "3", "--out", folder]) == 0
    assert cli.main(["predict", folder, "--out", out]) == 0
    trained = np.load(tmp_path / "run" / "predictions.npy")
    assert np.array_equal(np.load(out), trained) and len(set(trained)) > 1
    spgnn.run_threads(3, lambda comm: spgnn.experiment.predict(folder, comm))
    assert np.array_equal(np.load(tmp_path / "run" / "predictions.npy"), trained)


class Dropped(nn.Module):
    """Dropout of rows, of rows of heads, and of edges."""

    def forward(self, x, edge_index):
        H = functional.dropout(x, 0.5, self.training)
        heads = functional.dropout(H.view(-1, 2, 3), 0.2, self.training).view(-1, 6)
        message = functional.dropout(heads[edge_index[0]], 0.5, self.training)
        return torch.zeros_like(x).index_add_(0, edge_index[1], message)


@parallel([3], mpi=[])
def test_masks_of_nodes_and_edges_are_those_of_one_rank(comm):
    def passed(comm, epoch, is_stacked):
        dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random")
        model = Stack(spgnn.wrap(Dropped())) if is_stacked else spgnn.wrap(Dropped())
        set_epoch(model, seed=1, epoch=epoch)
        return dgraph.collect(model(dgraph.A, dgraph.X).numpy())

    for is_stacked in (True, False):
        found = passed(comm, 1, is_stacked)
        np.testing.assert_allclose(found, spgnn.run_threads(1, passed, 1, is_stacked)[0], atol=1e-12)
        assert np.abs(found - passed(comm, 2, is_stacked)).max() > 0.1


class Twice(nn.Module):
    def forward(self, x, edge_index):
        ones = torch.ones_like(x)
        return functional.dropout(ones, 0.5) - functional.dropout(ones, 0.5)


class DropsEdges(nn.Module):
    """Dropout of a row for each edge, outside of any propagate."""

    def forward(self, x, edge_index):
        message = functional.dropout(x[edge_index[0]], 0.5, self.training)
        return torch.zeros_like(x).index_add_(0, edge_index[1], message)


@parallel([1, 3], mpi=[])
def test_a_rank_with_as_many_edges_as_nodes_draws_the_masks_of_the_others(comm):
    src, dst = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3, 3]), np.array([1, 2, 2, 0, 0, 3, 0, 1, 2, 4])
    graph = spgnn.graph_from_coo(src, dst, 9, X=np.arange(18.0).reshape(9, 2) + 1).with_edges("out")
    owner_N = np.array([0, 1, 1, 2, 0, 2, 2, 2, 2], np.int32)  # rank 0: nodes 0 and 4, with two edges

    def of(comm, owner_N):
        dgraph = spgnn.distribute(graph, comm, owner_N, dtype="float64", operator="none")
        return dgraph.collect(spgnn.wrap(DropsEdges())(dgraph.A, dgraph.X, seed=1, epoch=1).numpy())

    assert np.array_equal(of(comm, None if comm.size == 1 else owner_N), of(SelfCommunicator(), None))


def test_each_dropout_of_a_module_has_a_mask_of_its_own():
    dgraph = spgnn.distribute(GRAPH, dtype="float64")
    for model in (spgnn.wrap(Twice()), Stack(spgnn.wrap(Twice()), dropout=0.5)):
        assert 30 < (model(dgraph.A, dgraph.X) != 0).sum() < 150  # of 180, half of which differ


class Positions(nn.Module):
    def forward(self, x, pos, edge_index):
        return torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]] * pos[edge_index[0]])


class OwnKernel(nn.Module):
    """A module that gathers from rows by plain numbers, as a library's kernel does."""

    def forward(self, rows, places, n):
        return torch.zeros(n, rows.shape[1], dtype=rows.dtype).index_add(0, places[1], rows[places[0]])


@parallel([1, 3], mpi=[])
def test_call_adapts_modules_with_other_arguments(comm):
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random")
    A, X = GRAPH.A.toarray(), GRAPH.X
    by_position = spgnn.wrap(Positions(), call=lambda module, graph, x: module(x[:, :3], x[:, 3:], graph.edge_index))
    own = spgnn.wrap(OwnKernel(), call=lambda module, graph, x: module(graph.columns(x), graph.places, graph.num_nodes))
    for layer, expected in ((by_position, A @ (X[:, :3] * X[:, 3:])), (own, A @ X)):
        np.testing.assert_allclose(dgraph.collect(layer(dgraph.A, dgraph.X).numpy()), expected, atol=1e-12)


def refused(function):
    return type("Refused", (nn.Module,), {"forward": function})()


OF_NODES = nn.Parameter(torch.ones(30, 6))
REFUSALS = {
    "max at sources": (lambda self, x, edge_index: x.scatter_reduce_(
        0, edge_index[0].view(-1, 1).expand(-1, 6), x[edge_index[0]], "amax"), "takes amax at the node that an edge leaves"),
    "an adjacency matrix": (lambda self, x, edge_index: torch.eye(len(x))[edge_index[0], edge_index[1]], "reads a matrix at both ends"),
    "numbers of nodes": (lambda self, x, edge_index: edge_index[0] * 100 + edge_index[1], "calls (__)?mul(__)? on the numbers of nodes"),
    "target numbers": (lambda self, x, edge_index: x * edge_index[1].to(x.dtype).sum(), "calls to on the numbers of nodes"),
    "an order of ids": (lambda self, x, edge_index: edge_index[0] < edge_index[1], "calls (__)?lt(__)? on the numbers"),
    "node 0": (lambda self, x, edge_index: edge_index[0] == 0, "calls (__)?eq(__)? on the numbers"),
    "the largest id": (lambda self, x, edge_index: x / (edge_index.max() + 1), "calls .*div.* on the numbers"),
    "a count of rows": (lambda self, x, edge_index: x / x.size(0), "computes with the number of its rows"),
    "num_nodes": (lambda self, x, edge_index, num_nodes: x * num_nodes**-0.5, "computes with the number of its rows"),
    "softmax over nodes": (lambda self, x, edge_index: x.softmax(0), "calls softmax along its nodes or edges"),
    "largest message": (lambda self, x, edge_index: x[edge_index[0]].max(dim=0), "calls max along its nodes or edges"),
    "attention": (lambda self, x, edge_index: functional.scaled_dot_product_attention(x[None], x[None], x[None]), "of each row"),
    "x.T x": (lambda self, x, edge_index: x.T @ x.sin(), "calls .*matmul.* of each row with each other"),
    "einsum": (lambda self, x, edge_index: torch.einsum("nf,ng->fg", x, x), "calls einsum over its nodes or edges"),
    "layer norm of all": (lambda self, x, edge_index: functional.layer_norm(x, x.shape), "calls layer_norm along"),
    "weights of nodes": (lambda self, x, edge_index: x + OF_NODES, "calls .*add.* with a weight for each node"),
    "a number of all": (lambda self, x, edge_index: functional.mse_loss(x, x.sin()), "calls mse_loss of its nodes or edges"),
    "a sparse matrix": (lambda self, x, edge_index: torch.sparse_coo_tensor(
        edge_index, torch.ones(edge_index.size(1)), (30, 30)), "for A @ x write torch.zeros_like"),
    "RReLU": (lambda self, x, edge_index: functional.rrelu(x, training=True), "calls rrelu, whose numbers differ"),
    "a net of data": (lambda self, data, edge_index: data.x, "takes data: give call=lambda"),
    "what the module refuses": (lambda self, x, edge_index, edge_type=None: edge_type.long(), "raised AttributeError .*give call="),
    "both directions": (lambda self, x, edge_index: torch.cat([edge_index, edge_index.flip(0)], 1), "joins both rows"),
    "random numbers": (lambda self, x, edge_index: x * torch.rand_like(x), "calls rand_like, whose numbers differ between ranks"),
    "an argument": (lambda self, x, edge_index, pos: x, "needs pos, which a graph does not have: give call="),
    "no attributes": (lambda self, x, edge_index, edge_attr: x, "needs edge_attr, the graph has none"),
}  # fmt: skip


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("name", list(REFUSALS))
def test_what_has_no_meaning_on_a_part_of_the_edges_is_refused(comm, name):
    function, message = REFUSALS[name]
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random")
    with pytest.raises(UsageError, match=message):
        spgnn.wrap(refused(function))(dgraph.A, dgraph.X)


KEPT = {
    "mean": lambda self, x, edge_index: x - x.mean(0),
    "mean of messages": lambda self, x, edge_index: x * x[edge_index[0]].tanh().mean(dim=0, keepdim=True),
    "mean of all": lambda self, x, edge_index: x - x.flatten().mean(),
    "sum": lambda self, x, edge_index: x / (1 + x.sum() ** 2),
    "count": lambda self, x, edge_index: x * (x > 0).sum(0),
    "heads": lambda self, x, edge_index: (x.view(-1, 2, 3) - x.view(-1, 2, 3).mean(1, keepdim=True)).flatten(1),
    "rows of a mask": lambda self, x, edge_index: x * x[x[:, 0] > 0].mean(0),
    "products": lambda self, x, edge_index: x @ x.new_ones(6, 6) + functional.softmax(x, 1) + functional.rrelu(x),
    "own loops": lambda self, x, edge_index: torch.zeros(x.size(0), 6, dtype=x.dtype).index_add_(
        0, torch.cat([edge_index[1], torch.arange(x.size(0))]), torch.cat([x[edge_index[0]], x])),
    "int32": lambda self, x, edge_index: torch.zeros_like(x).index_add_(
        0, edge_index.to(torch.int32)[1], x[edge_index.int()[0]]),
    "checks": lambda self, x, edge_index: x if x.isfinite().all() and int(edge_index.max()) < 30 else None,
}  # fmt: skip


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("name", list(KEPT))
def test_sums_and_means_of_rows_are_those_of_all_ranks_and_rows_alone_stay(comm, name):
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random", keep=False)
    A, whole, own = GRAPH.A.tocoo(), torch.tensor(GRAPH.X).requires_grad_(), dgraph.X.clone().requires_grad_()
    expected = refused(KEPT[name])(whole, torch.tensor(np.stack([A.col, A.row])).long())
    Z = spgnn.wrap(refused(KEPT[name]))(dgraph.A, own)
    for rows, ids in ((expected, torch.arange(30)), (Z, torch.tensor(dgraph.A.node_n))):
        loss_of(rows, ids).backward()
    np.testing.assert_allclose(dgraph.collect(Z.detach().numpy()), expected.detach(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dgraph.collect(own.grad.numpy()), whole.grad, rtol=1e-9, atol=1e-12)


@parallel([1, 2], mpi=[])
def test_an_output_without_a_row_for_each_own_node_is_refused(comm):
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random")
    wrong = {"1": lambda self, x, edge_index: x.sum(0), "2": lambda self, x, edge_index: (x, x)}
    for function in wrong.values():
        with pytest.raises(ShapeError, match=r"Refused returned .*; expected \(\d+, C\), a row for each own node"):
            spgnn.wrap(refused(function))(dgraph.A, dgraph.X)
    with pytest.raises(ShapeError, match="reads or writes 31 rows by its edge_index"):
        number = lambda self, x, edge_index: x.new_zeros(31, 6).index_add_(0, edge_index[1], x[edge_index[0]])
        spgnn.wrap(refused(number))(dgraph.A, dgraph.X)


@parallel([4], mpi=[])
def test_replication_is_refused(comm):
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", replication=2)
    with pytest.raises(UsageError, match="need replication = 1"):
        spgnn.wrap(made(Normed))(dgraph.A, dgraph.X)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_modules_that_need_all_rows_are_refused_with_their_reason():
    SuperGATConv = type("SuperGATConv", (nn.Module,), {})
    net = nn.Sequential(nn.Linear(2, 2), SuperGATConv())
    with pytest.raises(UsageError, match="1, a SuperGATConv, cannot be wrapped: it draws edges or nodes"):
        spgnn.wrap(net)
    for made, message in (
        (torch.compile(nn.Linear(2, 2)), "compiled: give the module"),
        (torch.jit.script(net[0]), "scripted"),
    ):
        with pytest.raises(UsageError, match=message):
            spgnn.wrap(made)
    with pytest.raises(UsageError, match="has weights without a shape: give in_channels, not -1"):
        spgnn.wrap(nn.LazyLinear(3))
    with pytest.raises(UsageError, match="wrap got a str; expected a torch.nn.Module"):
        spgnn.wrap("GCN")
