"""GAT has the loss, logits and gradients of the dense model on any ranks, in every scheme, and sends what is predicted."""

import numpy as np
import pytest
import torch
from dense_model import dense_gradients, relative
from graphs import random_graph
from worlds import parallel

from spgnn.analysis import measure
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GAT, SAGE, Stack
from spgnn.partition import part_graph
from spgnn.training.trainer import Trainer

MODELS = {
    "v1": lambda: Stack(GAT(6, 8, 4, act="elu"), GAT(8, 3, 2, merge="mean")),
    "v2": lambda: Stack(GAT(6, 8, 4, "v2", act="elu"), GAT(8, 3, 2, "v2", "mean", bias=False)),
    "H travels": lambda: Stack(GAT(6, 4, 2, act="relu"), GAT(4, 12, 3, residual=True), GAT(12, 3, 1)),
    "dropout": lambda: Stack(GAT(6, 8, 4, dropout=0.4), GAT(8, 3, 1, dropout=0.4), dropout=0.3),
    "maximum": lambda: Stack(SAGE(6, 8, "max", act="elu"), SAGE(8, 3, "max"), dropout=0.3),
    "dropout, v2": lambda: Stack(GAT(6, 8, 4, "v2", dropout=0.4), GAT(8, 3, 1, "v2", dropout=0.4), dropout=0.3),
}


def is_the_dense_one(comm, model, graph, prune="never", **options):
    c = 2 if comm.size >= 4 else 1
    dgraph = distribute(graph, comm, dtype=torch.float64, method="random", replication=c, **options)
    trainer = Trainer(model(), dgraph, TrainConfig(lr=0.0, optimizer="sgd", split="given", prune=prune))
    expected_loss, Z, gradients = dense_gradients(graph, model(), "gcn")
    for epoch in (1, 1):
        comm.traffic.reset()
        assert abs(trainer.step(epoch) - expected_loss) <= 1e-10 * expected_loss
        sent = comm.traffic.sent_bytes("all_to_all").sum()
        assert sent == trainer.steps.sent_bytes()
    scale = max(abs(gradient).max() for gradient in gradients)  # some are zero: a softmax does not see equal shifts
    for parameter, gradient in zip(trainer.model.parameters(), gradients):
        assert abs(parameter.grad.numpy() - gradient).max() <= 1e-10 * scale
    if not trainer.model.is_random and prune == "never":
        assert relative(dgraph.collect(trainer.logits().detach().numpy()), Z) <= 1e-10
    return trainer


@parallel([1, 3, 4], mpi=[3])
@pytest.mark.parametrize("model", MODELS)
def test_it_is_the_dense_model_on_any_ranks(comm, model):
    graph = random_graph(n=24, edges=70, use="directed", weighted=True)
    is_the_dense_one(comm, MODELS[model], graph, scheme="cover")


@parallel([2, 4], mpi=[])
@pytest.mark.parametrize("options", [{"scheme": "columns"}, {"scheme": "broadcast"}, {"keep": False}], ids=str)
def test_so_it_is_in_other_schemes_and_without_cached_rows(comm, options):
    is_the_dense_one(comm, MODELS["dropout"], random_graph(n=24, edges=70, use="undirected"), **options)


@parallel([3], mpi=[])
def test_so_it_is_with_sparse_features(comm):
    is_the_dense_one(comm, MODELS["v1"], random_graph(n=24, edges=70, sparse=True))


@parallel([3, 4], mpi=[])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", ["v1", "dropout", "v2", "maximum"])
def test_the_first_layer_sends_nothing_where_x_is_fixed(comm, model, sparse):
    trainer = is_the_dense_one(comm, MODELS[model], random_graph(n=24, edges=70, sparse=sparse))
    sums = [comm.traffic.sent_bytes(label=f"layer 1 {name}").sum() for name in ("forward", "backward", "setup")]
    assert sums == [0, 0, 0]
    assert comm.all_reduce(np.array([trainer.dgraph.setup_bytes]))[0] > 0


@parallel([4], mpi=[])
@pytest.mark.parametrize("model, sparse", [("v1", 0), ("dropout", 0), ("dropout, v2", 0), ("dropout", 1)])
def test_so_it_is_where_steps_compute_the_rows_that_reach_a_training_node(comm, model, sparse):
    graph = random_graph(n=24, edges=50, use="directed", train_every=6, sparse=sparse)
    trainer = is_the_dense_one(comm, MODELS[model], graph, prune="always", scheme="cover")
    assert trainer.steps.rows.is_pruned and comm.traffic.sent_bytes(label="layer 1 forward").sum() == 0


@parallel([3, 4], mpi=[])
def test_measure_predicts_the_bytes_that_it_sends(comm):
    graph, c = random_graph(n=24, edges=70), 2 if comm.size == 4 else 1
    trainer = is_the_dense_one(comm, MODELS["H travels"], graph, scheme="cover")
    part = part_graph(graph, comm.size // c, method="random")
    report = measure(graph, part, "cover", model=MODELS["H travels"](), itemsize=8, replication=c)
    sent = np.array([trainer.steps.sent_bytes()])  # as it was counted
    assert comm.all_reduce(sent)[0] == report.bytes_per_epoch > 0


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


@parallel([2, 4], mpi=[])
def test_in_bfloat16_it_is_near_that_in_float32(comm):
    graph, c = random_graph(n=24, edges=70), 2 if comm.size == 4 else 1
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        dgraph = distribute(graph, comm, method="random", dtype=dtype, replication=c)
        losses.append(Trainer(MODELS["v1"](), dgraph, TrainConfig(split="given", prune="never")).step(1))
    assert abs(losses[1] - losses[0]) <= 0.02 * losses[0]


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
