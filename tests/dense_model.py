"""The dense float64 model that gradients, loss and logits on ranks are held against."""

import numpy as np
import torch
from dense_operator import DenseOperator
from graphs import dense_operator
from models import Residual

from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Stack
from spgnn.layers.stack import set_epoch
from spgnn.training.trainer import Trainer


def relative(a, b):
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


def make(name, f=6, c=3):
    if name == "wide":  # both orders of the chain occur
        return Stack(GCN(f, 9, act="relu"), GCN(9, 4, act="relu"), GCN(4, 8, act="tanh", norm="layer"), GCN(8, c))
    if name == "residual":
        return Stack(GCN(f, f, act="relu"), GCN(f, f, act="elu", residual=True, bias=False), GCN(f, c))
    return Stack(GCN(f, f), Residual(f), GCN(f, c))


def dense_gradients(graph, model, how):
    """Loss, logits and gradients of the one-process dense model in epoch 1 of seed 0, whose dropout they have."""
    X = graph.X.toarray() if hasattr(graph.X, "toarray") else graph.X
    model = model.double().train()
    set_epoch(model, 0, 1)
    Z = model(dense_operator_of(graph, how), torch.tensor(X, dtype=torch.float64))
    rows = (graph.split == 0) & (graph.y >= 0)
    loss = torch.nn.functional.cross_entropy(Z[rows], torch.from_numpy(graph.y[rows]))
    loss.backward()
    return float(loss.detach()), Z.detach().numpy(), [p.grad.numpy() for p in model.parameters()]


def dense_operator_of(graph, how):
    """The dense operator, which has those of other normalisations."""
    return DenseOperator(dense_operator(graph, how), lambda norm: dense_operator_of(graph, norm))


def dense_logits(graph, model, how):
    """Logits of an evaluation of the one-process dense model."""
    X = graph.X.toarray() if hasattr(graph.X, "toarray") else graph.X
    with torch.no_grad():
        return model.double().eval()(dense_operator_of(graph, how), torch.tensor(X, dtype=torch.float64)).numpy()


def gradients_are_the_dense_ones(comm, graph, model_name, how, prune="never", **options):
    """Compare loss, logits and gradients of a training step; model_name: of `make`, or what makes the model."""
    dgraph = distribute(graph, comm, operator=how, dtype=torch.float64, **options)
    config = TrainConfig(lr=0.0, optimizer="sgd", split="given", prune=prune)
    new = (lambda: make(model_name)) if isinstance(model_name, str) else model_name
    trainer = Trainer(new(), dgraph, config)
    loss = trainer.step(1)
    expected_loss, _, gradients = dense_gradients(graph, new(), how)
    assert abs(loss - expected_loss) <= 1e-10 * expected_loss
    Z = dense_logits(graph, new(), how)
    assert relative(dgraph.collect(trainer.logits().detach().numpy()), Z) <= 1e-10
    # Some gradients are 0: a softmax does not see equal shifts.
    least = 1e-4 * max(np.abs(gradient).max() for gradient in gradients)
    for parameter, gradient in zip(trainer.model.parameters(), gradients):
        scale = max(np.abs(gradient).max(), least)
        assert np.abs(parameter.grad.numpy() - gradient).max() <= 1e-10 * scale
    return trainer
