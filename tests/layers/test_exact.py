"""Every family has the gradients and logits of the dense model on any ranks, and sends the bytes that a dry run predicts."""

import pytest
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from models import ONE_HOP, SEVERAL_HOPS
from worlds import parallel, some

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.layers import APPNP, GAT, GCN, GCNII, GIN, MLP, NGNN, SAGE, SGC, Layer, LightGCN, MixHop, Stack
from spgnn.training.trainer import Trainer


class Joined(Layer):
    """relu(A H W + H V + b) by add, the gradient of which is taken too."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W, self.V, self.b = self.weight(f_in, f_out), self.weight(f_in, f_out), self.weight(f_out)

    def forward(self, A, H):
        return A.chain(H, self.W, self.b, relu=True, add=A.select(H) @ self.V)


def wide(first, second, **options):
    return lambda: Stack(first(6, 4), second(4, 7), GCN(7, 3), **options)


MODELS = {
    "add": lambda: Stack(Joined(6, 5), GCN(5, 3)),
    "add, wide": wide(Joined, Joined),
    "sage, wide": wide(SAGE, lambda f, c: SAGE(f, c, "sum", act="tanh", norm="layer")),
    "sage max, wide": wide(lambda f, c: SAGE(f, c, "max", act="relu"), lambda f, c: SAGE(f, c, "max", "cat", pool=3)),
    "gin, trained eps": wide(lambda f, c: GIN(f, c, train_eps=True), lambda f, c: GIN(f, c, train_eps=True, eps=-0.5)),
    "mlp last": lambda: Stack(GCN(6, 5, act="relu"), MLP(5, 3, (7, 4), bias=False)),
    "sgc alone": lambda: Stack(SGC(6, 3, 3, act="tanh")),
    "sgc behind gcn": wide(GCN, SGC),
    "mixhop, wide": wide(lambda f, c: MixHop(f, c, (1, 3)), lambda f, c: MixHop(f, c, (0, 2), act="relu", bias=False)),
    "mixhop, sums": wide(lambda f, c: MixHop(f, c, (0, 2), "sum"), lambda f, c: MixHop(f, c, (1, 2), "sum")),
    "gat, H travels": lambda: Stack(GAT(6, 4, 2, act="relu"), GAT(4, 12, 3, residual=True), GAT(12, 3, 1)),
    "jump cat": lambda: Stack(GCN(6, 5, act="relu"), SAGE(5, 4, act="relu"), GCN(9, 3), jump="cat", dropout=0.3),
    "jump max": lambda: Stack(GCN(6, 5, act="relu"), GCN(5, 5, act="tanh"), MLP(5, 3), jump="max"),
    **ONE_HOP,
    **SEVERAL_HOPS,
}
ON_MPI = ("add", "sage max", "gat", "gin", "mixhop", "gcnii deep", "jump cat")


@parallel([1, 3, 4], mpi=[3], only=lambda given: given["name"] in ON_MPI)
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_logits_are_the_dense_ones(comm, scheme, name):
    c = 2 if comm.size == 4 and scheme != "columns" else 1
    for sparse in some(comm, (False, True)):
        graph = random_graph(use="directed", weighted=not sparse, sparse=sparse)
        options = {"method": "random", "scheme": scheme, "replication": c}
        trainer = gradients_are_the_dense_ones(comm, graph, MODELS[name], "gcn", **options)
        comm.traffic.reset()
        trainer.step(1)
        assert comm.traffic.sent_bytes("all_to_all").sum() == trainer.steps.sent_bytes()


@parallel([3], mpi=[])
@pytest.mark.parametrize("name", MODELS)
def test_so_they_are_under_dropout_and_without_a_cached_product(comm, name):
    graph = random_graph(use="undirected")

    def dropped():
        model = MODELS[name]()
        model.dropout = 0.4
        return model

    gradients_are_the_dense_ones(comm, graph, dropped, "gcn", method="random")
    gradients_are_the_dense_ones(comm, graph, MODELS[name], "gcn", method="random", keep=False)


def widths(model, **options):
    """Layer, pass and width of the products of a step that are not cached."""
    dgraph = distribute(random_graph(n=60), SelfCommunicator(), **options)
    run = Trainer(model, dgraph, TrainConfig(prune="never", split="given")).steps.rows.run
    return [(p.layer, p.pass_name[0], p.width) for p in run.passes("forward", "backward").exchanges]


def test_a_family_sends_the_rows_that_its_equation_needs():
    both = lambda layer, width: [(layer, "f", width), (layer, "b", width)]
    for make in (SAGE, lambda f, c: SAGE(f, c, "sum"), GIN, lambda f, c: NGNN(GCN(f, c))):
        assert widths(Stack(make(6, 9), make(9, 4), MLP(4, 3))) == both(2, 4)  # A X is cached; then min(F, C)
        assert sorted(widths(Stack(make(6, 4), make(4, 9), MLP(9, 3)))) == sorted(both(2, 4))
    assert widths(Stack(SAGE(6, 8, combine="cat"), SAGE(8, 6, combine="cat"), MLP(6, 3))) == both(2, 3)
    assert widths(Stack(MLP(6, 9), GCN(9, 3))) == both(2, 3)
    assert widths(Stack(GCN(6, 9), GCN(9, 8), MLP(17, 3), jump="cat")) == both(2, 8)


def test_families_of_several_hops_send_what_their_equations_need():
    both = lambda layer, *widths: sorted((layer, way, width) for width in widths for way in "fb")
    assert widths(Stack(SGC(6, 3, 3))) == []
    assert widths(Stack(SGC(6, 3, 3)), keep=False) == [(1, "f", 6)] * 3  # no gradient of X
    assert sorted(widths(Stack(MLP(6, 5), SGC(5, 3, 3)))) == both(2, 3, 3, 3)
    assert sorted(widths(Stack(MLP(6, 3), SGC(3, 9, 2), MLP(9, 3)))) == both(2, 3, 3)
    assert sorted(widths(Stack(MLP(6, 3), APPNP(3, 4)))) == both(2, 3, 3, 3, 3)
    assert sorted(widths(Stack(MLP(6, 5), LightGCN(5, 3), MLP(5, 3)))) == both(2, 5, 5, 5)
    assert sorted(widths(Stack(MLP(6, 5), GCNII(5, 3), MLP(5, 3)))) == both(2, 5, 5, 5)
    # Side by side: W first multiplies columns of powers 1 and 2, then of 2 alone; H first twice the width of H.
    assert sorted(widths(Stack(MixHop(6, 9), MixHop(9, 6), MLP(6, 3)))) == both(2, 4, 2)
    assert sorted(widths(Stack(MixHop(6, 3), MixHop(3, 9), MLP(9, 3)))) == both(2, 3, 3)
    assert sorted(widths(Stack(MLP(6, 5), MixHop(5, 3, combine="sum")))) == both(2, 3, 3)


def test_what_is_cached_is_what_the_first_layer_multiplies_with_and_no_more():
    def cached(model, **options):
        dgraph = distribute(random_graph(n=60, **options), SelfCommunicator())
        Trainer(model, dgraph, TrainConfig(prune="never", split="given"))
        return set(dgraph.A.fixed_input.products)

    assert cached(Stack(GCN(6, 3))) == {"gcn"}
    assert cached(Stack(SAGE(6, 3))) == {"row"}
    assert cached(Stack(SGC(6, 3, 3))) == {"gcn^3"}
    assert cached(Stack(LightGCN(6, 2), MLP(6, 3))) == {"sym", "sym^2"}
    assert cached(Stack(MixHop(6, 3))) == {"gcn", "gcn^2"}
    assert cached(Stack(MixHop(6, 3)), sparse=True) >= {"gcn"}
    assert cached(Stack(MLP(6, 5), GCN(5, 3))) == set()
    assert cached(Stack(GCN(6, 3), dropout=0.5)) == {"gcn"}  # of evaluations
