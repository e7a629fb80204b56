"""Optimizers, schedules, losses and monitors of Python: as a dense float64 loop of torch has them, on any ranks."""

import inspect
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_model import dense_operator_of, make
from graphs import random_graph
from torch.nn.functional import cross_entropy, multi_margin_loss
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau, StepLR
from worlds import parallel

import spgnn
from spgnn.config import Training
from spgnn.errors import ShapeError, UsageError
from spgnn.layers import GCN, Stack
from spgnn.training.custom import Custom
from spgnn.training.trainer import make_trainer

GRAPH = random_graph(n=40, edges=200, weighted=True, use="directed")
WEIGHTS = [0.2, 3.0, 1.5]


def halved(optimizer):
    return StepLR(optimizer, 2, 0.5)


def waits(optimizer):
    return ReduceLROnPlateau(optimizer, "max", 0.3, patience=0)


# name: options of train, and the same as (optimizer, scheduler, loss of all rows) of torch.
CASES = {
    "adamw": (
        {"optimizer": "adamw", "lr": 0.05, "weight_decay": 0.3},
        lambda weights: AdamW(weights, lr=0.05, weight_decay=0.3),
        None,
        cross_entropy,
    ),
    "own optimizer, weights": (
        {"optimizer": lambda weights: SGD(weights, lr=0.2, momentum=0.9), "class_weights": WEIGHTS},
        lambda weights: SGD(weights, lr=0.2, momentum=0.9),
        None,
        lambda Z, y: cross_entropy(Z, y, weight=torch.tensor(WEIGHTS, dtype=Z.dtype)),
    ),
    "schedule, balanced": (
        {"lr": 0.05, "weight_decay": 0.1, "schedule": halved, "class_weights": "balanced"},
        lambda weights: Adam(weights, lr=0.05, weight_decay=0.1),
        halved,
        lambda Z, y: cross_entropy(Z, y, weight=1 / torch.bincount(y, minlength=3).clamp(min=1).to(Z.dtype)),
    ),
    "own loss": (
        {"optimizer": "sgd", "lr": 0.3, "loss": lambda Z, y: multi_margin_loss(Z, y, reduction="sum")},
        lambda weights: SGD(weights, lr=0.3),
        None,
        multi_margin_loss,
    ),
    "plateau": ({"lr": 0.2, "schedule": waits, "optimizer": "sgd"}, lambda weights: SGD(weights, lr=0.2), waits, cross_entropy),
}  # fmt: skip


def dense_training(optimizer, scheduler, loss, epochs):
    """Train the dense model and return (loss, lr, loss of the validation nodes) of each epoch."""
    torch.manual_seed(0)
    model = make("wide")
    model.initialise(1)
    model.double()
    A, X, y = dense_operator_of(GRAPH, "gcn"), torch.tensor(GRAPH.X, dtype=torch.float64), torch.tensor(GRAPH.y)
    train, val = (torch.from_numpy((GRAPH.split == s) & (GRAPH.y >= 0)) for s in (0, 1))
    moved = optimizer(list(model.parameters()))
    stepped, records = scheduler and scheduler(moved), []
    for _ in range(epochs):
        moved.zero_grad()
        Z = model(A, X)
        value, lr = loss(Z[train], y[train]), moved.param_groups[0]["lr"]
        value.backward()
        moved.step()
        with torch.no_grad():
            Z = model(A, X)
        if isinstance(stepped, ReduceLROnPlateau):
            stepped.step(float((Z[val].argmax(1) == y[val]).double().mean()))
        elif stepped is not None:
            stepped.step()
        records.append((float(value.detach()), lr, float(loss(Z[val], y[val]))))
    return records


