"""details.json: bytes by pair of ranks, confusions and the schedule of a training, the same as counted elsewhere."""

import json

import numpy as np
import pytest

import spgnn
from spgnn.config import TrainConfig
from spgnn.experiment import run

SOURCE = "sbm:n=120,classes=3,degree=6,seed=2"
GRAPH = spgnn.load_graph(SOURCE)


def trained(folder, ranks, **options):
    """Train and return details, summary, last record and predictions."""
    config = TrainConfig(epochs=3, hidden=8, out=str(folder), threads=1, **options)
    spgnn.run_threads(ranks, lambda comm: run(SOURCE, config, comm))
    details, summary = (json.loads((folder / f"{name}.json").read_text()) for name in ("details", "summary"))
    record = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return details, summary, record, np.load(folder / "predictions.npy")


@pytest.mark.parametrize(
    "ranks, options", [(1, {}), (3, {}), (4, {"replication": 2}), (2, {"mode": "average", "parts": 2})]
)
def test_its_tables_are_those_of_the_summary_and_of_measure(tmp_path, ranks, options):
    details, summary, record, predictions_N = trained(tmp_path / "run", ranks, method="metis", **options)
    sent_PP, confusion_CC = (np.array(details[name]) for name in ("sent_PP", "confusion_CC"))
    assert sent_PP.shape == (ranks, ranks) and sent_PP.sum() == record["bytes_sent"] and not sent_PP.diagonal().any()
    assert confusion_CC.sum(1).tolist() == [of_class["support"] for of_class in summary["per_class"]]
    recall = confusion_CC.diagonal() / confusion_CC.sum(1)
    np.testing.assert_allclose(recall, [of_class["recall"] for of_class in summary["per_class"]])
    for d in range(3):
        assert confusion_CC[:, d].sum() <= (predictions_N == d).sum()
    if options.get("mode") == "average":
        assert "explanation" not in details
        return
    layers = details["explanation"]["layers"]
    assert [layer["layer"] for layer in layers] == [1, 2] and layers[0]["product"] == "(A X) W, A X kept"
    assert sum(layer["bytes_forward"] + layer["bytes_backward"] for layer in layers) == record["bytes_sent"]
    if ranks == 3:
        part = spgnn.part_graph(GRAPH, 3, "metis")
        report = spgnn.measure(GRAPH, part, summary["scheme"], (GRAPH.n_features, 8, 3))
        np.testing.assert_array_equal(sent_PP, report.bytes_PP())


def test_models_that_are_scored_part_by_part_have_no_confusions(tmp_path):
    details, *_ = trained(tmp_path / "run", 2, mode="average", parts=2, evaluation="layerwise")
    assert list(details) == ["sent_PP"]
