"""Runs with a personal phase: what is written, what a run is continued to, and which options are refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig, build
from spgnn.data import save_graph
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import Parts
from spgnn.errors import UsageError
from spgnn.experiment import run
from spgnn.experiment.checkpoint import load_checkpoint
from spgnn.layers.registry import ModelSpec

pytestmark = pytest.mark.slow
OPTIONS = {"mode": "average", "parts": 3, "model": "sage", "hidden": 5, "epochs": 4, "lr": 0.05, "threads": 1}
OPTIONS |= {"dtype": "float64", "prune": "never", "personal": 6, "checkpoint_every": 0.0, "method": "random"}


def written(folder, **more):
    """Return the path of a graph file."""
    path = folder / "graph.spgnn"
    graph = random_graph(n=90, edges=260, seed=2, use="undirected")
    save_graph(replace(graph, **more), path)
    return path


def trained(path, out, comm=None, **options):
    config = build(TrainConfig, OPTIONS | {"out": str(out)} | options)
    return run(str(path), config, SelfCommunicator() if comm is None else comm)


def files(out):
    parts = [json.loads(line) for line in (out / "parts.jsonl").read_text().splitlines()]
    return [{**part, "seconds": 0, "rank": 0} for part in parts], np.load(out / "predictions.npy")


@parallel([1, 2, 5], mpi=[])
def test_a_run_has_the_chosen_weights_and_predictions_of_each_part(comm, tmp_path):
    path, out = tmp_path / "graph.spgnn", tmp_path / "run"
    if comm.rank == 0:
        written(tmp_path)
    comm.barrier()
    summary = trained(path, out, comm)
    comm.barrier()
    parts, predictions_N = files(out)
    of = summary["personal"]
    chosen = [part["part"] for part in parts if part["chosen"] == "personal"]
    assert [part["part"] for part in parts] == [0, 1, 2] and of["chosen"] == len(chosen) > 0
    assert of["val"] >= of["general"]["val"]
    assert set(of) == {"val", "test", "micro_f1", "macro_f1", "weighted_f1", "chosen", "general"}
    home = out / "checkpoints" / "personal"
    assert sorted(folder.name for folder in home.iterdir()) == [f"part-{p:05d}" for p in chosen]
    opened = Parts(out / "parts", SelfCommunicator(), hops=1, dtype="float64", operator="row", threads=1)
    for p in chosen:
        (folder,) = (home / f"part-{p:05d}").iterdir()
        weights, manifest = load_checkpoint(folder)
        model = ModelSpec(**manifest["model"]).build().double()
        model.load_state_dict(weights)
        dgraph, n = opened.open(p), parts[p]["nodes"]
        with torch.no_grad():
            Z = model.eval()(dgraph.A, dgraph.X)[:n]
        np.testing.assert_array_equal(predictions_N[dgraph.node_n[:n]], Z.argmax(1).numpy())
        assert manifest["val"] == parts[p]["val_personal"] and manifest["epoch"] == parts[p]["best"]


def test_a_run_that_ends_in_its_personal_phase_is_continued_to_the_same_results(tmp_path, monkeypatch):
    path = written(tmp_path)
    trained(path, tmp_path / "whole")

    def ends(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("spgnn.experiment.ways.personalise", ends)
        trained(path, tmp_path / "ended")
    assert not (tmp_path / "ended" / "summary.json").exists()
    trained(path, tmp_path / "ended", resume=str(tmp_path / "ended"))
    (parts, predictions_N), (expected, expected_N) = files(tmp_path / "ended"), files(tmp_path / "whole")
    assert parts == expected
    np.testing.assert_array_equal(predictions_N, expected_N)
    homes = [tmp_path / name / "checkpoints" / "personal" for name in ("ended", "whole")]
    found = [{path.relative_to(home): path.read_bytes() for path in home.rglob("model.safetensors")} for home in homes]
    assert found[0] == found[1] and found[0]


def test_files_of_a_personal_phase_are_replaced_with_their_run(tmp_path):
    path, out = written(tmp_path), tmp_path / "run"
    trained(path, out)
    assert (out / "parts.jsonl").exists() and (out / "checkpoints" / "personal").exists()
    trained(path, out, personal=0, overwrite=True)
    assert not (out / "parts.jsonl").exists() and not (out / "checkpoints" / "personal").exists()


def test_the_general_phase_ends_where_the_loss_is_flat(tmp_path):
    path = written(tmp_path)
    options = {"epochs": 30, "lr": 1e-6}
    assert trained(path, "", **options)["epochs"] == 10  # two means of 5
    assert trained(path, "", **options | {"personal": 0})["epochs"] == 30


@pytest.mark.parametrize("options, message", [
    ({"mode": "full", "parts": 0}, "personal requires mode average"),
    ({"loss": "mse"}, "loss mse is for numbers, which mode average does not train on"),
    ({"sampler": "neighbour", "fanout": "2,2", "sync": "gradients"}, "sync gradients needs gradients of whole parts"),
    ({"sampler": "neighbour", "fanout": "2,2", "correct": "drift"}, "correct drift needs gradients of whole parts"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused_before_anything_is_read(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        trained(tmp_path / "absent", "", **options)


def test_parts_take_the_name_of_a_sampler():
    graph = random_graph(n=30, edges=60, seed=1, use="undirected")
    parts = parts_of(graph, np.arange(30) % 2, SelfCommunicator(), dtype="float64", threads=1)
    model = spgnn.layers.Stack(spgnn.layers.SAGE(6, 3))
    with pytest.raises(UsageError, match="sampler of Parts is a name"):
        spgnn.train(model, parts, sampler=spgnn.samplers.Walk(graph, budget=5, walk=1), epochs=1)
