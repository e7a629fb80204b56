"""The folder of a run after kills, copies and failures: nothing of a user is lost, and the next training can take it."""

import json
import os
import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from waited import Killed, Waited

from spgnn.config import TrainConfig
from spgnn.data import load_graph, save_graph
from spgnn.dist import SelfCommunicator
from spgnn.errors import CheckpointError, ResourceError, StoppedError, UsageError
from spgnn.experiment import folder, predict, resume, run, saving
from spgnn.experiment.checkpoint import list_checkpoints
from spgnn.experiment.stopping import StopSignals

SOURCE = "sbm:n=40,classes=2,features=4,seed=1"
HEX = "0123456789abcdef"


@pytest.fixture(autouse=True)
def waited(monkeypatch):
    monkeypatch.setattr(saving, "Writing", Waited)


def training(out, **options) -> dict:
    given = {"epochs": 3, "hidden": 3, "method": "random", "checkpoint_every": 0.0} | options
    return run(SOURCE, TrainConfig(out=str(out), **given), SelfCommunicator())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three epochs, to be copied."""
    training(tmp_path_factory.mktemp("run") / "whole")
    return next(tmp_path_factory.getbasetemp().glob("run*/whole"))


def names(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*"))


def begun(out, epoch, **options) -> folder.RunFolder:
    """The folder of a training that has written its first checkpoint, and has not told its folder yet."""
    config = TrainConfig(out=str(out), **options)
    with ExitStack() as held:
        files = folder.hold_folder(config, held)
        files.begin(SOURCE, config, SelfCommunicator())
        files.metrics.close()
    (files.new_checkpoints / f"epoch-{epoch:06d}").mkdir(parents=True)
    return files


def visible(out) -> set[int]:
    """The runs, 1 and 2, that files which are not hidden belong to."""
    found = {int(path.name[6:]) for path in list_checkpoints(out / "checkpoints")}
    if (out / "config.toml").exists():
        found.add(2 if "seed = 2" in (out / "config.toml").read_text() else 1)
    return found | ({1} if (out / "summary.json").exists() else set())


def test_a_training_that_is_killed_while_it_replaces_a_run_mixes_none_and_leaves_a_folder_that_the_next_one_takes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(folder.RunFolder, "close", lambda self: None)  # a kill removes nothing
    rename, kills = Path.rename, 0
    for moves in range(40):
        out, done = tmp_path / str(moves), 0
        begun(out, 1).after_checkpoint()
        (out / "summary.json").write_text("{}")

        def killed(path, target):
            nonlocal done
            done += 1
            if done > moves:
                raise Killed
            return rename(path, target)

        second = begun(out, 2, overwrite=True, seed=2)
        monkeypatch.setattr(Path, "rename", killed)
        try:
            second.after_checkpoint()
        except Killed:
            kills += 1
        monkeypatch.setattr(Path, "rename", rename)
        is_done, seen = done <= moves, visible(out)
        assert len(seen) <= 1 and ((out / "env.json").exists() or not seen), moves
        for options in ({}, {"overwrite": True}):  # without: as --resume auto starts where it finds no checkpoint
            if options or not folder.has_results(out):
                begun(out, 3, **options).after_checkpoint()
        left = ["checkpoints", "checkpoints/epoch-000003", "config.toml", "env.json", "metrics.jsonl"]
        assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == left, moves
        if is_done:
            break
    assert kills >= 8


@pytest.mark.slow
def test_a_copy_of_a_checkpoint_is_neither_read_nor_removed(whole, tmp_path):
    checkpoints = shutil.copytree(whole, tmp_path / "run") / "checkpoints"
    for name in ("epoch-000003-copy", "epoch-best"):
        shutil.copytree(checkpoints / "epoch-000003", checkpoints / name)
    said = []
    resume(tmp_path / "run", SelfCommunicator(), epochs=6, show=said.append)
    training(tmp_path / "run", overwrite=True)
    assert len(said) == 1 and {"epoch-000003-copy", "epoch-best"} <= {path.name for path in checkpoints.iterdir()}


@pytest.mark.slow
def test_fewer_epochs_than_a_run_has_are_refused(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(UsageError, match="epochs=2 is less than the 3 that .*run has; give that or more"):
        resume(tmp_path / "run", SelfCommunicator(), epochs=2)
    assert names(tmp_path / "run") == names(whole)


@pytest.mark.slow
def test_a_run_without_checkpoints_is_not_started_again_by_resume(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "checkpoints" / "epoch-copy").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="resume .*run: has no checkpoint; train again with out"):
        resume(tmp_path / "run", SelfCommunicator())
    monkeypatch.setattr(sys.modules["spgnn.config.continued"], "has_checkpoint", lambda folder: True)  # since then gone
    with pytest.raises(CheckpointError, match="resume .*run: has no checkpoint"):
        resume(tmp_path / "run", SelfCommunicator())
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", "[]", '{"continued_after": 3}'])
def test_a_damaged_env_json_ends_no_resume(whole, tmp_path, text):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "env.json").write_text(text)
    assert resume(tmp_path / "run", SelfCommunicator(), epochs=4)["epochs"] == 4
    assert json.loads((tmp_path / "run" / "env.json").read_text())["continued_after"] == [3]


@pytest.mark.slow
def test_results_of_a_run_stay_where_its_continuation_cannot_begin(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    write = folder.write_text

    def full(path, text):
        if path.name == "config.toml":
            raise OSError(28, "No space left on device")
        return write(path, text)

    monkeypatch.setattr(folder, "write_text", full)
    with pytest.raises(ResourceError, match="No space left on device"):
        resume(tmp_path / "run", SelfCommunicator(), epochs=4)
    assert names(tmp_path / "run") == names(whole)


@pytest.mark.slow
def test_what_a_killed_training_was_writing_or_going_to_replace_is_removed(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    for name in (f".env.json.new-12-{HEX}", f".config.toml.new-12-{HEX}", ".env.json.new-mine"):
        (tmp_path / "run" / name).write_text("")
    for home in (tmp_path / "run", tmp_path / "run" / "checkpoints"):
        for what in ("new", "old"):
            (home / f".{what}-12-{HEX}").mkdir()
    resume(tmp_path / "run", SelfCommunicator(), epochs=4)
    assert [path.name for path in (tmp_path / "run").rglob(".*")] == [".env.json.new-mine"]


def test_inputs_are_no_outputs(tmp_path):
    for name in ("predictions.npy", "checkpoints"):
        with pytest.raises(UsageError, match=f"features .*{name}: is a file that out .* replaces"):
            (tmp_path / "run").mkdir(exist_ok=True)
            (tmp_path / "run" / name).mkdir()
            training(tmp_path / "run", features=str(tmp_path / "run" / name), overwrite=True)


@pytest.mark.slow
def test_outputs_overwrite_no_files_of_the_graph(tmp_path):
    save_graph(load_graph(SOURCE), tmp_path / "g")
    graph, labels = str(tmp_path / "g"), tmp_path / "g" / "labels.npy"
    before, own = labels.read_bytes(), SelfCommunicator()
    with pytest.raises(UsageError, match="trace .*labels.npy: is in .*g, which is an input; choose another place"):
        run(graph, TrainConfig(epochs=1, trace=str(labels)), own)
    run(graph, TrainConfig(epochs=1, hidden=3, out=str(tmp_path / "run")), own)
    for option, given in (
        ("out", {}),
        ("embeddings", {}),
        ("embeddings", {"source": graph, "out": str(tmp_path / "p.npy")}),
    ):
        with pytest.raises(UsageError, match=f"{option} .*labels.npy: is in .*g, which is an input"):
            predict(str(tmp_path / "run"), own, **given | {option: str(labels)})
    assert labels.read_bytes() == before and not (tmp_path / "p.npy").exists()


def test_a_warning_that_comes_after_the_results_ends_nothing():
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with StopSignals() as stop:
            stop.begin()
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        with pytest.raises(ValueError), StopSignals():
            raise ValueError
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), (signal.SIGUSR1, 75)])
def test_a_signal_names_the_moment_at_which_it_ended_a_training(number, code):
    with StopSignals() as stop:
        with pytest.raises(StoppedError, match="stopped by SIG.* before the first epoch") as caught:
            signal.raise_signal(number)
        assert caught.value.exit_code == code
        stop.begin()
        signal.raise_signal(number)
        assert stop.wanted == number
        stop.end()
        with pytest.raises(StoppedError, match="after the last epoch, before the results were written"):
            signal.raise_signal(number)


def test_one_rank_of_several_notes_a_signal_and_all_end_together_when_asked():
    with StopSignals(is_shared=True), StopSignals(is_shared=True) as stop:
        stop.ask(SelfCommunicator())
        signal.raise_signal(signal.SIGTERM)
        with StopSignals(is_shared=True) as inner, pytest.raises(StoppedError, match="before the first") as caught:
            inner.ask(SelfCommunicator())
        assert (caught.value.exit_code, caught.value.is_together) == (75, True)
