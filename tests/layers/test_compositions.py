"""What a chain returns may be read by several things, in any order, and what A @ H returns be written to: gradients stay exact."""

import pytest
import torch
from dense_model import dense_gradients, relative
from dense_operator import DenseOperator
from graphs import dense_operator, random_graph
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import GCN, Layer, Stack
from spgnn.spmm.chains.dropout import dropout
from spgnn.spmm.chains.loss import cross_entropy
from spgnn.training.trainer import Trainer


@pytest.fixture(autouse=True)
def every_buffer_is_of_the_pool(monkeypatch):
    monkeypatch.setattr("spgnn.spmm.kernels.buffers.SMALL", 1)


def written_to(A, H, W, V):
    Z = A @ H
    Z += H
    return torch.relu(Z @ W) @ V


EQUATIONS = {
    "skip behind": lambda A, H, W, V: A.chain(H, W) + H @ V,
    "skip before": lambda A, H, W, V: H @ V + A.chain(H, W),
    "two chains": lambda A, H, W, V: A.chain(H, W) * torch.sigmoid(A.chain(H, V)),
    "the same chain twice": lambda A, H, W, V: A.chain(H, W) + A.chain(H, W) @ V,
    "chain and product": lambda A, H, W, V: A.chain(H, W) + (A @ H) @ V,
    "chain of a chain": lambda A, H, W, V: A.chain(A.chain(H, W, relu=True), V) + H,
    "relu in place": lambda A, H, W, V: torch.relu_(A.chain(H, W)) @ V + (A @ H).mul_(2),
    "a slice in place": lambda A, H, W, V: torch.cat([(A @ H)[:, :2].mul_(3), A.chain(H, W)[:, 2:].relu_()], dim=1) @ V,
    "written to": written_to,
}


class Block(Layer):
    def __init__(self, f, name):
        super().__init__(f, f)
        self.W_FF, self.V_FF = self.weight(f, f), self.weight(f, f)
        self.equation = EQUATIONS[name]

    def forward(self, A, H_nF):
        return self.equation(A, H_nF, self.W_FF, self.V_FF)


def trainer_of(model, comm=None, **options):
    dgraph = distribute(random_graph(), comm or SelfCommunicator(), **options)
    return Trainer(model, dgraph, TrainConfig(lr=0.0, optimizer="sgd", split="given"))


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("name", EQUATIONS)
@pytest.mark.parametrize("where", ["on X", "on a chain", "on a chain that narrows"])
def test_gradients_of_compositions_are_the_dense_ones(comm, name, where):
    def model():
        if where == "on X":
            return Stack(Block(6, name), GCN(6, 3))
        f = 8 if where == "on a chain" else 5
        return Stack(GCN(6, f, act="relu"), Block(f, name), GCN(f, 3))

    trainer = trainer_of(model(), comm, dtype=torch.float64, method="block")
    expected_loss, _, gradients = dense_gradients(random_graph(), model(), "gcn")
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
    trainer = trainer_of(Stack(GCN(6, 8, act="relu"), layer(8, 8), GCN(8, 3)))
    with pytest.raises(UsageError, match="was changed in place, and backward reads it"):
        trainer.step(1)


class Seen(Layer):
    """Hands the input H of a chain to `look`."""

    def __init__(self, f, look):
        super().__init__(f, f)
        self.W_FF, self.look = self.weight(f, f), look

    def forward(self, A, H_nF):
        self.look(H_nF)
        return A.chain(H_nF, self.W_FF, relu=True)


def normed(H):
    H.register_hook(lambda G: G / G.norm())


def doubled(H):
    def double(G):
        G.data.mul_(2)  # whose version stays

    H.register_hook(double)


def kept(H, into):
    H.register_hook(lambda G: into.append(G))


@pytest.mark.parametrize("look", [normed, doubled])
def test_a_hook_on_what_a_chain_returned_sees_its_gradient_and_may_change_it(look):
    make = lambda: Stack(GCN(6, 8, act="relu"), Seen(8, look), GCN(8, 3))
    trainer = trainer_of(make(), dtype=torch.float64)
    trainer.step(1)
    for parameter, gradient in zip(trainer.model.parameters(), dense_gradients(random_graph(), make(), "gcn")[2]):
        assert relative(parameter.grad.numpy(), gradient) <= 1e-10


