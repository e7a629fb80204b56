"""A model of the labels of edges: loss, gradients, splits, scores and predictions of the list of edges, on any ranks."""

import csv
import json

import numpy as np
import pytest
import torch
from worlds import parallel

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig, build
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import Fields, distribute
from spgnn.errors import GraphError, ShapeError, UsageError
from spgnn.experiment import predict, resume, run
from spgnn.graph import graph_from_coo, normalise, random_edge_split
from spgnn.layers import GCN, EdgeDecoder, Stack
from spgnn.layers.registry import FAMILIES, ModelSpec, reads_relations
from spgnn.partition import part_graph, save_partition
from spgnn.training.trainer import Trainer

N, L, F, FE = 20, 90, 4, 2
ALONE = SelfCommunicator()
RNG = np.random.default_rng(3)
ENDS = RNG.integers(0, N - 2, (L, 2))  # two nodes without edges
ENDS[1], ENDS[2] = ENDS[0], ENDS[0, ::-1]
X, ATTR = RNG.normal(size=(N, F)), RNG.normal(size=(L, FE))
Y = np.where(RNG.random(L) < 0.1, -1, (X[ENDS[:, 0], 0] + ATTR[:, 0] > 0).astype(int))
SPLIT = RNG.choice([-1, 0, 1, 2], L, p=[0.1, 0.5, 0.2, 0.2]).astype(np.int8)
NUMBERS = np.where(Y < 0, np.nan, X[ENDS[:, 1], 1] * 10 + 50)


def graph_of(y=Y, edges="stored", attr=ATTR, **fields):
    graph = graph_from_coo(*ENDS.T, N, X=X, edge_attr=attr, edge_y=y, **fields)
    return graph if edges == "stored" else graph.with_edges(edges)


def model_of(graph, family, C=2, **options):
    config = build(TrainConfig, {"on": "edges", "model": family, "hidden": 8} | options)
    return ModelSpec.of(config, F, C, graph).build().double()


def dense_rows(graph, model, family):
    """Z of the listed edges, (L, C), by plain torch on the nonzeros."""
    row = np.repeat(np.arange(N), np.diff(graph.A.indptr))
    order = np.argsort(np.where(graph.edge_ids < 0, L, graph.edge_ids), kind="stable")[:L]  # of the list
    row, col = torch.from_numpy(row), torch.from_numpy(graph.A.indices.astype(np.int64))
    E, H = torch.from_numpy(graph.edge_attr).double(), torch.from_numpy(X)
    *layers, encoder, of = model.layers if graph.n_edge_features else (*model.layers[:-1], None, model.layers[-1])
    for layer in layers:
        if family == "gcn":
            A = torch.from_numpy(normalise(graph.A.astype(float), "gcn").toarray())
            H = A @ H @ layer.W_FC + layer.b_C
        else:
            S = torch.zeros_like(H).index_add(0, row, torch.relu(H[col] + E @ layer.W_e))
            H = torch.relu(((1 + layer.eps) * H + S) @ layer.W_1 + layer.b_1) @ layer.W_2 + layer.b_C
        H = torch.relu(H) if layer is not layers[-1] else H
    states = 0 if encoder is None else encoder.mlp(E) @ of.W_e
    return (torch.relu(H[row] @ of.W_i + H[col] @ of.W_j + states + of.b) @ of.W + of.b_o)[order]


