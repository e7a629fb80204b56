"""prune = auto computes all rows where a host's memory does not take the second operator."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.cost.seconds import HostMemory
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.layers import GCN, MLP, Stack
from spgnn.spmm.dry.dry_operator import setting_of
from spgnn.spmm.operator.pruning import needed_rows
from spgnn.training import Trainer
from spgnn.training.steps import step_rows as module
from spgnn.training.steps.step_rows import pruned_setting, tightest

GB = 10**9


def trainer(comm, prune="auto", n=400, sparse=False, **model):
    """Of a graph whose third layer alone has few rows: the second has nearly all nonzeros."""
    graph = random_graph(n=n, edges=20 * n, f=16, classes=24, use="undirected", train_every=20, sparse=sparse)
    dgraph = distribute(graph, comm, method="random")
    stack = Stack(GCN(16, 24, act="relu"), GCN(24, 24, act="relu"), GCN(24, 24), **model)
    return Trainer(stack, dgraph, TrainConfig(prune=prune, eval_every=10))


@parallel([1, 2, 4], mpi=[])
@pytest.mark.parametrize("prune, gigabytes, is_pruned", [("auto", 64, True), ("auto", 1e-3, False), ("always", 1e-3, True)])  # fmt: skip
def test_rows_are_pruned_where_the_memory_takes_it_or_where_they_always_are(
    comm, monkeypatch, prune, gigabytes, is_pruned
):
    monkeypatch.setattr(module, "memory_bytes", lambda: int(gigabytes * GB))
    rows = trainer(comm, prune, n=3000).steps.rows
    assert rows.is_pruned is is_pruned
    assert is_pruned or rows.why.endswith("over 80% of its 0.0 GB")


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("model", [{}, {"dropout": 0.5}], ids=["kept", "dropped out"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_setting_before_the_operators_are_made_is_theirs_but_for_rows_that_travel(comm, model, sparse):
    found = trainer(comm, "always", sparse=sparse, **model)
    rows, dgraph = found.steps.rows, found.dgraph
    train_n = (found.steps.split_n == 0) & (dgraph.y_n >= 0).numpy()
    masks = needed_rows(dgraph.A, train_n, (1, 1, 1))
    before = pruned_setting(rows.run, dgraph.A, dgraph.X, masks, (1, 1, 1))
    made = setting_of(dgraph.A, dgraph.X, rows.A)
    names = ["T0", "T1", "T2", "T3", *(["step_nnz"] if sparse else [])]
    assert [before.counts[name] for name in names] == [made.counts[name] for name in names] and before == made
    travel = lambda setting: sum(setting.counts[f"{name}{number}"] for name in "sg" for number in (1, 2, 3))
    assert travel(before) >= travel(made)


def test_a_step_holds_three_buffers_of_a_hidden_layer_and_no_fourth():
    graph = random_graph(n=4000, edges=8000, f=8, classes=3, use="undirected")
    dgraph = distribute(graph, SelfCommunicator())
    layers = GCN(8, 64, act="relu"), GCN(64, 64, act="relu"), GCN(64, 3)
    Trainer(Stack(*layers), dgraph, TrainConfig(prune="never")).step(1)
    hidden = 4000 * 64 * 4  # bytes; in backward of layer 2: its input, its gradient before and after A'
    assert 3 * hidden <= dgraph.A.pool.most_used < 3.5 * hidden


@parallel([1, 3], mpi=[])
def test_local_layers_at_the_end_read_the_rows_of_the_loss(comm):
    graph = random_graph(n=60, edges=400, f=6, classes=3, use="undirected")
    graph = replace(graph, split=np.where(np.arange(60) < 58, 0, 2).astype(np.int8))  # with nearly all edges
    model = lambda: Stack(GCN(6, 5, act="relu"), GCN(5, 4, act="relu"), MLP(4, 3)).double()
    losses = []
    for prune in ("never", "always"):
        torch.manual_seed(0)
        made = Trainer(model(), distribute(graph, comm, method="random", dtype="float64"), TrainConfig(prune=prune))
        losses.append([made.step(epoch) for epoch in (1, 2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


@parallel([1, 3], mpi=[])
def test_a_layer_with_nearly_all_edges_shares_the_operator_of_evaluations(comm):
    made = trainer(comm, "always")
    first, second, third = made.steps.rows.A.layers
    assert first is made.dgraph.A and third.n < second.n < second.m == first.n
    assert made.steps.rows.X is made.dgraph.X


def test_the_host_with_least_left_decides_and_a_process_counts_once():
    alone = ["a", 1, 2 * GB, 10 * GB, None, 5 * GB, 1 * GB]
    assert tightest([alone]) == HostMemory(7 * GB, 3 * GB, 10 * GB) and tightest([alone]).fits
    threads = tightest([alone, alone])
    assert threads.pruned == 12 * GB and not threads.fits
    small = ["b", 1, 2 * GB, 8 * GB, None, 5 * GB, 1 * GB]
    assert not tightest([alone, small]).fits and tightest([alone, small]).available == 8 * GB
    limited = alone[:4] + [5 * GB, 5 * GB, 1 * GB]
    assert tightest([limited]) == HostMemory(7 * GB, 3 * GB, 7 * GB) and not tightest([limited]).fits
    assert (
        HostMemory(9 * GB, 10 * GB, 1 * GB).fits and not HostMemory(10 * GB, 9 * GB, 1 * GB).fits
    )  # all rows take more
