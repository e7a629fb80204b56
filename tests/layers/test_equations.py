"""Layers of each family are the equations of their papers, written out densely."""

import numpy as np
import pytest
import torch
from dense_model import dense_operator_of
from graphs import dense_operator, random_graph

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import APPNP, GCN, GCNII, GIN, MLP, NGNN, SAGE, SGC, MixHop, Stack
from spgnn.layers.registry import ModelSpec

GRAPH = random_graph(n=20, edges=60, use="directed", weighted=True)
A = dense_operator_of(GRAPH, "gcn")
X = torch.tensor(GRAPH.X)


def matrix(how):
    return torch.from_numpy(dense_operator(GRAPH, how))


def run(layer):
    """The layer on X in a Stack, with biases that are not zero."""
    stack = Stack(layer).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.ndim < 2:
                parameter.add_(torch.linspace(0.1, 0.5, parameter.numel()).view(parameter.shape))
        return stack(A, X)


def near(ours, expected):
    torch.testing.assert_close(ours, expected.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("aggregator, how", [("mean", "row"), ("sum", "none"), ("gcn", "row_loops")])
def test_sage_adds_a_nodes_own_row_and_its_neighbours(aggregator, how):
    layer = SAGE(6, 5, aggregator, act="relu")
    Z = run(layer)
    own = 0 if aggregator == "gcn" else X @ layer.W_s
    near(Z, torch.relu(own + matrix(how) @ X @ layer.W_n + layer.b_C))


@pytest.mark.parametrize("pool", [None, 3, 0])
def test_sage_takes_the_largest_entries_of_pooled_neighbours(pool):
    layer = SAGE(6, 5, "max", pool=pool)
    Z = run(layer)
    P = X if pool == 0 else torch.relu(X @ layer.W_FP + layer.b_P)
    largest = torch.stack([P[row].amax(0) if row.any() else torch.zeros_like(P[0]) for row in matrix("none") != 0])
    near(Z, X @ layer.W_s + largest @ layer.W_n + layer.b_C)


def test_the_mean_of_neighbours_is_over_their_number_or_weight():
    layer = SAGE(6, 5, bias=False)
    Z, i = run(layer), 3
    weights = GRAPH.A.toarray()[i]
    mean = torch.from_numpy(np.average(GRAPH.X, axis=0, weights=weights))
    near(Z[i], X[i] @ layer.W_s + mean @ layer.W_n)
    alone = int(np.flatnonzero(GRAPH.A.toarray().sum(1) == 0)[0])
    near(Z[alone], X[alone] @ layer.W_s)


def test_sage_puts_both_side_by_side_and_the_norm_sees_the_whole_row():
    layer = SAGE(6, 5, combine="cat", norm="layer", act="elu")
    Z = run(layer)
    assert (layer.W_s.shape, layer.W_n.shape) == ((6, 3), (6, 2))
    joined = torch.cat([X @ layer.W_s, matrix("row") @ X @ layer.W_n], dim=1) + layer.b_C
    near(Z, torch.nn.functional.elu(layer.norm(joined)))


@pytest.mark.parametrize("hidden", [None, 4, 9])
def test_gin_is_an_mlp_of_the_sum(hidden):
    layer = GIN(6, 5, hidden=hidden, eps=0.25, act="tanh")
    Z = run(layer)
    summed = 1.25 * X + matrix("none") @ X
    near(Z, torch.tanh(torch.relu(summed @ layer.W_1 + layer.b_1) @ layer.W_2 + layer.b_C))


def test_eps_is_a_weight_where_it_is_trained_and_starts_anew():
    layer = GIN(6, 5, eps=0.25, train_eps=True)
    assert [name for name, _ in layer.named_parameters() if name == "eps"] and not isinstance(
        GIN(6, 5).eps, torch.nn.Parameter
    )
    layer.eps.data.fill_(7)
    layer.initialise(torch.Generator().manual_seed(0))
    assert float(layer.eps.detach()) == 0.25


def test_ngnn_has_dense_layers_after_its_layer():
    layer = NGNN(GCN(6, 5), depth=2, act="tanh")
    Z = run(layer)
    inner = A.A @ X @ layer.layer.W_FC + layer.layer.b_C
    near(Z, torch.tanh(torch.tanh(inner @ layer.W[0] + layer.b[0]) @ layer.W[1] + layer.b[1]))


def test_mlp_has_an_activation_between_its_products():
    layer = MLP(6, 3, hidden=(5, 4), residual=True)
    Z = run(layer)
    H = torch.relu(torch.relu(X @ layer.W[0] + layer.b[0]) @ layer.W[1] + layer.b[1])
    near(Z, H @ layer.W[2] + layer.b_C)
    assert [tuple(W.shape) for W in layer.W] == [(6, 5), (5, 4), (4, 3)]


@pytest.mark.parametrize("powers", [1, 2, 4])
def test_sgc_multiplies_with_a_power_of_a(powers):
    layer = SGC(6, 4, powers)
    near(run(layer), torch.linalg.matrix_power(A.A, powers) @ X @ layer.W_FC + layer.b_C)


def test_appnp_is_personalised_pagerank():
    Z = run(APPNP(6, powers=400, teleport=0.3))
    closed = 0.3 * torch.linalg.inv(torch.eye(20).double() - 0.7 * A.A)  # eq. (3), the limit
    torch.testing.assert_close(Z, closed @ X, rtol=1e-10, atol=1e-10)
    near(run(APPNP(6, powers=1, teleport=0.3)), 0.7 * A.A @ X + 0.3 * X)


def test_gcnii_adds_its_input_and_keeps_the_identity():
    layer = GCNII(6, depth=2, alpha=0.2, theta=0.5)
    Z, H = run(layer), X
    for l in (1, 2):
        b = np.log(0.5 / l + 1)
        H = torch.relu((0.8 * A.A @ H + 0.2 * X) @ ((1 - b) * torch.eye(6).double() + b * layer.W[l - 1]))
    near(Z, H)


@pytest.mark.parametrize("powers", [(0, 1, 2), (1, 3), (0, 2), (2,)])
@pytest.mark.parametrize("combine, f_out, end", [
    ("cat", 8, {"act": "tanh"}), ("sum", 8, {"act": "tanh"}), ("sum", 6, {"residual": True})])  # fmt: skip
def test_mixhop_has_weights_for_each_power_of_a(powers, combine, f_out, end):
    layer = MixHop(6, f_out, powers, combine, **end)
    Z = run(layer)
    parts = [torch.linalg.matrix_power(A.A, j) @ X @ W for j, W in zip(powers, layer.W)]
    Z_before = (torch.cat(parts, dim=1) if combine == "cat" else sum(parts)) + layer.b_C
    near(Z, torch.tanh(Z_before) if "act" in end else Z_before + X)
    assert [W.shape[1] for W in MixHop(6, 16).W] == [6, 5, 5]


@pytest.mark.parametrize("layer", [APPNP(6), GCNII(6)])
def test_layers_that_keep_the_width_refuse_sparse_rows(layer):
    dgraph = distribute(random_graph(n=20, sparse=True), SelfCommunicator())
    with pytest.raises(
        UsageError, match=f"{type(layer).__name__} reads dense rows, but X is sparse: put an MLP before"
    ):
        Stack(layer)(dgraph.A, dgraph.X)


@pytest.mark.parametrize("jump", ["cat", "max"])
def test_the_last_layer_reads_all_layers_before_it(jump):
    model = Stack(GCN(6, 4, act="relu"), GCN(4, 4), MLP(8 if jump == "cat" else 4, 3), jump=jump).double().eval()
    one = model.layers[0](A, X)
    outputs = [one, model.layers[1](A, one)]
    joined = torch.cat(outputs, dim=1) if jump == "cat" else torch.maximum(*outputs)
    near(model(A, X), model.layers[2](A, joined))
    near(model.embed(A, X), joined)


def test_weights_of_every_family_are_drawn_from_the_seed_alone():
    make = lambda: Stack(SAGE(6, 5, combine="cat"), GIN(5, 4, train_eps=True), NGNN(GCN(4, 4)), MLP(4, 3, (5,)))
    one, two = make(), make()
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters()))
    two.initialise(1)
    changed = {name for (name, p), q in zip(one.named_parameters(), two.parameters()) if not torch.equal(p, q)}
    assert changed == {name for name, p in one.named_parameters() if p.ndim == 2}


