"""A run is continued and predicted on the graph that it was trained on; another one is predicted on purpose, into another file."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.data.save import save_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import distribute
from spgnn.errors import CheckpointError
from spgnn.experiment import checkpoint, predict, resume, run
from spgnn.experiment.checkpoint import graph_facts
from spgnn.graph import Graph
from spgnn.partition import part_graph, save_partition

OPTIONS = {"epochs": 2, "hidden": 4, "edges": "directed", "method": "random", "threads": 1, "feature_norm": "row"}
AVERAGE = {"mode": "average", "interval": 1, "split": "random", "prune": "never"}
ALONE = SelfCommunicator()


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


VALUES = r"\(fingerprint of features, labels and split [0-9a-f]{16}, here [0-9a-f]{16}\)"
CHANGES = {
    "edge": (with_an_edge_moved, r"\(edges [0-9a-f]{16}, here"),
    "edge more": (with_an_edge_more, r"\(nonzeros \d+, here \d+, "),
    "features": (with_another("X"), VALUES),
    "labels": (with_another("y"), VALUES),
    "split": (with_another("split"), VALUES),
    "width": (lambda before: replace(before, X=before.X[:, :5]), r"\(features 6, here 5, "),
}
KINDS = {  # of a run: its GRAPH and its options
    "graph": ("graph", {}),
    "parts": ("parts", {}),
    "averaged": ("graph", AVERAGE | {"parts": 4}),
    "averaged parts": ("graph", AVERAGE | {"partition": "parts", "evaluation": "layerwise"}),
}


def write(folder, of: Graph) -> None:
    """Write a graph and four parts of it, in the place of earlier ones."""
    save_graph(of, folder / "graph")
    shutil.rmtree(folder / "parts", ignore_errors=True)
    save_partition(part_graph(of, 4, "random", seed=1), folder / "parts", of, hops=1)


def own_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("kind, what", [("graph", what) for what in CHANGES] + [
    ("parts", "edge more"), ("parts", "features"), ("averaged", "edge"), ("averaged", "split"), ("averaged parts", "labels"),
])  # fmt: skip
def test_a_graph_that_changed_is_refused_on_any_ranks(tmp_path, monkeypatch, kind, what):
    monkeypatch.chdir(tmp_path)
    (change, message), (source, options) = CHANGES[what], KINDS[kind]
    write(tmp_path, graph())
    config, out = TrainConfig(out="run", **OPTIONS, **options), tmp_path / "run"
    run_threads(4 if kind == "parts" else 2, lambda comm: run(source, config, comm))
    before = own_files(out)
    ways = ("together", "layerwise") if "parts" in kind else ("together",)
    for how in ways:
        run_threads(3, lambda comm: predict("run", comm, evaluation=how))
    assert own_files(out) == before
    write(tmp_path, change(graph()))
    for how in ways:
        for ranks in (1, 3):
            with pytest.raises(
                CheckpointError, match=f"was made on another graph {message}.*; predict this one by gr"
            ) as e:
                run_threads(ranks, lambda comm: predict("run", comm, out=f"{ranks}.npy", evaluation=how))
            assert e.value.exit_code == 3 and not (tmp_path / f"{ranks}.npy").exists()
    if what == "edge more":  # predicted on purpose
        assert predict("run", ALONE, "graph", "classes.npy")["n"] == len(np.load("classes.npy")) == 40
    if what != "width" and kind != "averaged":  # a model of other widths is refused before; averaging has its own parts
        with pytest.raises(
            CheckpointError, match="another graph .*give the graph that the run was trained on|other parts"
        ):
            run_threads(4 if kind == "parts" else 1, lambda comm: resume("run", comm, epochs=3))
    assert own_files(out) == before


def test_a_run_whose_parts_are_gone_is_predicted_on_its_graph(tmp_path):
    write(tmp_path, graph())
    options = OPTIONS | AVERAGE | {"partition": str(tmp_path / "parts")}
    run(str(tmp_path / "graph"), TrainConfig(out=str(tmp_path / "run"), **options), ALONE)
    shutil.rmtree(tmp_path / "parts")
    assert predict(str(tmp_path / "run"), ALONE)["n"] == 40
    save_graph(with_an_edge_moved(graph()), tmp_path / "graph")
    with pytest.raises(CheckpointError, match="was made on another graph .edges"):
        predict(str(tmp_path / "run"), ALONE)


def test_a_checkpoint_without_facts_of_a_graph_is_not_compared(tmp_path):
    write(tmp_path, graph())
    run(str(tmp_path / "graph"), TrainConfig(out=str(tmp_path / "run"), **OPTIONS), ALONE)
    write(tmp_path, with_an_edge_moved(graph()))
    for path in (tmp_path / "run" / "checkpoints").rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        manifest.pop("graph", None)
        path.write_text(json.dumps(checkpoint.seal(manifest)))
    assert predict(str(tmp_path / "run"), ALONE)["n"] == 40


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("given", [{"sparse": True}, {"use": "undirected"}, {"several": True}], ids=str)
def test_facts_of_parts_are_those_of_their_graph(comm, tmp_path, given):
    of = graph(**{name: value for name, value in given.items() if name != "several"})
    if "several" in given:
        of = replace(of, y=(np.random.default_rng(2).random((40, 3)) < 0.4).astype(np.int8))
    whole = graph_facts(distribute(of, comm, operator="gcn", dtype="bfloat16"))
    parts = graph_facts(parts_of(of, np.arange(40) % 5, comm, split="random"))
    assert parts.pop("parts").startswith("5-") and parts == whole
