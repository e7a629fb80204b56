"""explain tells what the training then does: rows, order, bytes."""

import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn import train
from spgnn.analysis import measure
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph
from spgnn.training import explain


def graph_with_few_labels():
    return random_graph(n=60, edges=90, use="undirected", train_every=20)


def stack():
    return Stack(GCN(6, 9, act="relu"), GCN(9, 3))


def bytes_of(told):
    return sum(layer["bytes_forward"] + layer["bytes_backward"] for layer in told.layers)


@parallel([1, 2, 4], mpi=[4])
@pytest.mark.parametrize("scheme", ["auto", "cover", "columns"])
def test_its_bytes_are_those_that_are_sent_and_its_rows_those_of_measure(comm, scheme):
    graph = graph_with_few_labels()
    part = part_graph(graph, comm.size, method="random")
    # An operator that adds no self-loops.
    dgraph = distribute(graph, comm, part, scheme=scheme, operator="none", dtype=torch.float64)
    told = explain(stack(), dgraph)
    history = train(stack(), dgraph, epochs=2)
    assert bytes_of(told) == history.bytes_sent == history.bytes_predicted
    report = measure(graph, part, dgraph.scheme, (6, 9, 3), itemsize=8, train_N=(graph.split == 0) & (graph.y >= 0))
    assert [l["rows"] for l in told.layers] == [l.rows for l in report.layers]
    assert [l["order"] for l in told.layers] == [l.order for l in report.layers]
    assert [l["multiply_adds"] for l in told.layers] == [l.multiply_adds for l in report.layers]
    assert told.layers[0]["kept"] and "training node" in str(told) and "because" in str(told)


FROZEN = {
    "first layers": ((6, 9, 9, 3), lambda name, p: name[7] in "01"),
    "all but the vectors": ((6, 9, 9, 3), lambda name, p: p.ndim > 1),
    "all but the vectors, X W first": ((6, 2, 9, 3), lambda name, p: p.ndim > 1),
    "all but a bias": ((6, 9, 9, 3), lambda name, p: name != "layers.1.b_C"),
}


@parallel([1, 4], mpi=[4])
@pytest.mark.parametrize("which", sorted(FROZEN))
@pytest.mark.parametrize("keep", [True, False])
def test_the_backward_exchanges_that_frozen_weights_do_not_ask_for_are_not_predicted(comm, which, keep):
    widths, is_frozen = FROZEN[which]
    dgraph = distribute(
        random_graph(n=60, use="undirected"), comm, method="random", replication=comm.size // 2 or 1, keep=keep
    )
    model = Stack(*[GCN(f, c, norm="layer") for f, c in zip(widths, widths[1:])])
    everything = explain(model, dgraph)
    for name, p in model.named_parameters():
        p.requires_grad_(not is_frozen(name, p))
    told = explain(model, dgraph)
    history = train(model, dgraph, epochs=1)
    assert bytes_of(told) == history.bytes_sent == history.bytes_predicted
    assert sum(l["multiply_adds"] for l in told.layers) < sum(l["multiply_adds"] for l in everything.layers)


def test_it_says_why_rows_are_not_pruned_and_why_a_product_is_not_kept():
    graph = random_graph(use="undirected")
    told = explain(stack(), distribute(graph, SelfCommunicator()))
    assert told.rows.startswith("all rows") and told.layers[0]["why"].startswith("A X is fixed")
    dropped = Stack(GCN(6, 9, act="relu"), GCN(9, 3), dropout=0.5)
    told = explain(dropped, distribute(graph, SelfCommunicator()), prune="never")
    assert not told.layers[0]["kept"] and told.rows == "all rows: prune = never"
    assert "X changes by dropout alone" in told.layers[0]["why"]
    told = explain(stack(), distribute(graph, SelfCommunicator(), keep=False))
    assert "X may change" in told.layers[0]["why"]


def test_auto_prunes_where_few_nodes_train_and_does_not_where_most_do():
    few = graph_with_few_labels()
    assert explain(stack(), distribute(few, SelfCommunicator())).layers[-1]["rows"] == int(
        ((few.split == 0) & (few.y >= 0)).sum()
    )
    most = random_graph(n=60, edges=300, use="undirected", train_every=1)
    assert explain(stack(), distribute(most, SelfCommunicator())).layers[-1]["rows"] == 60


