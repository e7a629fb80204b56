"""Runs on numbers: files, predictions, reports, resumed and on parts, all in the units of the targets."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph

import spgnn
from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import SpgnnError
from spgnn.experiment import predict, run
from spgnn.partition import part_graph, save_partition
from spgnn.report.figures import draw
from spgnn.report.page import runs_page
from spgnn.report.runs import read_runs, results_table

ALONE, MODES = SelfCommunicator(), ("full", "out-of-core")


@pytest.fixture
def graph(tmp_path):
    """A native folder: two columns of unlike scales, with names and gaps."""
    graph = random_graph(n=60, edges=300, use="directed")
    rng = np.random.default_rng(0)
    Y = np.column_stack([1e5 + 50 * graph.X[:, 0], 1e-3 * graph.X.sum(1)]) + rng.standard_normal((60, 2)) * [5, 1e-4]
    Y[rng.random((60, 2)) < 0.1] = np.nan
    graph = replace(graph, edges="stored", y=Y, classes=("heat", "flow"))
    spgnn.save_graph(graph, tmp_path / "g")
    return graph


def trained(tmp_path, out, comm=ALONE, source="g", **options):
    options = {"epochs": 12, "lr": 0.05, "hidden": 8, "dtype": "float64", "split": "given"} | options
    return run(str(tmp_path / source), TrainConfig(out=str(tmp_path / out), **options), comm)


def test_a_run_keeps_its_units_scores_and_predictions(graph, tmp_path):
    summary = trained(tmp_path, "r", loss="huber", metric="mae")
    assert summary["metric"] == "mae" and summary["test"] == summary["scores"]["test"]["mae"]
    model, config = spgnn.load_run(tmp_path / "r")
    assert config.loss == "huber" and 9e4 < model.units.mean_C[0] < 1.1e5
    dgraph = spgnn.distribute(graph.with_edges("both"), dtype="float64")
    with torch.no_grad():
        Z = dgraph.collect(model(dgraph).numpy())
    assert np.allclose(np.load(tmp_path / "r" / "predictions.npy"), Z, rtol=1e-12)
    test = (graph.split == 2)[:, None] & ~np.isnan(graph.y)
    assert summary["test"] == pytest.approx(np.abs(Z - graph.y)[test].mean(), rel=1e-10)
    lines = list(csv.reader((tmp_path / "r" / "predictions.csv").open()))
    assert lines[0] == ["id", "heat", "flow"] and np.allclose(np.array(lines[1:], float)[:, 1:], Z, rtol=1e-12)
    found = spgnn.predict(tmp_path / "r")
    assert np.allclose(found.numbers, Z, rtol=1e-12) and found.names == ("heat", "flow") and len(found) == 60
    report = predict(str(tmp_path / "r"), ALONE, out=str(tmp_path / "p.parquet"))
    assert {name: report[name] for name in ("metric", "train", "val", "test")} == {
        name: summary[name] for name in ("metric", "train", "val", "test")
    }
    per_column = json.loads((tmp_path / "r" / "summary.json").read_text())["per_class"]
    assert [of["name"] for of in per_column] == ["heat", "flow"] and "r2" in per_column[0]


def test_parts_have_the_scores_of_the_graph_on_any_ranks(graph, tmp_path):
    whole = trained(tmp_path, "whole")
    used = graph.with_edges("both")
    save_partition(part_graph(used, 3, "random"), tmp_path / "parts", used, hops=1)
    for out, ranks, source in (("p", 3, "parts"), ("q", 2, "g")):
        for found in run_threads(ranks, lambda comm: trained(tmp_path, out, comm, source)):
            assert found["scores"]["test"] == pytest.approx(whole["scores"]["test"], rel=1e-8)
    options = {"graph": tmp_path / "parts", "out": str(tmp_path / "apart.npy"), "evaluation": "layerwise"}
    apart = predict(str(tmp_path / "p"), ALONE, source=str(options.pop("graph")), **options)
    assert apart["test"] == pytest.approx(whole["test"], rel=1e-8)
    predict(str(tmp_path / "whole"), ALONE, out=str(tmp_path / "whole.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "apart.npy"), np.load(tmp_path / "whole.npy"), rtol=1e-8)
    for dtype in ("float64", "float32"):  # in which labels are rounded before all else
        found = [trained(tmp_path, f"{mode}-{dtype}", source="parts", mode=mode, dtype=dtype) for mode in MODES]
        assert found[1]["test"] == pytest.approx(found[0]["test"], rel=1e-8 if dtype == "float64" else 1e-4)
        losses = [json.loads(open(tmp_path / f"{mode}-{dtype}/metrics.jsonl").readline())["loss"] for mode in MODES]
        assert losses[1] == pytest.approx(losses[0], rel=1e-12 if dtype == "float64" else 1e-6)
    with pytest.raises(SpgnnError, match="numbers to predict, which mode average does not train on"):
        trained(tmp_path, "a", source="parts", mode="average")


@pytest.mark.parametrize("kept", [(), (1,), (1, 0)])
def test_later_parts_with_other_columns_are_predicted_as_a_later_graph(graph, tmp_path, kept):
    trained(tmp_path, "r")
    of_kept = {"y": graph.y[:, kept], "classes": tuple(graph.classes[c] for c in kept)} if kept else {"y": None}
    later = replace(graph, **({"classes": None} | of_kept)).with_edges("both")
    save_partition(part_graph(later, 3, "random"), tmp_path / "later", later, hops=1)
    found = {}
    for how in ("together", "layerwise"):
        options = {"source": str(tmp_path / "later"), "out": str(tmp_path / f"{how}.npy"), "evaluation": how}
        found[how] = predict(str(tmp_path / "r"), ALONE, **options)
    assert [found[how].get("val") for how in found] == [pytest.approx(found["together"].get("val"))] * 2
    assert ("val" in found["layerwise"]) == bool(kept)
    np.testing.assert_allclose(np.load(tmp_path / "layerwise.npy"), np.load(tmp_path / "together.npy"), rtol=1e-10)


def test_a_report_has_numbers_as_they_are(graph, tmp_path):
    trained(tmp_path, "good", metric="mae", epochs=30)
    trained(tmp_path, "bad", metric="mae", epochs=1)
    runs = read_runs([tmp_path / "good", tmp_path / "bad"])
    rows, columns = results_table(runs)
    assert columns["test"] == "test" and rows[0]["test"] == runs["good"].summary["test"]
    one = {"good": runs["good"]}
    assert "Scores of the test nodes of each column" in runs_page(one, draw(one)).html()


def test_whole_numbers_are_numbers_where_the_loss_is_for_numbers(tmp_path, capsys):
    graph = replace(random_graph(n=60, edges=300, use="directed"), edges="stored")
    spgnn.save_graph(graph, tmp_path / "g")
    words = [str(tmp_path / "g"), "--split", "given", "--epochs", "3", "--hidden", "4", "--json"]
    assert cli.main(["train", *words, "--loss", "mae", "--out", str(tmp_path / "r")]) == 0
    said = capsys.readouterr()
    assert "1 numbers to predict" in said.err and json.loads(said.out.splitlines()[-1])["metric"] == "r2"
    assert cli.main(["predict", str(tmp_path / "r"), "--json"]) == 0
    found = np.load(tmp_path / "r" / "predictions.npy")
    assert found.shape == (60,) and found.dtype.kind == "f"
    assert cli.main(["measure", str(tmp_path / "g"), "--ranks", "2", "--json"]) == 0
    assert cli.main(["predict", str(tmp_path / "r"), "--proba", "--out", str(tmp_path / "p.csv")]) == 2
    assert "numbers have no probabilities" in capsys.readouterr().err
