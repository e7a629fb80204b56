"""The loop: what it records, when it stops, what it keeps, and the files of a run."""

import json
from dataclasses import replace as with_fields

import numpy as np
import pytest
import torch
from worlds import parallel

from spgnn import train
from spgnn.config import TrainConfig, read_toml
from spgnn.data import save_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import distribute
from spgnn.errors import GraphError, NumericalError, ShapeError, UsageError
from spgnn.experiment import predict, run
from spgnn.graph import graph_from_coo, random_split
from spgnn.layers import GCN, Stack
from spgnn.training.trainer import Trainer


def learnable(n=80, seed=0, multilabel=False):
    """Labels that the features tell, on a graph that joins like to like."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    src = rng.integers(0, n, 600)
    dst = rng.integers(0, n, 600)
    same = y[src] == y[dst]
    X = np.eye(3)[y] + rng.standard_normal((n, 3))
    labels = np.eye(3, dtype=np.int8)[y] if multilabel else y
    return graph_from_coo(src[same], dst[same], n, X=X, y=labels, split=random_split(y, seed)).with_edges("undirected")


def model():
    return Stack(GCN(3, 8, act="relu"), GCN(8, 3))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_patience_stops_so_many_epochs_after_the_best(dropout):
    stack = Stack(GCN(3, 8, act="relu"), GCN(8, 3), dropout=dropout)
    history = train(stack, distribute(learnable(), SelfCommunicator()), epochs=500, lr=0.1, patience=7)
    assert len(history.records) == history.best_epoch + 7 < 500


class Foreign(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, A, X):
        return A @ self.lin(X)

    def reset_parameters(self):
        self.lin.reset_parameters()


@pytest.mark.parametrize("make", [Foreign, lambda: Stack(GCN(3, 3))])
def test_a_model_that_was_trained_and_not_drawn_again_is_said_to_continue(make, capsys):
    dgraph, model = distribute(learnable()), make()
    for seed, said in ((0, False), (1, True)):
        train(model, dgraph, epochs=2, seed=seed)
        assert ("was trained before and continues" in capsys.readouterr().err.replace("\n", " ")) == said
    again = {
        "reset_parameters": lambda: model.reset_parameters(),
        "loaded": lambda: model.load_state_dict(make().state_dict()),
    }
    again["reset_parameters" if make is Foreign else "loaded"]()
    train(model, dgraph, epochs=2, seed=2)
    assert capsys.readouterr().err == ""


def test_eval_every_scores_some_epochs_and_always_the_last():
    history = train(model(), distribute(learnable(), SelfCommunicator()), epochs=8, eval_every=3)
    assert [r["epoch"] for r in history.records if r["val"] is not None] == [3, 6, 8]
    assert [r["epoch"] for r in history.records] == list(range(1, 9))


def test_missing_features_labels_or_training_nodes_are_named():
    graph = learnable()
    for field, message in (("X", "no features"), ("y", "no labels")):
        broken = with_fields(graph, **{field: None})
        with pytest.raises(GraphError, match=message):
            train(model(), distribute(broken, SelfCommunicator()))
    none = with_fields(graph, split=np.full(80, 2, np.int8))
    with pytest.raises(GraphError, match="no training node"):
        train(model(), distribute(none, SelfCommunicator()))


def test_splits_given_numbered_random_and_auto(tmp_path):
    graph = learnable()
    many = with_fields(graph, split=np.stack([graph.split, graph.split[::-1]], axis=1))
    first, second = graph.split, graph.split[::-1]
    for split, expected in (("0", first), ("1", second), ("auto", first), ("given", first)):
        trainer = Trainer(model(), distribute(many, SelfCommunicator()), TrainConfig(split=split))
        assert np.array_equal(trainer.steps.split_n, expected)
    with pytest.raises(UsageError, match="splits 0 to 1"):
        Trainer(model(), distribute(many, SelfCommunicator()), TrainConfig(split="2"))
    bare = with_fields(graph, split=None)
    with pytest.raises(GraphError, match="split random"):
        Trainer(model(), distribute(bare, SelfCommunicator()), TrainConfig(split="given"))


@pytest.mark.slow
def test_a_run_writes_its_files_and_predicts_the_same_on_other_ranks(tmp_path):
    save_graph(learnable(), tmp_path / "graph")
    out = tmp_path / "out"
    config = TrainConfig(hidden=8, epochs=12, lr=0.05, out=str(out))
    summary = run_threads(3, lambda comm: run(str(tmp_path / "graph"), config, comm))[0]
    assert read_toml(TrainConfig, out / "config.toml") == config
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [set(line) for line in lines] == [{"epoch", "loss", "train", "val", "test", "epoch_s", "bytes_sent"}] * 12
    stored = json.loads((out / "summary.json").read_text())
    keys = "best_epoch val test metric epoch_s bytes_sent bytes_predicted peak_rss_mb ranks scheme replication method"
    assert set(keys.split()) <= set(stored) and stored["test"] == summary["test"]
    assert stored["bytes_sent"] == stored["bytes_predicted"] == lines[3]["bytes_sent"] > 0
    predictions = np.load(out / "predictions.npy")
    graph = learnable()
    assert float((predictions == graph.y)[graph.split == 2].mean()) == pytest.approx(summary["test"])
    embeddings = []
    for ranks in (1, 2):
        report = run_threads(
            ranks, lambda comm: predict(str(out), comm, out=str(tmp_path / "p.npy"), embeddings=str(tmp_path / "e.npy"))
        )[0]
        assert np.array_equal(np.load(tmp_path / "p.npy"), predictions)
        embeddings.append(np.load(tmp_path / "e.npy"))
        assert embeddings[-1].shape == (80, 8) and report["test"] == pytest.approx(summary["test"])
    np.testing.assert_allclose(*embeddings, rtol=1e-5, atol=1e-6)  # in original order on any ranks
    assert 1 <= len(list((out / "checkpoints").iterdir())) <= 2
    assert not list(out.rglob(".*"))


@parallel([1, 2], mpi=[])
def test_widths_that_do_not_fit_the_graph_are_named_on_all_ranks(comm):
    dgraph = distribute(learnable(), comm, method="random")
    with pytest.raises(ShapeError, match="3 features; layer 1 reads 4"):
        train(Stack(GCN(4, 3)), dgraph)
    with pytest.raises(ShapeError, match="returns 2 columns, graph has 3 classes"):
        train(Stack(GCN(3, 2)), dgraph)


@pytest.mark.slow
def test_a_run_on_features_of_its_own_file_predicts_another_graph_with_its_own(tmp_path):
    graph = learnable()
    np.save(tmp_path / "X.npy", graph.X[::-1])
    save_graph(graph, tmp_path / "graph")
    config = TrainConfig(hidden=8, epochs=3, features=str(tmp_path / "X.npy"), out=str(tmp_path / "out"), layers=1)
    run(str(tmp_path / "graph"), config, SelfCommunicator())
    with_file = predict(str(tmp_path / "out"), SelfCommunicator())
    without = predict(
        str(tmp_path / "out"), SelfCommunicator(), source=str(tmp_path / "graph"), out=str(tmp_path / "p.npy")
    )
    assert with_file["test"] != without["test"]
    with pytest.raises(UsageError, match="embeddings: a model of one layer has none"):
        predict(str(tmp_path / "out"), SelfCommunicator(), embeddings=str(tmp_path / "e.npy"))


@pytest.mark.parametrize("epochs", [1, 3])
def test_weights_that_become_infinite_in_an_epoch_are_no_result_and_name_it_once(epochs):
    dgraph, options = distribute(learnable(), SelfCommunicator()), {"lr": 1e6, "optimizer": "sgd", "weight_decay": 1e30}
    source = r"the output of layers\.1 \(GCN\) is -?(nan|inf) at node \d+"
    with pytest.raises(
        NumericalError, match=rf"^epoch 1: the logits are not finite: {source}\. Lower lr \(.*\) or [^.]*$"
    ):
        train(model(), dgraph, epochs=epochs, **options)


def test_options_that_training_does_not_read_are_refused():
    dgraph = distribute(learnable(), SelfCommunicator())
    for name, value in (("dropout", 0.5), ("overwrite", True), ("scheme", "broadcast"), ("dtype", "float64")):
        with pytest.raises(UsageError, match=f"does not read '{name}'"):
            train(model(), dgraph, **{name: value})
    with pytest.raises(UsageError, match="did you mean 'epochs'"):
        train(model(), dgraph, epoch=3)


@parallel([1, 2], mpi=[])
def test_a_weight_without_a_gradient_decays_alike_on_any_ranks(comm):
    class Unused(GCN):
        def __init__(self):
            super().__init__(3, 3)
            self.extra = torch.nn.Parameter(torch.ones(4))

        def initialise(self, generator):
            super().initialise(generator)
            self.extra.data.fill_(1.0)

    layer = Unused()
    dgraph = distribute(learnable(), comm, method="random")
    train(Stack(layer), dgraph, epochs=3, optimizer="sgd", lr=0.1, weight_decay=0.5)
    assert float(layer.extra[0].detach()) < 1.0


def test_a_run_with_replicated_rows_is_predicted_on_any_number_of_ranks(tmp_path):
    save_graph(learnable(), tmp_path / "graph")
    config = TrainConfig(epochs=2, hidden=8, replication=2, out=str(tmp_path / "run"))
    run_threads(4, lambda comm: run(str(tmp_path / "graph"), config, comm))
    expected = np.load(tmp_path / "run" / "predictions.npy")
    for size in (1, 2, 4):
        run_threads(size, lambda comm: predict(tmp_path / "run", comm, out=tmp_path / "p.npy"))
        assert np.array_equal(np.load(tmp_path / "p.npy"), expected)
