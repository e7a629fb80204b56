"""The optimizer moves weights as torch.optim's classes do."""

import sys

import pytest
import torch
from graphs import random_graph

from spgnn import train
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import GCN, Stack
from spgnn.training import Trainer, optimizer


@pytest.mark.parametrize("rule", ["sgd", "adam"])
@pytest.mark.parametrize("decay_layers", ["all", "first"])
@pytest.mark.parametrize("is_on_device", [False, True])
def test_weights_move_as_with_torchs_classes(rule, decay_layers, is_on_device, monkeypatch):
    adam = optimizer.adam
    if is_on_device:  # Adam's foreach form, which counts its steps in a tensor
        foreach = lambda *args, **kinds: adam(*args, **kinds | {"foreach": True, "capturable": True})
        monkeypatch.setattr(sys.modules[adam.__module__], "_get_capturable_supported_devices", lambda **_: ["cpu"])
        monkeypatch.setattr(optimizer, "adam", foreach)
    config = TrainConfig(optimizer=rule, lr=0.1, weight_decay=0.3, decay_layers=decay_layers)
    ours, theirs = (Stack(GCN(3, 4), GCN(4, 2)).double() for _ in range(2))
    layers = theirs.layers
    decay = 0.3 if decay_layers == "all" else 0.0
    groups = [
        {"params": list(layers[0].parameters()), "weight_decay": 0.3},
        {"params": list(layers[1].parameters()), "weight_decay": decay},
    ]
    reference = (torch.optim.SGD if rule == "sgd" else torch.optim.Adam)(groups, lr=0.1)
    moved = optimizer.make_optimizer(ours, config)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        for p, q in zip(ours.parameters(), theirs.parameters()):
            p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator)
            q.grad = p.grad.clone()
        moved.step()
        reference.step()
    assert all(torch.allclose(p, q, rtol=1e-14) for p, q in zip(ours.parameters(), theirs.parameters()))
    moved.zero_grad()
    assert all(p.grad is None for p in ours.parameters())


def test_a_model_with_nothing_to_train_is_refused():
    dgraph = distribute(random_graph(), SelfCommunicator())
    frozen = Stack(GCN(dgraph.n_features, dgraph.n_classes)).requires_grad_(False)
    with pytest.raises(UsageError, match="no weight of the model requires a gradient"):
        train(frozen, dgraph, epochs=1)


@pytest.mark.parametrize("is_trained, message", [(True, "requires no gradient"), (False, "requires a gradient")])
def test_weights_that_are_frozen_or_freed_after_the_trainer_was_made_are_refused(is_trained, message):
    dgraph = distribute(random_graph(), SelfCommunicator())
    model = Stack(GCN(dgraph.n_features, 4), GCN(4, dgraph.n_classes))
    model.layers[0].requires_grad_(is_trained)
    trainer = Trainer(model, dgraph, TrainConfig(epochs=2))
    trainer.step(1)
    model.layers[0].requires_grad_(not is_trained)
    with pytest.raises(UsageError, match=message):
        trainer.step(2)
