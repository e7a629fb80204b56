"""Predicted = counted: measure knows what every pair of ranks exchanges in every layer and direction."""

import pytest
import torch
from counted_bytes import predict_and_compare
from graphs import random_graph
from models import CUSTOM, Bare, TwoHops, TwoProducts
from worlds import parallel

from spgnn import train
from spgnn.analysis import measure
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph


def count_and_compare(comm, graph, scheme, c=1, prune="never", **options):
    make = lambda: Stack(GCN(6, 9, act="relu"), GCN(9, 5, act="relu"), GCN(5, 3, act="relu"))
    key = ("gcn", graph.edges, graph.nnz)
    return predict_and_compare(comm, graph, make, key, prune, scheme=scheme, replication=c, **options)


@parallel([2, 4, 7, 16], mpi=[4], only=lambda given: given["scheme"] == "cover")
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_in_1d_and_on_a_grid(comm, scheme, use):
    graph = random_graph(n=50, edges=250, use=use)
    for c, prune in (
        ((1, "never"), (2, "never"), (2, "always")) if comm.size == 4 else ((4 if comm.size == 16 else 1, "never"),)
    ):
        report = count_and_compare(comm, graph, scheme, c, prune)
        assert {(e["layer"], e["direction"]) for e in report.exchanges} == {
            (l, d) for l in (2, 3) for d in ("forward", "backward")
        }


@parallel([2, 3], mpi=[4], only=lambda given: given["scheme"] == "cover")
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_with_pruned_rows(comm, scheme, use):
    for keep in (True, False):
        graph = random_graph(n=50, edges=90, use=use, train_every=10)
        report = count_and_compare(comm, graph, scheme, 1, "always", keep=keep)
        whole = measure(
            graph, part_graph(graph, comm.size, method="random"), scheme, (6, 9, 5, 3), itemsize=8, keep=keep
        )
        assert report.bytes_per_epoch < whole.bytes_per_epoch


@parallel([2, 4], mpi=[4])
@pytest.mark.parametrize("wires", [("bfloat16", "float32"), ("float16", "bfloat16")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_with_other_types_on_the_wire(comm, wires, dtype):
    graph = random_graph(n=50, edges=250, use="directed")
    for c in [c for c in (1, 2) if comm.size % (c * c) == 0]:
        names = {"wire": wires[0], "wire_gradients": wires[1], "dtype": getattr(torch, dtype)}
        count_and_compare(comm, graph, "cover", c, **names)


class Pulled(Layer):
    """The mean of all rows that a rank reads is added to its own rows of H W."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W = self.weight(f_in, f_out)

    def forward(self, A, H):
        H_tF = A.fetch(H @ self.W).tensor
        return H_tF[: len(H)] + H_tF.mean(dim=0)


MODELS = CUSTOM | {
    "dropout between layers": lambda: Stack(GCN(6, 5), TwoProducts(5, 3), dropout=0.5, input_dropout=False),
    "rows themselves": lambda: Stack(GCN(6, 5), Pulled(5, 3)),
}


@parallel([3, 4], mpi=[4])
@pytest.mark.parametrize("scheme", ["columns", "cover"])
@pytest.mark.parametrize("name", MODELS)
def test_of_custom_models(comm, name, scheme):
    graph = random_graph(n=50, edges=250, use="directed")
    for c in [c for c in (1, 2) if comm.size % (c * c) == 0]:
        report = predict_and_compare(comm, graph, MODELS[name], ("custom", name), "auto", scheme=scheme, replication=c)
        assert report.bytes_per_epoch > 0


class Raw(Layer):
    """(A H) W, whatever H is."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W = self.weight(f_in, f_out)

    def forward(self, A, H):
        return (A @ H) @ self.W


@parallel([2], mpi=[])
def test_products_within_the_last_layer_travel_in_bfloat16(comm):
    graph = random_graph(n=50, edges=250)
    dgraph = distribute(graph, comm, part_graph(graph, 2, "random"), dtype=torch.bfloat16)
    history = train(Stack(TwoHops(6, 3)), dgraph, epochs=1)
    assert history.bytes_sent == history.bytes_predicted > 0


@parallel([2], mpi=[])
def test_a_product_with_a_sparse_x_in_every_step_is_not_predicted_as_nothing(comm):
    graph = random_graph(n=50, edges=250, sparse=True)
    model = Stack(Raw(6, 3), dropout=0.3)
    history = train(model, distribute(graph, comm, part_graph(graph, 2, "random")), epochs=1)
    assert history.bytes_predicted in (None, history.bytes_sent)


def test_rows_of_layers_that_declare_no_hops_are_not_pruned():
    graph = random_graph(n=50, edges=250)
    with pytest.raises(UsageError, match="layer 1, TwoHops, declares no hops"):
        measure(graph, part_graph(graph, 2), model=CUSTOM["two hops"](), train_N=graph.split == 0)


@pytest.mark.parametrize("options, message", [
    ({"widths": (6, 3), "model": Bare()}, "give one of them"),
    ({"model": Stack(GCN(7, 3))}, "cannot run without data"),
])  # fmt: skip
def test_a_model_that_does_not_fit_is_refused(options, message):
    graph = random_graph(n=50, edges=250)
    with pytest.raises(UsageError, match=message):
        measure(graph, part_graph(graph, 2), **options)


def test_a_custom_layer_has_a_line_of_the_report_and_json():
    graph = random_graph(n=50, edges=250)
    report = measure(graph, part_graph(graph, 2, "random"), model=CUSTOM["two products in a layer"]())
    text, layer = str(report), report.to_dict()["layers"][1]
    assert "as its forward multiplies: 1 x forward of width 3, 1 x forward of width 4" in text
    assert layer["order"] is None and layer["width"] is None and layer["bytes"] == report.bytes_PP(2).sum() > 0
