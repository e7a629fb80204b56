"""`predict RUN` is for the graph that the run was trained on; another one is predicted on purpose, into another file."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph
from worlds import parallel

from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.data.save import save_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import Parts, distribute
from spgnn.errors import CheckpointError
from spgnn.experiment import checkpoint, predict, run
from spgnn.experiment.restoring import graph_facts
from spgnn.graph import Graph
from spgnn.partition import part_graph, save_partition

pytestmark = pytest.mark.slow
OPTIONS = {"epochs": 2, "hidden": 4, "edges": "directed", "method": "random", "threads": 1}
WAY_OUT = "; predict this one by --graph GRAPH --out FILE, or train again"


def graph(**options):
    made = random_graph(n=40, edges=160, seed=3, weighted=True, **options)
    return replace(made, X=abs(made.X))  # --feature-norm row refuses negative sums


def with_an_edge_moved(before: Graph) -> Graph:
    """The same degrees and weights: the columns of two nonzeros are exchanged."""
    A = before.A.tocoo()
    rows, columns, (i, j) = A.row, np.array(A.col), (3, 90)
    columns[[i, j]] = columns[[j, i]]
    moved = sp.csr_array(sp.coo_array((A.data, (rows, columns)), shape=A.shape))
    assert moved.nnz == A.nnz and (moved != before.A).nnz
    return replace(before, A=moved)


def with_an_edge_more(before: Graph) -> Graph:
    A = before.A.tolil()
    i, j = next((i, j) for i in range(40) for j in range(40) if i != j and A[i, j] == 0)
    A[i, j] = 1.0
    return replace(before, A=sp.csr_array(A))


def with_another(name: str):
    def changed(before: Graph) -> Graph:
        values = np.array(getattr(before, name))
        values[7] = (values[7] + 1) % 3
        return replace(before, **{name: values})

    return changed


CHANGES = {
    "edge": (with_an_edge_moved, r"\(.*edges [0-9a-f]{16}, here"),
    "edge more": (with_an_edge_more, r"\(nonzeros \d+, here \d+, "),
    "features": (with_another("X"), r"\(fingerprint of features, labels and split [0-9a-f]{16}, here [0-9a-f]{16}\)"),
    "labels": (with_another("y"), r"\(fingerprint of features, labels and split "),
    "width": (lambda before: replace(before, X=before.X[:, :5]), r"\(features 6, here 5, "),
}


def write(path, of: Graph, k=0):
    """Write a graph, or its k parts in the place of earlier ones."""
    if k:
        save_partition(part_graph(of, k, "random", seed=1), path, of, hops=1)
    else:
        save_graph(of, path)


def own_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("what, ranks", [(what, 1) for what in CHANGES] + [("edge", 3), ("features", 3)])
def test_a_graph_that_changed_is_refused(tmp_path, what, ranks):
    change, message = CHANGES[what]
    out = tmp_path / "run"
    write(tmp_path / "graph", graph())
    run(str(tmp_path / "graph"), TrainConfig(out=str(out), **OPTIONS), SelfCommunicator())
    before = own_files(out)
    run_threads(ranks, lambda comm: predict(str(out), comm))
    assert own_files(out) == before
    write(tmp_path / "graph", change(graph()))
    with pytest.raises(CheckpointError, match=f"was made on another graph {message}.*{WAY_OUT}"):
        run_threads(ranks, lambda comm: predict(str(out), comm))
    assert own_files(out) == before


def test_the_command_exits_with_3_and_predicts_the_changed_graph_on_purpose(tmp_path, capsys):
    out, given, file = (str(tmp_path / name) for name in ("run", "graph", "classes.npy"))
    write(tmp_path / "graph", graph())
    run(given, TrainConfig(out=out, **OPTIONS), SelfCommunicator())
    before = own_files(tmp_path / "run")
    write(tmp_path / "graph", with_an_edge_more(graph()))
    for argv in (["predict", out], ["predict", out, "--out", file]):
        assert cli.main(argv) == 3
        assert "--graph GRAPH --out FILE, or train again" in capsys.readouterr().err
    assert not (tmp_path / "classes.npy").exists()
    assert cli.main(["predict", out, "--graph", given, "--out", file]) == 0
    assert len(np.load(file)) == 40 and own_files(tmp_path / "run") == before


@pytest.mark.parametrize("what, ranks", [("edge more", 1), ("features", 1), ("edge", 3)])
def test_parts_that_were_made_again_of_a_graph_that_changed_are_refused(tmp_path, what, ranks):
    change, message = CHANGES[what]
    out, parts = tmp_path / "run", tmp_path / "parts"
    write(parts, graph(), k=4)
    options = OPTIONS | {"feature_norm": "row", "model": "sage"}
    run_threads(4, lambda comm: run(str(parts), TrainConfig(out=str(out), **options), comm))
    before = np.load(out / "predictions.npy")
    for how in ("together", "layerwise"):
        run_threads(ranks, lambda comm: predict(str(out), comm, evaluation=how))
        np.testing.assert_array_equal(np.load(out / "predictions.npy"), before)
    shutil.rmtree(parts)
    write(parts, change(graph()), k=4)
    kept = own_files(out)
    for how in ("together", "layerwise"):
        with pytest.raises(CheckpointError, match=f"was made on another graph {message}.*{WAY_OUT}"):
            run_threads(ranks, lambda comm: predict(str(out), comm, evaluation=how))
    assert own_files(out) == kept


@pytest.mark.parametrize("has_folder", [False, True], ids=["graph", "parts"])
@pytest.mark.parametrize("what, ranks", [("edge", 1), ("features", 3)])
def test_the_graph_of_averaged_parts_is_compared(tmp_path, what, has_folder, ranks):
    change, message = CHANGES[what]
    out, parts = tmp_path / "run", tmp_path / "parts"
    write(tmp_path / "graph", graph())
    options = OPTIONS | {"mode": "average", "interval": 1, "feature_norm": "row", "split": "random", "prune": "never"}
    if has_folder:
        write(parts, graph(), k=4)
        options |= {"partition": str(parts), "evaluation": "layerwise"}
    else:
        options |= {"parts": 4}
    run_threads(2, lambda comm: run(str(tmp_path / "graph"), TrainConfig(out=str(out), **options), comm))
    for how in ("together", "layerwise") if has_folder else ("together",):
        run_threads(ranks, lambda comm: predict(str(out), comm, evaluation=how))
    write(tmp_path / "graph", change(graph()))
    if has_folder:
        shutil.rmtree(parts)
        write(parts, change(graph()), k=4)
    before = own_files(out)
    for how in ("together", "layerwise") if has_folder else ("together",):
        with pytest.raises(CheckpointError, match=f"was made on another graph {message}.*{WAY_OUT}"):
            run_threads(ranks, lambda comm: predict(str(out), comm, evaluation=how))
    assert own_files(out) == before


def test_a_run_whose_parts_are_gone_is_predicted_on_its_graph(tmp_path):
    write(tmp_path / "graph", graph())
    write(tmp_path / "parts", graph(), k=4)
    options = OPTIONS | {"mode": "average", "interval": 1, "partition": str(tmp_path / "parts")}
    run(str(tmp_path / "graph"), TrainConfig(out=str(tmp_path / "run"), **options), SelfCommunicator())
    shutil.rmtree(tmp_path / "parts")
    assert predict(str(tmp_path / "run"), SelfCommunicator())["n"] == 40
    write(tmp_path / "graph", with_an_edge_moved(graph()))
    with pytest.raises(CheckpointError, match="was made on another graph .edges"):
        predict(str(tmp_path / "run"), SelfCommunicator())


def test_a_checkpoint_without_facts_of_a_graph_is_not_compared(tmp_path):
    write(tmp_path / "graph", graph())
    run(str(tmp_path / "graph"), TrainConfig(out=str(tmp_path / "run"), **OPTIONS), SelfCommunicator())
    write(tmp_path / "graph", with_an_edge_moved(graph()))
    for path in (tmp_path / "run" / "checkpoints").rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        manifest.pop("graph", None)
        path.write_text(json.dumps(checkpoint.seal(manifest)))
    assert predict(str(tmp_path / "run"), SelfCommunicator())["n"] == 40


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("given", [{"sparse": True}, {"use": "undirected"}, {"several": True}], ids=str)
def test_facts_of_parts_are_those_of_their_graph(comm, tmp_path, given):
    of = graph(**{name: value for name, value in given.items() if name != "several"})
    if "several" in given:
        of = replace(of, y=(np.random.default_rng(2).random((40, 3)) < 0.4).astype(np.int8))
    whole = graph_facts(distribute(of, comm, operator="gcn", dtype="bfloat16"))
    parts = graph_facts(Parts.of_graph(of, np.arange(40) % 5, comm, split="random"))
    assert parts.pop("parts").startswith("5-") and parts == whole
