"""P-invariance: loss, gradients, logits and trained weights equal the dense float64 model."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones, make, relative
from graphs import random_graph
from worlds import parallel, some

from spgnn import train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import PartitionError, RankError
from spgnn.layers import GCN, Stack
from spgnn.training.trainer import Trainer


@parallel([1, 3, 4, 16], mpi=[4], only=lambda given: given["method"] == "random" and given["scheme"] == "cover")
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("method", ["block", "random", "metis"])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_loss_logits_and_gradients_equal_the_dense_model_and_replicated_rows_count_once(comm, scheme, method, use):
    for model_name, sparse, how in some(
        comm, (("wide", False, "gcn"), ("own", True, "gcn"), ("residual", False, "row"))
    ):
        graph, c = random_graph(n=30, edges=120, sparse=sparse, weighted=True, use=use), {4: 2, 16: 4}.get(comm.size, 1)
        options = dict(scheme=scheme, method=method, replication=c, keep=how == "gcn" or c == 1)
        gradients_are_the_dense_ones(comm, graph, model_name, how, **options)


@parallel([1, 3, 4], mpi=[4], only=lambda given: given["scheme"] == "cover")
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_pruned_steps_give_the_same_gradients_and_evaluations_all_rows(comm, scheme, keep, use):
    for model_name, sparse, how in some(
        comm, (("wide", False, "gcn"), ("wide", True, "row"), ("residual", False, "row"), ("residual", True, "gcn"))
    ):
        graph = random_graph(n=40, edges=60, sparse=sparse, weighted=True, use=use, train_every=9)
        options = dict(scheme=scheme, method="random", replication=1 if comm.size % 4 else 2, keep=keep)
        trainer = gradients_are_the_dense_ones(comm, graph, model_name, how, prune="always", **options)
        assert trainer.steps.rows.is_pruned and trainer.steps.rows.X is not None


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_training_with_dropout_and_weight_decay_is_the_same_on_any_ranks(comm, optimizer, sparse):
    graph = random_graph(n=50, edges=200, sparse=sparse, use="undirected")
    options = dict(epochs=8, lr=0.05, weight_decay=1e-2, optimizer=optimizer, seed=4, decay_layers="first")

    def trained(comm, **more):
        model = Stack(GCN(6, 8, act="relu"), GCN(8, 3), dropout=0.4)
        history = train(model, distribute(graph, comm, dtype=torch.float64, **more), **options)
        return history, [p.detach().numpy() for p in model.parameters()]

    alone, weights = trained(SelfCommunicator())
    schemes, grids = ("cover", "columns", "broadcast"), [c for c in (1, 2) if comm.size % (c * c) == 0]
    for scheme, c in product(schemes, grids):
        history, spread = trained(comm, method="random", scheme=scheme, replication=c)
        np.testing.assert_allclose([r["loss"] for r in history.records], [r["loss"] for r in alone.records], rtol=1e-10)
        for key in ("train", "val", "test"):
            assert [r[key] for r in history.records] == [r[key] for r in alone.records]
        assert (history.best_epoch, history.test) == (alone.best_epoch, alone.test)
        assert all(relative(a, b) <= 1e-9 for a, b in zip(spread, weights))


@parallel([1, 4], mpi=[])
def test_float32_stays_within_1e_5_of_float64(comm):
    graph = random_graph(n=60, edges=300, use="undirected")
    curves = []
    for dtype in (torch.float32, torch.float64):
        model = Stack(GCN(6, 16, act="relu"), GCN(16, 3))
        history = train(
            model, distribute(graph, comm, method="random", dtype=dtype), epochs=10, optimizer="sgd", lr=0.1
        )
        curves.append([r["loss"] for r in history.records])
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-5)


@parallel([3], mpi=[])
@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32"])
def test_labels_of_any_integer_type_travel(comm, kind):
    graph = random_graph(use="undirected")
    graph = replace(graph, y=np.maximum(graph.y, 0).astype(kind))
    dgraph = distribute(graph if comm.rank == 0 else None, comm, method="random")
    assert np.array_equal(dgraph.collect(dgraph.y_n.numpy()), graph.y) and dgraph.n_classes == 3


@parallel([2], mpi=[4])
@pytest.mark.parametrize("is_everywhere", [True, False])
def test_a_partition_that_is_no_array_is_refused_on_all_ranks(comm, is_everywhere):
    graph = random_graph() if is_everywhere or comm.rank == 0 else None
    with pytest.raises((PartitionError, RankError), match="a ragged list"):
        distribute(graph, comm, [[0], [0, 1]] if comm.rank == 0 else None)


@parallel([3, 4], mpi=[])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_a_narrow_wire_changes_neither_the_operator_nor_the_rows_that_are_pruned(comm, scheme):
    graph = random_graph(n=40, edges=80, weighted=True, use="directed", train_every=9)
    plain, narrow = (
        distribute(graph, comm, method="random", scheme=scheme, dtype=torch.float64, wire=wire, wire_gradients=wire)
        for wire in ("float32", "bfloat16")
    )
    for block in ("A_oo", "A_og"):
        assert (getattr(plain.A.blocks, block).toarray() == getattr(narrow.A.blocks, block).toarray()).all()
    config = TrainConfig(split="given", prune="always")
    masks = [Trainer(make("wide"), dgraph, config).steps.rows.A.masks for dgraph in (plain, narrow)]
    assert all(np.array_equal(a, b) for a, b in zip(*masks))
