"""A.drop: dropout within a layer has one mask for each draw, the same on any ranks."""

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from worlds import parallel

from spgnn.dist.alone import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, GIN, MLP, SAGE, Layer, MixHop, Stack
from spgnn.layers.stack import set_epoch

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


@parallel([3, 4], mpi=[])
@pytest.mark.parametrize("make", [
    lambda: GCN(6, 5), lambda: SAGE(6, 5), lambda: GIN(6, 5, hidden=9), lambda: MixHop(6, 30),
], ids=["gcn", "sage", "gin", "mixhop"])  # fmt: skip
def test_a_layer_that_multiplies_x_first_reads_its_cached_ghosts_under_dropout(comm, make):
    def model():
        return Stack(make(), MLP(make().f_out, 3), dropout=0.4)

    c = 2 if comm.size == 4 else 1
    trainer = gradients_are_the_dense_ones(comm, random_graph(), model, "gcn", method="random", replication=c)
    comm.traffic.reset()
    trainer.step(1)
    sent = (
        comm.traffic.sent_bytes(label="layer 1 forward").sum() + comm.traffic.sent_bytes(label="layer 1 backward").sum()
    )
    first = [p for p in trainer.steps.rows.run.of_pass("forward", "backward") if p.rows != "sum"]
    if isinstance(trainer.model.layers[0], MixHop):  # the second power of A
        assert [p.pass_name for p in first] == ["forward"]
    else:
        assert sent == 0 and not first
