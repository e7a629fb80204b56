"""Predicted = counted for every family: what each pair of ranks exchanges, by layer and direction, pruned or not."""

import pytest
import torch
from counted_bytes import predict_and_compare
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from models import Custom, TwoHops, TwoProducts
from worlds import parallel, some

from spgnn import train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import APPNP, GAT, GCN, GCNII, GIN, MLP, NGNN, SAGE, SGC, Layer, LightGCN, MixHop, Stack
from spgnn.training import explain
from spgnn.training.trainer import Trainer


class Averaged(Custom):
    """By a normalisation of its own."""

    operator, hops = "row", 1


class TwoWays(TwoProducts):
    """Two products of different widths, of which that with X is cached."""

    hops = 1


class Weighted(Layer):
    """Attention by words on edges: S = softmax over each row of <q_i, k_j>, S V."""

    operator, hops = "loops", 1

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W, self.Q, self.K = self.weight(f_in, f_out), self.weight(f_in, 2), self.weight(f_in, 2)

    def forward(self, A, H):
        KV = A.fetch(torch.cat([H @ self.K, H @ self.W], dim=1))
        S = A.dot(H @ self.Q, KV.map(lambda T: T[:, :2]))
        return A.sum(A.softmax(S), KV.map(lambda T: T[:, 2:]))


def of(first, second, **options):
    return lambda: Stack(first(6, 5), second(5, 4), GCN(4, 3), **options)


PRUNED = {
    "sage": of(lambda f, c: SAGE(f, c, act="relu"), SAGE),
    "sage cat": of(lambda f, c: SAGE(f, c, combine="cat", act="relu"), lambda f, c: SAGE(f, c, "gcn")),
    "gin": of(lambda f, c: GIN(f, c, hidden=9, act="relu"), GIN),
    "ngnn": of(lambda f, c: NGNN(GCN(f, c, act="relu"), 2), lambda f, c: NGNN(SAGE(f, c))),
    "mlp first": of(lambda f, c: MLP(f, c, (4,), act="relu"), SAGE),
    "mlp in the middle": of(lambda f, c: GCN(f, c, residual=True), MLP),
    "mlp last": lambda: Stack(SAGE(6, 5, act="relu"), MLP(5, 3)),
    "its own rows and its neighbours'": of(Averaged, Averaged),
    "two products of one hop": of(TwoWays, TwoWays),
    "attention of its own": of(Weighted, Weighted),
    "gat": of(lambda f, c: GAT(f, c, 1, act="elu"), lambda f, c: GAT(f, c, 2, attention="v2")),
    "maximum": of(lambda f, c: SAGE(f, c, "max", act="relu"), lambda f, c: SAGE(f, c, "max")),
    "one hop of families of several": lambda: Stack(
        MLP(6, 5, act="relu"), GCNII(5, 1), APPNP(5, 1), MixHop(5, 5, (0, 1), "sum", residual=True), SGC(5, 3, 1)
    ),
    "one mean": lambda: Stack(GCN(6, 5), LightGCN(5, 1), GCN(5, 3)),
    "dropout on X": of(lambda f, c: SAGE(f, c, act="relu"), GCN, dropout=0.5),
}
OTHERS = ("attention of its own", "gat", "maximum", "dropout on X")  # compared with the dense model elsewhere
WHOLE = {
    "two hops": (of(TwoHops, TwoHops), "layer 1, TwoHops, declares no hops and may read any rows"),
    "mixhop": (of(MixHop, MixHop), "layer 1, MixHop, reads rows that are 2 hops away"),
    "sgc": (lambda: Stack(SGC(6, 3)), "layer 1, SGC, reads rows that are 2 hops away"),
    "appnp": (lambda: Stack(MLP(6, 3), APPNP(3, 4)), "layer 2, APPNP, reads rows that are 4 hops away"),
    "lightgcn": (lambda: Stack(MLP(6, 3), LightGCN(3)), "layer 2, LightGCN, reads rows that are 3 hops away"),
    "gcnii": (lambda: Stack(MLP(6, 5), GCNII(5, 3), MLP(5, 3)), "layer 2, GCNII, reads rows that are 3 hops away"),
    "jump": (
        lambda: Stack(GCN(6, 5), SAGE(5, 4), MLP(9, 3), jump="cat"),
        "the last layer reads the rows of all layers",
    ),
}


