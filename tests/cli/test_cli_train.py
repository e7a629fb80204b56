"""train and predict: the command line gives the config to training and shows what comes back."""

import json
import os
import re

import pytest
from pairs import full_beyond
from worlds import launch

import spgnn.experiment
from spgnn import cli
from spgnn.config import TrainConfig

SUMMARY = {
    "best_epoch": 2, "val": 0.5, "test": 0.625, "metric": "accuracy", "epoch_s": 0.25, "bytes_sent": 3_420_000,
    "bytes_predicted": 3_420_000, "peak_rss_mb": 321.5, "ranks": 1, "scheme": "columns", "replication": 1, "method": "metis",
}  # fmt: skip


def stand_in(monkeypatch, function):
    """Let the command line find function where training has its own of that name, without importing torch."""
    monkeypatch.setitem(vars(spgnn.experiment), function.__name__, function)


@pytest.fixture
def training(monkeypatch, tmp_path):
    """A training that records its arguments and reports two epochs."""
    calls = {}
    monkeypatch.chdir(tmp_path)

    def run(source, config, comm, report=None, show=None):
        calls.update(source=source, config=config, size=comm.size)
        for epoch in (1, 2):
            scores = {"train": 0.5, "val": 0.5, "test": 0.625}
            report({"epoch": epoch, "loss": 1.0 / epoch, "epoch_s": 0.25, "bytes_sent": 9} | scores)
        return dict(SUMMARY)

    def predict(run_dir, comm, source=None, out=None, embeddings=None, **options):
        calls.update(run_dir=run_dir, source=source, out=out, embeddings=embeddings)
        return {"nodes": 4, "out": out or "predictions.npy"}

    stand_in(monkeypatch, run)
    stand_in(monkeypatch, predict)
    return calls


def test_train_gives_training_the_options_of_the_command_line(training, capsys):
    argv = "train wordnet --hidden 16 --no-bias --dtype float64 --weight-decay 5e-4 --features f.npy --out none"
    assert cli.main(argv.split()) == 0
    assert training["source"] == "wordnet"
    assert training["config"] == TrainConfig(
        hidden=16, bias=False, dtype="float64", weight_decay=5e-4, features="f.npy"
    )


def test_a_saved_run_is_repeated_from_its_config_alone_and_the_command_line_goes_on_top(training, tmp_path, capsys):
    path = tmp_path / "config.toml"
    path.write_text('graph = "star:n=4"\nhidden = 16\nepochs = 7\n')
    assert cli.main(["train", "--config", str(path), "--epochs", "2"]) == 0
    assert training["source"] == "star:n=4"
    assert training["config"] == TrainConfig(hidden=16, epochs=2, out="runs/star-1")
    assert cli.main(["train", "wordnet", "--config", str(path)]) == 0
    assert training["source"] == "wordnet"


def test_the_first_line_has_the_threads_of_a_rank_and_the_load_of_its_host(training, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr("spgnn.cli.train.host_load", lambda: (1.26, 8))
    for option, threads in (("--epochs=1", "3 threads"), ("--threads=1", "1 thread")):
        assert cli.main(["train", "wordnet", option]) == 0
        assert f"1 rank of {threads}, load 1.3 of 8 cores" in " ".join(capsys.readouterr().err.split())


def test_train_shows_epochs_on_stderr_and_the_result_on_stdout(training, capsys):
    assert cli.main(["train", "wordnet", "--epochs", "2", "--out", "runs/out/a"]) == 0
    out, err = capsys.readouterr()
    assert "epoch 2 of 2  loss 0.5000  train 0.5000  val 0.5000  test 0.6250  0.250 s/epoch" in err
    lines = {line.split("  ")[1]: line.split("  ")[-1].strip() for line in out.splitlines()[1:]}
    assert lines["test accuracy"] == "0.625"
    assert lines["epoch time"] == "0.2500 s"
    assert lines["bytes sent"] == "3.42 MB per epoch, as predicted"
    assert lines["results"] == "runs/out/a"


def test_train_json_is_the_summary_alone(training, capsys):
    assert cli.main(["train", "wordnet", "--epochs", "2", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and json.loads(out) == SUMMARY | {"out": "runs/wordnet-1"}
    assert cli.main(["train", "wordnet", "--epochs", "2", "--json", "--out", "none"]) == 0
    assert json.loads(capsys.readouterr().out) == SUMMARY


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "argv, code, said",
    full_beyond(
        2,
        [
            (["train", "wordnet", "--hiden", "3"], 2, "no such option --hiden; did you mean '--hidden'?"),
            (["train", "absent", "--out", "none"], 3, "absent: no such file or folder"),
            (["train", "path:n=9"], 3, "has no features"),
            (["info", "wordnet"], 2, "spgnn info runs in one process"),
        ],
    ),
)
def test_an_error_under_mpirun_is_shown_once_then_its_rank_and_ends_the_job(argv, code, said, python):
    ended = launch(3, [python, "-m", "spgnn", *argv])
    assert (ended.code, ended.out) == (code, "")
    (error,) = re.findall(r".*error: .*\n.*", ended.err)
    assert error.startswith("spgnn: error: ") and said in error and re.search(r"\n  rank \d; phase: ", error)


def test_predictions_go_where_a_link_points_and_never_in_the_place_of_a_pipe(tmp_path, capsys):
    run, pipe, link = tmp_path / "run", tmp_path / "pipe", tmp_path / "link.npy"
    assert cli.main(["train", "sbm:n=60", "--epochs", "1", "--out", str(run)]) == 0
    os.mkfifo(pipe)
    link.symlink_to("target.npy")
    capsys.readouterr()
    for option in ("--out", "--embeddings"):
        assert cli.main(["predict", str(run), option, str(pipe)]) == 2
        assert f"{pipe}: is no regular file; expected the name of a file" in capsys.readouterr().err
        assert cli.main(["predict", str(run), option, str(link)]) == 0
        for name in ("config.toml", "checkpoints", "checkpoints/epoch-000001/model.safetensors"):
            assert cli.main(["predict", str(run), option, str(run / name)]) == 2
            err = capsys.readouterr().err
            assert f"{name}: is a file of the run; choose another" in err or "is a folder" in err
    assert (
        cli.main(["predict", str(run), "--out", str(tmp_path / "p.npy"), "--embeddings", str(tmp_path / "p.npy")]) == 2
    )
    assert "p.npy: is --out already" in capsys.readouterr().err
    assert pipe.is_fifo() and link.is_symlink() and (tmp_path / "target.npy").is_file()
