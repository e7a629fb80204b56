"""Training part by part, layer by layer from disk, is the training in memory: losses, weights, scores, on any ranks and parts."""

import os

import numpy as np
import pytest
import torch
from graphs import KINDS, random_graph
from part_folders import parts_of
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute, merge_parts
from spgnn.layers import APPNP, GAT, GCN, GCNII, GIN, MLP, SAGE, SGC, MixHop, Stack
from spgnn.training.parts.out_of_core_step import OutOfCoreStep
from spgnn.training.trainer import Trainer, weights_of

norm = torch.nn.BatchNorm1d

MODELS = {
    "gcn": lambda **o: Stack(GCN(6, 8, act="relu"), GCN(8, 7, act="elu", norm="layer"), GCN(7, 3), **o),
    "gcn residual": lambda **o: Stack(GCN(6, 6, act="relu", residual=True), GCN(6, 3), **o),
    "sage": lambda **o: Stack(SAGE(6, 8, act="relu"), SAGE(8, 3, "gcn"), **o),
    "sage max": lambda **o: Stack(SAGE(6, 8, "max", act="relu"), SAGE(8, 3, "max"), **o),
    "gat": lambda **o: Stack(GAT(6, 8, 4, dropout=o["dropout"], act="elu"), GAT(8, 3, 2, merge="mean", dropout=o["dropout"]), **o),
    "gin": lambda **o: Stack(GIN(6, 8, hidden=7, train_eps=True, act="relu"), GIN(8, 3), **o),
    "sgc": lambda **o: Stack(SGC(6, 3, 3), **o),
    "appnp": lambda **o: Stack(MLP(6, 3), APPNP(3, 4, dropout=o["dropout"]), **o),
    "gcnii": lambda **o: Stack(MLP(6, 5, act="relu"), GCNII(5, 3, dropout=o["dropout"]), MLP(5, 3), **o),
    "mixhop": lambda **o: Stack(MixHop(6, 9, (0, 1, 3)), MixHop(9, 3, (1, 2), combine="sum"), **o),
    "batch norm": lambda **o: Stack(norm(6), GCN(6, 8), norm(8), torch.nn.ReLU(), GCN(8, 5), norm(5), GCN(5, 3), **o),
    "mlp": lambda **o: Stack(MLP(6, 5, act="relu"), torch.nn.Dropout(o["dropout"]), MLP(5, 3), **o),
}  # fmt: skip


def small(kind="undirected", k=4, n=60):
    """A graph with labels and a split, and unequal parts."""
    graph = random_graph(n=n, edges=3 * n, seed=1, **KINDS[kind])
    owner_N = np.random.default_rng(3).integers(0, k, n)
    owner_N[:k], owner_N[k : n // 3] = np.arange(k), 0
    return graph, owner_N


def options_of(**more):
    return TrainConfig(**{"epochs": 4, "lr": 0.05, "weight_decay": 0.01, "seed": 3, "prune": "never"} | more)


def out_of_core(make, graph, owner_N, comm, scratch="", dtype="float64", **more):
    """The Trainer of a training out of core."""
    parts = parts_of(graph, owner_N, comm, hops=1, dtype=dtype, threads=1)
    step = lambda model, dgraph, config: OutOfCoreStep(model, dgraph, config, parts, scratch)
    return Trainer(make().to(getattr(torch, dtype)), merge_parts(parts, has_rows=False), options_of(**more), step)


def in_memory(make, graph, **more):
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", threads=1)
    return Trainer(make().double(), dgraph, options_of(**more))


def check_equal(trainer, expected):
    """Compare losses, scores, weights and buffers."""
    for name in ("loss", "train", "val", "test"):
        found, wanted = ([record[name] for record in t.history.records] for t in (trainer, expected))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    found, wanted = weights_of(trainer.model), weights_of(expected.model)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["undirected", "weighted directed"])
@pytest.mark.parametrize("name", MODELS)
def test_each_family_trains_as_in_memory(name, kind, dropout, tmp_path):
    graph, owner_N = small(kind)
    make = lambda: MODELS[name](dropout=dropout)
    trainer, expected = out_of_core(make, graph, owner_N, SelfCommunicator(), tmp_path), in_memory(make, graph)
    trainer.fit()
    expected.fit()
    check_equal(trainer, expected)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["gcn", "batch norm", "gat"])
@pytest.mark.parametrize("k", [1, 7])
@parallel([2, 3], mpi=[2])
def test_any_ranks_and_parts_train_as_in_memory(comm, name, k, tmp_path):
    graph, owner_N = small("weighted directed", k)
    make = lambda: MODELS[name](dropout=0.3)
    trainer, expected = out_of_core(make, graph, owner_N, comm, tmp_path), in_memory(make, graph)
    trainer.fit()
    expected.fit()
    check_equal(trainer, expected)
    comm.barrier()
    assert os.listdir(tmp_path) == []
