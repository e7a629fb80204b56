"""The recipes of runs/papers: real graphs from their original files reach what they promise, on any ranks."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pairs import full_beyond

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "runs" / "papers"))

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

from spgnn.config import TrainConfig, build  # noqa: E402
from spgnn.dist import SelfCommunicator, run_threads  # noqa: E402
from spgnn.experiment import run as train_run  # noqa: E402

BIG = ("arxiv_graphsaint", "arxiv_ogb", "coauthor_cs")  # seconds to load; runs/papers/all_graphs trains them


def curve(path: Path, comm, **options) -> list[dict]:
    """The records of a training."""
    records = []
    train_run(str(path), build(TrainConfig, KIPF_WELLING | {"threads": 1} | options), comm, report=records.append)
    return records


def script(name: str, *words) -> subprocess.CompletedProcess:
    argv = [sys.executable, ROOT / "runs" / "papers" / name, *map(str, words)]
    env = {key: value for key, value in os.environ.items() if key != "SPGNN_DATA"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env)


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
def test_another_seed_has_another_curve(data_dir):
    path = data_dir / RECIPES["cora"].path
    one, other = (curve(path, SelfCommunicator(), epochs=3, seed=seed) for seed in (0, 1))
    assert difference(one, other)[0] > 1e-3


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", full_beyond(1, [name for name in RECIPES if name not in BIG]))
def test_a_labelled_graph_trains_from_its_original_files(data_dir, tmp_path, name):
    recipe = RECIPES[name]
    options = (
        recipe.options
        | {"epochs": 2, "lr": 1e-4, "dropout": 0.0, "out": str(tmp_path)}
        | features_of(recipe, data_dir, tmp_path)
    )
    records = []
    summary = train_run(
        str(data_dir / recipe.path), build(TrainConfig, options), SelfCommunicator(), report=records.append
    )
    assert records[1]["loss"] < records[0]["loss"]
    assert 0 < summary["test"] <= 1
    predictions = np.load(tmp_path / "predictions.npy")
    assert predictions.shape == (summary["n"],) and predictions.min() >= 0


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.mpi
def test_the_scripts_train_and_print_their_tables(data_dir, tmp_path):
    done = script(
        "all_graphs",
        "--data",
        data_dir,
        "--graphs",
        "chameleon_filtered",
        "--ranks",
        "1,2",
        "--epochs",
        "2",
        "--out",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| chameleon_filtered |") == 2
    summary = json.loads((tmp_path / "chameleon_filtered-2" / "summary.json").read_text())
    assert summary["ranks"] == 2 and summary["bytes_sent"] == summary["bytes_predicted"] > 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_options_that_training_has(name):
    assert build(TrainConfig, RECIPES[name].options).epochs > 1


def test_the_command_is_what_a_person_types():
    line = command(Path("ind.cora"), {"bias": False, "residual": True, "weight_decay": 5e-4}, 2, Path("out"))
    assert (
        shlex.join(line)
        == "mpirun -n 2 spgnn train ind.cora --no-bias --residual --weight-decay 0.0005 --out out --overwrite"
    )
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
@pytest.mark.parametrize("name", full_beyond(1, ["all_graphs", "planetoid"]))
def test_a_script_says_what_it_misses(name, tmp_path):
    done = script(name)
    assert (done.returncode, done.stdout) == (2, "") and "SPGNN_DATA" in done.stderr
    done = script(name, "--data", tmp_path, "--graphs", "coral")
    assert done.returncode == 2 and "'coral' is not known" in done.stderr and "cora," in done.stderr


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
def test_the_entropy_aware_ablation_has_a_record_for_each_method_and_seed(data_dir, tmp_path):
    words = "--seeds 1 --epochs 2 --personal 1 --batch 1024 --fanout 2,2 --methods metis,ew+cbs+gp --json".split()
    done = script("entropy_aware/ablation", "--data", data_dir, "--out", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["method"] for record in records] == ["metis", "ew+cbs+gp"]
    assert records[1]["val"] >= records[1]["val_general"] and records[1]["epochs"] == 2
    assert all(len(record["entropy_of_parts"]) == 4 for record in records)


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
def test_averaged_gradients_of_parts_that_are_exact_have_the_scores_of_the_whole_graph(data_dir, tmp_path):
    words = "--graphs cora --methods random --parts 3 --hops 2 --seeds 1 --epochs 15 --sync weights,gradients --json".split()
    done = script("sdt_gnn/averaging", "--data", data_dir, "--out", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    whole, weights, gradients = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["sync"] for record in (weights, gradients)] == ["weights", "gradients"]
    assert gradients["scores"] == whole["scores"] != weights["scores"]


@pytest.mark.slow
@pytest.mark.parametrize("name, words", full_beyond(2, [
    ("planetoid", ("--ranks", "0")), ("planetoid", ("--seeds", "-1")), ("all_graphs", ("--ranks", "1,x")), ("all_graphs", ("--seeds", "0")),
    ("all_graphs", ("--epochs", "0")), ("icpp24/figures", ("--ranks", "0")), ("icpp24/figures", ("--machine", "nowhere")),
    ("sdt_gnn/accuracy", ("--epochs", "0")), ("catgnn/tables", ("--balance", "nan")), ("catgnn/tables", ("--repeat", "0")), ("sdt_gnn/tables", ("-k", "0")),
    ("entropy_aware/ablation", ("--seeds", "0")), ("entropy_aware/ablation", ("--class-balance", "2")),
]))  # fmt: skip
def test_a_number_that_would_leave_nothing_to_check_is_refused(name, words, tmp_path):
    done = script(name, "--data", tmp_path, "--out", tmp_path / "out", *words)
    assert (
        (done.returncode, done.stdout) == (2, "")
        and f"argument {words[0]}: " in done.stderr
        and not (tmp_path / "out").exists()
    )
