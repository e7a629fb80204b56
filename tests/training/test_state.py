"""A training that goes on from a saved state is the uninterrupted one, bit for bit."""

import json

import pytest
import torch
from graphs import random_graph
from safetensors.torch import load, save
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import CheckpointError
from spgnn.layers import GCN, Stack
from spgnn.training import Trainer

CASES = {
    "adam": {},
    "adam, dropout": {"dropout": 0.4, "decay_layers": "first", "weight_decay": 0.05},
    "sgd, dropout": {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.01, "dropout": 0.4},
    "narrow wires, dropout": {"wire": "bfloat16", "dropout": 0.4},
    "pruned": {"prune": "always"},
    "patience, dropout": {"patience": 3, "epochs": 60, "dropout": 0.4},
    "patience, scored now and then": {"patience": 4, "eval_every": 3, "epochs": 60, "dropout": 0.2},
}


def trainer_of(comm, dropout=0.0, hidden=5, wire="float32", **options) -> Trainer:
    graph = random_graph(n=60, edges=300, use="undirected")
    dgraph = distribute(graph, comm, method="random", wire=wire, wire_gradients=wire)
    model = Stack(GCN(6, hidden, act="relu", norm="layer"), GCN(hidden, 3), dropout=dropout)
    return Trainer(model, dgraph, TrainConfig(**{"epochs": 9, "lr": 0.05} | options))


def stored(state: dict) -> dict:
    """Return a state as its files would give it back."""
    tensors = {part: load(save(state[part])) for part in ("model", "optimizer", "best")}
    return json.loads(json.dumps({part: value for part, value in state.items() if part not in tensors})) | tensors


def results(trainer: Trainer) -> tuple:
    untimed = [{name: value for name, value in r.items() if name != "epoch_s"} for r in trainer.history.records]
    history = trainer.history
    return untimed, history.best_epoch, history.scores, history.per_class, history.bytes_sent, history.bytes_predicted


def assert_same(trainer: Trainer, expected: Trainer) -> None:
    assert results(trainer) == results(expected)
    for mine, theirs in ((trainer.best_state, expected.best_state), (trainer.last_state, expected.last_state)):
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), expected.model.parameters()))


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("case", CASES)
def test_a_training_goes_on_from_any_epoch_bit_for_bit(comm, case):
    whole, states = trainer_of(comm, **CASES[case]), []
    whole.fit(lambda record: states.append(stored(whole.state_dict())))
    epochs = [record["epoch"] for record in whole.history.records]
    assert [state["epoch"] for state in states] == epochs
    if CASES[case].get("patience"):
        assert whole.history.best_epoch < len(epochs) < 60
    for epoch in {1, len(epochs) // 2, len(epochs) - 1, len(epochs)}:
        resumed, went_on = trainer_of(comm, **CASES[case]), []
        resumed.load_state_dict(states[epoch - 1])
        resumed.fit(lambda record: went_on.append(record["epoch"]))
        assert went_on == epochs[epoch:]
        assert_same(resumed, whole)


def test_fit_again_has_nothing_left_to_train():
    trainer = trainer_of(SelfCommunicator())
    first = trainer.fit()
    before = trainer.state_dict()
    assert trainer.fit() is first and len(first.records) == trainer.epoch == 9
    assert all(torch.equal(value, before["model"][name]) for name, value in trainer.last_state.items())


def test_steps_of_a_custom_loop_count_as_epochs():
    alone, looped = trainer_of(SelfCommunicator()), trainer_of(SelfCommunicator())
    expected = [record["loss"] for record in alone.fit().records]
    losses = [looped.step(epoch) for epoch in (1, 2)]
    assert losses + [record["loss"] for record in looped.fit().records] == expected


def test_a_training_that_is_interrupted_before_the_scores_of_an_epoch_scores_it_when_it_goes_on():
    whole, cut, resumed = (trainer_of(SelfCommunicator()) for _ in range(3))
    whole.fit()

    def interrupt(epoch, forward=cut.steps.forward):
        if epoch == 4:
            raise KeyboardInterrupt
        return forward(epoch)

    cut.steps.forward = interrupt
    with pytest.raises(KeyboardInterrupt):
        cut.fit()
    state = stored(cut.state_dict())
    assert state["epoch"] == 3 and len(state["history"]["records"]) == 2
    resumed.load_state_dict(state)
    resumed.fit()
    assert_same(resumed, whole)


def test_a_state_is_a_copy():
    trainer = trainer_of(SelfCommunicator())
    trainer.fit()
    state = trainer.state_dict()
    before = stored(state)
    other = trainer_of(SelfCommunicator())
    other.load_state_dict(state)
    for changed in (trainer, other):
        changed.step(10)
        changed.history.records.clear()
        assert all(
            torch.equal(state[part][name], value)
            for part in ("model", "optimizer", "best")
            for name, value in before[part].items()
        )
        assert json.dumps(state["history"]) == json.dumps(before["history"])


def test_the_state_of_another_model_or_optimizer_is_refused():
    adam, sgd, wide = (trainer_of(SelfCommunicator(), **how) for how in ({}, {"optimizer": "sgd"}, {"hidden": 7}))
    with pytest.raises(CheckpointError, match="weights of the state do not fit the model"):
        adam.load_state_dict(wide.state_dict())
    with pytest.raises(CheckpointError, match="optimizer, 0 tensors, does not fit the 18 of adam"):
        adam.load_state_dict(sgd.state_dict())