@parallel([1, 2, 3, 4], mpi=[])
@pytest.mark.parametrize("edges", ["both", "in"])
@pytest.mark.parametrize(
    "family, what", [("gcn", "classes"), ("gine", "classes"), ("gine", "numbers"), ("gcn", "bare")]
)
def test_loss_and_gradients_are_the_ones_of_the_list_of_edges(comm, family, what, edges):
    labels, attr = NUMBERS if what == "numbers" else Y, ATTR[:, :0] if what == "bare" else ATTR
    graph, C = graph_of(labels, edges, attr, edge_split=SPLIT), 1 if what == "numbers" else 2
    ours, theirs = model_of(graph, family, C), model_of(graph, family, C)
    dgraph = distribute(graph, comm, method="random", dtype="float64").on_edges()
    trainer = Trainer(ours, dgraph, TrainConfig(on="edges", epochs=1))
    theirs.load_state_dict(ours.state_dict(), strict=False)
    Z, train = dense_rows(graph, theirs, family), torch.from_numpy((SPLIT == 0) & (Y >= 0))
    if labels is Y:
        loss = torch.nn.functional.cross_entropy(Z[train], torch.from_numpy(Y)[train])
    else:
        y = torch.from_numpy(NUMBERS)[train]
        loss = (Z[train, 0] + (y.mean() - y) / y.std(correction=0)).square().mean()
    loss.backward()
    gradient = trainer.steps.gradient(1)
    assert trainer.steps.global_loss() == pytest.approx(loss.item(), rel=1e-10)
    for (name, weight), found in zip(theirs.named_parameters(), gradient):
        assert (found - weight.grad).abs().max() <= 1e-10 * max(weight.grad.abs().max(), 1e-3), name
    history = trainer.fit()
    assert history.bytes_predicted == history.bytes_sent
    assert history.split_N.tolist() == SPLIT.tolist()


@parallel([1, 3], mpi=[2])
@pytest.mark.parametrize(
    "family", [name for name in FAMILIES if "hidden" in FAMILIES[name].options and not reads_relations(name)]
)
def test_every_family_has_a_model_of_edges_whose_training_does_not_depend_on_ranks(comm, family):
    graph = graph_of(edges="both")
    found = []
    for of in (comm, SelfCommunicator()):
        dgraph = distribute(graph, of, method="random", dtype="float64")
        history = spgnn.train(model_of(graph, family), dgraph, on="edges", epochs=2, lr=0.003)
        assert history.bytes_predicted == history.bytes_sent
        found.append([history.records[-1]["loss"], history.test])
    assert found[0] == pytest.approx(found[1], rel=1e-10)


@parallel([1, 2, 3])
def test_a_random_split_keeps_the_edges_of_two_nodes_together(comm):
    dgraph = distribute(graph_of(edges="both"), comm, method="random", dtype="float64")
    history = spgnn.train(model_of(graph_of(), "gcn"), dgraph, on="edges", epochs=1, seed=5)
    split = history.split_N
    assert (split == random_edge_split(Y, ENDS, 5)).all() and ((split == -1) == (Y < 0)).all()
    by_pair = {}
    for (u, v), role in zip(ENDS, split):
        by_pair.setdefault(frozenset((u, v)), set()).add(role)
    assert all(len(roles - {-1}) <= 1 for roles in by_pair.values())
    assert np.bincount(split[Y >= 0]).tolist() == pytest.approx(
        [0.6 * (Y >= 0).sum(), *[0.2 * (Y >= 0).sum()] * 2], abs=4
    )


@pytest.fixture
def folder(tmp_path):
    named = {"ids": np.array([f"n{i}" for i in range(N)], object)}
    spgnn.save_graph(graph_of(edge_classes=("bad", "good"), edge_split=SPLIT, **named), tmp_path / "g")
    spgnn.save_graph(graph_of(NUMBERS, edge_classes=("target",), **named), tmp_path / "numbers")
    return tmp_path


def trained(folder, out="r", source="g", comm=ALONE, **options):
    options = {"on": "edges", "model": "gine", "hidden": 8, "epochs": 6, "dtype": "float64"} | options
    return run(str(folder / source), TrainConfig(out=str(folder / out), **options), comm)


def table(path):
    return list(csv.DictReader(path.open()))


