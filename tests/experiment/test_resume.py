"""A run goes on from its newest whole checkpoint: bit for bit on the same ranks, to rounding on others."""

import json
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from waited import Killed, Waited
from worlds import parallel

from spgnn import cli
from spgnn.config import RUN_FILES, TrainConfig, read_toml
from spgnn.data import load_graph, save_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import UsageError
from spgnn.experiment import checkpoint, resume, run, saving
from spgnn.experiment.checkpoint import best_checkpoint, list_checkpoints, load_checkpoint
from spgnn.partition import part_graph, save_partition

pytestmark = pytest.mark.slow
SOURCE, WRITING = "sbm:n=60,classes=3,features=6,seed=1", saving.Writing
CASES = {
    "sgd": {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.01},
    "patience, dropout": {"patience": 3, "epochs": 40, "dropout": 0.4},
    "scored now and then": {"eval_every": 3, "dropout": 0.1},
    "links": {"on": "links", "features": "embedding", "split": "0.2,0.2", "batch": 40, "dropout": 0.3},
    "out of core": {"mode": "out-of-core", "parts": 3, "layers": 3},
    "out of core, dropout": {"mode": "out-of-core", "parts": 2, "dropout": 0.3, "model": "sage"},
    "rows of bfloat16, dropout": {"dtype": "bfloat16", "dropout": 0.4},
    "subgraphs": {"sampler": "frontier", "budget": 20, "dropout": 0.3},
    "narrow wires, dropout": {"wire": "bfloat16", "wire_gradients": "float16", "dropout": 0.4},
}


@pytest.fixture(autouse=True)
def waited(monkeypatch):
    """Checkpoints do not depend on how fast the disk is."""
    monkeypatch.setattr(saving, "Writing", Waited)
    monkeypatch.setattr(os, "fsync", lambda file: None)


def options_of(folder, **options) -> TrainConfig:
    given = {"epochs": 9, "hidden": 5, "lr": 0.05, "method": "random", "checkpoint_every": 0.0} | options
    return TrainConfig(out=str(folder), **given)


def killed_after(epoch):
    def report(record):
        if record["epoch"] == epoch:
            raise Killed

    return report


def kill(comm, config, epoch):
    """Train until an epoch, whose record is written and whose checkpoint is not."""
    with pytest.raises(Killed):
        run(SOURCE, config, comm, report=killed_after(epoch))
    comm.barrier()  # rank 0 ends the checkpoint that it was writing


