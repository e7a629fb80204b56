"""`spgnn measure` with the options of a training predicts the bytes that the training sends."""

import json
from dataclasses import fields

import numpy as np
import pytest
from pairs import full_beyond

from spgnn import cli
from spgnn.config import MeasureConfig, TrainConfig, build
from spgnn.dist import run_threads
from spgnn.experiment import run

SBM = "sbm:n=300,classes=4,features=12,degree=6"
# Options of train and of measure; a number of ranks and the parts of a partition go with them.
CASES = {
    "cover, 1.5D": (SBM, 4, {"scheme": "cover", "replication": 2, "layers": 3, "hidden": 9}),
    "dropout, so that auto prunes": ("rmat:scale=11,degree=3", 4, {"dropout": 0.3, "split": "random", "seed": 3}),
    "narrow types": (SBM, 3, {"wire": "bfloat16", "wire_gradients": "float16", "dtype": "bfloat16"}),
    "volume for its scheme": ("sbm:n=300,classes=6,features=8", 3, {"method": "volume", "scheme": "cover"}),
    "no options, sparse features": ("wordnet", 3, {}),
    "defaults": (SBM, 4, {}),
    "all rows are pruned to few": (SBM, 3, {"prune": "always", "dropout": 0.5, "layers": 2, "split": "given"}),
    "evaluations are rare": (SBM, 2, {"eval_every": 50, "dropout": 0.3, "input_dropout": False}),
    "spmm first, nothing cached": (SBM, 3, {"schedule": "plain", "edges": "directed"}),
    "mean of neighbours": ("wordnet", 2, {"operator": "row", "edges": "reversed", "method": "random", "hidden": 7}),
    "columns": (SBM, 2, {"scheme": "columns", "method": "random", "edges": "directed"}),
    "layer norm and residuals": (SBM, 2, {"norm": "layer", "residual": True, "layers": 4, "hidden": 12}),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Features, and labels of a few nodes, for a graph that has none."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    np.save(folder / "X.npy", rng.normal(size=(2048, 10)).astype(np.float32))
    labels = np.full(2048, -1)
    labels[rng.choice(2048, 60, replace=False)] = rng.integers(0, 5, 60)
    np.save(folder / "y.npy", labels)
    return {"features": str(folder / "X.npy"), "labels": str(folder / "y.npy")}


def trained(graph: str, ranks: int, **options) -> dict:
    """Return the summary of a training."""
    config = build(TrainConfig, options | {"epochs": 2, "threads": 1, "watchdog": 0.0})
    return run_threads(ranks, lambda comm: run(graph, config, comm))[0]


def measured(capsys, graph: str, **options) -> dict:
    """Return the line of `spgnn measure --json`."""
    words = ["measure", graph, "--json"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        words += [flag if value else "--no-" + flag[2:]] if isinstance(value, bool) else [flag, str(value)]
    assert cli.main(words) == 0
    (line,) = (json.loads(text) for text in capsys.readouterr().out.splitlines())
    return line


@pytest.mark.slow
@pytest.mark.parametrize("case", full_beyond(5, CASES))
def test_measure_predicts_the_bytes_that_train_sends(case, files, capsys):
    graph, ranks, options = CASES[case]
    options = options | (files if graph.startswith("rmat") else {})
    summary = trained(graph, ranks, **options)
    line = measured(capsys, graph, k=ranks // options.get("replication", 1), **options)
    assert (line["scheme"], line["method"]) == (summary["scheme"], summary["method"])
    assert "columns" not in case or line["scheme"] == "columns"
    assert line["bytes_per_epoch"] == summary["bytes_sent"] == summary["bytes_predicted"] > 0


@pytest.mark.slow
def test_measure_of_a_partition_folder_predicts_the_bytes_that_train_sends(tmp_path, capsys):
    parts = str(tmp_path / "parts")
    assert cli.main(["partition", SBM, "-k", "3", "--method", "volume", "--objective", "cover", "--out", parts]) == 0
    capsys.readouterr()
    line = measured(capsys, SBM, partition=parts, hidden=20)
    assert line["bytes_per_epoch"] == trained(parts, 3, hidden=20)["bytes_sent"] > 0
    assert cli.main(["plan", parts, "--ranks", "3", "--hidden", "20", "--json"]) == 0
    starred = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["fastest"]]
    assert [line["scheme"] for line in starred] == [trained(parts, 3, hidden=20)["scheme"]]
    for command in ("measure", "plan"):  # the folder alone names graph and parts
        outputs = []
        for argv in ([SBM, "--partition", parts], [parts]):
            assert cli.main([command, *argv, "--hidden", "20", "--json"]) == 0
            outputs.append(capsys.readouterr().out)
        assert outputs[0] == outputs[1] != ""
    assert cli.main(["plan", parts, "--features", "x.npy"]) == 2
    assert "which has its own; omit it" in capsys.readouterr().err


@pytest.mark.slow
def test_plan_stars_the_scheme_that_train_takes_where_another_has_the_shorter_epoch(tmp_path, capsys):
    parts = str(tmp_path / "parts")
    assert cli.main(["partition", SBM, "-k", "2", "--method", "random", "--out", parts]) == 0
    capsys.readouterr()
    assert cli.main(["plan", parts, "--ranks", "2", "--ranks-per-host", "2", "--layers", "1", "--json"]) == 0
    starred = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["fastest"]]
    assert [line["scheme"] for line in starred] == [trained(parts, 2, layers=1)["scheme"]]


def test_measure_has_the_defaults_of_train():
    ours, theirs = MeasureConfig(), TrainConfig()
    shared = {f.name for f in fields(MeasureConfig)} & {f.name for f in fields(TrainConfig)}
    assert {"scheme", "prune", "hidden", "layers", "split", "wire", "dropout", "edges", "schedule"} <= shared
    assert not [name for name in shared if str(getattr(ours, name)) != str(getattr(theirs, name))]
