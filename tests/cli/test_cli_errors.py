"""An error is one message on stderr and an exit code; a traceback only with --debug."""

import errno
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import run

from spgnn import cli
from spgnn.cli.console import write
from spgnn.config import MeasureConfig, PartitionConfig, PlanConfig, TrainConfig
from spgnn.dist.job.protect import JobLauncher
from spgnn.errors import MEANT, GraphError, NumericalError, RankError, ResourceError, UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "error, message, code",
    [
        (UsageError("x = 1"), "x = 1", 2),
        (GraphError("node 3 is wrong"), "node 3 is wrong", 3),
        (ResourceError("no disk"), "no disk", 4),
        (NumericalError("loss is nan"), "loss is nan", 5),
        (MemoryError(), "out of memory: an allocation failed", 4),
        (RuntimeError("std::bad_alloc"), "out of memory: std::bad_alloc", 4),
        (RuntimeError("Could not allocate bytes object!"), "out of memory: Could not allocate bytes", 4),
        (RuntimeError("Cannot allocate memory"), "out of memory: Cannot", 4),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "out of memory: libtorch", 4),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory: [Errno 12]", 4),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "out of memory: [Errno 11]", 4),
        (ImportError("no module"), "unexpected ImportError", 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "out of memory: Default", 4),
        (RuntimeError("can't start new thread"), "out of memory: can't start", 4),
        (RuntimeError("CUDA out of memory. Tried to allocate 9 GiB"), "out of memory: CUDA", 4),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device", 4),
        (FileNotFoundError(errno.ENOENT, "No such file", "a/b"), "a/b: No such file", 3),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied", 3),
        (ValueError("odd"), "unexpected ValueError: odd; --debug shows where", 1),
        (KeyboardInterrupt(), "spgnn: interrupted", 130),  # which are not errors of this rank
        (RankError("rank 1 failed: no", 3), "spgnn: rank 1 failed: no", 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_error_has_its_message_and_exit_code(error, message, code, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("spgnn.data.load_graph", fail)
    assert cli.main(["info", "star"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    message = message if message.startswith("spgnn: ") else f"spgnn: error: {message}"
    assert err.strip().startswith(message) and err.strip().count("\n") == 0


def test_a_command_for_one_process_refuses_a_launcher_of_several(monkeypatch, capsys):
    launcher = JobLauncher("mpirun", 0, 4)
    monkeypatch.setattr("spgnn.dist.job.protect.find_launcher", lambda env: launcher)
    assert cli.main(["info", "star"]) == 2
    assert "spgnn info runs in one process, mpirun started 4; run it without a launcher" in capsys.readouterr().err


@pytest.mark.parametrize("argv, said", [
    (["train", "--relabel"], "no such option --relabel; it is an option of `spgnn convert`"),
    (["train", "--hiden", "3"], "no such option --hiden; did you mean '--hidden'?"),
    (["train", "star:n=4", "--hidden", "0"], "0 is not in the range 1<=x<=1000000"),
    (["train", "star:n=4", "--hidden", "wide"], "'wide' is not a valid integer"),
    (["train", "star:n=4", "--lr", "nan"], "lr = nan; expected at least 0"),
    (["train", "star:n=4", "--optimizer", "adm"], "'adm' is not one of 'adam', 'adamw', 'sgd'"),
    (["train"], "GRAPH is missing"),
    (["train", "star:n=4", "--lr", "1e39"], "1e+39 is not in the range 0<=x<=1e+30"),
    (["trian"], "no such command 'trian'; did you mean 'train'?"),
    (["evaluate"], "no such command 'evaluate'; did you mean 'predict'?"),
    (["train", "star:n=4", "--device", "gpu"], "'gpu' is not one of 'cpu', 'cuda'; did you mean 'cuda'?"),
    *((["train", "nowhere", "--model", name, "--out", "none"], f"--model '{name}' is not known; did you mean 'gcn'?") for name in ("GCN", "gnc")),
    (["train", "star:n=4", "--lr", "fast"], "'fast' is not a valid number (see"),
    (["info"], "missing argument 'GRAPH'"),
    (["measure", "star:n=4", "-k", "4,x"], "-k '4,x'; expected positive integers separated by commas"),
    (["measure", "star:n=4", "-k", "4,"], "-k '4,'; expected positive integers separated by commas"),
    (["measure", "star:n=4", "-k", ","], "-k is empty"),
    (["partition", "star:n=4", "--method", "block", "--objective", "vol"], "--objective vol is for --method metis"),
    (["partition", "star:n=4", "--method", "blok"], "did you mean 'block'?"),
    (["measure", "star:n=4", "--scheme", "colums"], "did you mean 'columns'?"),
    (["measure", "sbm:n=20", "--simulate", "--machine", "perlmuter-like"], "did you mean 'perlmutter-like'?"),
    (["measure", "star:n=4", "--replication", "1,3"],
     "replication 3 does not fit k = 4 parts: P = k c = 12 ranks, and c^2 must divide P; those that work: 1, 2, 4"),
    (["measure", "star:n=4", "-k", "8192", "--replication", "8192"], "P = k c = 67108864 ranks; expected at most 8192"),
])  # fmt: skip
def test_wrong_usage_exits_with_2_and_says_what_was_expected(argv, said, capsys):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("spgnn: error: ") and said in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback_and_still_the_message(tmp_path, capsys):
    assert cli.main(["info", str(tmp_path / "absent"), "--debug"]) == 3
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("spgnn: error: ")


@pytest.mark.slow
def test_a_reader_of_the_output_that_leaves_early_gets_no_message():
    code = "import sys; from spgnn.cli import main; sys.exit(main(['train', '--help']))"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    read_end, write_end = os.pipe()
    os.close(read_end)
    run = subprocess.run(
        [sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE, text=True, env=env, timeout=60
    )
    os.close(write_end)
    assert (run.returncode, run.stderr) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize("command, closed", [
    ("info wordnet", "<&-"),
    ("info wordnet", ">&- 2>&-"),
    *(("partition path:n=40 -k 3 --out parts", closed) for closed in (">&-", "2>&-", "<&- >&- 2>&-")),
])  # fmt: skip
def test_standard_files_that_are_closed_are_done_without(tmp_path, command, closed):
    line = f"{sys.executable} -m spgnn {command} {closed}"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, env=env, timeout=60)
    assert run.returncode == 0 and "Error" not in run.stderr
    assert bool(run.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert not command.startswith("partition") or (tmp_path / "parts" / "manifest.json").is_file()


def test_control_characters_of_a_name_do_not_reach_the_terminal(capsys):
    name = "x\x1b]0;pwn\x07\x1b[2J\r\x9b"
    assert cli.main(["info", name]) == 3 and cli.main(["info", "--" + name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and not set("\x1b\x07\r\x9b") & set(err) and r"x\x1b]0;pwn\x07\x1b[2J\x0d\x9b: no such file" in err
    write("graph \x1b[2J\nä")
    assert capsys.readouterr().out == "graph \\x1b[2J\nä\n"


def test_a_long_key_is_not_repeated_whole(capsys, tmp_path):
    (tmp_path / "long.toml").write_text("k" * 5000 + " = 1\n")
    assert cli.main(["train", "sbm:n=20", "--config", str(tmp_path / "long.toml")]) == 2
    err = capsys.readouterr().err
    assert "long.toml: unknown key 'kkk" in err and "kkk...kkk" in err and len(err) < 3000


@pytest.mark.parametrize("command, given, ours", [
    ("train", "--early-stopping 5", "--patience"), ("train", "--gpu", "--device"),
    ("train", "--batch-size 5", "--batch"), ("train", "--learning_rate 5", "--lr"),
    ("train", "--n-epochs=5", "--epochs"), ("train", "--aggr mean", "--aggregator"),
    ("partition", "--num-parts 3", "--k"), ("plan", "-k 3", "--ranks"), ("predict", "--output x", "--out"),
])  # fmt: skip
def test_an_option_is_suggested_by_what_it_means(command, given, ours, tmp_path, capsys):
    assert cli.main([command, "star", *given.split()]) == 2
    assert f"no such option {re.split('[ =]', given)[0]}; did you mean '{ours}'?" in capsys.readouterr().err
    name = re.split("[ =]", given)[0].strip("-").replace("-", "_")
    if command != "predict":
        (tmp_path / "own.toml").write_text(f"{name} = 5\n")
        assert cli.main([command, "star", "--config", str(tmp_path / "own.toml")]) == 2
        assert f"unknown key {name!r}; did you mean {ours[2:]!r}?" in capsys.readouterr().err


@pytest.mark.parametrize("name, said", [("np", "mpirun -n N"), ("num-classes", "counted in GRAPH")])
def test_what_is_no_option_here_says_where_it_is(name, said, capsys):
    assert cli.main(["train", "star", f"--{name}", "3"]) == 2
    assert said in capsys.readouterr().err


def test_meanings_are_of_options_and_values_that_exist():
    names = {f.name for cls in (TrainConfig, PartitionConfig, MeasureConfig, PlanConfig) for f in fields(cls)}
    ours = {word for words in MEANT.values() for word in words.split()}
    others = {*cli.COMMANDS, *"config preset cuda metis neighbour X y f f_in f_out merge n_nodes".split()}
    assert ours <= names | others


@pytest.mark.parametrize(
    "error, is_continued", [(MemoryError(), True), (ZeroDivisionError("odd"), True), (NumericalError("nan"), False)]
)
def test_an_error_comes_first_and_then_how_its_run_is_continued(error, is_continued, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    train = ["train", "sbm:n=60", "--epochs", "2", "--hidden", "4", "--checkpoint-every", "0", "--out", str(out)]
    assert cli.main(train) == 0

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("spgnn.experiment.run", fail)
    capsys.readouterr()
    cli.main([*train, "--overwrite"])
    _, first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith("spgnn: error: ")
    assert more == [f"  spgnn train --resume {out} continues the run"] * is_continued


@pytest.mark.parametrize("words, message", [
    ("train wordnet --features A.csv --features B.csv", "--features is given 2 times; FILE:COLUMN,COLUMN .* A.merge"),
    ("convert e.csv g --labels a --split s --labels b", "--labels is given 2 times; FILE:COLUMN,COLUMN takes columns"),
    ("convert e.csv g --one-hot a --one-hot b", "--one-hot is given 2 times; separate columns by commas: A,B"),
])  # fmt: skip
def test_an_option_that_is_given_twice_is_refused_and_a_switch_is_not(capsys, words, message):
    code, _, err = run(capsys, *words.split())
    assert code == 2 and re.search(message, err)
    assert run(capsys, "info", "path:n=3", "--json", "--json")[0] == 0