def test_a_run_scores_and_names_the_listed_edges(folder):
    summary = trained(folder)
    lines = table(folder / "r" / "predictions.csv")
    assert [(line["source"], line["target"], int(line["edge"])) for line in lines] == [
        (f"n{u}", f"n{v}", e) for e, (u, v) in enumerate(ENDS)
    ]
    found = np.array([["bad", "good"].index(line["class"]) for line in lines])
    is_test = (SPLIT == 2) & (Y >= 0)
    assert summary["test"] == pytest.approx((found == Y)[is_test].mean()) and summary["on"] == "edges"
    assert np.load(folder / "r" / "predictions.npy").tolist() == found.tolist()
    details = json.loads((folder / "r" / "details.json").read_text())
    assert np.sum(details["confusion_CC"]) == is_test.sum()
    whole = spgnn.predict(folder / "r")
    assert (whole.classes == found).all() and whole.probabilities.shape == (L, 2) and "90 edges" in repr(whole)
    assert list(whole.to_frame().columns) == ["source", "target", "edge", "class", "p_bad", "p_good"]
    assert whole.sources[0] == lines[0]["source"] and whole.ids.tolist() == list(range(L))
    report = predict(str(folder / "r"), ALONE, out=str(folder / "p.parquet"), proba=True)
    assert report["test"] == summary["test"]
    other = predict(str(folder / "r"), ALONE, source=str(folder / "g"), out=str(folder / "p.csv"))
    assert other["test"] == summary["test"] and [line["class"] for line in table(folder / "p.csv")] == [
        line["class"] for line in lines
    ]
    model, _ = spgnn.load_run(folder / "r")
    again = run_threads(
        2,
        lambda comm: spgnn.predict(
            model, distribute(spgnn.load_graph(folder / "g"), comm, method="random", dtype="float64")
        ),
    )
    assert (again[1].classes == found).all() and again[1].names == ("bad", "good")
    assert len(spgnn.predict(folder / "r", embeddings=True).embeddings) == N


@pytest.mark.parametrize("kind", ["graph", "parts", "python"])
def test_a_later_graph_is_scored_by_the_names_of_classes_and_columns(folder, kind, capsys):
    named = {"meta": {"edge_features": ["amount", "hour"]}, "edge_classes": ("bad", "good"), "edge_split": SPLIT}
    spgnn.save_graph(graph_of(**named), folder / "first")
    summary = trained(folder, source="first")
    turned = np.where(Y < 0, -1, np.array([2, 0])[Y])  # bad is 2, good is 0, and 1 is a class that the run has not
    turned[np.flatnonzero(SPLIT == 2)[0]] = 1
    later = {"meta": {"edge_features": ["hour", "amount"]}, "edge_classes": ("good", "odd", "bad"), "edge_split": SPLIT}
    graph = graph_of(turned, "both", ATTR[:, ::-1], **later)
    spgnn.save_graph(graph, folder / "later")
    save_partition(part_graph(graph, 2, "block"), folder / "parts", graph)
    if kind == "python":
        found = spgnn.predict(folder / "r", graph).classes
    else:
        source = {"graph": "later", "parts": "parts"}[kind]
        assert cli.main(["predict", str(folder / "r"), "--graph", str(folder / source), "--out", str(folder / "p.csv"), "--json"]) == 0  # fmt: skip
        said = capsys.readouterr()
        found = np.array([["bad", "good"].index(line["class"]) for line in table(folder / "p.csv")])
        is_test = (SPLIT == 2) & (turned >= 0)
        assert json.loads(said.out)["test"] == pytest.approx(((found == Y) & (turned != 1))[is_test].mean())
        assert "edges of graph of classes that the run has not count as wrong: 1, class 'odd' first" in " ".join(said.err.split())  # fmt: skip
    assert found.tolist() == np.load(folder / "r" / "predictions.npy").tolist() and summary["on"] == "edges"


def test_numbers_of_edges_are_in_their_units(folder):
    summary = trained(folder, source="numbers", epochs=30, lr=0.05, metric="mae")
    lines = table(folder / "r" / "predictions.csv")
    found, split = np.array([float(line["prediction"]) for line in lines]), np.load(folder / "r" / "split.npy")
    assert summary["test"] == pytest.approx(np.abs(found - NUMBERS)[split == 2].mean(), rel=1e-9)
    assert found.mean() == pytest.approx(np.nanmean(NUMBERS), abs=5)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_resumed_run_is_bitwise_the_same(folder, ranks):
    def body(comm):
        whole = trained(folder, "whole", comm=comm, threads=1, model="meshgraphnet")
        trained(folder, "half", comm=comm, epochs=3, threads=1, model="meshgraphnet")
        return whole["scores"] == resume(folder / "half", comm, epochs=6)["scores"]

    assert all(run_threads(ranks, body))
    lines = [[json.loads(line)["loss"] for line in (folder / of / "metrics.jsonl").open()] for of in ("whole", "half")]
    assert lines[0] == lines[1]