def built(**options):
    """Kind, f_in and f_out of the layers that options make, and the model."""
    model = ModelSpec.of(TrainConfig(**options), 6, 4).build()
    return [(type(layer).__name__, layer.f_in, layer.f_out) for layer in model.layers], model


HIDDEN = [("gcn", "GCN", "GCN"), ("sage", "SAGE", "SAGE"), ("gin", "GIN", "GIN"), ("ngnn", "NGNN", "GCN")]


@pytest.mark.parametrize("name, kind, last", HIDDEN)
def test_options_make_hidden_layers_and_a_last_one(name, kind, last):
    layers, model = built(model=name, hidden=5, layers=3, act="elu", dropout=0.2, input_dropout=False)
    assert layers == [(kind, 6, 5), (kind, 5, 5), (last, 5, 4)]
    assert [layer.act_name for layer in model.layers] == ["elu", "elu", "none"]
    assert (model.dropout, model.input_dropout, model.jump) == (0.2, False, None)
    joined, model = built(model=name, hidden=5, layers=3, jump="cat")
    assert joined[-1] == (last, 10, 4) and model.jump == "cat"
    joined, _ = built(model=name, hidden=5, layers=2, jump="max", classifier=True, bias=False)
    assert joined == [(kind, 6, 5), (kind, 5, 5), ("MLP", 5, 4)]


