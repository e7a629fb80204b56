"""The recipes of runs/papers: real graphs from their original files reach what they promise, on any ranks."""

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from pairs import full_beyond
from scripts import RUNS, printed, script

sys.path.insert(0, str(RUNS / "papers"))

from recipes import (  # noqa: E402
    KIPF_WELLING,
    LIMITS,
    PUBLISHED,
    RECIPES,
    command,
    difference,
    features_of,
    last_test,
    on_one_rank,
    run,
)

from spgnn import load_graph  # noqa: E402
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


def test_the_command_is_what_a_person_types():
    line = command(Path("ind.cora"), {"bias": False, "residual": True, "weight_decay": 5e-4}, 2, Path("out"))
    options = "--no-bias --residual --weight-decay 0.0005 --out out --overwrite"
    assert shlex.join(line) == f"mpirun -n 2 spgnn train ind.cora {options}"
    assert command(Path("ind.cora"), {}, 1, Path("out"))[:2] == ["spgnn", "train"]


def test_a_curve_that_differs_in_one_epoch_differs():
    same = [{"loss": 2.0, "train": 0.5, "val": 0.5, "test": 0.5} for _ in range(3)]
    other = [*same[:2], same[2] | {"loss": 2.2, "test": 0.4}]
    assert difference(same, same) == (0, 0)
    assert difference(same, other) == pytest.approx((0.1, 0.1))
    assert difference(same, same[:2])[0] == float("inf")


@pytest.mark.slow
def test_a_line_that_fails_ends_the_recipe_with_its_code(capfd, tmp_path):
    with pytest.raises(SystemExit) as ended:
        run(command(tmp_path / "nothing", {}, 1, tmp_path / "out"))
    assert ended.value.code == 3
    assert "this line ended with code 3: spgnn train" in capfd.readouterr().err


@pytest.mark.slow
def test_depth_has_equal_rows_on_a_subgraph_and_growing_ones_on_blocks(tmp_path, monkeypatch, capsys):
    A = sp.random_array((600, 600), density=0.01, random_state=np.random.default_rng(0), format="csr")
    sp.save_npz(tmp_path / "g.npz", sp.csr_matrix(A + A.T))
    depth = script("papers/graphsaint/depth")
    monkeypatch.setattr(sys.modules["iterations"], "FRONTIER", 40)
    words = ["--graph", tmp_path / "g.npz", "--layers", "1,2,3", "--hidden", "8", "--steps", "1", "--out", tmp_path]
    assert printed(depth, monkeypatch, capsys, *words)[0] == 0
    for line in (tmp_path / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert len(record["rows"]) == record["layers"] + 1
        if record["sampler"] == "frontier":
            assert len(set(record["rows"])) == 1
        else:
            assert record["rows"] == sorted(record["rows"], reverse=True)


@pytest.mark.slow
def test_accuracy_is_compared_at_the_best_of_neighbour_sampling_less_the_margin(tmp_path, monkeypatch, capsys):
    graph, accuracy = (
        load_graph("sbm:n=400,classes=4,features=16,degree=8,seed=0"),
        script("papers/graphsaint/accuracy"),
    )
    monkeypatch.setattr(accuracy, "load_graph", lambda path: graph)
    words = "--graphs cora --epochs 2 --hidden 8 --budget 100 --samplers walk,frontier".split()
    assert printed(accuracy, monkeypatch, capsys, *words, "--data", tmp_path, "--out", tmp_path)[0] == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [r["sampler"] for r in records] == ["neighbour", "walk", "frontier"]
    first = records[0]
    assert first["threshold"] == max(r["val"] for r in first["curve"]) - sys.modules["iterations"].MARGIN
    for r in records:
        above = [point["cpu_s"] for point in r["curve"] if point["val"] >= first["threshold"]]
        assert r["reached_s"] == (above[0] if above else None)
        if above:
            assert r["speedup"] == first["reached_s"] / above[0]
        seconds = [point["cpu_s"] for point in r["curve"]]
        assert seconds == sorted(seconds) and r["sampler"] == "neighbour" or len(above) <= 1
