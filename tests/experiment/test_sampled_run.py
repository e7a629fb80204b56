"""A training on subgraphs is a run like others: its records, its report and its predictions."""

import json

import numpy as np
import pytest

from spgnn import cli

GRAPH = "sbm:n=300,classes=3,features=8,degree=6,seed=1"
SIZES = {"walk": ["--budget", "60"], "neighbour": ["--batch", "20", "--fanout", "3,2"]}


@pytest.fixture(scope="module", params=list(SIZES))
def run(request, tmp_path_factory):
    """(sampler, folder) of a training."""
    out = tmp_path_factory.mktemp("runs") / request.param
    options = ["--sampler", request.param, *SIZES[request.param], "--model", "sage", "--hidden", "8", "--threads", "1"]
    code = cli.main(["train", GRAPH, "--epochs", "3", "--out", str(out), *options])
    assert code == 0
    return request.param, out


def test_the_summary_has_the_options_of_its_sampler_alone(run):
    name, out = run
    summary = json.loads((out / "summary.json").read_text())
    own = {"walk": {"budget": 60, "walk": 2}, "neighbour": {"batch": 20, "fanout": "3,2"}}
    assert summary["sampler"] == name and summary["subgraphs"] == 1 and summary["steps_per_epoch"] > 1
    assert summary.items() >= own[name].items()
    other = own["neighbour" if name == "walk" else "walk"]
    assert not summary.keys() & other.keys()


def test_its_predictions_are_those_of_the_whole_graph(run, tmp_path):
    _, out = run
    predicted = tmp_path / "p.npy"
    assert cli.main(["predict", str(out), "--graph", GRAPH, "--out", str(predicted)]) == 0
    np.testing.assert_array_equal(np.load(predicted), np.load(out / "predictions.npy"))