@parallel([1, 2, 3, 4], mpi=[3], only=lambda given: given["case"] == "own loss")
@pytest.mark.parametrize("case", CASES)
def test_a_training_is_the_dense_one(comm, case):
    options, *dense = CASES[case]
    expected = dense_training(*dense, epochs=4)
    how = {"replication": 2} if comm.size == 4 else {}
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random", **how)
    for prune, monitor in (("never", "val_loss"), ("always", "val")):
        if case == "plateau":
            monitor = "val"
        seen = []
        history = spgnn.train(
            make("wide"), dgraph, epochs=4, seed=1, prune=prune, monitor=monitor, callbacks=seen.append, **options
        )
        assert seen == history.records
        for record, (loss, lr, val_loss) in zip(history.records, expected):
            assert abs(record["loss"] - loss) <= 1e-10 * loss and record.get("lr", lr) == lr
            if monitor == "val_loss":
                assert abs(record["val_loss"] - val_loss) <= 1e-10 * val_loss
        if monitor == "val_loss":
            assert history.best_epoch == 1 + int(np.argmin([of_epoch[2] for of_epoch in expected]))
            assert history.best == -min(record["val_loss"] for record in history.records)


@pytest.mark.parametrize("rule", ["adam", "adamw", "sgd"])
def test_a_schedule_that_changes_nothing_leaves_every_bit(rule):
    options = {"epochs": 5, "optimizer": rule, "lr": 0.1, "weight_decay": 0.2, "decay_layers": "first"}
    runs = [
        [r["loss"] for r in spgnn.train(make("wide"), distributed(), **options, schedule=schedule).records]
        for schedule in (None, lambda optimizer: StepLR(optimizer, 100))
    ]
    assert runs[0] == runs[1]


def distributed(dtype="float64"):
    return spgnn.distribute(GRAPH, spgnn.dist.SelfCommunicator(), dtype=dtype)


@pytest.mark.parametrize("schedule", [halved, waits, lambda optimizer: CosineAnnealingLR(optimizer, 6)])
@pytest.mark.parametrize("monitor", ["val", "val_loss", lambda record: record["scores"]["val"]["macro_f1"]])
def test_a_state_restores_optimizer_and_schedule(schedule, monitor):
    custom = Custom(lambda weights: Adam(weights, lr=0.1), schedule, monitor=monitor)
    whole, first, second = (make_trainer(make("wide"), distributed(), custom=custom, epochs=n) for n in (8, 4, 8))
    expected = whole.fit()
    first.fit()
    second.load_state_dict(first.state_dict())
    got = second.fit()
    times = {"epoch_s": 0.0}
    assert [r | times for r in got.records] == [r | times for r in expected.records]
    assert (got.best_epoch, got.best) == (expected.best_epoch, expected.best)
    assert all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), second.model.parameters()))


