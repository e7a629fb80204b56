"""`train --mode average`: parts that are made or given, what a run writes, resume and predict."""

import json
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import random_graph
from worlds import parallel

import spgnn
from spgnn.config import TrainConfig, continued
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import CheckpointError, NumericalError, ResourceError, UsageError
from spgnn.experiment.folder import hold_folder
from spgnn.experiment.prediction import predict
from spgnn.experiment.train import run
from spgnn.experiment.ways import make_parts

pytestmark = pytest.mark.slow
GRAPH = "sbm:n=60,seed=1"
CONFIG = TrainConfig(
    mode="average", parts=3, epochs=4, interval=2, hidden=4, dtype="float64", method="random", prune="never", threads=1
)


def losses(folder):
    return [json.loads(line)["loss"] for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


@parallel([1, 2, 4], mpi=[2])
def test_parts_are_made_in_the_folder_of_the_run_and_train_as_given_ones(comm, tmp_path):
    out, said = tmp_path / f"made-{comm.size}", []
    config = replace(CONFIG, out=str(out), dropout=0.3)
    summary = run(GRAPH, config, comm, show=said.append)
    assert (out / "parts" / "manifest.json").is_file()
    assert summary["sync_bytes"] == summary["sync_bytes_predicted"] > 0
    expected = {"mode": "average", "parts": 3, "interval": 2, "sync": "weights", "hops": 1}
    expected |= {"correct": "none", "evaluation": "together", "epochs": 4, "bytes_sent": 0, "bytes_predicted": 0}
    assert {name: summary[name] for name in expected} == expected
    assert summary["workload"]["k"] == 3 and summary["workload"]["q"] == comm.size
    if comm.rank == 0:
        assert sum(line.startswith("spgnn: 3 part(s) on") for line in said) == 2
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert [line["epoch"] for line in lines] == [2, 4]
        assert all({"sync_bytes", "load_s", "local_s", "sync_s"} <= set(line) for line in lines)
    assert predict(out, comm)["test"] == summary["test"]
    given = replace(config, out=str(tmp_path / f"given-{comm.size}"), parts=0, partition=str(out / "parts"))
    again = run(GRAPH, given, comm)
    np.testing.assert_array_equal(losses(given.out), losses(out))
    assert again["workload"] is None and again["parts"] == 3 and again["test"] == summary["test"]
    with pytest.raises(UsageError, match="parts=4: .* has 3 parts; omit parts"):
        run(GRAPH, replace(given, parts=4, out=""), comm)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_without_a_folder_leaves_no_parts(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    summary = run_threads(ranks, lambda comm: run(GRAPH, CONFIG, comm))[0]
    assert summary["parts"] == 3 and not list(tmp_path.iterdir())


def test_a_run_that_is_continued_is_bitwise_one_that_was_not_interrupted(tmp_path):
    comm = SelfCommunicator()
    whole = replace(CONFIG, out=str(tmp_path / "whole"), epochs=6, dropout=0.3)
    run(GRAPH, whole, comm)
    short = replace(CONFIG, out=str(tmp_path / "short"), epochs=4, dropout=0.3)
    run(GRAPH, short, comm)
    source, config = continued("", {"resume": short.out, "epochs": 6})
    summary = run(source, config, comm)
    assert losses(short.out) == losses(whole.out) and summary["sync_bytes"] == summary["sync_bytes_predicted"]
    assert summary["workload"] == json.loads((Path(whole.out) / "summary.json").read_text())["workload"] is not None
    source, config = continued("", {"resume": short.out, "epochs": 8, "evaluation": "layerwise"})
    assert run(source, config, comm)["evaluation"] == "layerwise"  # of which the state does not depend
    run(*continued("", {"resume": whole.out, "epochs": 8, "evaluation": "together"}), comm)
    assert losses(short.out) == losses(whole.out)
    mine, other = (np.load(Path(folder) / "predictions.npy") for folder in (short.out, whole.out))
    np.testing.assert_array_equal(mine, other)


def test_a_run_is_continued_on_its_own_parts_alone(tmp_path):
    comm, out = SelfCommunicator(), tmp_path / "run"
    run(GRAPH, replace(CONFIG, out=str(out)), comm)
    graph = spgnn.load_graph(GRAPH).with_edges("undirected")
    for k, method in ((4, "random"), (3, "block")):
        spgnn.save_partition(spgnn.part_graph(graph, k, method), tmp_path / f"{k}", graph, hops=1)
        _, config = continued("", {"resume": str(out), "epochs": 6, "partition": str(tmp_path / f"{k}")})
        with pytest.raises(CheckpointError, match="was trained on other parts .* give the same partition"):
            run(GRAPH, replace(config, method=method, parts=0), comm)
    for name, value in {"parts": 4, "interval": 3, "sync": "gradients", "hops": 2, "mode": "full"}.items():
        with pytest.raises(UsageError, match=rf"{name}\W{value}"):
            continued("", {"resume": str(out), name: value})


def test_parts_of_a_training_that_was_killed_before_it_began_are_removed(tmp_path):
    out, comm = tmp_path / "run", SelfCommunicator()
    for home, given in (("empty", {}), ("taken", {"overwrite": True})):
        config = replace(CONFIG, out=str(tmp_path / home), **given)
        if given:
            run(GRAPH, replace(config, overwrite=False), comm)
        out = tmp_path / home
        with ExitStack() as held:
            files = hold_folder(config, held)
            path, is_there = files.parts_path()
            assert not is_there and path.name == ("parts-2" if given else "parts")
            path.mkdir()  # and is killed
        run(GRAPH, config, comm)
        assert sorted(path.name for path in out.glob("*parts*")) == [path.name]
        assert sorted(path.name for path in out.glob(".*")) == []
        if given:  # killed in that moment, but the run that is there stays
            (out / ".parts-begun").write_text(path.name)
            source, config = continued("", {"resume": str(out), "epochs": 6})
            assert run(source, config, comm)["epochs"] == 6 and path.is_dir()


def test_memory_decides_the_number_of_parts(tmp_path, monkeypatch):
    graph = random_graph(n=400, edges=2000, f=100, use="undirected")
    S = sum(a.nbytes for a in (graph.A.indptr, graph.A.indices, graph.A.data, graph.X, graph.y, graph.split))
    monkeypatch.setattr("spgnn.experiment.memory_check.part_memory", lambda *_, **__: SimpleNamespace(peak=10**6))
    config = replace(CONFIG, parts=0, hops=0)
    said = []
    workload = make_parts(graph, tmp_path / "parts", config, 2, 10**6 + S // 5, said.append)
    assert workload.k >= 5 and workload.fits and workload.part_bytes > 0
    assert len(said) >= 2 and f"S = {S / 1e6:,.1f} MB" in said[0]
    assert spgnn.load_partition(tmp_path / "parts").k == workload.k
    said.clear()
    monkeypatch.setattr("spgnn.experiment.ways.CUTS", 2)
    with pytest.raises(ResourceError, match=r"\d+ parts do not fit: the largest with its halo"):  # halos grow with k
        make_parts(graph, tmp_path / "parts", replace(config, hops=3), 2, 10**6 + S // 5, said.append)
    assert len(said) == 3  # the first sum, and one for each cut
    config = replace(config, parts=2, memory="1MB")
    with pytest.raises(ResourceError, match="2 parts do not fit: the largest with its halo"):
        make_parts(graph, tmp_path / "parts", config, 2, 10**6 + S // 5)
    monkeypatch.undo()
    config = replace(config, parts=0)
    with pytest.raises(ResourceError, match="no parts fit"):  # a process alone takes more
        make_parts(graph, tmp_path / "parts", config, 2, 10**6)


def test_options_of_averaging_are_refused_without_it():
    for name, value in {"parts": 2, "hops": 2, "interval": 2, "sync": "gradients", "correct": "drift"}.items():
        with pytest.raises(UsageError, match=f"{name} requires mode average"):
            run(GRAPH, TrainConfig(**{name: value}), SelfCommunicator())
    with pytest.raises(UsageError, match="memory requires mode average"):
        run(GRAPH, TrainConfig(memory="1GB", sampler="walk"), SelfCommunicator())
    for options, text in (({"cuda_graph": True}, "cuda_graph"), ({"replication": 2}, "replication=2")):
        with pytest.raises(UsageError, match=f"mode average .*{text}"):
            run(GRAPH, replace(CONFIG, **options), SelfCommunicator())


def test_a_replacement_that_fails_leaves_the_parts_of_the_earlier_run(tmp_path):
    out, comm = tmp_path / "run", SelfCommunicator()
    first = replace(CONFIG, out=str(out), epochs=2)
    run(GRAPH, first, comm)

    def fails(record):
        raise NumericalError("before the first checkpoint")

    with pytest.raises(NumericalError):
        run(GRAPH, replace(first, parts=5, overwrite=True), comm, report=fails)
    assert sorted(path.name for path in out.glob("parts*")) == ["parts"]
    graph, config = continued("", {"resume": str(out), "epochs": 4})
    assert run(graph, config, comm)["parts"] == 3
    assert run(GRAPH, replace(first, parts=5, overwrite=True), comm)["parts"] == 5
    assert sorted(path.name for path in out.glob("parts*")) == ["parts-2"]


def test_parts_that_a_user_keeps_in_the_folder_are_not_touched(tmp_path):
    out = tmp_path / "run"
    graph = spgnn.load_graph(GRAPH).in_use()
    spgnn.save_partition(spgnn.part_graph(graph, 2, "block"), out / "parts", graph)
    before = (out / "parts" / "manifest.json").read_bytes()
    assert run(GRAPH, replace(CONFIG, out=str(out)), SelfCommunicator())["parts"] == 3
    assert (out / "parts" / "manifest.json").read_bytes() == before and (out / "parts-2").is_dir()


@parallel([1, 2], mpi=[])
def test_averaging_that_may_exceed_memory_says_so_before_the_first_epoch_and_what_it_took_after_the_last(
    comm, tmp_path
):
    if comm.rank == 0:
        graph = spgnn.load_graph(GRAPH).in_use()
        spgnn.save_partition(spgnn.part_graph(graph, 2, "block"), tmp_path / "parts", graph)
    comm.barrier()
    said = {}
    for memory in ("10MB", "1TB"):
        config, lines = TrainConfig(mode="average", epochs=1, memory=memory, evaluation="together"), []
        run(str(tmp_path / "parts"), config, comm, show=lines.append)
        texts = "--memory 10MB may be exceeded: to evaluate together", "MB at its peak, more than --memory 10MB"
        said[memory] = [any(text in line for line in lines) for text in texts]
    assert said == {"10MB": [comm.rank == 0] * 2, "1TB": [False] * 2}
