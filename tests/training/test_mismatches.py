"""One rank that differs, in options, graph, partition, model, counts or order: all ranks stop, and say what differs."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn import train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import CollectiveError, GraphError, PartitionError, SpgnnError, UsageError, together
from spgnn.experiment import predict, run
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph, save_partition

SOURCE = "sbm:n=60,seed=1"


def changed(array, at=0):
    other = np.array(array)
    other[at] += 1
    return other


def run_with(comm, odd, source=SOURCE, **options):
    config = TrainConfig(epochs=2, hidden=4)
    run(source if odd else SOURCE, replace(config, **options) if odd else config, comm)


def distribute_with(comm, odd, partition=None, **fields):
    graph = random_graph(use="undirected")
    if odd and fields:
        graph = replace(graph, **{name: change(getattr(graph, name)) for name, change in fields.items()})
    distribute(graph, comm, partition=partition, method="block")


def without_an_edge(A):
    A = A.copy()
    row = int(np.argmax(np.diff(A.indptr)))
    at = A.indptr[row]
    A.indices, A.data = np.delete(A.indices, at), np.delete(A.data, at)
    A.indptr = A.indptr - (np.arange(len(A.indptr)) > row)
    return A


def owner(comm, odd):
    owner_N = np.arange(40) % comm.size
    return changed(owner_N, at=3) % comm.size if odd else owner_N


def folders(comm, odd, tmp_path):
    graph = random_graph(use="undirected")
    for seed in range(2):
        if comm.rank == 0:
            save_partition(part_graph(graph, comm.size, method="random", seed=seed), tmp_path / f"parts{seed}", graph)
    comm.barrier()
    distribute(tmp_path / f"parts{int(odd)}", comm)


def trained(comm, odd, make=lambda odd: Stack(GCN(6, 4, act="relu"), GCN(4, 3)), **options):
    dgraph = distribute(random_graph(use="undirected"), comm, method="block")
    train(make(odd), dgraph, **({"epochs": 2} | (options if odd else {})))


def frozen_layer(odd):
    """Gradients of as many entries on all ranks, of other weights."""
    model = Stack(GCN(6, 4), GCN(4, 4), GCN(4, 4), GCN(4, 3))
    model.layers[2 if odd else 1].requires_grad_(False)
    return model


def predicted(comm, odd, tmp_path, elsewhere=False):
    """Predict by another run, or by the same one to another file."""
    if comm.rank == 0:
        for epochs in (1, 2):
            run(SOURCE, TrainConfig(epochs=epochs, hidden=4, out=str(tmp_path / f"run{epochs}")), SelfCommunicator())
    comm.barrier()
    of_run, of_file = (0, odd) if elsewhere else (odd, 0)
    predict(str(tmp_path / f"run{1 + of_run}"), comm, out=str(tmp_path / f"p{of_file}.npy"))


class Talking(Layer):
    """A layer that calls collectives of its own."""

    def __init__(self, calls):
        super().__init__(6, 3)
        self.W_FC, self.calls = self.weight(6, 3), calls

    def forward(self, A, H):
        for call in self.calls:
            call()
        return A @ (H @ self.W_FC)


def talking(comm, odd, usual, other):
    trained(comm, odd, make=lambda odd: Stack(Talking(other if odd else usual)))


def wrong_counts(comm, odd):
    send_P, recv_P = np.full(comm.size, 2), np.full(comm.size, 2)
    if odd:
        send_P[0] = 3
    comm.all_to_all(np.zeros((send_P.sum(), 4)), send_P, np.zeros((recv_P.sum(), 4)), recv_P)


x = lambda *shape, dtype=np.float64: np.zeros(shape, dtype)
ODD = "on ranks? .* and .* on rank 1"
CASES = {
    "option lr": (lambda c, odd, _: run_with(c, odd, lr=0.5), UsageError, rf"option.lr is 0.01 {ODD}"),
    "option scheme": (lambda c, odd, _: run_with(c, odd, scheme="broadcast"), UsageError, rf"option.scheme is .auto. {ODD}"),
    "option trace": (lambda c, odd, _: run_with(c, odd, trace="t.json"), UsageError, rf"option.trace is .. {ODD}"),
    "another GRAPH": (lambda c, odd, _: run_with(c, odd, source="sbm:n=60,seed=2"), UsageError, rf"option.graph is .sbm:n=60,seed=1. {ODD}"),
    "an edge less": (lambda c, odd, _: distribute_with(c, odd, A=without_an_edge), GraphError, rf"graph.nnz is \d+ {ODD}.*graph.A is"),
    "a weight": (
        lambda c, odd, _: distribute_with(c, odd, A=lambda A: A * np.float32(1.5)),
        GraphError, rf"^the ranks differ: graph.A is .* {ODD}",
    ),
    "a feature": (lambda c, odd, _: distribute_with(c, odd, X=lambda X: changed(X, (39, 5))), GraphError, rf"graph.X is .* {ODD}"),
    "features of another type": (
        lambda c, odd, _: distribute_with(c, odd, X=lambda X: X.astype(np.float32)),
        GraphError, rf"graph.X is .float64 40x6 .* {ODD}",
    ),
    "a label": (lambda c, odd, _: distribute_with(c, odd, y=lambda y: changed(y) % 3), GraphError, rf"graph.y is .* {ODD}"),
    "a split": (lambda c, odd, _: distribute_with(c, odd, split=lambda s: 1 - s.clip(0, 1)), GraphError, rf"graph.split is .* {ODD}"),
    "a node's owner": (lambda c, odd, _: distribute_with(c, odd, owner(c, odd)), PartitionError, rf"partition.owner is .* {ODD}"),
    "a partition that rank 0, which has the graph, is not given": (
        lambda c, odd, _: distribute(random_graph if c.rank == 0 else None, c, np.arange(40) % c.size if odd else None),
        PartitionError, r"partition.owner is .none. on rank 0 and .* on rank 1",
    ),
    "another folder of parts": (folders, PartitionError, rf"partition.manifest is .* {ODD}"),
    "dtype of the operator": (
        lambda c, odd, _: distribute(random_graph(use="undirected"), c, dtype=torch.float64 if odd else torch.float32),
        UsageError, rf"option.dtype is .float32. {ODD}",
    ),
    "train's lr": (lambda c, odd, _: trained(c, odd, lr=0.5), UsageError, rf"option.lr is 0.01 {ODD}"),
    "a width of the model": (
        lambda c, odd, _: trained(c, odd, make=lambda odd: Stack(GCN(6, 4 + odd), GCN(4 + odd, 3))),
        UsageError, rf"option.weights of layers.0.W_FC is .torch.float32 \(6, 4\). {ODD}",
    ),
    "a frozen weight": (
        lambda c, odd, _: trained(c, odd, make=frozen_layer),
        UsageError, rf"option.weights of layers.1.W_FC is .torch.float32 \(4, 4\) frozen. {ODD}",
    ),
    "an activation": (
        lambda c, odd, _: trained(c, odd, make=lambda odd: Stack(GCN(6, 4, act="tanh" if odd else "relu"), GCN(4, 3))),
        UsageError, rf"option.model is .* {ODD}",
    ),
    "a dropout rate": (
        lambda c, odd, _: trained(c, odd, make=lambda odd: Stack(GCN(6, 4), GCN(4, 3), dropout=0.5 if odd else 0.1)),
        UsageError, rf"option.model is .*dropout=0.1.* {ODD}",
    ),
    "a residual": (
        lambda c, odd, _: trained(c, odd, make=lambda odd: Stack(GCN(6, 6, residual=odd), GCN(6, 3))),
        UsageError, rf"option.model is .*{ODD}",
    ),
    "the run that is predicted": (predicted, UsageError, rf"option.epochs is .* {ODD}"),
    "where predictions go": (lambda c, odd, path: predicted(c, odd, path, True), UsageError, rf"option.out is .* {ODD}"),
    "order of collectives": (
        lambda c, odd, _: talking(c, odd, [c.barrier, lambda: c.all_reduce(x(2))], [lambda: c.all_reduce(x(2)), c.barrier]),
        CollectiveError, r"calls barrier, rank . calls all_reduce|calls all_reduce\(float64, shape 2, op sum\), rank . calls barrier",
    ),
    "a collective more": (
        lambda c, odd, _: talking(c, odd, [], [c.barrier]),
        CollectiveError, "do not call the same collective",
    ),
    "dtype of a buffer": (
        lambda c, odd, _: c.all_reduce(x(4, dtype=np.float32 if odd else np.float64)),
        CollectiveError, r"all_reduce\(float(32|64), shape 4.*all_reduce\(float(64|32), shape 4",
    ),
    "shape of a buffer": (lambda c, odd, _: c.all_reduce(x(4 + odd)), CollectiveError, r"shape [45].*shape [54]"),
    "op": (lambda c, odd, _: c.all_reduce(x(4), "max" if odd else "sum"), CollectiveError, "op (max|sum).*op (sum|max)"),
    "root": (lambda c, odd, _: c.broadcast(x(4), root=int(odd)), CollectiveError, "root [01].*root [10]"),
    "counts of an exchange": (
        lambda c, odd, _: together(c, wrong_counts, c, odd),
        SpgnnError, "rank 1 sends 3 rows to rank 0, which expects 2",
    ),
}  # fmt: skip


def stops(comm, case, tmp_path):
    body, error, told = CASES[case]
    with pytest.raises(SpgnnError) as caught:
        body(comm, comm.rank == 1, tmp_path)
    assert isinstance(caught.value, error)
    assert re.search(told, str(caught.value)), str(caught.value)


@parallel([3], mpi=[])
@pytest.mark.parametrize("case", CASES)
def test_a_rank_that_differs_stops_all_and_is_named(comm, case, tmp_path):
    stops(comm, case, tmp_path)


UNDER_MPI = ["option lr", "a feature", "a node's owner", "another folder of parts", "order of collectives"]


@parallel([], mpi=[3])
@pytest.mark.parametrize("case", [*UNDER_MPI, "dtype of a buffer"])
def test_it_does_so_under_mpi(comm, case, tmp_path):
    stops(comm, case, tmp_path)


@parallel([3], mpi=[])
def test_the_same_on_all_ranks_runs(comm, tmp_path):
    for case in (*UNDER_MPI, "train's lr"):
        CASES[case][0](comm, False, tmp_path)
