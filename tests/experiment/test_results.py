"""The files of a run: nothing of an earlier one stays, a full disk is told with the file, weights and tables are what they say."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import random_graph

import spgnn
from spgnn import cli
from spgnn.config import RUN_FILES, TrainConfig, read_toml
from spgnn.data import load_graph
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import CheckpointError, ResourceError, SpgnnError, UsageError
from spgnn.experiment import checkpoint, predict, run
from spgnn.experiment.checkpoint import best_checkpoint, load_checkpoint
from spgnn.experiment.folder import RunFolder
from spgnn.experiment.saving import Checkpoints
from spgnn.layers import GCN, Stack
from spgnn.layers.registry import ModelSpec
from spgnn.training.trainer import Trainer

SOURCE, DETAILED = "sbm:n=60,seed=1", "sbm:n=120,classes=3,degree=6,seed=2"
SAMPLED = "sbm:n=300,classes=3,features=8,degree=6,seed=1"
SIZES = {"walk": ["--budget", "60"], "neighbour": ["--batch", "20", "--fanout", "3,2"]}


def trained(folder, **options):
    options = {"epochs": 2, "hidden": 4, "out": str(folder), "overwrite": True} | options
    return run(SOURCE, TrainConfig(**options), SelfCommunicator())


def contents(folder):
    """Every file of a folder and below, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_link_to_checkpoints_elsewhere_is_kept_and_what_it_holds_is_not(tmp_path):
    trained(tmp_path / "run", epochs=60)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    trained(tmp_path / "run", epochs=1)
    assert (tmp_path / "run" / "checkpoints").is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["epoch-000001"]
    assert load_checkpoint(best_checkpoint(tmp_path / "run" / "checkpoints"))[1]["epoch"] == 1


@pytest.mark.parametrize(
    "again", [{"overwrite": True}, {"overwrite": False, "resume": "run"}], ids=["overwrite", "resume"]
)
def test_links_at_the_files_and_checkpoints_of_a_run_are_replaced_and_not_followed(tmp_path, monkeypatch, again):
    monkeypatch.chdir(tmp_path)
    trained("run")
    (victims := tmp_path / "victims").mkdir()
    for path in [*Path("run").glob("*.*"), *Path("run").glob("checkpoints/epoch-*")]:
        path.rename(victims / path.name)
        path.symlink_to(victims / path.name)
    before = contents(victims)
    trained("run", epochs=4, **again)
    assert contents(victims) == before
    assert not [path for path in Path("run").glob("*.*") if path.is_symlink()]
    assert load_checkpoint(best_checkpoint(Path("run/checkpoints")))[1]["epoch"] == 4