def test_a_run_of_python_is_predicted_by_the_command_line(folder, capsys):
    graph = spgnn.load_graph(folder / "g").with_edges("both")
    dgraph = distribute(graph, dtype="float64")
    spgnn.save_graph(graph, folder / "graph")
    spgnn.train(model_of(graph, "gcn"), dgraph, on="edges", epochs=2, out=folder / "r")
    assert (
        cli.main(["predict", str(folder / "r"), "--graph", str(folder / "graph"), "--out", str(folder / "p.csv")]) == 0
    )
    assert table(folder / "p.csv") == table(folder / "r" / "predictions.csv")


def test_plan_predicts_the_bytes_of_a_training_on_edges(folder, capsys):
    model = ["--on", "edges", "--model", "gine", "--hidden", "8"]
    assert cli.main(["plan", str(folder / "g"), *model, "--ranks", "3", "--method", "block", "--replication", "1", "--scheme", "cover", "--json"]) == 0  # fmt: skip
    planned = json.loads(capsys.readouterr().out)["bytes_per_epoch"]
    sent = run_threads(3, lambda comm: trained(folder, comm=comm, method="block", scheme="cover", dtype="float32"))
    assert planned == sent[0]["bytes_sent"] == sent[0]["bytes_predicted"] > 0
    assert cli.main(["measure", str(folder / "g"), *model, "--ranks", "3", "--method", "block", "--scheme", "cover", "--json"]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["bytes_per_epoch"] == planned


@pytest.mark.parametrize(
    "words, code, message",
    [
        ("--sampler walk --model sage", 2, "--task edges trains on the whole graph, in 1D: omit --sampler walk"),
        ("--mode average --model sage", 2, "omit --mode average"),
        ("--model sgc", 2, "--on edges needs layers of width --hidden, and --model sgc has none"),
        ("--loss mse --epochs 1", 0, "labelled edges: "),
        ("--epochs 1", 0, f"labelled edges: {sum((SPLIT == 0) & (Y >= 0))} train, "),
    ],
)
def test_what_the_command_line_says(folder, words, code, message, capsys):
    assert cli.main(["train", str(folder / "g"), "--on", "edges", "--out", "none", *words.split()]) == code
    assert message in " ".join(capsys.readouterr().err.split())


def test_labels_that_are_not_used_or_lack_are_mentioned(folder, capsys):
    graph = graph_of(edge_split=SPLIT)
    spgnn.save_graph(spgnn.from_scipy(graph.A.astype(bool), X=X, y=np.arange(N) % 2), folder / "nodes")
    assert cli.main(["train", str(folder / "g"), "--out", "none"]) == 3
    assert "its edges have labels: --on edges trains on them" in " ".join(capsys.readouterr().err.split())
    assert cli.main(["train", str(folder / "nodes"), "--on", "edges", "--out", "none"]) in (2, 3)
    assert "does not keep the order of its edges" in " ".join(capsys.readouterr().err.split())
    dgraph = distribute(graph_of(y=None))
    with pytest.raises(GraphError, match="no labels of edges; give them with"):
        spgnn.train(model_of(graph, "gcn"), dgraph, on="edges")
    with pytest.raises(ShapeError, match="a row per own edge and a column per class"):
        spgnn.train(Stack(GCN(F, 2)), distribute(graph), on="edges")
    fields = Fields(dgraph, np.zeros((1, N, F)), np.zeros((1, L, 1)), on="edges")
    with pytest.raises(UsageError, match="on = 'edges' is not possible with Fields"):
        spgnn.train(model_of(graph, "gcn"), fields, on="edges")


def test_a_decoder_without_states_has_no_weights_for_them():
    assert {name for name, _ in EdgeDecoder(4, 2, states=False).named_parameters()} == {"W_i", "W_j", "b", "W", "b_o"}


def test_relations_are_not_predicted_from_themselves():
    with pytest.raises(UsageError, match="predicts the classes of edges, which .*model rgcn reads as their relations"):
        model_of(graph_of(np.abs(Y)).with_edges("both"), "rgcn")
    with pytest.raises(UsageError, match="some or all edges of this graph have none"):
        ModelSpec.of(build(TrainConfig, {"model": "rgcn"}), F, 2, graph_of().with_edges("both"))