@pytest.mark.parametrize("options, layers, facts", [
    (dict(model="sage", hidden=6, aggregator="sum", combine="cat", norm="layer", residual=True),
     [("SAGE", 6, 6), ("SAGE", 6, 4)], [dict(aggregator="sum", combine="cat", residual=True), dict(combine="add", norm=None)]),
    (dict(model="mlp", hidden=5, layers=3), [("MLP", 6, 5), ("MLP", 5, 5), ("MLP", 5, 4)], []),
    (dict(model="mixhop", hidden=7, layers=2, powers=3), [("MixHop", 6, 7), ("MixHop", 7, 4)],
     [dict(powers=(0, 1, 2, 3), combine="cat"), dict(powers=(0, 1, 2, 3), combine="sum")]),
    (dict(model="mixhop", hidden=7), [("MixHop", 6, 7), ("MixHop", 7, 4)], [dict(powers=(0, 1, 2))]),
    (dict(model="sgc", layers=3), [("SGC", 6, 4)], [dict(powers=3)]),
    (dict(model="sgc", layers=3, powers=2), [("SGC", 6, 4)], [dict(powers=2)]),
    (dict(model="appnp", hidden=5, layers=2, teleport=0.2, dropout=0.5), [("MLP", 6, 5), ("MLP", 5, 4), ("APPNP", 4, 4)],
     [{}, {}, dict(powers=10, teleport=0.2)]),
    (dict(model="gcnii", hidden=5, layers=6, teleport=0.2, dropout=0.5), [("MLP", 6, 5), ("GCNII", 5, 5), ("MLP", 5, 4)],
     [{}, dict(hops=6, alpha=0.2, theta=0.5, dropout=0.5)]),
])  # fmt: skip
def test_options_of_a_family_reach_its_layers(options, layers, facts):
    found, model = built(**options)
    assert found == layers
    assert all(getattr(layer, name) == value for layer, of in zip(model.layers, facts) for name, value in of.items())


@pytest.mark.parametrize("make, error, message", [
    (lambda: SAGE(6, 4, "median"), UsageError, "aggregator = 'median' is not known"),
    (lambda: SAGE(6, 4, combine="concat"), UsageError, "combine = 'concat' is not known; did you mean 'cat'"),
    (lambda: SAGE(6, 4, "gcn", combine="cat"), UsageError, "gcn has no product of its own rows; use combine = add"),
    (lambda: SAGE(6, 1, combine="cat"), UsageError, "f_out = 1 has no halves"),
    (lambda: SAGE(6, 4, pool=3), UsageError, "pool = 3 is an option of aggregator = max"),
    (lambda: SGC(6, 4, powers=0), UsageError, "powers"),
    (lambda: APPNP(6, teleport=1.5), UsageError, "teleport = 1.5; expected a number from 0 to 1"),
    (lambda: GCNII(6, theta=-1.0), UsageError, "theta = -1.0; expected"),
    (lambda: MixHop(6, 2), UsageError, "f_out = 2 has no column for each of the 3 powers; use combine = sum"),
    (lambda: MixHop(6, 4, (2, 1)), UsageError, "different exponents, ascending"),
    (lambda: MixHop(6, 4, (0,)), UsageError, "up to 1 or more"),
    (lambda: NGNN(GCN(6, 4), depth=0), UsageError, "depth"),
    (lambda: MLP(6, 4, dropout=1.0), UsageError, "dropout = 1.0; expected"),
    (lambda: MLP(6, 4, hidden=(0,)), UsageError, "hidden"),
    (lambda: GIN(6, 4, hidden=0), UsageError, "hidden"),
    (lambda: Stack(GCN(6, 4), GCN(5, 2)), ShapeError, "layer 2 reads 5 columns, layer 1 writes 4"),
    (lambda: Stack(GCN(6, 4), GCN(4, 3), jump="sum"), UsageError, "jump = 'sum' is not known"),
    (lambda: Stack(GCN(6, 4), GCN(4, 5), MLP(5, 3), jump="max"), ShapeError, "jump = max needs layers of one width; got 4, 5"),
    (lambda: Stack(GCN(6, 4), GCN(4, 5), MLP(5, 3), jump="cat"), ShapeError, "layer 3 reads 5 columns, with jump = cat the layers before it write 9"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
