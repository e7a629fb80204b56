"""Predictions of a graph that no rank holds are those of the whole graph, from a folder of parts, at a memory limit."""

import os

import numpy as np
import pytest
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

from spgnn import cli
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.errors import ResourceError, UsageError
from spgnn.experiment import predict, run
from spgnn.layers import GCN, Stack
from spgnn.partition import part_graph, save_partition
from spgnn.training.parts.evaluation import choose_evaluation, layerwise_bytes, together_bytes


def whole_graph(several=False):
    graph = random_graph(n=60, edges=150, seed=4, use="undirected")
    if several:
        Y = (np.random.default_rng(2).random((60, 3)) < 0.4).astype(np.int8)
        graph = type(graph)(graph.A, X=graph.X, y=Y, split=graph.split, edges="undirected")
    return graph


def cut(folder, graph, k, hops=1):
    save_partition(part_graph(graph, k, "random", seed=1), folder, graph, hops=hops)
    return str(folder)


@pytest.fixture
def trained(tmp_path):
    """A run on one part, the folder of five parts, and the graph."""

    def make(several=False, **options):
        graph = whole_graph(several)
        source, parts = cut(tmp_path / "one", graph, 1), cut(tmp_path / "five", graph, 5)
        config = TrainConfig(
            epochs=3, hidden=8, method="random", edges="undirected", out=str(tmp_path / "run"), **options
        )
        run(source, config, SelfCommunicator())
        return str(tmp_path / "run"), parts

    return make


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_layer_by_layer_predicts_and_scores_as_together(trained, tmp_path, ranks, several):
    folder, parts = trained(several, model="sage")
    reports = {}
    for how in ("together", "layerwise"):
        out = str(tmp_path / f"{how}.npy")
        given = {"source": parts, "out": out, "evaluation": how}
        reports[how] = run_threads(ranks, lambda comm: predict(folder, comm, **given))[0]
    expected, found = (np.load(tmp_path / f"{how}.npy") for how in ("together", "layerwise"))
    np.testing.assert_array_equal(found, np.load(os.path.join(folder, "predictions.npy")))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    for name in ("n", "classes", "train", "val", "test"):
        assert reports["layerwise"][name] == reports["together"][name]
    assert reports["layerwise"]["evaluation"] == "layerwise" and reports["layerwise"]["bytes_read"] > 0
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".spgnn-scratch")]


@pytest.mark.slow
def test_what_cannot_be_computed_layer_by_layer_is_refused_with_the_fix(trained, tmp_path):
    folder, parts = trained(layers=3, jump="cat")
    out, comm = str(tmp_path / "p.npy"), SelfCommunicator()
    with pytest.raises(UsageError, match="jump = cat needs the outputs of all layers at once: use evaluation together"):
        predict(folder, comm, parts, out, evaluation="layerwise")
    with pytest.raises(UsageError, match="embeddings requires evaluation together"):
        predict(folder, comm, parts, out, str(tmp_path / "e.npy"), evaluation="layerwise")
    with pytest.raises(UsageError, match="GRAPH is no partition folder.*--hops 1"):
        predict(folder, comm, "sbm:n=50", out, evaluation="layerwise")
    assert "evaluation" not in predict(folder, comm, parts, out, evaluation="auto", memory="1MB")


@parallel([1, 2], mpi=[])
def test_auto_is_layer_by_layer_where_the_parts_together_need_more_than_a_rank_has(comm, monkeypatch):
    graph = random_graph(n=4000, edges=40_000, f=50, seed=1)
    parts = parts_of(graph, np.arange(4000) % 16, comm)
    model = Stack(GCN(50, 300), GCN(300, 3))
    now = 10**9  # of a process, roughly
    assert together_bytes(model, parts) > 1.5 * layerwise_bytes(model, parts) > 0
    assert choose_evaluation(model, parts, "auto", str(10 * now)) == "together"
    assert choose_evaluation(model, parts, "layerwise", str(10 * now)) == "layerwise"
    assert choose_evaluation(model, parts, "together", "1") == "together"
    assert choose_evaluation(Stack(GCN(50, 4), GCN(4, 4), GCN(8, 3), jump="cat"), parts, "auto", "1") == "together"
    with pytest.raises(ResourceError, match="memory 1MB: layer by layer, a rank needs .* MB for its largest part"):
        choose_evaluation(model, parts, "auto", "1MB")
    needed = np.array([together_bytes(model, parts)]) + 10_000  # with what the process has
    comm.all_reduce(needed, "max")
    if comm.rank == 0:  # threads share what is patched
        monkeypatch.setattr("spgnn.training.parts.evaluation.rss_bytes", lambda: 10_000)
    comm.barrier()
    assert choose_evaluation(model, parts, "auto", str(needed[0])) == "together"
    assert choose_evaluation(model, parts, "auto", str(needed[0] - 1)) == "layerwise"


@pytest.mark.slow
def test_the_command_line_has_the_options(trained, tmp_path, capsys):
    folder, parts = trained()
    out, scratch = str(tmp_path / "p.npy"), str(tmp_path)
    argv = [
        "predict", folder, "--graph", parts, "--out", out, "--evaluation", "layerwise", "--scratch", scratch, "--json",
    ]  # fmt: skip
    assert cli.main(argv) == 0
    assert '"evaluation": "layerwise"' in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(out), np.load(os.path.join(folder, "predictions.npy")))
    assert cli.main([*argv, "--memory", "1MB"]) == 4
    assert "needs" in capsys.readouterr().err
    assert cli.main(["predict", folder, "--evaluation", "nearly"]) == 2
