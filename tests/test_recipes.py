"""The recipes of runs/papers: real graphs from their original files reach what they promise, on any ranks."""

import sys
from pathlib import Path

import numpy as np
import pytest
from pairs import full_beyond
from scripts import RUNS

sys.path.insert(0, str(RUNS / "papers"))

from recipes import (  # noqa: E402
    KIPF_WELLING,
    LIMITS,
    PUBLISHED,
    RECIPES,
    difference,
    features_of,
    last_test,
    on_one_rank,
)

from spgnn.config import TrainConfig, build  # noqa: E402
from spgnn.dist import SelfCommunicator, run_threads  # noqa: E402
from spgnn.experiment import run as train_run  # noqa: E402

BIG = ("arxiv_graphsaint", "arxiv_ogb", "coauthor_cs")  # seconds to load; runs/papers/all_graphs trains them


def curve(path: Path, comm, **options) -> list[dict]:
    """The records of a training."""
    records = []
    train_run(str(path), build(TrainConfig, KIPF_WELLING | {"threads": 1} | options), comm, report=records.append)
    return records


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
def test_cora_reaches_the_published_accuracy_within_a_point(data_dir):
    dgraph = on_one_rank(data_dir / RECIPES["cora"].path, KIPF_WELLING["feature_norm"])
    assert 100 * np.mean([last_test(dgraph, KIPF_WELLING, seed) for seed in range(4)]) >= PUBLISHED["cora"] - 1


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("dtype", full_beyond(1, LIMITS))
def test_cora_has_the_same_curve_on_one_rank_and_on_two(data_dir, dtype):
    path = data_dir / RECIPES["cora"].path
    alone = curve(path, SelfCommunicator(), epochs=40, dtype=dtype)
    for records in run_threads(2, lambda comm: curve(path, comm, epochs=40, dtype=dtype)):
        assert len(records) == 40 and max(difference(alone, records)) <= LIMITS[dtype]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", full_beyond(1, [name for name in RECIPES if name not in BIG]))
def test_a_labelled_graph_trains_from_its_original_files(data_dir, tmp_path, name):
    recipe = RECIPES[name]
    options = recipe.options | {"epochs": 2, "lr": 1e-4, "dropout": 0.0, "out": str(tmp_path)}
    config, records = build(TrainConfig, options | features_of(recipe, data_dir, tmp_path)), []
    summary = train_run(str(data_dir / recipe.path), config, SelfCommunicator(), report=records.append)
    assert records[1]["loss"] < records[0]["loss"]
    assert 0 < summary["test"] <= 1
    predictions = np.load(tmp_path / "predictions.npy")
    assert predictions.shape == (summary["n"],) and predictions.min() >= 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_options_that_training_has(name):
    assert build(TrainConfig, RECIPES[name].options).epochs > 1
