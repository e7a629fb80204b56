"""A later graph is read by the names of its columns, and scored by the names of its classes, wherever its rows come from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from graphs import random_graph

import spgnn
from spgnn.config import TrainConfig
from spgnn.data import save_graph
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import CheckpointError, GraphError, InputError
from spgnn.experiment import predict, run
from spgnn.experiment.checkpoint import newest_whole, read_json
from spgnn.graph import ColumnNames
from spgnn.partition import part_graph, save_partition

pytestmark = pytest.mark.slow
N, RNG = 30, np.random.default_rng(3)
NAMES = ("age", "job=cook", "job=smith", "buys")
SPLIT = (np.arange(N) % 3).astype(np.int8)


def named(classes=("a", "b", "c"), y=None, **fields):
    graph = random_graph(n=N, edges=70, seed=5, use="undirected")
    y = RNG.integers(0, 3, N) if y is None else y
    X = np.random.default_rng(1).random((N, 4)).astype(np.float32)
    return replace(
        graph, **{"X": X, "y": y, "split": SPLIT, "classes": classes, "feature_names": NAMES, "name": "later"} | fields
    )


def trained(tmp_path, graph, **options):
    save_graph(graph, tmp_path / "graph")
    out = str(tmp_path / "run")
    config = TrainConfig(epochs=2, hidden=4, out=out, **options)
    return out, run(str(tmp_path / "graph"), config, SelfCommunicator())


def ways(tmp_path, out, graph, ranks=2, has_layerwise=True):
    """Yield (predictions, report, lines) of a run for a graph from a folder, and from parts, together and layer by layer."""
    save_graph(graph, tmp_path / "later")
    save_partition(part_graph(graph, 3, "random", seed=1), tmp_path / "parts", graph, hops=1)
    for number, (source, how) in enumerate((("later", "auto"), ("parts", "together"), ("parts", "layerwise"))):
        if how == "layerwise" and not has_layerwise:
            continue
        lines, file = [], str(tmp_path / f"{number}.npy")
        given = {"source": str(tmp_path / source), "out": file, "evaluation": how, "show": lines.append}
        report = run_threads(ranks, lambda comm: predict(out, comm, **given))[0]
        yield np.load(file), report, "\n".join(lines)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_columns_in_another_order_are_those_of_the_run(tmp_path, is_sparse):
    graph = named()
    out, _ = trained(tmp_path, graph, model="sage")
    X = np.concatenate([graph.X[:, [3, 2, 0]], np.ones((N, 1), np.float32)], axis=1)
    later = replace(graph, X=sp.csr_array(X) if is_sparse else X, feature_names=("buys", "job=smith", "age", "job=vet"))
    by_hand = graph.X * [1, 0, 1, 1]
    expected = spgnn.predict(spgnn.load_run(out)[0], replace(graph, X=by_hand.astype(np.float32)), operator="row")
    for found, _, lines in ways(tmp_path, out, later):
        assert np.array_equal(found, expected.classes)
        assert "features of the run that later has not are 0 in all rows: 1, job=cook first" in lines
        assert "features of later that the run has not are dropped: 1, job=vet first" in lines
    assert np.allclose(spgnn.predict(out, later).probabilities, expected.probabilities, atol=1e-6)
    assert ColumnNames(NAMES, graph.classes) == spgnn.distribute(graph).names


@pytest.mark.parametrize("names, message", [
    (("age", "job=cook", "job=smith", "cost"), "later lacks 'buys' and has 'cost' too; the run was trained on the feat"),
    (("age", "x=cook", "x=smith", "buys"), "later lacks 'job=cook', 'job=smith' and has 'x=cook', 'x=smith' too; .*: give"),
    (("age", "buys", "job"), "later lacks 'job=cook', 'job=smith' and has 'job' too"),
    (None, ""),
])  # fmt: skip
def test_columns_that_the_run_does_not_know_are_refused(tmp_path, names, message, capsys):
    graph = named()
    out, _ = trained(tmp_path, graph)
    later = replace(graph, X=graph.X[:, : len(names or NAMES)], feature_names=names)
    if names is None:
        for _, _, lines in ways(tmp_path, out, later):
            assert "the run names its features, later does not: their order is taken to be the same" in lines
        return
    with pytest.raises(GraphError, match=message):
        spgnn.predict(out, later)
    with pytest.raises(GraphError, match=message):
        list(ways(tmp_path, out, later, ranks=1))


def test_rows_that_are_on_their_ranks_have_to_have_the_columns_of_the_run(tmp_path):
    graph = named()
    out, _ = trained(tmp_path, graph)
    dgraph = spgnn.distribute(graph)
    assert len(spgnn.predict(out, dgraph)) == N
    moved = spgnn.distribute(replace(graph, X=graph.X[:, ::-1], feature_names=NAMES[::-1]))
    with pytest.raises(GraphError, match=r"in another order\); predict\(run, graph\) puts those of a Graph in order"):
        spgnn.predict(out, moved)


def test_attributes_of_edges_are_found_by_name(tmp_path):
    rows = np.random.default_rng(2).random((60, 2)).astype(np.float32)
    src, dst = np.random.default_rng(4).integers(0, N, (2, 60))
    fields = {"X": named().X, "y": RNG.integers(0, 3, N), "split": SPLIT}
    made = lambda rows, names: spgnn.graph_from_coo(
        src, dst, N, edge_attr=rows, meta={"edge_features": names, "antisymmetric": [names.index("dx")]}, **fields
    )
    graph = made(rows, ["dx", "length"])
    out, _ = trained(tmp_path, graph, model="gine")
    expected = spgnn.predict(out).classes
    later = made(rows[:, ::-1], ["length", "dx"])
    for found, _, _ in ways(tmp_path, out, later, has_layerwise=False):
        assert np.array_equal(found, expected)
    assert np.array_equal(spgnn.predict(out, later).classes, expected)
    with pytest.raises(
        GraphError, match="lacks 'dx' and has 'dy' too; the run was trained on the edge features 'dx', 'l"
    ):
        spgnn.predict(out, replace(graph, meta=graph.meta | {"edge_features": ["dy", "length"]}))


@pytest.mark.parametrize("classes", [("b", "c", "d", "e"), ("c", "a", "b"), ("0", "1", "2", "3"), None])
def test_scores_compare_the_names_of_classes(tmp_path, classes):
    graph = named(classes=None if classes and classes[0] == "0" else ("a", "b", "c"))
    out, _ = trained(tmp_path, graph)
    y = np.random.default_rng(6).integers(-1, 4 if classes is None or "e" in classes or "3" in classes else 3, N)
    ours, theirs = graph.classes or ("0", "1", "2"), classes or ("a", "b", "c", "no name")
    for found, report, lines in ways(tmp_path, out, replace(graph, y=y, classes=classes)):
        said, truth = np.array(ours, object)[found], np.array(theirs, object)[y]
        for number, split in enumerate(("train", "val", "test")):
            counted = (y >= 0) & (SPLIT == number)
            assert report[split] == pytest.approx(np.mean(said[counted] == truth[counted]))
        unknown = np.count_nonzero((y >= 0) & ~np.isin(truth, ours))
        first = {"b": "'d'", "0": "'3'"}.get(classes[0] if classes else "", "3")
        if unknown:
            assert f"of classes that the run has not count as wrong: {unknown}, class {first} first" in lines
        assert ("names its classes, later does not: they are compared by number" in lines) == (classes is None)


@pytest.mark.parametrize("task", ["labels", "numbers"])
def test_columns_of_labels_are_scored_by_name(tmp_path, task):
    Y = np.random.default_rng(8).random((N, 3))
    Y = (Y < 0.5).astype(np.int8) if task == "labels" else Y
    graph = named(y=Y, classes=("u", "v", "w"))
    out, _ = trained(tmp_path, graph)
    same = replace(graph, y=Y[:, [2, 0, 1]], classes=("w", "u", "v"))
    less = replace(graph, y=Y[:, [2, 0, 2]], classes=("w", "u", "x"))
    none, few = replace(graph, classes=("x", "y", "z")), replace(graph, y=Y[:, :2], classes=None)
    Z = spgnn.predict(out, graph)
    metric = lambda z, y: 2 * (z & y).sum() / (z.sum() + y.sum())
    if task == "numbers":
        metric = lambda z, y: np.mean(1 - ((z - y) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0))
    values, test = Z.classes if task == "labels" else Z.numbers, SPLIT == 2
    for later, kept, said in (
        (same, [0, 1, 2], ""),
        (less, [0, 2], "that later alone has are not scored: 1, x first"),
    ):
        for _, report, lines in ways(tmp_path, out, later, has_layerwise=task == "labels"):
            assert report["test"] == pytest.approx(metric(values[test][:, kept], Y[test][:, kept]), rel=1e-5)
            assert said in lines and ("that the run alone has are not scored: 1, v first" in lines) == bool(said)
    for later, said in (
        (none, "not scored: 3, u first"),
        (few, "2 columns of labels, the run predicts 3: nothing is sc"),
        (replace(graph, y=None, split=None, classes=None), ""),
    ):
        for found, report, lines in ways(tmp_path, out, later, has_layerwise=task == "labels"):
            assert "test" not in report and said in lines
            np.testing.assert_allclose(found, values, rtol=1e-5)


def test_a_run_keeps_its_names_and_is_continued_with_them_alone(tmp_path):
    graph = named()
    out, _ = trained(tmp_path, graph)
    names = {"features": list(NAMES), "classes": ["a", "b", "c"]}
    assert newest_whole(tmp_path / "run" / "checkpoints").manifest["names"] == names
    assert read_json(tmp_path / "run" / "summary.json")["names"] == names
    (tmp_path / "run" / "summary.json").unlink()
    later = next(ways(tmp_path, out, replace(graph, y=None, classes=None), ranks=1))
    assert later[1]["n"] == N and spgnn.predict(out, graph).names == ("a", "b", "c")
    save_graph(
        replace(graph, X=graph.X[:, [3, 1, 2, 0]], feature_names=("buys", *NAMES[1:3], "age")), tmp_path / "graph"
    )
    with pytest.raises(
        CheckpointError, match=r"other columns \(number 1 of features is 'age', here 'buys'\); give the gr"
    ):
        spgnn.experiment.resume(out, SelfCommunicator(), epochs=3)
    with pytest.raises(InputError, match=r"\(number 1 of features is 'age', here 'buys'\); predict this one by graph"):
        predict(out, SelfCommunicator())


def test_a_value_of_a_column_has_one_name_whatever_its_type():
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
    for values in ([1.0, 20, None], [1, 20, None], ["1", "20", None]):
        nodes = pd.DataFrame({"id": ["a", "b", "c"], "zip": pd.Series(values, dtype=object).infer_objects()})
        graph = spgnn.from_pandas(edges, nodes, one_hot="zip", missing="zero")
        assert graph.feature_names == ("zip=1", "zip=20")


def test_a_run_that_was_saved_has_the_names_of_its_graph(tmp_path):
    save_graph(graph := named(), tmp_path / "graph")
    model = spgnn.layers.Stack(spgnn.layers.GCN(4, 3))
    spgnn.save_run(tmp_path / "run", model, tmp_path / "graph")
    moved = replace(graph, X=graph.X[:, ::-1], feature_names=NAMES[::-1])
    expected = spgnn.predict(model, graph)
    assert np.allclose(spgnn.predict(tmp_path / "run", moved).probabilities, expected.probabilities, atol=1e-6)
    spgnn.save_run(tmp_path / "other", model, "no such graph")


def test_a_run_of_another_kind_of_labels_says_that_nothing_is_scored(tmp_path):
    out, _ = trained(tmp_path, named())
    later = named(y=RNG.random(N), classes=("price",))
    for _, report, lines in ways(tmp_path, out, later):
        assert "later has numbers, the run predicts classes: nothing is scored" in lines and "test" not in report
