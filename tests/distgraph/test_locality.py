"""Own rows in an order of the caches' liking: the same training."""

import importlib
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn import distribute, train
from spgnn.dist import SelfCommunicator
from spgnn.layers import GCN, Stack

assemble = importlib.import_module("spgnn.distgraph.assemble")  # the package's name is the function's


@contextmanager
def shuffled_rows(comm):
    """Give every block its rows in an order drawn from their number."""
    kept = assemble.local_order
    comm.barrier()
    assemble.local_order = lambda A, threads=1: np.random.default_rng(A.shape[0]).permutation(A.shape[0])
    comm.barrier()
    yield
    comm.barrier()
    assemble.local_order = kept


def trained(comm, graph, **options):
    model = Stack(GCN(6, 8, act="relu"), GCN(8, 3), dropout=0.3)
    dgraph = distribute(graph, comm, dtype=torch.float64, **options)
    history = train(model, dgraph, epochs=6, lr=0.05, seed=3)
    return dgraph, history, [p.detach().numpy() for p in model.parameters()]


@parallel([1, 2, 4], mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("sparse", [False, True])
def test_training_on_reordered_rows_is_the_same(comm, scheme, sparse):
    graph = random_graph(n=60, edges=400, sparse=sparse, weighted=True)
    _, alone, weights = trained(SelfCommunicator(), graph, locality=False)
    with shuffled_rows(comm):
        for c in [1, 2] if comm.size == 4 else [1]:
            dgraph, history, spread = trained(comm, graph, scheme=scheme, method="random", replication=c)
            assert np.any(np.diff(dgraph.node_n) < 0)
            np.testing.assert_allclose([r["loss"] for r in history.records], [r["loss"] for r in alone.records], 1e-10)
            assert all(np.abs(a - b).max() <= 1e-9 for a, b in zip(spread, weights))
            np.testing.assert_array_equal(dgraph.collect(dgraph.y_n.numpy()), graph.y)
            np.testing.assert_array_equal(dgraph.collect(dgraph.split_n), graph.split)


@parallel([3], mpi=[])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_as_many_rows_travel_in_any_order(comm, scheme):
    graph = random_graph(n=60, edges=400)
    sent = []
    for locality_on in (False, True):
        with shuffled_rows(comm):
            dgraph, _, _ = trained(comm, graph, scheme=scheme, method="random", locality=locality_on)
        sent.append([stage.plan.send_rows_P.tolist() for stage in dgraph.A.stages])
    assert sent[0] == sent[1]