class Own(Layer):
    def forward(self, A, H_nF):
        return A @ H_nF


class LooksAtValues(Layer):
    def forward(self, A, H_nF):
        return A @ H_nF if H_nF.sum() > 0 else H_nF


def test_custom_layers_are_explained_by_the_products_that_they_make_and_not_pruned():
    graph = random_graph(use="undirected")
    model = lambda: Stack(GCN(6, 5), Own(5, 5), GCN(5, 3))
    told = explain(model(), distribute(graph, SelfCommunicator()))
    own = told.layers[1]
    assert (own["order"], own["f_in"], own["width"], own["kept"]) == (None, None, 5, False)
    assert "layer 2: A H, because as its forward multiplies: 1 x forward of width 5" in str(told)
    with pytest.raises(UsageError, match="prune = always"):
        train(model(), distribute(graph, SelfCommunicator()), prune="always")


@parallel([1, 3], mpi=[])
def test_a_model_that_looks_at_values_is_trained_and_explain_says_why_its_bytes_are_not_predicted(comm):
    dgraph = distribute(random_graph(use="undirected"), comm, method="random")
    model = lambda: Stack(LooksAtValues(6, 6), GCN(6, 3))
    told = explain(model(), dgraph)
    assert told.layers == [] and "bytes    not predicted: Stack cannot run without data" in str(told)
    history = train(model(), dgraph, epochs=1)
    assert history.bytes_predicted is None and len(history.records) == 1


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("place", ["model", "first layer"])
def test_what_a_hook_makes_of_x_is_multiplied_in_every_step_and_its_bytes_are_predicted(comm, place):
    losses = []
    for keep in (True, False):
        dgraph, model = (
            distribute(graph_with_few_labels(), comm, method="random", dtype=torch.float64, keep=keep),
            stack(),
        )
        (model if place == "model" else model.layers[0]).register_forward_pre_hook(
            lambda module, given: (given[0], torch.tanh(given[1]))
        )
        history = train(model, dgraph, epochs=2)
        losses.append([record["loss"] for record in history.records])
        assert history.bytes_predicted == history.bytes_sent and (history.bytes_sent > 0) == (comm.size > 1)
    assert losses[0] == losses[1]


@parallel([1, 3], mpi=[4])
def test_steps_with_the_gradient_of_x_take_all_rows_and_its_exchange_is_predicted(comm):
    dgraph = distribute(graph_with_few_labels(), comm, method="random", dtype=torch.float64, keep=False)
    dgraph.X.requires_grad_()
    train(stack(), dgraph, epochs=1, prune="never")
    expected, dgraph.X.grad = dgraph.X.grad, None
    told = explain(stack(), dgraph)
    history = train(stack(), dgraph, epochs=1)
    assert told.rows == "all rows: X requires a gradient" and torch.equal(dgraph.X.grad, expected)
    assert bytes_of(told) == history.bytes_sent == history.bytes_predicted
    train(stack(), dgraph, epochs=2)
    with pytest.raises(UsageError, match="X requires a gradient"):
        train(stack(), dgraph, epochs=1, prune="always")


@parallel([2], mpi=[])
@pytest.mark.parametrize("place", ["before layer 2", "after layer 1", "after the model"])
def test_what_a_hook_makes_of_own_rows_has_all_of_them_and_no_bytes_are_predicted(comm, place):
    # Of this graph rows are left out without the hook.
    dgraph = distribute(graph_with_few_labels(), comm, method="random", dtype=torch.float64)
    model, seen = Stack(GCN(6, 4, act="relu"), GCN(4, 8, act="relu"), GCN(8, 3)), []
    look = lambda H_nF: seen.append(len(H_nF)) or H_nF + torch.from_numpy(dgraph.node_n % 3)[:, None]
    if place == "before layer 2":
        model.layers[1].register_forward_pre_hook(lambda module, given: (given[0], look(given[1])))
    else:
        (model.layers[0] if place == "after layer 1" else model).register_forward_hook(lambda module, given, H: look(H))
    history = train(model, dgraph, epochs=1)
    assert set(seen) == {len(dgraph.node_n)} and history.bytes_predicted is None
