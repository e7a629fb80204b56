"""Checkpoints that are damaged: the one before is taken with a message, or exit code 3 or 4; never a wrong result."""

import json
import os
import random
import shutil
from functools import partial

import pytest
from command_line import in_python
from test_resume import outcome
from waited import Waited

from spgnn.config import TrainConfig
from spgnn.data.manifest import seal
from spgnn.dist import SelfCommunicator
from spgnn.errors import CheckpointError, ResourceError, SpgnnError, exit_code_of
from spgnn.experiment import predict, resume, run, saving
from spgnn.experiment.checkpoint import Checkpoint, best_checkpoint, list_checkpoints, newest_whole, read_manifest

SOURCE = "sbm:n=60,classes=3,features=6,seed=1"
MUTATIONS = int(os.environ.get("SPGNN_MUTATIONS", 200))  # 1,000 take two minutes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(an interrupted run, the uninterrupted one); the first has three checkpoints, the best and two that are whole."""
    folder = tmp_path_factory.mktemp("runs")
    options = {"epochs": 12, "hidden": 4, "dropout": 0.3, "checkpoint_every": 0.0, "method": "random"}
    patch = pytest.MonkeyPatch()
    patch.setattr(saving, "Writing", Waited)

    def stop(record):
        if record["epoch"] == 10:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(SOURCE, TrainConfig(out=str(folder / "cut"), **options), SelfCommunicator(), report=stop)
    run(SOURCE, TrainConfig(out=str(folder / "whole"), **options), SelfCommunicator())
    patch.undo()
    return folder / "cut", folder / "whole"


def damage(dice, checkpoints) -> str:
    """Damage something in a folder of checkpoints as a disk, a kill or a person could."""
    folder = dice.choice(checkpoints)
    files = sorted(folder.iterdir())
    file = dice.choice(files)
    content = bytearray(file.read_bytes())
    how = dice.choice(("flip", "flip", "cut", "grow", "zero", "remove", "swap", "swap folders", "replace", "lose"))
    if how == "flip":
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    elif how == "cut":
        del content[dice.randrange(len(content)) :]
    elif how == "grow":
        content += bytes(dice.randrange(256) for _ in range(dice.randrange(1, 64)))
    elif how == "zero":
        start = dice.randrange(len(content))
        content[start : start + 512] = bytes(len(content[start : start + 512]))
    if how in ("flip", "cut", "grow", "zero"):
        file.write_bytes(content)
    elif how == "remove":
        file.unlink()
    elif how == "lose":
        shutil.rmtree(folder)
    else:
        other = dice.choice([path for path in checkpoints if path != folder])
        if how == "swap folders":
            aside = folder.with_name("aside")
            folder.rename(aside), other.rename(folder), aside.rename(other)
        elif (other / file.name).exists():
            theirs = (other / file.name).read_bytes()
            if how == "swap":
                (other / file.name).write_bytes(content)
            file.write_bytes(theirs)
    return f"{how} {folder.name}/{file.name}"


def states(folder) -> dict:
    """What each whole checkpoint of a folder holds, by epoch."""
    found = {}
    for path in list_checkpoints(folder):
        manifest = read_manifest(path)
        if "history" in manifest:
            found[manifest["epoch"]] = fingerprint(path, manifest)
    return found


def fingerprint(path, manifest) -> tuple:
    state = Checkpoint(path, manifest).state()
    tensors = [
        tuple((name, value.numpy().tobytes()) for name, value in sorted(state[part].items()))
        for part in ("model", "optimizer", "best")
    ]
    return repr((tensors, state["history"], state["epoch"]))


@pytest.mark.slow
def test_no_mutation_of_a_checkpoint_gives_another_state(runs, tmp_path):
    original, dice, taken = states(runs[0] / "checkpoints"), random.Random(0), []
    assert len(original) >= 2
    for number in range(MUTATIONS):
        folder = tmp_path / str(number)
        shutil.copytree(runs[0] / "checkpoints", folder)
        done, said = [], []
        for _ in range(dice.choice((1, 1, 1, 2))):
            if len(list_checkpoints(folder)) > 1:
                done.append(damage(dice, list_checkpoints(folder)))
        try:
            found = newest_whole(folder, said.append)
        except CheckpointError as error:
            assert error.exit_code == 3
            taken.append("none")
        else:
            manifest = found.manifest
            assert fingerprint(found.path, manifest) == original[manifest["epoch"]], done
            is_newest = manifest["epoch"] == max(original)
            newest_is_gone = not (folder / f"epoch-{max(original):06d}").exists()
            assert is_newest or newest_is_gone or any("damaged checkpoint" in line for line in said), done
            taken.append("newest" if is_newest else "before")
        shutil.rmtree(folder)
    assert {"newest", "before"} <= set(taken), taken


