"""What a chain returns may be read by several things, in any order, and what A @ H returns be written to: gradients stay exact."""

import pytest
import torch
from dense_model import dense_gradients, relative
from graphs import random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, Layer, Stack
from spgnn.training.loop import Trainer


def skip_before(A, H, W, V):
    S = H @ V
    return A.chain(H, W) + S


def written_to(A, H, W, V):
    Z = A @ H
    Z += H
    return torch.relu(Z @ W) @ V


EQUATIONS = {
    "skip behind": lambda A, H, W, V: A.chain(H, W) + H @ V,
    "skip before": skip_before,
    "two chains": lambda A, H, W, V: A.chain(H, W) * torch.sigmoid(A.chain(H, V)),
    "the same chain twice": lambda A, H, W, V: A.chain(H, W) + A.chain(H, W) @ V,
    "chain and product": lambda A, H, W, V: A.chain(H, W) + (A @ H) @ V,
    "chain of a chain": lambda A, H, W, V: A.chain(A.chain(H, W, relu=True), V) + H,
    "written to": written_to,
}


class Block(Layer):
    def __init__(self, f, name):
        super().__init__(f, f)
        self.W_FF, self.V_FF = self.weight(f, f), self.weight(f, f)
        self.equation = EQUATIONS[name]

    def forward(self, A, H_nF):
        return self.equation(A, H_nF, self.W_FF, self.V_FF)


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("name", EQUATIONS)
@pytest.mark.parametrize("where", ["on X", "on a chain", "on a chain that narrows"])
def test_gradients_of_compositions_are_the_dense_ones(comm, name, where):
    def model():
        if where == "on X":
            return Stack(Block(6, name), GCN(6, 3))
        return Stack(GCN(6, 8, act="relu"), Block(8, name), GCN(8, 3)) if where == "on a chain" else Stack(GCN(6, 5, act="relu"), Block(5, name), GCN(5, 3))

    graph = random_graph()
    trainer = Trainer(model(), distribute(graph, comm, dtype=torch.float64, method="block"), TrainConfig(lr=0.0, optimizer="sgd", split="given"))
    expected_loss, _, gradients = dense_gradients(graph, model(), "gcn")
    for epoch in (1, 2):
        assert abs(trainer.step(epoch) - expected_loss) <= 1e-10 * expected_loss
        for parameter, gradient in zip(trainer.model.parameters(), gradients):
            assert relative(parameter.grad.numpy(), gradient) <= 1e-10


class Halved(Layer):
    def forward(self, A, H_nF):
        return H_nF.mul_(0.5)


class HalvedAndMultiplied(GCN):
    def forward(self, A, H_nF):
        return super().forward(A, H_nF.mul_(0.5))


@pytest.mark.parametrize("layer", [Halved, HalvedAndMultiplied])
def test_a_relu_that_was_changed_in_place_is_told_in_backward(layer):
    model = Stack(GCN(6, 8, act="relu"), layer(8, 8), GCN(8, 3))
    trainer = Trainer(model, distribute(random_graph(), SelfCommunicator()), TrainConfig(split="given"))
    with pytest.raises(UsageError, match="was changed in place, and backward reads it"):
        trainer.step(1)
