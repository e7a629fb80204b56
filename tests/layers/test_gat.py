"""GAT sends no ghost rows of a fixed X, and what is predicted; other laws are in test_exact."""

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from worlds import parallel

from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GAT, SAGE, Stack

MODELS = {
    "v1": lambda: Stack(GAT(6, 8, 4, act="elu"), GAT(8, 3, 2, merge="mean")),
    "v2": lambda: Stack(GAT(6, 8, 4, "v2", act="elu"), GAT(8, 3, 2, "v2", "mean", bias=False)),
    "dropout": lambda: Stack(GAT(6, 8, 4, dropout=0.4), GAT(8, 3, 1, dropout=0.4), dropout=0.3),
    "dropout, v2": lambda: Stack(GAT(6, 8, 4, "v2", dropout=0.4), GAT(8, 3, 1, "v2", dropout=0.4), dropout=0.3),
    "maximum": lambda: Stack(SAGE(6, 8, "max", act="elu"), SAGE(8, 3, "max"), dropout=0.3),
}


def one_step(comm, model, graph, prune="never"):
    """The trainer after a step with the gradients of the dense model, whose traffic is counted."""
    options = {"method": "random", "replication": 2 if comm.size == 4 else 1}
    trainer = gradients_are_the_dense_ones(comm, graph, model, "gcn", prune, **options)
    comm.traffic.reset()
    trainer.step(1)
    return trainer


@parallel([3, 4], mpi=[])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", ["v1", "dropout", "v2", "maximum"])
def test_the_first_layer_sends_nothing_where_x_is_fixed(comm, model, sparse):
    trainer = one_step(comm, MODELS[model], random_graph(n=24, edges=70, sparse=sparse))
    sums = [comm.traffic.sent_bytes(label=f"layer 1 {name}").sum() for name in ("forward", "backward", "setup")]
    assert sums == [0, 0, 0]
    assert comm.all_reduce(np.array([trainer.dgraph.setup_bytes]))[0] > 0


@parallel([4], mpi=[])
@pytest.mark.parametrize("model, sparse", [("v1", 0), ("dropout", 0), ("dropout, v2", 0), ("dropout", 1)])
def test_so_it_is_where_steps_compute_the_rows_that_reach_a_training_node(comm, model, sparse):
    graph = random_graph(n=24, edges=50, use="directed", train_every=6, sparse=sparse)
    trainer = one_step(comm, MODELS[model], graph, prune="always")
    assert trainer.steps.rows.is_pruned and comm.traffic.sent_bytes(label="layer 1 forward").sum() == 0


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(UsageError, match="heads = 3 do not divide f_out = 8"):
        GAT(6, 8, 3)
    assert [GAT(6, C).heads for C in (7, 16)] == [1, 8] and GAT(6, 7, merge="mean").heads == 8


def test_an_evaluation_sees_no_dropout_of_edges():
    dgraph = distribute(random_graph(), SelfCommunicator())
    model = Stack(GAT(6, 3, 1, dropout=0.9)).eval()
    with torch.no_grad():
        first = model(dgraph.A, dgraph.X)
        model.layers[0].dropout = 0.0
        assert torch.equal(first, model(dgraph.A, dgraph.X))


@pytest.mark.parametrize("attention", ["v1", "v2"])
@pytest.mark.parametrize("scale", [1e5, 1e30])
def test_gradients_of_very_large_scores_are_no_larger_than_they_can_be(attention, scale):
    """A share alpha that is made again in backward is at most 1, however the scores were rounded."""
    dgraph = distribute(random_graph(n=24, edges=70, use="directed"), SelfCommunicator(), dtype=torch.float64)
    layer = GAT(6, 4, 2, attention, bias=False).double()
    with torch.no_grad():
        for weights in (layer.left_DK, layer.right_DK) if attention == "v1" else (layer.a_DK,):
            weights.mul_(scale)
    X = dgraph.X.clone().requires_grad_()
    Z = Stack(layer)(dgraph.A, X)
    G = torch.ones_like(Z)
    Z.backward(G)
    x, degree = (X.detach() @ layer.W_FC.detach()).abs().max(), 24
    of_shares = degree * float(x) * scale * 24  # alpha (dot - sum) at most 2 x of each of 24 rows, times a weight
    assert torch.isfinite(X.grad).all() and X.grad.abs().max() <= 4 * of_shares