def outcome(folder) -> dict:
    """What a run has left, without what time it took."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    for values in (*records, summary):
        for name in ("epoch_s", "peak_rss_mb", "sample_s", "sample_wait_s"):
            values.pop(name, None)
    files = {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in folder.glob("checkpoints/*/*.safetensors")
        if path.parent == list_checkpoints(folder / "checkpoints")[-1]
    }
    predictions = np.nan_to_num(np.load(folder / "predictions.npy")).tolist()
    return {"records": records, "summary": summary, "predictions": predictions} | files


@parallel([1, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_killed_goes_on_bit_for_bit(comm, tmp_path, case):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    summary = run(SOURCE, options_of(whole, **CASES[case]), comm)
    if CASES[case].get("patience"):
        assert summary["best_epoch"] < summary["epochs"] < 40
    kill(comm, options_of(cut, **CASES[case]), 3)
    kill_again = killed_after(5)
    with pytest.raises(Killed):
        resume(cut, comm, report=kill_again)
    comm.barrier()
    resume(cut, comm)
    comm.barrier()
    if comm.rank == 0:
        assert outcome(cut) == outcome(whole)
        assert len(json.loads((cut / "env.json").read_text())["continued_after"]) == 2
        assert not list(cut.rglob(".*"))


@pytest.mark.parametrize(
    "size, changes, dropout",  # each change with and without dropout
    [
        (2, {"scheme": "broadcast"}, 0.3), (4, {"replication": 2, "scheme": "broadcast"}, 0.0), (4, {"replication": 2}, 0.3),
        (3, {}, 0.3), (1, {}, 0.0), (2, {"method": "block"}, 0.0), (3, {"method": "block"}, 0.3), (3, {"graph": "parts"}, 0.0),
    ],
)  # fmt: skip
def test_other_ranks_schemes_and_parts_change_a_run_by_rounding_alone(tmp_path, monkeypatch, size, changes, dropout):
    monkeypatch.chdir(tmp_path)
    whole, cut, graph = tmp_path / "whole", tmp_path / "cut", load_graph(SOURCE).with_edges("undirected")
    save_partition(part_graph(graph, 3, method="random"), tmp_path / "parts", graph)
    options = {"dropout": dropout, "dtype": "float64", "scheme": "columns"}
    run_threads(2, lambda comm: run(SOURCE, options_of(whole, **options), comm))
    run_threads(2, lambda comm: kill(comm, options_of(cut, **options), 5))
    run_threads(size, lambda comm: resume(cut, comm, **changes))
    losses = [[record["loss"] for record in outcome(folder)["records"]] for folder in (whole, cut)]
    assert len(losses[0]) == 9
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-10)
    weights = [load_checkpoint(list_checkpoints(folder / "checkpoints")[-1])[0] for folder in (whole, cut)]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-9, atol=1e-10)
    assert read_toml(TrainConfig, cut / "config.toml").scheme == changes.get("scheme", "columns")
    summary = json.loads((cut / "summary.json").read_text())
    assert summary["bytes_sent"] == summary["bytes_predicted"]


def test_more_epochs_than_a_run_was_to_have_are_those_of_a_longer_one(tmp_path):
    for name, epochs in (("long", 9), ("short", 6)):
        run(SOURCE, options_of(tmp_path / name, epochs=epochs), SelfCommunicator())
    assert resume(tmp_path / "short", SelfCommunicator(), epochs=9)["epochs"] == 9
    assert outcome(tmp_path / "short") == outcome(tmp_path / "long")
    before = outcome(tmp_path / "short")
    resume(tmp_path / "short", SelfCommunicator())  # nothing is left to train
    assert outcome(tmp_path / "short") == before


def test_splits_without_nodes_have_no_score_before_and_after(tmp_path):
    save_graph(replace(load_graph(SOURCE), split=np.zeros(60, np.int8)), tmp_path / "graph")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(str(tmp_path / "graph"), options_of(whole, patience=4), SelfCommunicator())
    with pytest.raises(Killed):
        run(str(tmp_path / "graph"), options_of(cut, patience=4), SelfCommunicator(), report=killed_after(5))
    resume(cut, SelfCommunicator())
    assert outcome(cut) == outcome(whole) and outcome(cut)["records"][2]["val"] is None


def test_options_that_would_make_it_another_run_are_refused_by_name(tmp_path, capsys):
    run(SOURCE, options_of(tmp_path / "run", epochs=2), SelfCommunicator())
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    refused = ["--lr", "0.5", "--hidden", "7", "--seed", "3", "--dropout", "0.1", "--optimizer", "sgd", "--epochs", "9"]
    assert cli.main(["train", "--resume", str(tmp_path / "run"), *refused]) == 2
    err = capsys.readouterr().err
    assert (
        all(f"{flag} {value} (was" in err for flag, value in zip(refused[:-2:2], refused[1::2])) and "epochs" not in err
    )
    assert cli.main(["train", "--resume", str(tmp_path / "run"), "--lr", "0.05", "--epochs", "2"]) == 0  # as before
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    for wrong, said in (
        (["--overwrite"], "--overwrite replaces the run that --resume"),
        (["--out", str(tmp_path / "new")], "writes into the run that it continues; omit --out"),
    ):
        assert cli.main(["train", "--resume", str(tmp_path / "run"), *wrong]) == 2
        assert said in capsys.readouterr().err
    assert cli.main(["train", SOURCE, "--resume", "auto"]) == 2
    assert "--resume auto requires --out" in capsys.readouterr().err
    assert cli.main(["train", "--resume", str(tmp_path / "none")]) == 3


def test_options_in_the_config_that_are_not_those_of_the_checkpoint_are_refused(tmp_path):
    run(SOURCE, options_of(tmp_path / "run", epochs=2), SelfCommunicator())
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.05", "lr = 0.5"))
    with pytest.raises(UsageError, match=r"epoch-000002: a run cannot be continued with lr=0.5 \(was 0.05\)"):
        resume(tmp_path / "run", SelfCommunicator())


def test_auto_starts_and_then_continues(tmp_path, capsys):
    argv = ["train", SOURCE, "--hidden", "5", "--out", str(tmp_path / "run"), "--resume", "auto", "--json"]
    for epochs, before in ((3, ""), (5, "; continues ")):
        assert cli.main([*argv, "--epochs", str(epochs)]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["epochs"] == epochs and ("; continues " in err) == bool(before)
    assert read_toml(TrainConfig, tmp_path / "run" / "config.toml").resume == ""
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted([*RUN_FILES, "checkpoints"])


def test_two_whole_checkpoints_and_the_best_are_kept(tmp_path):
    seen = []

    def report(record):
        seen.append([int(path.name[6:]) for path in list_checkpoints(tmp_path / "run" / "checkpoints")])

    summary = run(SOURCE, options_of(tmp_path / "run", epochs=60, patience=0), SelfCommunicator(), report=report)
    kept = [int(path.name[6:]) for path in list_checkpoints(tmp_path / "run" / "checkpoints")]
    assert len(kept) == 2 + (summary["best_epoch"] not in kept[-2:]) and kept[-1] == 60
    assert all(len(epochs) <= 4 for epochs in seen)
    state, manifest = load_checkpoint(best_checkpoint(tmp_path / "run" / "checkpoints"))
    assert manifest["epoch"] == summary["best_epoch"] and manifest["val"] == summary["val"]


def test_a_checkpoint_is_written_while_the_next_epochs_compute(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "Writing", WRITING)
    may_write, write = threading.Event(), saving.save_checkpoint
    monkeypatch.setattr(saving, "save_checkpoint", lambda *args: may_write.wait(60) and write(*args))

    def report(record):
        if record["epoch"] == 4:  # three epochs after the first checkpoint was begun
            assert not list_checkpoints(tmp_path / "run" / "checkpoints")
            may_write.set()

    run(SOURCE, options_of(tmp_path / "run", epochs=6), SelfCommunicator(), report=report)
    assert may_write.is_set() and list_checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "epoch-000006"


@parallel([1, 3], mpi=[])
def test_a_checkpoint_that_cannot_be_written_ends_all_ranks_and_leaves_the_one_before(comm, tmp_path, monkeypatch):
    write = checkpoint.write_bytes
    monkeypatch.setattr(
        checkpoint,
        "write_bytes",
        lambda path, content: write(path, content) if "3.new" not in path.parent.name else full(path),
    )
    with pytest.raises(Exception, match="epoch-000003: cannot be written: No space left") as caught:
        run(SOURCE, options_of(tmp_path / "run", epochs=40), comm)
    assert caught.value.exit_code == 4
    comm.barrier()
    if comm.rank == 0:
        assert list_checkpoints(tmp_path / "run" / "checkpoints")[-1].name < "epoch-000003"
        assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    comm.barrier()


def full(path):
    raise OSError(28, "No space left on device", str(path))
