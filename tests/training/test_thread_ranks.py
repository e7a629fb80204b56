"""Ranks that are threads share what torch keeps once a process: its generator, its cache of casts."""

import pytest
import torch
from graphs import random_graph

import spgnn
from spgnn.errors import UsageError
from spgnn.layers import GCN, Layer, Stack

GRAPH = random_graph(n=30, use="undirected")


class WithModules(Layer):
    """A (H V V') W: modules of torch's own, and a weight that torch's own product reads."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.inner = torch.nn.Sequential(torch.nn.Linear(f_in, 300), torch.nn.Linear(300, f_out))
        self.W_FF = self.weight(f_out, f_out)

    def forward(self, A, H):
        return A @ (self.inner(H) @ self.W_FF)


def trained(comm, dtype):
    dgraph = spgnn.distribute(GRAPH, comm, method="random", dtype=dtype)
    model = Stack(WithModules(6, 40), GCN(40, 3))
    losses = [record["loss"] for record in spgnn.train(model, dgraph, epochs=3, seed=1).records]
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modules_of_torch_train_the_same_time_after_time(dtype):
    first, *others = [spgnn.run_threads(4, trained, dtype)[0] for _ in range(8)]
    for losses, weights in others:
        assert losses == first[0]
        assert all(torch.equal(p, q) for p, q in zip(weights, first[1]))


def test_modules_of_torch_train_as_on_one_rank_and_are_drawn_alike_in_either_precision():
    (alone, _), (on_ranks, _) = (
        spgnn.run_threads(1, trained, torch.float64)[0],
        spgnn.run_threads(4, trained, torch.float64)[0],
    )
    assert on_ranks == pytest.approx(alone, rel=1e-9)
    assert spgnn.run_threads(1, trained, torch.float32)[0][0] == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("in_common", ["model", "layer"])
def test_weights_that_ranks_have_in_common_are_refused(in_common):
    last = GCN(8, 3)
    model = Stack(GCN(6, 8), last)

    def body(comm):
        dgraph = spgnn.distribute(GRAPH, comm, method="random")
        of_rank = model if in_common == "model" else Stack(GCN(6, 8), last if comm.rank != 1 else GCN(8, 3))
        spgnn.train(of_rank, dgraph, epochs=1)

    with pytest.raises(UsageError, match=f"ranks 0, {'1, ' if in_common == 'model' else ''}2 share weights"):
        spgnn.run_threads(3, body)
