"""Predicted = counted: measure knows from the partition alone what every pair of ranks exchanges in every layer and direction."""

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn.analysis import measure
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Stack
from spgnn.partition import part_graph
from spgnn.training import train


def count_and_compare(
    comm, graph, widths, scheme, c, prune="never", wires=("float32", "float32"), dtype=torch.float64, keep=True
):
    part = part_graph(graph, comm.size // c, method="random")
    train_N = (graph.split == 0) & (graph.y >= 0) if prune == "always" else None
    names = dict(wire=wires[0], wire_gradients=wires[1], keep=keep)
    report = measure(
        graph, part, scheme=scheme, widths=widths, replication=c, itemsize=dtype.itemsize, train_N=train_N, **names
    )
    dgraph = distribute(graph, comm, part, scheme=scheme, replication=c, dtype=dtype, **names)
    model = Stack(*[GCN(f, c, act="relu") for f, c in zip(widths, widths[1:])])
    comm.traffic.reset()
    history = train(model, dgraph, epochs=1, prune=prune)
    counted = np.zeros(comm.size, np.int64)
    for layer in range(1, len(widths)):
        for direction in ("forward", "backward"):
            labels = [f"layer {layer} {direction}", f"layer {layer} {direction} sum"]
            sent = sum(comm.traffic.sent_bytes(label=label) for label in labels)
            np.testing.assert_array_equal(
                sent, report.bytes_PP(layer, direction)[comm.rank], err_msg=f"layer {layer} {direction}"
            )
            counted += sent
    total = np.array([counted.sum()])
    comm.all_reduce(total)
    assert total[0] == history.bytes_sent == history.bytes_predicted == report.bytes_per_epoch
    return report


@parallel([2, 3, 7], mpi=[2, 4, 7])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_in_1d(comm, scheme, use):
    report = count_and_compare(comm, random_graph(n=50, edges=250, use=use), (6, 9, 5, 3), scheme, c=1)
    assert {(e["layer"], e["direction"]) for e in report.exchanges} == {
        (l, d) for l in (2, 3) for d in ("forward", "backward")
    }


@parallel([4, 8, 16], mpi=[4, 8])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_on_a_grid(comm, scheme, use):
    for c in [c for c in (2, 4) if comm.size % (c * c) == 0]:
        for prune in ("never", "always"):
            count_and_compare(comm, random_graph(n=50, edges=250, use=use), (6, 9, 5, 3), scheme, c, prune)


@parallel([2, 3], mpi=[3])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_with_pruned_rows(comm, scheme, use):
    for keep in (True, False):
        graph = random_graph(n=50, edges=90, use=use, train_every=10)
        report = count_and_compare(comm, graph, (6, 9, 5, 3), scheme, 1, "always", keep=keep)
        whole = measure(
            graph, part_graph(graph, comm.size, method="random"), scheme, (6, 9, 5, 3), itemsize=8, keep=keep
        )
        assert report.bytes_per_epoch < whole.bytes_per_epoch


@parallel([2, 4], mpi=[4])
@pytest.mark.parametrize("wires", [("bfloat16", "float32"), ("float16", "bfloat16"), ("int8", "int8")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_with_other_types_on_the_wire(comm, wires, dtype):
    graph = random_graph(n=50, edges=250, use="directed")
    for c in [c for c in (1, 2) if comm.size % (c * c) == 0]:
        count_and_compare(comm, graph, (6, 9, 5, 3), "cover", c, wires=wires, dtype=getattr(torch, dtype))
