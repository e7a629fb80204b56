"""Many snapshots on one graph: losses, gradients, scores and rollouts on ranks are those of dense float64 models of each."""

import numpy as np
import pytest
import torch
from dense_model import dense_operator_of, make, relative
from graphs import random_graph
from worlds import parallel

import spgnn
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import Fields, distribute
from spgnn.errors import ShapeError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.layers import GAT, GCN, GIN, GINE, SAGE, Stack
from spgnn.spmm.operator.batched import Batched
from spgnn.training.trainer import make_trainer

S, F, C = 5, 6, 3
GRAPH = random_graph(n=40, edges=200, weighted=True)
RNG = np.random.default_rng(7)
X = RNG.standard_normal((S, 40, F)) * 3 + 10
Y = RNG.standard_normal((S, 40, C)) * 10.0 ** np.arange(C)
Y[RNG.random(Y.shape) < 0.1] = np.nan
WEIGHTS = RNG.random(40) * (RNG.random(40) > 0.2)
SPLIT = np.array([0, 0, 0, 1, 2], np.int8)


def fields_of(comm, on="nodes", weights=WEIGHTS, operator="gcn", scheme="columns", **options):
    dgraph = distribute(GRAPH, comm, dtype="float64", operator=operator, scheme=scheme, method="random", keep=False)
    return Fields(dgraph, X, Y, weights=weights, split=SPLIT, **options)


def dense(model, snapshots, weights, units=True):
    """Loss, gradients and outputs of one update on some snapshots, each computed by itself."""
    w = np.broadcast_to((np.ones(40) if weights is None else weights)[None, :, None], Y.shape) * ~np.isnan(Y)
    train, filled = SPLIT == 0, np.nan_to_num(Y)
    mean = (w * filled)[train].sum((0, 1)) / w[train].sum((0, 1))
    deviation = np.sqrt((w * (filled - mean) ** 2)[train].sum((0, 1)) / w[train].sum((0, 1)))
    mean_x, deviation_x = X[train].mean((0, 1)), X[train].std((0, 1))
    A, model = dense_operator_of(GRAPH, "gcn"), model.double()
    t = torch.tensor
    Z = [model(A, t((X[s] - mean_x) / deviation_x)) * t(deviation) + t(mean) for s in snapshots]
    losses = [(t(w[s]) * ((z - t(filled[s])) / t(deviation)) ** 2).sum() for s, z in zip(snapshots, Z)]
    loss = sum(losses) / w[list(snapshots)].sum()
    loss.backward()
    return float(loss.detach()), [p.grad.numpy() for p in model.parameters()], [z.detach().numpy() for z in Z]


@parallel([1, 2, 3], mpi=[3])
@pytest.mark.parametrize("scheme, weights", [("columns", WEIGHTS), ("cover", None)], ids=["weighted", "cover"])
def test_an_update_on_snapshots_is_that_of_dense_models_of_each(comm, scheme, weights):
    fields = fields_of(comm, weights=weights, scheme=scheme)
    model = make("wide", c=C)
    trainer = make_trainer(model, fields, batch=3, lr=0.0, optimizer="sgd")
    loss = trainer.step(1)
    expected, gradients, Z = dense(make("wide", c=C), [0, 1, 2], weights)
    assert abs(loss - expected) <= 1e-10 * expected
    for parameter, gradient in zip(model.parameters(), gradients):
        assert relative(parameter.grad.numpy(), gradient) <= 1e-10
    history = make_trainer(make("wide", c=C), fields, batch=2, epochs=1, lr=0.0, optimizer="sgd").fit()
    _, _, Z = dense(make("wide", c=C), range(S), weights)
    w = (np.ones(40) if weights is None else weights)[:, None] * ~np.isnan(Y)
    for name, chosen in (("train", [0, 1, 2]), ("val", [3]), ("test", [4])):
        E, y, k = (np.nan_to_num(np.stack(of)) for of in ([Z[s] - Y[s] for s in chosen], Y[chosen], w[chosen]))
        assert history.scores[name]["mae"] == pytest.approx((k * abs(E)).sum() / k.sum(), rel=1e-10)
        relative_l2 = np.sqrt((k * E**2).sum() / (k * y**2).sum())
        assert history.scores[name]["relative_l2"] == pytest.approx(relative_l2, rel=1e-10)
        mean = (k * y).sum((0, 1)) / k.sum((0, 1))
        r2 = 1 - (k * E**2).sum((0, 1)) / (k * (y - mean) ** 2).sum((0, 1))
        assert history.scores[name]["r2"] == pytest.approx(r2.mean(), rel=1e-9)
    assert history.bytes_predicted == history.bytes_sent
    assert relative(trainer.steps.scorer.predictions(), np.stack(Z)) <= 1e-10