def test_a_function_may_choose_the_best_epoch_and_end_the_training():
    history = spgnn.train(make("wide"), distributed(), epochs=50, patience=3, monitor=lambda r: -abs(r["epoch"] - 5))
    assert history.best_epoch == 5 and history.best == 0.0 and len(history.records) == 8
    scores = [r["val"] for r in history.records]
    assert history.val == scores[4]
    lost = lambda record: float("nan") if record["epoch"] > 2 else record["epoch"]
    assert spgnn.train(make("wide"), distributed(), epochs=4, monitor=lost).best_epoch == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.1}, "did you mean 'lr'"),
        ({"optimizer": "rmsprop"}, "optimizer = 'rmsprop' is not known"),
        ({"optimizer": SGD, "lr": 0.1}, "arguments of the optimizer"),
        ({"optimizer": lambda weights: SGD(weights[1:], lr=0.1)}, "lacks layers.0.W_FC"),
        ({"optimizer": lambda weights: None}, "optimizer returned a NoneType; expected a torch.optim.Optimizer"),
        ({"schedule": "plain"}, "schedule = 'plain'; expected a function of the optimizer"),
        ({"schedule": lambda optimizer: 3}, "schedule returned a int; expected a scheduler"),
        ({"loss": cross_entropy}, "loss returns the mean over its rows; expected their sum"),
        ({"loss": lambda Z, y: cross_entropy(Z, y, reduction="none")}, r"loss returned shape \(\d+,\)"),
        ({"loss": sum, "class_weights": "balanced"}, "class_weights weigh the cross-entropy"),
        ({"class_weights": "equal"}, "expected 'balanced'"),
        ({"class_weights": {0: 1, 1: 2}}, "expected 'balanced', an array, or None"),
        ({"class_weights": [1, -1, 1]}, "must be finite, 0 or more"),
        ({"class_weights": [1, 1]}, r"class_weights have shape \(2,\)"),
        ({"monitor": "loss"}, "did you mean 'val_loss'"),
        ({"monitor": lambda record: None}, "monitor returned None; expected a number"),
        ({"loss": lambda Z, y: Z.sum(), "sampler": "node", "graph": GRAPH}, "those of sampler 'node' have weights"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises((UsageError, ShapeError), match=message):
        spgnn.train(make("wide"), distributed(), **{"epochs": 2} | options)


def test_the_signature_names_the_options_and_their_defaults():
    of, config = inspect.signature(spgnn.train).parameters, Training()
    shared = [name for name in of if hasattr(config, name)]
    assert len(shared) > 6 and all(of[name].default == getattr(config, name) for name in shared)
    assert all(f"\n        {name:14}" in spgnn.train.__doc__ for name in of if name != "options")


def test_a_line_is_shown_where_it_is_wanted(monkeypatch, capsys):
    model = lambda: Stack(GCN(6, 3))
    spgnn.train(model(), distributed(), epochs=3)
    assert capsys.readouterr() == ("", "")
    spgnn.run_threads(2, lambda comm: spgnn.train(model(), spgnn.distribute(GRAPH, comm), epochs=3, progress=True))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("spgnn: epoch 1 of 3  loss ")

    class Shell:
        kernel = None

    monkeypatch.setitem(sys.modules, "IPython", type("module", (), {"get_ipython": staticmethod(Shell)}))
    spgnn.train(model(), distributed(), epochs=3)
    out, err = capsys.readouterr()
    assert out.startswith("\repoch 1 of 3  loss ") and out.endswith("\n") and err == ""


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_the_split_is_returned_as_it_can_be_drawn_alone_and_as_it_was_given(comm, n_labels, tmp_path):
    graph = replace(GRAPH, y=np.eye(4, 3, dtype=np.int8)[GRAPH.y] if n_labels > 1 else GRAPH.y)
    dgraph = spgnn.distribute(graph, comm, method="random")
    given = spgnn.train(make("wide"), dgraph, epochs=1)
    assert np.array_equal(given.split_N, graph.split)
    drawn = spgnn.train(make("wide"), dgraph, epochs=2, split="random", seed=5)
    assert np.array_equal(drawn.split_N, spgnn.random_split(graph.y, 5)) and drawn.split_N.dtype == np.int8
    if comm.rank == 0:
        drawn.save(tmp_path / "kept")
        lines = [json.loads(line) for line in (tmp_path / "kept" / "metrics.jsonl").read_text().splitlines()]
        assert lines == drawn.records == drawn.to_frame().to_dict("records")
        assert json.loads((tmp_path / "kept" / "summary.json").read_text())["test"] == drawn.test
        assert np.array_equal(np.load(tmp_path / "kept" / "split.npy"), drawn.split_N)


@pytest.mark.parametrize(("options", "is_told"), [({}, True), ({"lr": 0.5}, False), ({"epochs": 9}, False)])
def test_a_training_that_ends_too_early_is_told_what_to_raise(options, is_told, capsys):
    graph = spgnn.load_graph("sbm:n=90,seed=0")
    model = Stack(GCN(16, 8, act="relu"), GCN(8, 4))
    options = {"epochs": 20, "lr": 0.02} | options
    spgnn.train(model, spgnn.distribute(graph), progress=True, monitor=lambda record: -record["loss"], **options)
    said = "spgnn: the loss still falls after 20 updates, by "
    assert (said in (err := capsys.readouterr().err)) == is_told and (
        "raise epochs (20) or lr (0.02)" in err
    ) == is_told
