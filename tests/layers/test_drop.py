"""A.drop: dropout within a layer has one mask for each draw, the same on any ranks."""

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist.base import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, GIN, MLP, SAGE, SGC, Layer, MixHop, Stack
from spgnn.layers.stack import set_epoch
from spgnn.training.trainer import Trainer

GRAPH = random_graph(n=20, edges=60)


class Dropped(Layer):
    """H under two masks, side by side."""

    def forward(self, A, H_nF):
        return torch.cat([A.drop(H_nF, 0.5), A.drop(H_nF, 0.5, draw=2)], dim=1)


def dropped(comm, is_trained=True):
    """(N, 8): zeros and twos where ones were dropped."""
    A = distribute(GRAPH, comm, method="random", dtype=torch.float64).A
    stack = Stack(Dropped(4, 8)).train(is_trained)
    set_epoch(stack, seed=3, epoch=1)
    whole = np.zeros((GRAPH.n_nodes, 8))
    whole[A.node_n] = stack(A, torch.ones(A.n, 4, dtype=torch.float64)).numpy()
    return comm.all_reduce(whole)


@parallel([1, 3], mpi=[2])
def test_a_mask_depends_on_draw_and_node_and_not_on_ranks(comm):
    found = dropped(comm)
    assert set(np.unique(found)) == {0.0, 2.0}
    assert not np.array_equal(found[:, :4], found[:, 4:])
    np.testing.assert_array_equal(found, dropped(SelfCommunicator()))


def test_nothing_is_dropped_in_an_evaluation():
    assert (dropped(SelfCommunicator(), is_trained=False) == 1).all()


def test_a_layer_that_is_in_no_stack_does_not_drop_in_silence():
    A = distribute(GRAPH, SelfCommunicator()).A
    with pytest.raises(UsageError, match="needs a Stack"):
        Dropped(4, 8)(A, torch.ones(A.n, 4))


LAYERS = {
    "gcn": lambda C: GCN(6, C, act="relu"),
    "sage": lambda C: SAGE(6, C, act="relu"),
    "sage cat": lambda C: SAGE(6, C, "sum", "cat", act="relu"),
    "gin": lambda C: GIN(6, 5, hidden=C, train_eps=True),
    "mixhop": lambda C: MixHop(6, 6 * C),
    "mixhop without power 0": lambda C: MixHop(6, C + 1, powers=(1, 2)),
    "mixhop, a sum": lambda C: MixHop(6, C, combine="sum"),
    "sgc": lambda C: SGC(6, C, powers=2),
}


@parallel([3, 4], mpi=[])
@pytest.mark.parametrize("kind", ["dense, A H first", "dense, H W first", "sparse"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_first_layer_reads_its_cached_ghosts_under_dropout(comm, name, kind):
    """Of several products with A, those after the first one travel; in 1.5D sums over the process row do."""
    make = lambda: LAYERS[name](5 if kind == "dense, A H first" else 2)
    model = lambda: Stack(make(), MLP(make().f_out, 3), dropout=0.4)
    graph, c = random_graph(sparse=kind == "sparse"), 2 if comm.size == 4 else 1
    for prune in ("never", "always") if model().layers[0].hops == 1 else ("never",):
        trainer = gradients_are_the_dense_ones(comm, graph, model, "gcn", prune, method="random", replication=c)
        comm.traffic.reset()
        trainer.step(1)
        run = trainer.steps.rows.step_run
        later = [p for p in run.passes("forward", "backward").exchanges if p.kind != "sum"]
        assert bool(later) == (model().layers[0].hops > 1)
        rows = [comm.traffic.sent_bytes(label=f"layer 1 {way}").sum() for way in ("forward", "backward")]
        sums = [comm.traffic.sent_bytes(label=f"layer 1 {way} sum").sum() for way in ("forward", "backward")]
        assert bool(later) or not any(rows)
        assert sum(rows) + sum(sums) == trainer.steps.sent_bytes()


@parallel([3], mpi=[])
def test_a_sparse_x_whose_product_would_fill_up_sends_nothing_after_set_up(comm):
    graph = random_graph(n=300, edges=6000, f=40, sparse=True)
    trainer = gradients_are_the_dense_ones(comm, graph, lambda: Stack(GCN(40, 3)), "gcn", method="random")
    assert trainer.dgraph.A.kept is None and trainer.dgraph.setup_bytes > 0
    assert trainer.steps.rows.run.layer(1).order == "gemm_first" and trainer.steps.sent_bytes() == 0


@parallel([2], mpi=[])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_ghosts_change_the_loss_by_rounding_alone(comm, dtype):
    losses = {}
    for keep in (True, False):
        dgraph = distribute(random_graph(), comm, method="random", dtype=dtype, keep=keep)
        trainer = Trainer(Stack(GCN(6, 2, act="relu"), GCN(2, 3), dropout=0.4), dgraph, TrainConfig(split="given"))
        losses[keep] = [trainer.step(epoch) for epoch in (1, 2, 3)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-5 if dtype == torch.float32 else 2e-2)