LAYERS = {
    "gcn": lambda: Stack(GCN(F, 8, act="relu"), GCN(8, C)),
    "sage": lambda: Stack(SAGE(F, 8, act="relu"), SAGE(8, C, aggregator="max")),
    "gin": lambda: Stack(GIN(F, 8), GCN(8, C)),
    "gat": lambda: Stack(GAT(F, 8, heads=2), GAT(8, C, heads=1, attention="v2")),
}


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_makes_of_snapshots_together_what_it_makes_of_each(comm, name):
    dgraph = distribute(GRAPH, comm, dtype="float64", method="random", keep=False)
    model, A = LAYERS[name]().double(), Batched(dgraph.A, 3)
    model.initialise(1)
    own = [torch.tensor(X[s][dgraph.node_n], requires_grad=True) for s in range(3)]
    apart = [model(dgraph.A, H) for H in own]
    sum(Z.square().sum() for Z in apart).backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    H = torch.stack([H.detach() for H in own], dim=1).reshape(-1, F).requires_grad_()
    Z = model(A, H)
    Z.square().sum().backward()
    together = Z.detach().reshape(-1, 3, C).transpose(0, 1)
    for z, one in zip(together, apart):
        assert torch.allclose(z, one, rtol=1e-10, atol=1e-12)
    for parameter, gradient in zip(model.parameters(), expected):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-9, atol=1e-10)
    for b, one in enumerate(own):
        assert torch.allclose(H.grad.reshape(-1, 3, F)[:, b], one.grad, rtol=1e-9, atol=1e-10)


def test_a_training_with_dropout_is_one_on_any_ranks_and_moves_its_rows_in_one_exchange_per_product():
    def losses(comm):
        model = Stack(GCN(F, 8, act="tanh"), GCN(8, C), dropout=0.2)
        history = spgnn.train(model, fields_of(comm), batch=2, epochs=6, loss="huber", metric="mae")
        return [record["loss"] for record in history.records] + [history.val, history.test], history.metric

    one, metric = losses(SelfCommunicator())
    assert metric == "mae"
    for size in (2, 3):
        for found, _ in run_threads(size, losses):
            assert relative(np.array(found), np.array(one)) < 1e-10


@parallel([1, 2, 3], mpi=[])
def test_a_rollout_applies_the_model_to_its_own_states(comm):
    dgraph = distribute(GRAPH, comm, dtype="float64", method="random")
    truth = RNG_TRUTH
    model = Stack(GCN(F, 8, act="tanh"), GCN(8, F)).double()
    found = spgnn.rollout(model, dgraph, X[0], 3, truth)
    A, x, states = dense_operator_of(GRAPH, "gcn"), torch.tensor(X[0]), []
    with torch.no_grad():
        for _ in range(3):
            x = model.eval()(A, x)
            states.append(x.numpy())
    assert relative(found.states, np.stack(states)) < 1e-10
    errors = [np.linalg.norm(x - y) / np.linalg.norm(y) for x, y in zip(states, truth)]
    assert np.allclose(found.error_T, errors, rtol=1e-10)
    assert spgnn.rollout(model, dgraph, X[0], 1).error_T is None


RNG_TRUTH = np.random.default_rng(3).standard_normal((4, 40, F))


def test_files_are_snapshots_and_a_model_keeps_the_units_of_both_ends(tmp_path):
    files = {name: [tmp_path / f"{name}{s}.npy" for s in range(S)] for name in ("x", "y")}
    for name, of in (("x", X), ("y", Y)):
        for path, values in zip(files[name], of):
            np.save(path, values)
    dgraph = distribute(GRAPH, dtype="float64")
    fields = Fields(dgraph, files["x"], files["y"], split=SPLIT)
    model = Stack(GCN(F, 8, act="tanh"), GCN(8, C))
    history = spgnn.train(model, fields, batch=2, epochs=3)
    same = spgnn.train(Stack(GCN(F, 8, act="tanh"), GCN(8, C)), Fields(dgraph, X, Y, split=SPLIT), batch=2, epochs=3)
    assert [r["loss"] for r in history.records] == [r["loss"] for r in same.records]
    assert np.allclose(model.inputs.mean_C, X[:3].mean((0, 1)), rtol=1e-12)
    other = Stack(GCN(F, 8, act="tanh"), GCN(8, C)).double()
    other.load_state_dict(model.state_dict())
    H = torch.tensor(X[4])
    assert torch.equal(other.eval()(dgraph.A, H), model.eval()(dgraph.A, H))