@pytest.mark.parametrize("how", ["retain_grad", "grad", "hook"])
def test_the_gradient_of_what_a_chain_returned_is_whole_and_stays(how):
    graph = random_graph()
    X, W, V = (
        torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(i))
        for i, shape in enumerate([(40, 6), (6, 8), (8, 8)])
    )
    found = []
    for A in (
        distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False, keep=False).A,
        DenseOperator(dense_operator(graph)),
    ):
        into, W1 = [], W.clone().requires_grad_()
        H = A.chain(X, W1, relu=True)
        loss = (A.chain(H, V) ** 2).sum()
        if how == "grad":
            found.append(torch.autograd.grad(loss, [H, W1]))
            continue
        H.retain_grad() if how == "retain_grad" else kept(H, into)
        loss.backward()
        found.append((H.grad if how == "retain_grad" else into[0], W1.grad))
    for ours, dense in zip(*found):
        assert relative(ours.numpy(), dense.numpy()) <= 1e-10


@pytest.mark.parametrize("product", [
    lambda A, H: A @ H, lambda A, H: A.chain(H, torch.ones(6, 4).double()), lambda A, H: A.chain(H, torch.ones(6, 9).double(), relu=True), lambda A, H: dropout(A, H, 0.5, 7),
    lambda A, H: cross_entropy(A.chain(H, torch.ones(6, 3).double()), torch.zeros(40, dtype=torch.int64), 40, A.pool),
])  # fmt: skip
def test_a_gradient_of_a_gradient_is_refused(product):
    A = distribute(random_graph(), SelfCommunicator(), dtype=torch.float64, keep=False).A
    H = torch.randn(40, 6, dtype=torch.float64).requires_grad_()
    loss = (product(A, H) ** 2).sum()
    with pytest.raises(UsageError, match="double backward through A is not supported"):
        torch.autograd.grad(loss, H, create_graph=True)


def test_a_gradient_of_x_is_right_or_refused_where_a_x_is_kept():
    graph = random_graph()
    D, W = torch.from_numpy(dense_operator(graph)), torch.randn(6, 4, dtype=torch.float64)
    for keep in (False, True):
        dgraph = distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False, keep=keep)
        X = dgraph.X.requires_grad_()
        for product in (lambda: dgraph.A @ X @ W, lambda: dgraph.A.chain(X, W)):
            if keep:
                with pytest.raises(UsageError, match="X requires a gradient, but A X is cached"):
                    product()
                continue
            (G,) = torch.autograd.grad((product() ** 2).sum(), X)
            assert relative(G.numpy(), (2 * D.T @ D @ X.detach() @ W @ W.T).numpy()) <= 1e-10


def test_an_x_that_was_changed_in_place_is_refused_where_a_x_is_kept():
    dgraph = distribute(random_graph(), SelfCommunicator(), dtype=torch.float64)
    dgraph.X.relu_()
    with pytest.raises(UsageError, match="X was changed in place, but A X is cached"):
        dgraph.A @ dgraph.X


def test_logits_are_those_of_inference_mode_and_stay_what_they_are_unless_a_step_owns_them():
    trainer = trainer_of(Stack(GCN(6, 8, act="relu"), GCN(8, 3)))
    expected = trainer.logits()
    with torch.inference_mode():
        assert torch.equal(trainer.logits(), expected)
    Z = trainer.steps.forward(1)
    before = Z.detach().clone()
    assert trainer.steps.loss(Z).item() == trainer.steps.loss(Z).item() and torch.equal(Z.detach(), before)


@pytest.mark.parametrize("shape", [(1, 4), (40, 4), (3,), ()])
@pytest.mark.parametrize("width", [4, 9])
def test_a_bias_of_another_shape_is_refused_in_either_order(shape, width):
    A = distribute(random_graph(), SelfCommunicator(), dtype=torch.float64, keep=False).A
    with pytest.raises(ShapeError, match="the bias of a chain has shape"):
        A.chain(torch.ones(40, 6).double(), torch.ones(6, width).double(), torch.ones(shape).double())