def count_and_compare(comm, use, name, prune="never", **options):
    """Compare the bytes of a family on a graph that is read as `use`; options: of measure and distribute."""
    graph = random_graph(n=50, edges=90, use=use, train_every=10)
    make = PRUNED[name] if name in PRUNED else WHOLE[name][0]
    return predict_and_compare(comm, graph, make, ("families", use, name), prune, **options)


ON_MPI = ("sage", "gat", "maximum", "attention of its own", "mixhop", "gcnii")


@parallel([3, 4], mpi=[3], only=lambda given: given["scheme"] == "cover" and given["name"] in ON_MPI)
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("name", [*PRUNED, *WHOLE])
def test_bytes_of_every_pair_layer_and_direction(comm, name, scheme):
    options = {"scheme": scheme, "replication": 2 if comm.size == 4 else 1}
    whole = count_and_compare(comm, "directed", name, **options)
    if name in PRUNED:
        pruned = count_and_compare(comm, "directed", name, "always", **options)
        assert pruned.bytes_per_epoch < whole.bytes_per_epoch or name in ("mlp last", "two products of one hop")


@parallel([3], mpi=[])
@pytest.mark.parametrize("name", PRUNED)
def test_nothing_is_cached_with_keep_off(comm, name):
    for prune in ("never", "always"):
        report = count_and_compare(comm, "undirected", name, prune, scheme="columns", keep=False)
        assert not any(layer.is_kept for layer in report.layers)


@parallel([1, 3, 4], mpi=[])
@pytest.mark.parametrize("name", [name for name in PRUNED if name not in OTHERS])
def test_gradients_of_pruned_steps_are_the_dense_ones(comm, name):
    for sparse in some(comm, (False, True) if name != "two products of one hop" else (False,)):
        graph = random_graph(use="directed", train_every=7, sparse=sparse)
        options = {"method": "random", "replication": 2 if comm.size == 4 else 1}
        trainer = gradients_are_the_dense_ones(comm, graph, PRUNED[name], "gcn", "always", **options)
        assert trainer.steps.rows.is_pruned


@pytest.mark.parametrize("name", WHOLE)
def test_layers_that_read_further_compute_all_rows_and_explain_says_which(name):
    make, reason = WHOLE[name]
    dgraph = distribute(random_graph(use="undirected", train_every=20), SelfCommunicator())
    assert f"all rows: {reason}" in explain(make(), dgraph).rows
    with pytest.raises(UsageError, match=f"prune = always is not possible: {reason.split('(')[0]}"):
        train(make(), dgraph, prune="always")


def test_a_layer_without_hops_must_not_multiply():
    class Liar(GCN):
        hops = 0

    dgraph = distribute(random_graph(use="undirected", train_every=20), SelfCommunicator())
    assert "layer 1, Liar, declares hops = 0, and multiplies with A" in explain(Stack(Liar(6, 3)), dgraph).rows


def test_rows_that_are_not_selected_are_noticed_before_training():
    class Unselected(Averaged):
        hops = 1

        def forward(self, A, H):
            return A @ (H @ self.W) + H @ self.V

    dgraph = distribute(random_graph(n=60, edges=90, use="undirected", train_every=20), SelfCommunicator(), keep=False)
    rows = Trainer(Stack(Unselected(6, 5), GCN(5, 3)), dgraph, TrainConfig(prune="auto")).steps.rows
    assert not rows.is_pruned and "cannot run without data" in rows.why
