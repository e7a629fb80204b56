"""Predictions in Python: those of the dense float64 model on any ranks, with the user's names, of a model or a run."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_model import dense_operator_of
from graphs import random_graph
from torch.optim.lr_scheduler import StepLR
from worlds import parallel

import spgnn
from spgnn.errors import InputError, SpgnnError, UsageError, together
from spgnn.layers import APPNP, GAT, GCN, GIN, MLP, NGNN, SAGE, MixHop, Stack
from spgnn.layers.registry import LISTED, ModelSpec

GRAPH = replace(
    random_graph(n=40, edges=160, weighted=True, use="directed"),
    ids=np.array([f"node {i}" for i in range(40)], object),
    classes=("red", "green", "blue"),
)


def made(seed=0, *, residual=True):
    model = Stack(GCN(6, 5, act="relu"), GCN(5, 5, act="elu", residual=residual), GCN(5, 3), dropout=0.5)
    model.initialise(seed)
    return model.double()


@parallel([1, 2, 3, 4], mpi=[3])
def test_probabilities_and_embeddings_are_the_dense_ones_in_original_order(comm):
    model, A, X = made(), dense_operator_of(GRAPH, "gcn"), torch.tensor(GRAPH.X, dtype=torch.float64)
    with torch.no_grad():
        embedded, Z = made().eval().embed(A, X), made().eval()(A, X)
    how = {"replication": 2} if comm.size == 4 else {}
    dgraph = spgnn.distribute(GRAPH, comm, dtype="float64", method="random", **how)
    for graph, options in ((dgraph, {}), (GRAPH, {"method": "random"} | how)):
        for multilabel in (False, True):
            found = spgnn.predict(model.train(), graph, comm, embeddings=True, multilabel=multilabel, **options)
            expected = Z.sigmoid() if multilabel else Z.softmax(1)
            assert np.abs(found.probabilities - expected.numpy()).max() < 1e-7
            assert np.abs(found.embeddings - embedded.numpy()).max() < 1e-12 and model.training
            assert (found.classes == ((Z > 0).numpy() if multilabel else Z.argmax(1).numpy())).all()
            assert found.ids[7] == "node 7" and found.names == GRAPH.classes


def test_a_frame_has_the_names_of_nodes_and_classes():
    frame = (found := spgnn.predict(made(), GRAPH)).to_frame()
    assert list(frame.columns) == ["id", "class", "p_red", "p_green", "p_blue"] and len(frame) == len(found) == 40
    assert frame["id"][3] == "node 3" and frame["class"][3] == GRAPH.classes[found.classes[3]]
    assert re.fullmatch(r"Predictions\(40 nodes, 3 classes: (red|green|blue) \d+, .*\)", repr(found))
    assert found.embeddings is None


def test_a_run_is_loaded_and_predicts_as_its_model_did(tmp_path):
    name, run = "sbm:n=90,seed=0", str(tmp_path / "run")
    graph = spgnn.load_graph(name)
    model, dgraph = Stack(GCN(16, 8, act="relu"), GCN(8, 4), dropout=0.1), spgnn.distribute(graph, operator="row")
    spgnn.train(model, dgraph, epochs=3)
    expected = spgnn.predict(model, dgraph).probabilities
    spgnn.save_run(run, model, name, operator="row")
    spgnn.save_graph(graph, tmp_path / "graph")
    loaded, config = spgnn.load_run(run)
    assert config.operator == "row" and repr(loaded) == repr(model) and not loaded.training
    for found in (
        spgnn.predict(run),
        spgnn.predict(run, name),
        spgnn.predict(run, tmp_path / "graph"),
        spgnn.predict(run, graph),
        spgnn.predict(run, dgraph),
        spgnn.predict(loaded, graph, operator="row"),
        spgnn.predict(loaded, name, operator="row"),
    ):
        assert np.array_equal(found.probabilities, expected)
    assert all(spgnn.predict(run, of, multilabel=True).classes.shape == (90, 4) for of in (None, name, graph, dgraph))
    spgnn.experiment.run("sbm:n=90,seed=0", spgnn.config.TrainConfig(epochs=2, out=str(tmp_path / "own")), dgraph.comm)
    own = spgnn.predict(tmp_path / "own")
    assert np.array_equal(own.classes, np.load(tmp_path / "own" / "predictions.npy"))


def test_a_run_whose_layers_name_their_operator_predicts_as_its_model_did(tmp_path):
    name, model = "sbm:n=90,seed=0", Stack(GAT(16, 8, act="relu"), GAT(8, 4, heads=1))
    dgraph = spgnn.distribute(spgnn.load_graph(name))
    spgnn.train(model, dgraph, epochs=2, out=tmp_path / "run")
    expected = spgnn.predict(model, dgraph).probabilities
    assert np.array_equal(spgnn.predict(tmp_path / "run", name).probabilities, expected)


class Doubled(GCN):
    """2 A H W."""

    def forward(self, A, H):
        return 2 * super().forward(A, H)


def test_any_stack_of_layers_of_ours_is_saved_and_others_are_named(tmp_path):
    inner = SAGE(8, 8, "max", norm="layer", act="elu")
    layers = [
        GIN(6, 8, train_eps=True), NGNN(inner, 2), MixHop(8, 9, powers=[0, 2]), GAT(9, 8, bias=False), MLP(8, 3, (4,)),
    ]  # fmt: skip
    model = Stack(*layers, APPNP(3, 2), dropout=0.2)
    spgnn.save_run(tmp_path / "run", model, "sbm")
    loaded, _ = spgnn.load_run(tmp_path / "run")
    assert repr(loaded) == repr(model)
    assert all(torch.equal(p, q) for p, q in zip(loaded.state_dict().values(), model.state_dict().values()))
    changed = GCN(3, 3, act="relu")
    changed.act = torch.sin
    for layer, name in (
        (Doubled(3, 3), "a custom Doubled"),
        (changed, "a custom GCN"),
    ):
        with pytest.raises(UsageError, match=f"layer 2 is .*{name}.*keep model.state_dict"):
            spgnn.save_run(tmp_path / "other", Stack(GCN(6, 3), layer), "sbm")


def test_a_model_is_saved_in_an_empty_folder_alone_with_the_options_that_are_given(tmp_path):
    with pytest.raises(UsageError, match="the model is a Linear, not a plain Stack"):
        spgnn.save_run(tmp_path / "out", torch.nn.Linear(6, 3), "sbm")
    spgnn.save_run(tmp_path / "run", made(), "sbm")
    with pytest.raises(UsageError, match="holds another run; choose another folder"):
        spgnn.save_run(tmp_path / "run", made(), "sbm")
    with pytest.raises(UsageError, match="unknown key 'feature_nrm'; did you mean 'feature_norm'"):
        spgnn.save_run(tmp_path / "other", made(), "sbm", feature_nrm="row")
    assert "epochs" not in (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(UsageError, match="layer 'Sequential' is not known"):
        ModelSpec(LISTED, {"layers": [["Sequential", {}]]}).build()


@parallel([1, 3], mpi=[])
def test_the_command_predicts_a_saved_model_on_any_ranks(comm, tmp_path):
    name, run = "sbm:n=40,classes=3,features=6", str(tmp_path / "run")
    together(comm, spgnn.save_run, run, made().float(), name, root=0)
    report = spgnn.experiment.predict(run, comm)
    assert report["n"] == 40 and 0 <= report["test"] <= 1
    expected = spgnn.predict(made().float(), name).classes
    assert np.array_equal(np.load(tmp_path / "run" / "predictions.npy"), expected)


def test_what_cannot_be_predicted_is_named(tmp_path):
    for call, message in (
        (lambda: spgnn.predict(made()), "predict got no graph; expected predict"),
        (lambda: spgnn.predict(GRAPH, GRAPH), "predict got a Graph"),
        (lambda: spgnn.predict(Stack(GCN(6, 3)), GRAPH, embeddings=True), "of a Stack of two layers or more"),
        (
            lambda: spgnn.predict(made(), spgnn.distribute(GRAPH), feature_norm="row"),
            "feature_norm would change nothing",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            call()
    with pytest.raises(InputError, match="nowhere"):
        spgnn.predict(tmp_path / "nowhere")


@parallel([1, 2], mpi=[])
def test_a_training_with_a_folder_is_a_run_that_python_and_the_command_continue(comm, tmp_path):
    graph = spgnn.load_graph("sbm:n=90,seed=0")
    dgraph = spgnn.distribute(graph, comm, method="random")
    new = lambda: Stack(GCN(16, 8, act="relu"), MLP(8, 4), dropout=0.1)
    whole = new()
    losses = [record["loss"] for record in spgnn.train(whole, dgraph, epochs=6).records]
    spgnn.train(new(), dgraph, epochs=3, out=tmp_path / "run")
    history = spgnn.train(new(), dgraph, epochs=5, out=tmp_path / "run", resume=True)
    assert [record["loss"] for record in history.records] == losses[:5]
    assert np.array_equal(np.load(tmp_path / "run" / "split.npy"), history.split_N)
    spgnn.resume(tmp_path / "run", comm, epochs=6, graph="sbm:n=90,seed=0", method="random")
    for model in (spgnn.load_run(tmp_path / "run")[0], tmp_path / "run"):
        found = spgnn.predict(model, dgraph)
        assert np.abs(found.probabilities - spgnn.predict(whole, dgraph).probabilities).max() < 1e-6
    with pytest.raises(SpgnnError, match="holds another run"):
        spgnn.train(new(), dgraph, epochs=3, out=tmp_path / "run")


def test_a_run_with_python_s_keywords_is_continued_in_python_alone(tmp_path):
    dgraph, out = spgnn.distribute(GRAPH, dtype="float64"), str(tmp_path / "run")
    options = {"schedule": lambda optimizer: StepLR(optimizer, 2, 0.5), "monitor": "val_loss", "lr": 0.1}
    expected = spgnn.train(made(), dgraph, epochs=6, **options)
    spgnn.train(made(), dgraph, epochs=3, out=out, **options)
    with pytest.raises(UsageError, match="trained with schedule, monitor of Python's keywords; continue it in Python"):
        spgnn.train(made(), dgraph, epochs=6, out=out, resume=True, lr=0.1)
    history = spgnn.train(made(), dgraph, epochs=6, out=out, resume=True, **options)
    assert [r["loss"] for r in history.records] == [r["loss"] for r in expected.records]
    assert (history.best_epoch, history.best) == (expected.best_epoch, expected.best)
    predictions = np.load(tmp_path / "run" / "predictions.npy")
    assert np.array_equal(spgnn.predict(out, dgraph).classes, predictions)
    assert (tmp_path / "run" / "predictions.csv").read_text().startswith("id,class\nnode 0,")