def test_another_run_is_not_replaced_unless_that_is_asked_for(tmp_path):
    trained(tmp_path / "run")
    before = contents(tmp_path / "run")
    for options in ({}, {"epochs": 2}, {"seed": 3}):
        with pytest.raises(
            UsageError, match=r"out .*run: holds another run; .* resume .*, or replace that run with overwrite"
        ):
            trained(tmp_path / "run", overwrite=False, **options)
    assert contents(tmp_path / "run") == before
    trained(tmp_path / "run", epochs=1)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["epoch-000001"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted([*RUN_FILES, "checkpoints"])
    assert not read_toml(TrainConfig, tmp_path / "run" / "config.toml").overwrite


def test_overwrite_needs_a_folder():
    with pytest.raises(UsageError, match="overwrite requires out"):
        run(SOURCE, TrainConfig(epochs=1, overwrite=True), SelfCommunicator())


def test_a_training_without_weights_is_in_nobodys_way(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "fit", interrupted)
        trained(tmp_path / "run", overwrite=False)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.toml", "env.json", "metrics.jsonl"]
    trained(tmp_path / "run", overwrite=False)


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("how", ["interrupted", "not finite", "no space for weights", "no space for a line"])
def test_a_training_that_ends_before_its_first_checkpoint_leaves_the_earlier_run_whole(
    tmp_path, monkeypatch, how, link
):
    trained(tmp_path / "run")
    if link:
        (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
        (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    before, linked = contents(tmp_path / "run"), contents(tmp_path / "elsewhere") if link else {}
    options = {"lr": 1e30, "epochs": 20} if how == "not finite" else {}
    if how == "interrupted":
        monkeypatch.setattr(Trainer, "fit", interrupted)
    elif how == "no space for weights":
        monkeypatch.setattr(checkpoint, "sync", full)
    elif how == "no space for a line":
        monkeypatch.setattr(RunFolder, "write_line", full)
    with pytest.raises((KeyboardInterrupt, SpgnnError, OSError)):
        trained(tmp_path / "run", **options)
    assert contents(tmp_path / "run") == before and (not link or contents(tmp_path / "elsewhere") == linked)
    assert not [path.name for path in tmp_path.rglob(".*")]


def full(*_):
    raise OSError(28, "No space left on device")


LIMITED = """
import resource, sys
from spgnn.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
sys.exit(main(["train", "sbm:n=60,seed=1", "--epochs", "2", "--hidden", "4", "--out", sys.argv[1], "--overwrite"]))
"""


@pytest.mark.slow
def test_a_disk_without_room_for_the_config_leaves_no_half_of_it(tmp_path):
    trained(tmp_path / "run")
    before = contents(tmp_path / "run")
    for folder in ("run", "fresh"):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(tmp_path / folder)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 4 and "config.toml: cannot be written: File too large" in done.stderr, done.stderr
    assert contents(tmp_path / "run") == before and not (tmp_path / "fresh").exists()


def test_whoever_may_read_one_file_of_a_run_may_read_all(tmp_path):
    trained(tmp_path / "run")
    modes = {path.stat().st_mode for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "run" / "env.json").stat().st_mode}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove anything")
def test_checkpoints_that_cannot_be_removed_end_the_training(tmp_path):
    trained(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").chmod(0o500)
    with pytest.raises(ResourceError, match="out"):
        trained(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").chmod(0o700)


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    class Full:
        write = full

        def close(self):
            pass

    def opened(folder, *args, begin=RunFolder.begin):
        begin(folder, *args)
        folder.metrics.close()
        folder.metrics = Full()

    monkeypatch.setattr(RunFolder, "begin", opened)
    with pytest.raises(ResourceError, match="metrics.jsonl: cannot be written: No space left"):
        trained(tmp_path / "run")


def test_the_config_of_a_run_does_not_replace_its_results_unless_that_is_asked_for(tmp_path, capsys):
    trained(tmp_path / "run")
    again = ["train", "--config", str(tmp_path / "run" / "config.toml"), "--epochs", "1"]
    assert cli.main(again) == 2
    assert "run, or replace that run with --overwrite" in capsys.readouterr().err
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    for out, options in (("run", ["--overwrite"]), ("other", ["--out", str(tmp_path / "other")])):
        assert cli.main([*again, *options]) == 0
        assert len((tmp_path / out / "metrics.jsonl").read_text().splitlines()) == 1


def test_a_weight_that_is_not_contiguous_trains():
    model = Stack(GCN(6, 4, act="relu"), GCN(4, 3))
    model.layers[0].W_FC = torch.nn.Parameter(torch.zeros(4, 6).t())
    trainer = Trainer(model, distribute(random_graph(), SelfCommunicator()), TrainConfig())
    assert np.isfinite(trainer.step(1)) and model.layers[0].W_FC.is_contiguous()


def test_an_error_on_ranks_that_are_threads_ends_python_as_an_error_does():
    body = "from spgnn.experiment import run; from spgnn.config import TrainConfig; import spgnn, torch\n"
    body += "def wrong(comm): d = spgnn.distribute(spgnn.load_graph('sbm:n=60'), comm, method='block'); spgnn.train(spgnn.Stack(spgnn.layers.GCN(16, 9)), d)\n"
    body += "spgnn.run_threads(3, wrong)"
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the last layer must have f_out = " in done.stderr, done.stderr


def test_a_module_with_an_attribute_called_widths_is_no_stack():
    class Mine(torch.nn.Module):
        widths = (6, 3)

        def __init__(self):
            super().__init__()
            self.layer = GCN(6, 3)

        def forward(self, A, X):
            return self.layer(A, X)

    assert np.isfinite(Trainer(Mine(), distribute(random_graph(), SelfCommunicator()), TrainConfig()).step(1))


@pytest.mark.parametrize("edges", ["directed", "undirected"])
def test_a_run_of_a_script_knows_the_file_of_its_graph(tmp_path, monkeypatch, edges):
    monkeypatch.chdir(tmp_path)
    spgnn.save_graph(replace(random_graph(n=60, edges=200, use="directed"), edges="stored"), "made")
    graph = load_graph("made", features="degree").with_edges(edges)
    history = spgnn.train(Stack(GCN(1, graph.n_classes)), distribute(graph), epochs=2, out="run")
    monkeypatch.chdir("/")
    found = predict(str(tmp_path / "run"), SelfCommunicator())
    assert found["val"] == max(record["val"] for record in history.records)
    spgnn.train(
        Stack(GCN(1, graph.n_classes)), distribute(replace(graph, X=graph.X * 2)), epochs=2, out=tmp_path / "changed"
    )
    with pytest.raises(CheckpointError, match="another graph"):
        predict(str(tmp_path / "changed"), SelfCommunicator())


def test_predictions_for_another_graph_do_not_replace_those_of_the_run(tmp_path):
    trained(tmp_path / "run")
    before, own = contents(tmp_path / "run"), str(tmp_path / "run" / "predictions.npy")
    with pytest.raises(UsageError, match="graph sbm:n=60,seed=2 requires out: .*predictions.npy holds the predict"):
        predict(str(tmp_path / "run"), SelfCommunicator(), source="sbm:n=60,seed=2")
    with pytest.raises(UsageError, match="out .*predictions.npy: is a file of the run"):
        predict(str(tmp_path / "run"), SelfCommunicator(), source="sbm:n=60,seed=2", out=own)
    with pytest.raises(UsageError, match="is a file of the run"):
        predict(str(tmp_path / "run"), SelfCommunicator(), out=str(tmp_path / "run" / "checkpoints" / "p.npy"))
    assert predict(str(tmp_path / "run"), SelfCommunicator(), source="sbm:n=60,seed=2", out=str(tmp_path / "p.npy"))
    assert contents(tmp_path / "run") == before and (tmp_path / "p.npy").exists()
    (tmp_path / "run" / "predictions.npy").unlink()
    predict(str(tmp_path / "run"), SelfCommunicator(), out=own)
    assert contents(tmp_path / "run") == before


def test_predictions_are_not_written_where_the_embeddings_cannot_be(tmp_path):
    trained(tmp_path / "run")
    before = (tmp_path / "run" / "predictions.npy").stat().st_mtime_ns
    with pytest.raises(ResourceError, match="embeddings .*nowhere/e.npy: no such folder"):
        predict(str(tmp_path / "run"), SelfCommunicator(), embeddings=str(tmp_path / "nowhere" / "e.npy"))
    assert (tmp_path / "run" / "predictions.npy").stat().st_mtime_ns == before


def test_weights_of_float64_predict_as_they_were_trained(tmp_path):
    trained(tmp_path / "run", dtype="float64")
    predict(str(tmp_path / "run"), SelfCommunicator(), embeddings=str(tmp_path / "e.npy"))
    dgraph = distribute(load_graph(SOURCE).with_edges("undirected"), SelfCommunicator(), dtype=torch.float64)
    model = Stack(GCN(dgraph.n_features, 4, act="relu"), GCN(4, dgraph.n_classes)).double()
    model.load_state_dict(load_checkpoint(best_checkpoint(tmp_path / "run" / "checkpoints"))[0])
    embeddings_NF = dgraph.collect(model.embed(dgraph.A, dgraph.X).detach().numpy())
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), embeddings_NF, rtol=1e-12, atol=1e-14)


def test_a_checkpoint_rebuilds_its_model_from_family_and_arguments(tmp_path):
    trained(tmp_path / "run", hidden=5, layers=3, norm="layer", residual=True, bias=False, dropout=0.2)
    state, manifest = load_checkpoint(best_checkpoint(tmp_path / "run" / "checkpoints"))
    given = {"hidden": 5, "layers": 3, "dropout": 0.2, "norm": "layer", "residual": True, "bias": False}
    defaults = {"act": "relu", "input_dropout": True, "jump": "none", "classifier": False}
    arguments = {"f_in": 16, "n_classes": 4} | given | defaults
    assert manifest["model"] == {"family": "gcn", "arguments": arguments}
    expected = np.load(tmp_path / "run" / "predictions.npy")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("hidden = 5", "hidden = 7").replace("layers = 3", "layers = 1"))
    predict(str(tmp_path / "run"), SelfCommunicator())
    assert np.array_equal(np.load(tmp_path / "run" / "predictions.npy"), expected)
    assert (model := ModelSpec(**manifest["model"]).build()).dropout == 0.2 and not model.is_trained
    model.load_state_dict(state)


def manifests(folder, change):
    for path in (folder / "checkpoints").rglob("manifest.json"):
        path.write_text(json.dumps(checkpoint.seal(change(json.loads(path.read_text())))))


@pytest.mark.parametrize("model, message", [
    (None, "holds a custom model.*predict in Python: model.load_state_dict"),
    ({"family": "sagf", "arguments": {}}, "manifest.json: no model of this version .*'sagf' is not known; did you mean 'sage'.*or predict with the script"),
    ({"family": "gcn", "arguments": {"f_in": "a"}}, r"f_in = 'a'; expected an integer"),
    ({"family": "gcn", "arguments": {"f_in": 16, "n_classes": 4, "hiden": 4}}, "gcn has no option 'hiden'; did you mean 'hidden'"),
    ({"family": "gcn", "arguments": None}, "no model of this version"),
    ({"kind": "gcn"}, "no model of this version"),
    ([1], "expected dict"),
])  # fmt: skip
def test_a_checkpoint_whose_model_cannot_be_rebuilt_is_refused(tmp_path, model, message):
    trained(tmp_path / "run")
    manifests(tmp_path / "run", lambda manifest: manifest | {"model": model})
    with pytest.raises(CheckpointError, match=message):
        predict(str(tmp_path / "run"), SelfCommunicator())


def test_weights_of_another_model_than_the_manifests_are_refused(tmp_path):
    trained(tmp_path / "run")
    wider = lambda m: m | {"model": m["model"] | {"arguments": m["model"]["arguments"] | {"hidden": 5}}}
    manifests(tmp_path / "run", wider)
    with pytest.raises(CheckpointError, match="weights do not fit the model of their manifest"):
        predict(str(tmp_path / "run"), SelfCommunicator())


def test_checkpoints_of_a_custom_model_name_none(tmp_path):
    trainer = Trainer(Stack(GCN(6, 3)), distribute(random_graph(), SelfCommunicator()), TrainConfig(epochs=1))
    checkpoints = Checkpoints(tmp_path / "run", trainer)
    trainer.fit(lambda record: checkpoints.after_epoch())
    checkpoints.close()
    assert load_checkpoint(best_checkpoint(tmp_path / "run"))[1]["model"] is None


def detailed(folder, ranks, **options):
    """Train and return details, summary, last record and predictions."""
    config = TrainConfig(epochs=3, hidden=8, out=str(folder), threads=1, **options)
    spgnn.run_threads(ranks, lambda comm: run(DETAILED, config, comm))
    details, summary = (json.loads((folder / f"{name}.json").read_text()) for name in ("details", "summary"))
    record = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return details, summary, record, np.load(folder / "predictions.npy")


@pytest.mark.parametrize(
    "ranks, options", [(1, {}), (3, {}), (4, {"replication": 2}), (2, {"mode": "average", "parts": 2})]
)
def test_its_tables_are_those_of_the_summary_and_of_measure(tmp_path, ranks, options):
    details, summary, record, predictions_N = detailed(tmp_path / "run", ranks, method="metis", **options)
    sent_PP, confusion_CC = (np.array(details[name]) for name in ("sent_PP", "confusion_CC"))
    assert sent_PP.shape == (ranks, ranks) and sent_PP.sum() == record["bytes_sent"] and not sent_PP.diagonal().any()
    assert confusion_CC.sum(1).tolist() == [of_class["support"] for of_class in summary["per_class"]]
    recall = confusion_CC.diagonal() / confusion_CC.sum(1)
    np.testing.assert_allclose(recall, [of_class["recall"] for of_class in summary["per_class"]])
    for d in range(3):
        assert confusion_CC[:, d].sum() <= (predictions_N == d).sum()
    if options.get("mode") == "average":
        assert "explanation" not in details
        return
    layers = details["explanation"]["layers"]
    assert [layer["layer"] for layer in layers] == [1, 2] and layers[0]["product"] == "(A X) W, A X kept"
    assert sum(layer["bytes_forward"] + layer["bytes_backward"] for layer in layers) == record["bytes_sent"]
    if ranks == 3:
        graph = load_graph(DETAILED)
        report = spgnn.measure(graph, spgnn.part_graph(graph, 3, "metis"), summary["scheme"], (graph.n_features, 8, 3))
        np.testing.assert_array_equal(sent_PP, report.bytes_PP())


@pytest.mark.parametrize("name", SIZES)
def test_the_summary_has_the_options_of_its_sampler_alone(tmp_path, name):
    options = ["--sampler", name, *SIZES[name], "--model", "sage", "--hidden", "8", "--threads", "1"]
    assert cli.main(["train", SAMPLED, "--epochs", "3", "--out", str(tmp_path), *options]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    own = {"walk": {"budget": 60, "walk": 2}, "neighbour": {"batch": 20, "fanout": "3,2"}}
    assert summary["sampler"] == name and summary["subgraphs"] == 1 and summary["steps_per_epoch"] > 1
    assert summary.items() >= own[name].items()
    other = own["neighbour" if name == "walk" else "walk"]
    assert not summary.keys() & other.keys()