@pytest.mark.slow
def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(runs, tmp_path):
    cut, whole = runs
    for number, name in enumerate(("manifest.json", "model.safetensors", "optimizer.safetensors", "history.jsonl")):
        out, said = tmp_path / str(number), []
        shutil.copytree(cut, out)
        newest = list_checkpoints(out / "checkpoints")[-1]
        flipped(newest, name)
        resume(out, SelfCommunicator(), show=said.append)
        assert f"{newest.name}/{name}" in said[0] and "taking the one before" in said[0]
        assert outcome(out) == outcome(whole)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from spgnn.cli import main
sys.exit(main(["train", "--resume", sys.argv[2], "--epochs", "40"]))
"""


@pytest.mark.slow
def test_a_full_disk_leaves_the_checkpoints_before(runs, tmp_path):
    """A file of 6 kB is more than any but the history needs; the history outgrows it after some epochs."""
    cut = tmp_path / "cut"
    shutil.copytree(runs[0], cut)
    before = list_checkpoints(cut / "checkpoints")[-1].name
    done = in_python(LIMITED, 6000, cut)
    assert done.returncode == 4 and "cannot be written: File too large" in done.stderr, done.stderr
    assert not list((cut / "checkpoints").glob(".*"))
    assert newest_whole(cut / "checkpoints").path.name >= before
    assert resume(cut, SelfCommunicator(), epochs=41)["epochs"] == 41


@pytest.mark.slow
def test_a_folder_that_is_read_only_leaves_the_checkpoints_before(runs, tmp_path, monkeypatch):
    shutil.copytree(runs[0], tmp_path / "cut")
    mkdir = type(tmp_path).mkdir

    def refused(path, *args, **options):
        if path.name.startswith(".epoch-"):
            raise OSError(30, "Read-only file system", str(path))
        mkdir(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "mkdir", refused)
        with pytest.raises(ResourceError, match="epoch-0000..: cannot be written: Read-only file system"):
            resume(tmp_path / "cut", SelfCommunicator())
    resume(tmp_path / "cut", SelfCommunicator())
    assert outcome(tmp_path / "cut") == outcome(runs[1])


def flipped(path, name="model.safetensors"):
    """Flip a bit of a file, of the weights if none is named."""
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 4
    (path / name).write_bytes(content)


def of_manifest(**entries):
    """Return what gives a manifest other entries, and its seal."""

    def edit(path):
        manifest = json.loads((path / "manifest.json").read_text()) | entries
        (path / "manifest.json").write_text(json.dumps(seal(manifest)))

    return edit


def piped(name):
    """Return what puts a pipe in the place of a file."""

    def edit(path):
        (path / name).unlink()
        os.mkfifo(path / name)

    return edit


def edited(runs, folder, edit):
    """Return a copy of a run each checkpoint of which is edited."""
    shutil.copytree(runs[1], folder / "run")
    for path in list_checkpoints(folder / "run" / "checkpoints"):
        edit(path)
    return str(folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("edit, message", [
    (flipped, "model.safetensors: does not have the size and SHA-256"),
    *((of_manifest(format=n), f"checkpoint format {n}; this spgnn reads format 2, train again") for n in (1, 3, None)),
    *((piped(name), f"{name}: cannot be read: it is a pipe or device") for name in ("manifest.json", "model.safetensors")),
])  # fmt: skip
def test_predict_and_resume_name_what_cannot_be_read(runs, tmp_path, edit, message):
    run = edited(runs, tmp_path, edit)
    for command in (predict, partial(resume, epochs=99)):
        with pytest.raises(CheckpointError, match=message):
            command(run, SelfCommunicator())


@pytest.mark.parametrize(
    "text, said",
    [
        ("[" * 100_000, "cannot be read"),
        (json.dumps(seal({"format": 2, "epoch": 1, "val": [1], "files": {}})), "val = .1.; expected a number or null"),
        (json.dumps({"format": 2, "epoch": 1, "files": {}}), "sha256 = 'None'; expected str"),
    ],
)
def test_a_manifest_that_is_no_manifest_is_named(tmp_path, text, said):
    (tmp_path / "epoch-000001").mkdir()
    (tmp_path / "epoch-000001" / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"manifest.json: {said}"):
        best_checkpoint(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        *(of_manifest(history=value) for value in (5, {}, {"best_epoch": "x"}, [1])),
        *(of_manifest(graph=value) for value in (None, [], "x")),
        *(of_manifest(unscored=value) for value in ([1], {"x": 1}, 7)),
        *(of_manifest(files=value) for value in ([], None, {"model.safetensors": 5}, {"model.safetensors": {}})),
        *(of_manifest(epoch=value) for value in ("x", None, 1.5, True)),
        *(of_manifest(options=value) for value in ([], None, {"lr": []})),
        *(of_manifest(python=value) for value in (5, {})),
        of_manifest(model=[]),
    ],
)
def test_a_sealed_manifest_of_other_values_is_one_error(runs, tmp_path, edit):
    run = edited(runs, tmp_path, edit)
    with pytest.raises(SpgnnError) as caught:
        resume(run, SelfCommunicator(), epochs=99)
    assert exit_code_of(caught.value) in (2, 3), caught.value
