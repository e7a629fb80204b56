"""The GraphSAINT recipes: their tables are those of what was timed, at small sizes."""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

FOLDER = Path(__file__).resolve().parents[1] / "runs" / "papers" / "graphsaint"
BENCH = FOLDER.parents[1] / "bench"
sys.path[:0] = [str(FOLDER), str(FOLDER.parent), str(BENCH)]

import iterations  # noqa: E402

from spgnn import load_graph  # noqa: E402


def script(path: Path):
    """The module of a script without an ending."""
    loader = SourceFileLoader(f"graphsaint_{path.name}", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def recipe(monkeypatch, tmp_path):
    """Run a recipe in this process at small sizes; return its records and what it printed as tables."""
    monkeypatch.setattr(iterations, "FRONTIER", 40)

    def run(name, *argv, **patched):
        module = script(FOLDER / name)
        for key, value in patched.items():
            monkeypatch.setattr(module, key, value)
        monkeypatch.setattr(sys, "argv", [name, *map(str, argv), "--out", str(tmp_path / "out")])
        assert module.main() == 0
        lines = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], (tmp_path / "out" / "tables.md").read_text()

    return run


@pytest.fixture
def file(tmp_path):
    """A symmetric graph as the recipes read it."""
    A = sp.random_array((600, 600), density=0.01, rng=np.random.default_rng(0), format="csr")
    sp.save_npz(tmp_path / "g.npz", sp.csr_matrix(A + A.T))
    return tmp_path / "g.npz"


@pytest.mark.slow
def test_size_times_each_graph_once(recipe):
    argv = "--scales 8,9 --degrees 4,16 --degree-scale 8 --hidden 8 --steps 2"
    records, text = recipe("size", *argv.split())
    assert [(r["scale"], r["degree"]) for r in records] == [(8, 16), (9, 16), (8, 4), (8, 16)]
    assert records[0] == records[3] and records[2]["nonzeros"] < records[3]["nonzeros"]
    assert all(r["train_ms"] > 0 and r["nodes"] <= 2 ** r["scale"] for r in records) and "2^9" in text


@pytest.mark.slow
def test_depth_has_equal_rows_on_a_subgraph_and_growing_ones_on_blocks(recipe, file):
    records, _ = recipe("depth", "--graph", file, "--layers", "1,2,3", "--hidden", "8", "--steps", "1")
    for r in records:
        assert len(r["rows"]) == r["layers"] + 1
        if r["sampler"] == "frontier":
            assert len(set(r["rows"])) == 1
        else:
            assert r["rows"] == sorted(r["rows"], reverse=True) and r["rows"][-1] <= iterations.BATCH


@pytest.mark.slow
def test_scaling_has_every_sampler_on_all_numbers_of_threads(recipe, file):
    records, text = recipe("scaling", "--graph", file, "--hidden", "8", "--count", "4", "--steps", "2")
    assert [r["threads"] for r in records] == [1] * 6 + [2] * 6
    assert {r["what"] for r in records} == {"frontier", "walk", "edge", "node", "neighbour", "iteration"}
    assert "0.50" in text, "20 times on 40 cores"


@pytest.mark.slow
def test_accuracy_is_compared_at_the_best_of_neighbour_sampling_less_the_margin(recipe, tmp_path):
    graph = load_graph("sbm:n=400,classes=4,features=16,degree=8,seed=0")
    argv = "--graphs cora --epochs 2 --hidden 8 --budget 100 --samplers walk,frontier"
    records, _ = recipe("accuracy", *argv.split(), "--data", tmp_path, load_graph=lambda path: graph)
    assert [r["sampler"] for r in records] == ["neighbour", "walk", "frontier"]
    first = records[0]
    assert first["threshold"] == max(r["val"] for r in first["curve"]) - iterations.MARGIN
    for r in records:
        above = [point["cpu_s"] for point in r["curve"] if point["val"] >= first["threshold"]]
        assert r["reached_s"] == (above[0] if above else None)
        if above:
            assert r["speedup"] == first["reached_s"] / above[0]
        seconds = [point["cpu_s"] for point in r["curve"]]
        assert seconds == sorted(seconds) and r["sampler"] == "neighbour" or len(above) <= 1


@pytest.mark.slow
def test_the_gradient_of_all_clusters_is_the_exact_one(monkeypatch, capsys):
    """The default of 20 clusters has all nodes of a small graph; walks of 30 have not."""
    argv = "--graph sbm:n=300,classes=3,features=8,degree=8,seed=0 --samplers cluster,walk --budget 30 --draws 3 --json"
    monkeypatch.setattr(sys, "argv", ["gradients", *argv.split()])
    script(BENCH / "gradients").main()
    every, walk = map(json.loads, capsys.readouterr().out.splitlines())
    for key in ("cosine", "norm", "mean_cosine", "mean_norm"):
        assert every[key] == pytest.approx(1, abs=1e-4)
    assert every["nodes"] == 300 and walk["nodes"] < 40 and walk["cosine"] < 0.9
    assert walk["mean_norm"] < walk["norm"], "the average of several has less variance"


def test_cosines_and_norms_are_those_of_hand():
    """(3, 0) and (0, 4) against (0, 2): cosines 0 and 1; their mean (1.5, 2) has 4/5."""
    found = script(BENCH / "gradients").summary(np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([0.0, 2.0]))
    assert found == pytest.approx(
        {"cosine": 0.5, "deviation": 0.5, "norm": 1.75, "mean_cosine": 0.8, "mean_norm": 1.25}, rel=1e-12
    )


@pytest.mark.slow
def test_memory_that_grows_is_found(monkeypatch, capsys):
    module = script(BENCH / "sampled_memory")
    monkeypatch.setattr(sys, "argv", ["sampled_memory", "--steps", "20", "--slack", "100"])
    assert module.main() == 0 and capsys.readouterr().out.count("\n|") == 12
    monkeypatch.setattr(module, "measured", lambda args: ([100 * i for i in range(10)], [(1, 2)] * 10))
    assert module.main() == 1
