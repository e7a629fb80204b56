"""A Stack within a Stack or a module of one's own draws by seed and epoch as one alone does; what may draw is scored apart."""

import numpy as np
import pytest
import torch
from graphs import random_graph
from torch.nn.functional import dropout
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Layer, Stack
from spgnn.layers.stack import stacks_of
from spgnn.training.trainer import Trainer


class Named(torch.nn.Module):
    """Two Stacks in a module of one's own."""

    def __init__(self):
        super().__init__()
        self.encoder = Stack(GCN(6, 8, act="relu"), GCN(8, 8), dropout=0.5)
        self.decoder = Stack(GCN(8, 3), dropout=0.5)

    def forward(self, A, X):
        return self.decoder(A, self.encoder(A, X))


class Derived(Stack):
    def forward(self, A, X, seed=0, epoch=0):
        return super().forward(A, X, seed=seed, epoch=epoch) * 2


MODELS = {
    "alone": lambda: Stack(GCN(6, 8, act="relu"), GCN(8, 3), dropout=0.5),
    "in a Stack": lambda: Stack(Stack(GCN(6, 8, act="relu"), GCN(8, 8), dropout=0.5), GCN(8, 3)),
    "in a module": Named,
    "of a subclass": lambda: Derived(GCN(6, 8, act="relu"), GCN(8, 3), dropout=0.5),
}


@torch.no_grad()
def made(name):
    """The model with weights that no seed of a training changes."""
    model, generator = MODELS[name](), torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        parameter.uniform_(-0.5, 0.5, generator=generator)
    for stack in stacks_of(model):
        stack.is_trained = True
    return model


def losses(comm, model, seed=0, epochs=(1, 2, 3)):
    trainer = Trainer(
        model,
        distribute(random_graph(), comm, dtype=torch.float64),
        TrainConfig(lr=0.0, optimizer="sgd", split="given", seed=seed),
    )
    return [trainer.step(epoch) for epoch in epochs]


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("name", MODELS)
def test_masks_differ_by_epoch_and_seed_and_do_not_depend_on_ranks(comm, name):
    found = losses(comm, made(name), epochs=(1, 2, 3, 1))
    assert len({round(loss, 9) for loss in found}) == 3 and found[0] == found[3]
    np.testing.assert_allclose(losses(SelfCommunicator(), made(name)), found[:3], rtol=1e-12)
    assert not np.isclose(losses(SelfCommunicator(), made(name), seed=1), found[:3], rtol=1e-6).any()


def test_two_stacks_of_a_model_draw_apart():
    model = Named().train()
    trainer = Trainer(model, distribute(random_graph(), SelfCommunicator()), TrainConfig(split="given"))
    trainer.steps.forward(1)
    assert [model.encoder.number, model.decoder.number] == [0, 1] and model.decoder.epoch == 1


def test_weights_of_a_stack_in_a_stack_are_drawn_from_the_seed():
    weights = []
    for seed in (0, 0, 1):
        model = MODELS["in a Stack"]()
        Trainer(model, distribute(random_graph(), SelfCommunicator()), TrainConfig(split="given", seed=seed))
        weights.append(model.layers[0].layers[0].W_FC.detach().clone())
    assert torch.equal(weights[0], weights[1]) and not torch.allclose(weights[0], weights[2])


def test_a_layer_alone_is_drawn_from_torchs_generator():
    torch.manual_seed(3)
    one = GCN(6, 4).W_FC
    torch.manual_seed(3)
    assert torch.equal(one, GCN(6, 4).W_FC) and one.detach().abs().sum() > 0


@parallel([3], mpi=[2])
def test_weights_that_were_loaded_and_buffers_are_those_of_rank_0(comm):
    model = Stack(GCN(6, 4), GCN(4, 3))
    model.load_state_dict({name: torch.full_like(W, 1.0 + comm.rank) for name, W in model.state_dict().items()})
    model.register_buffer("projection", torch.full((3, 3), float(comm.rank)))
    model.register_buffer("count", torch.tensor(comm.rank))
    Trainer(model, distribute(random_graph(), comm), TrainConfig(split="given"))
    assert all(float(weight.detach().min()) == float(weight.detach().max()) == 1 for weight in model.parameters())
    assert float(model.projection.sum()) == 0 and int(model.count) == 0


class DropsByFunction(Layer):
    def forward(self, A, H_nF):
        return dropout(H_nF, 0.8, self.training)


class DroppedGCN(GCN):
    def forward(self, A, H_nF):
        return super().forward(A, dropout(H_nF, 0.8, self.training))


class DroppedAfter(GCN):
    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.drop = torch.nn.Dropout(0.8)

    def forward(self, A, H_nF):
        return self.drop(super().forward(A, H_nF))


@pytest.mark.parametrize("layer", [GCN, DropsByFunction, DroppedGCN, DroppedAfter])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_scores_of_an_epoch_are_those_of_an_evaluation_of_its_weights_whatever_a_layer_draws(layer, rate):
    torch.manual_seed(0)
    model = Stack(GCN(6, 8, act="relu"), layer(8, 8), GCN(8, 3), dropout=rate)
    assert model.is_random == (layer is not GCN or rate > 0)
    trainer = Trainer(
        model,
        distribute(random_graph(n=200, edges=900), SelfCommunicator()),
        TrainConfig(split="given", epochs=5, lr=0.05),
    )
    seen = []
    trainer.fit(lambda record: seen.append((record["val"], trainer.state_dict()["model"])))
    for val, state in seen:
        model.load_state_dict(state)
        Z_nC = trainer.logits()
        is_val_n = (trainer.steps.split_n == 1) & (trainer.dgraph.y_n >= 0).numpy()
        right_n = Z_nC.argmax(1) == trainer.dgraph.y_n
        assert val == pytest.approx(float(right_n[torch.from_numpy(is_val_n)].double().mean()))
