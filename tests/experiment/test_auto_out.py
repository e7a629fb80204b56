"""A training without --out keeps its run in a new folder runs/GRAPH-NUMBER; --out none keeps nothing."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import run as command
from worlds import launch, parallel

from spgnn.config import RUN_FILES, TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.errors import InputError, ResourceError, UsageError
from spgnn.experiment import folder, run

GRAPH = "sbm:n=40,classes=2,features=4,seed=1"
CONFIG = TrainConfig(out="auto", epochs=1, hidden=3, method="random")


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def resolved_run(source, config):
    with folder.resolved_out(source, config, SelfCommunicator()) as resolved:
        run(source, resolved, SelfCommunicator())


@parallel([1, 3], mpi=[])
def test_all_ranks_train_into_the_first_free_folder(comm, tmp_path, monkeypatch):
    if comm.rank == 0:
        for name in ("sbm-1", "sbm-3"):
            (tmp_path / "runs" / name).mkdir(parents=True)
    comm.barrier()
    with folder.resolved_out(GRAPH, CONFIG, comm) as config:
        assert config.out == "runs/sbm-2"
        run(GRAPH, config, comm)
    with folder.resolved_out(GRAPH, CONFIG, comm) as config:
        run(GRAPH, config, comm)
    comm.barrier()
    kept = {name: (tmp_path / "runs" / name / "summary.json").exists() for name in os.listdir(tmp_path / "runs")}
    assert kept == {"sbm-1": False, "sbm-2": True, "sbm-3": False, "sbm-4": True}


@pytest.mark.parametrize("source, name", [
    ("planetoid/ind.cora", "ind.cora"), ("/a/my graph.csv.gz", "my_graph"), ("rmat:scale=3", "rmat"), ("/", "graph"),
    ("a/.hidden/", "hidden"), ("é" * 100 + ".mtx", "é" * 60), ("a/../parts", "parts"),
])  # fmt: skip
def test_the_folder_of_a_run_has_the_name_of_its_graph(source, name):
    with folder.resolved_out(source, CONFIG, SelfCommunicator()) as config:
        assert config.out == f"runs/{name}-1" and Path(config.out).is_dir()
    assert not Path("runs").exists()  # nothing was written into it


def test_a_training_that_fails_leaves_no_folder_and_none_keeps_nothing():
    for source, options, error in (
        ("absent", {}, InputError),
        ("path:n=9", {}, InputError),
        (GRAPH, {"overwrite": True}, UsageError),
    ):
        with pytest.raises(error):
            resolved_run(source, TrainConfig(out="auto", **options))
    resolved_run(GRAPH, TrainConfig(out="none", epochs=1))
    with pytest.raises(UsageError, match="out = 'auto' is for the command line"):
        run(GRAPH, CONFIG, SelfCommunicator())
    assert not os.listdir()
    Path("runs").write_text("")
    with pytest.raises(ResourceError, match=r"runs: cannot be written: .*; choose a folder with out=DIR, or keep"):
        resolved_run(GRAPH, CONFIG)


def test_the_first_line_of_the_command_names_the_folder(capsys):
    code, out, err = command(capsys, "train", GRAPH, "--epochs", 1)
    assert code == 0 and err.splitlines()[0].endswith(", into runs/sbm-1") and out.endswith("  runs/sbm-1\n")
    assert {path.name for path in Path("runs/sbm-1").iterdir()} == {*RUN_FILES, "checkpoints"}
    code, out, err = command(capsys, "train", GRAPH, "--epochs", 1, "--out", "none")
    assert code == 0 and "into" not in err.splitlines()[0] and out.endswith("  not kept\n")
    assert os.listdir("runs") == ["sbm-1"]


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_of_mpirun_agree_on_the_folder(python, tmp_path):
    for number in (1, 2):
        ended = launch(2, [python, "-m", "spgnn", "train", GRAPH, "--epochs", "1"], cwd=tmp_path)
        assert ended.code == 0 and re.findall("into (.*)", ended.err) == [f"runs/sbm-{number}"], ended.err
        assert (tmp_path / "runs" / f"sbm-{number}" / "predictions.npy").is_file()
    assert launch(2, [python, "-m", "spgnn", "train", "path:n=9"], cwd=tmp_path).code == 3
    assert sorted(os.listdir(tmp_path / "runs")) == ["sbm-1", "sbm-2"]


def test_seeds_are_runs_of_their_own_with_a_mean_and_a_spread(capsys):
    argv = ("train", GRAPH, "--epochs", 2, "--hidden", 3, "--seed", 4)
    lines = [json.loads(line) for line in command(capsys, *argv, "--seeds", 2, "--json")[1].splitlines()]
    assert [line.get("out") for line in lines] == ["runs/sbm-1/seed-4", "runs/sbm-1/seed-5", "runs/sbm-1"]
    tests = [line["test"] for line in lines[:2]]
    assert lines[2]["seeds"] == [4, 5] and lines[2]["test"]["values"] == tests
    assert [lines[2]["test"][of] for of in ("mean", "std")] == pytest.approx([np.mean(tests), np.std(tests, ddof=1)])
    assert json.loads(Path("runs/sbm-1/seeds.json").read_text()) == {k: v for k, v in lines[2].items() if k != "out"}
    alone = json.loads(command(capsys, "train", GRAPH, *argv[2:-1], 5, "--out", "none", "--json")[1])
    measured = {"epoch_s", "peak_rss_mb", "out"}
    assert {k: v for k, v in alone.items() if k not in measured} == {
        k: v for k, v in lines[1].items() if k not in measured
    }
    code, out, err = command(capsys, *argv, "--seeds", 3, "--out", "runs/sbm-1", "--resume", "auto")
    assert code == 0 and err.count("has ended: nothing is trained") == 2 and "into runs/sbm-1/seed-6" in err
    assert "3 seeds from 4" in out and len(json.loads(Path("runs/sbm-1/seeds.json").read_text())["val"]["values"]) == 3
    code, _, err = command(capsys, "train", "--resume", "runs/sbm-1/seed-4", "--seeds", 2)
    assert code == 2 and "--seeds continues the runs in --out DIR by --resume auto" in err