def test_edges_have_targets_in_the_order_of_their_list():
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 20, (2, 60))
    graph = spgnn.graph_from_coo(src, dst, 20, edge_attr=rng.standard_normal((60, 2))).with_edges("directed")
    x, y = rng.standard_normal((3, 20, F)), rng.standard_normal((3, 60, 2))

    class Ends(torch.nn.Module):
        """W [H_i, H_j] + E_ij of each edge."""

        def __init__(self):
            super().__init__()
            self.W = torch.nn.Parameter(torch.linspace(-1, 1, 2 * F * 2, dtype=torch.float64).reshape(2, F, 2))

        def forward(self, A, X):
            A = A.at(1, True, "none")
            return A.on_edges(X @ self.W[0], X @ self.W[1], A.edges)

    W = Ends().W.detach().numpy()
    Z = x[:, src] @ W[0] + x[:, dst] @ W[1] + graph.edge_attr[np.argsort(graph.edge_ids)]
    deviation = y[:2].reshape(-1, 2).std(0)
    expected = (((Z - y) / deviation)[:2] ** 2).mean()

    def found(comm):
        dgraph = distribute(graph, comm, dtype="float64", operator="none", method="random")
        trainer = make_trainer(
            Ends(), Fields(dgraph, x, y, on="edges", split=[0, 0, 2]), batch=2, lr=0.0, optimizer="sgd"
        )
        loss = trainer.step(1)
        return loss, trainer.steps.scorer.predictions()

    for loss, Z_SLC in [found(SelfCommunicator()), *run_threads(3, found)]:
        assert loss == pytest.approx(expected, rel=1e-10) and relative(Z_SLC, Z) < 1e-10


def test_what_does_not_fit_is_named():
    dgraph = distribute(GRAPH, dtype="float64")
    with pytest.raises(
        ShapeError, match=r"y: snapshot 0 is float64 of shape \(39, 3\); expected numbers of shape \(40, 3\)"
    ):
        Fields(dgraph, X, Y[:, 1:])
    with pytest.raises(ShapeError, match="X has 5 snapshots and y 4"):
        Fields(dgraph, X, Y[1:])
    with pytest.raises(UsageError, match="split = .*; expected 5 of 0 train"):
        Fields(dgraph, X, Y, split=[1, 1, 1, 2, 2])
    with pytest.raises(ShapeError, match=r"weights have shape \(3,\)"):
        Fields(dgraph, X, Y, weights=np.ones(3))
    with pytest.raises(ShapeError, match="the model returns 4 columns, the targets have 3; the last layer"):
        spgnn.train(Stack(GCN(F, 4)), Fields(dgraph, X, Y), epochs=1)
    with pytest.raises(ShapeError, match="a rollout needs its input's"):
        spgnn.rollout(Stack(GCN(F, 4)).double(), dgraph, X[0], 1)
    with pytest.raises(UsageError, match="class_weights is not used with Fields"):
        spgnn.train(Stack(GCN(F, C)), Fields(dgraph, X, Y), class_weights="balanced")
    with pytest.raises(UsageError, match="out = .* is not used with Fields"):
        spgnn.train(Stack(GCN(F, C)), Fields(dgraph, X, Y), out="auto")


@parallel([3])
def test_bytes_of_layers_on_edges_are_predicted(comm):
    src, dst = np.random.default_rng(0).integers(0, 40, (2, 200))
    graph = graph_from_coo(src, dst, 40, edge_attr=np.random.default_rng(1).normal(size=(200, 2))).with_edges("in")
    dgraph = distribute(graph, comm, operator="none", method="random")
    model = Stack(GINE(F, 8, 2, act="relu"), GINE(8, C, 2))
    history = make_trainer(model, Fields(dgraph, X, Y, split=[0, 0, 0, 1, 2]), batch=2, epochs=1).fit()
    assert history.bytes_predicted == history.bytes_sent > 0
