"""A training without --out keeps its run in a new folder runs/GRAPH-NUMBER; --out none keeps nothing."""

import os
import re
import sys
from pathlib import Path

import pytest
from command_line import run as command
from worlds import launch, parallel

from spgnn.config import RUN_FILES, TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.errors import InputError, ResourceError, UsageError
from spgnn.experiment import auto_out, run

GRAPH = "sbm:n=40,classes=2,features=4,seed=1"
CONFIG = TrainConfig(out="auto", epochs=1, hidden=3, method="random")


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def resolved_run(source, config):
    with auto_out.resolved_out(source, config, SelfCommunicator()) as resolved:
        run(source, resolved, SelfCommunicator())


@parallel([1, 3], mpi=[])
def test_all_ranks_train_into_the_first_free_folder(comm, tmp_path, monkeypatch):
    if comm.rank == 0:
        for name in ("sbm-1", "sbm-3"):
            (tmp_path / "runs" / name).mkdir(parents=True)
    comm.barrier()
    with auto_out.resolved_out(GRAPH, CONFIG, comm) as config:
        assert config.out == "runs/sbm-2"
        run(GRAPH, config, comm)
    with auto_out.resolved_out(GRAPH, CONFIG, comm) as config:
        run(GRAPH, config, comm)
    comm.barrier()
    kept = {name: (tmp_path / "runs" / name / "summary.json").exists() for name in os.listdir(tmp_path / "runs")}
    assert kept == {"sbm-1": False, "sbm-2": True, "sbm-3": False, "sbm-4": True}


@pytest.mark.parametrize("source, name", [
    ("planetoid/ind.cora", "ind.cora"), ("/a/my graph.csv.gz", "my_graph"), ("rmat:scale=3", "rmat"), ("/", "graph"),
    ("a/.hidden/", "hidden"), ("é" * 100 + ".mtx", "é" * 60), ("a/../parts", "parts"),
])  # fmt: skip
def test_the_folder_of_a_run_has_the_name_of_its_graph(source, name):
    with auto_out.resolved_out(source, CONFIG, SelfCommunicator()) as config:
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
    with pytest.raises(ResourceError, match=r"runs: cannot be written: .*; choose a folder with --out DIR, or keep"):
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
def test_ranks_of_mpirun_agree_on_the_folder(tmp_path):
    for number in (1, 2):
        ended = launch(2, [sys.executable, "-m", "spgnn", "train", GRAPH, "--epochs", "1"], cwd=tmp_path)
        assert ended.code == 0 and re.findall("into (.*)", ended.err) == [f"runs/sbm-{number}"], ended.err
        assert (tmp_path / "runs" / f"sbm-{number}" / "predictions.npy").is_file()
