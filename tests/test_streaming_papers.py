"""The recipes of SDT-GNN and CATGNN: what they measure is what a partition is, and small runs from end to end."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PAPERS = Path(__file__).resolve().parents[1] / "runs" / "papers"
sys.path.insert(0, str(PAPERS))

import partitions  # noqa: E402
from published_streaming import TABLE_2, TABLE_3  # noqa: E402

from spgnn import load_graph  # noqa: E402
from spgnn.partition import edge_stream, part_graph  # noqa: E402

SMALL = {"cora": "sbm:n=120,seed=0", "wing": "grid:rows=9,cols=9"}


def script(name: str):
    """The module of a recipe without an ending."""
    loader = importlib.machinery.SourceFileLoader(name.replace("/", "_"), str(PAPERS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Generated graphs under the names of two of the recipes'; returns how to run a recipe on them."""
    monkeypatch.setattr(partitions, "load", lambda name, data: load_graph(SMALL[name]).with_edges("undirected"))

    def run(name, *argv):
        module = script(name)
        module.load = partitions.load
        words = ["--data", tmp_path, "--graphs", ",".join(SMALL), "--out", tmp_path / "out", *argv]
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        code = module.main()
        return code, [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]

    return run


@pytest.mark.parametrize("method", partitions.METHODS)
def test_a_row_has_the_replicas_that_a_count_by_hand_has(method):
    graph = load_graph(SMALL["cora"]).with_edges("undirected")
    row = partitions.cut(graph, "cora", 3, method)
    owner_N = part_graph(graph, 3, method, balance=partitions.BALANCE).owner_N
    dense = graph.A.toarray() != 0
    held = [set(np.flatnonzero(owner_N == p)) | set(np.flatnonzero(dense[owner_N == p].any(axis=0))) for p in range(3)]
    assert row.replication_factor == pytest.approx(sum(map(len, held)) / 120, rel=1e-12)
    assert row.node_imbalance == pytest.approx(np.bincount(owner_N).max() * 3 / 120)
    assert 1 <= row.cut_factor <= row.replication_factor + 1e-12 and (row.cut_factor > 1) == (
        method in partitions.BASELINES
    )


def test_entropy_has_no_row_where_features_are_missing():
    assert partitions.cut(load_graph(SMALL["wing"]).with_edges("undirected"), "wing", 2, "entropy") is None


def test_ratios_are_of_the_baselines_over_the_method():
    row = lambda method, factor: partitions.Row("g", 1, 1, 4, method, factor, 1.0, 1.0, 1.0, 0.0)
    rows = [row("spring", 2.0), row("dbh", 3.0), row("2psl", 1.0), row("metis", 9.0)]
    assert sorted(partitions.ratios(rows, "spring")) == [0.5, 1.5]


def test_an_edge_file_is_the_stream_of_the_graph(tmp_path):
    graph = load_graph(SMALL["cora"]).with_edges("undirected")
    partitions.write_pairs(graph, tmp_path / "e.bin")
    found, expected = (
        np.concatenate([chunk.copy() for chunk in edge_stream(source).chunks()])
        for source in (tmp_path / "e.bin", graph)
    )
    np.testing.assert_array_equal(found, expected)


def test_the_published_tables_name_graphs_that_the_recipes_know():
    assert set(TABLE_2) <= set(TABLE_3) <= set(partitions.GRAPHS) and set(partitions.PAPERS_GRAPHS) == set(TABLE_3)


@pytest.mark.slow
def test_sdt_gnns_tables_are_printed_and_kept(small, capsys):
    argv = [
        "--only",
        "replicas,speed,memory",
        "--graphs",
        "cora",
        "--methods",
        "spring,2psl,metis",
        "-k",
        "2,3",
        "--repeat",
        1,
    ]
    code, records = small("sdt_gnn/tables", *argv)
    out = capsys.readouterr().out
    assert code in (0, 1)  # seconds of so small a graph are noise
    assert {(r["graph"], r["k"]) for r in records if r["table"] == "replication"} == {("cora", 2), ("cora", 3)}
    assert [r["method"] for r in records if r["table"] == "speed"] == ["spring", "2psl"]
    assert all(r["seconds"] > 0 for r in records if r["table"] == "speed") and all(
        r["mb"] > 0 for r in records if r["table"] == "memory"
    )
    for title in ("Figure 6: replication", "about 20 %", "10,556", "Figure 7: ", "Table I and Figure 9: "):
        assert title in out


@pytest.mark.full
@pytest.mark.slow
def test_catgnns_tables_are_printed_as_json_when_asked(small, capsys):
    code, records = small(
        "catgnn/tables",
        "--only",
        "replicas,balance,hops",
        "-k",
        "4",
        "--json",
        "--methods",
        "spring,spring+,2psl,metis",
    )
    assert code == 0 and [json.loads(line) for line in capsys.readouterr().out.splitlines()] == records
    factors = [r["replication_factor"] for r in records if r["table"] == "hops" and r["graph"] == "wing"]
    assert factors[0] == 1 and factors == sorted(factors) and len(factors) == 4


@pytest.mark.parametrize("argv, said", [
    (["--graphs", "corra"], "graph 'corra' is not known"), (["--methods", "sprin"], "method 'sprin' is not known"),
    (["--only", "clustres"], "table 'clustres' is not known"), (["-k", "4,x"], "argument -k: '4,x'; expected positive integers"), (["--settings", "8"], "--settings 8: expected p:threshold"), (["--settings", "8:-1"], "expected p:threshold"),
])  # fmt: skip
def test_a_wrong_option_ends_with_2(small, capsys, argv, said):
    with pytest.raises(SystemExit) as ended:
        small("sdt_gnn/tables", *argv)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "") and said in err


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
def test_the_clusters_of_table_2_are_within_15_percent(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys,
        "argv",
        ["tables", "--data", str(data_dir), "--only", "clusters", "--graphs", "flickr,arxiv", "--out", str(tmp_path)],
    )
    assert script("sdt_gnn/tables").main() == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    for name, paper in TABLE_2.items():
        found = next(r for r in records if (r["graph"], r["k"], r["threshold"]) == (name, 8, 0.05))
        assert abs(found["clusters"] / paper.before - 1) < 0.15 and abs(found["merged"] / paper.after - 1) < 0.15


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.mpi
def test_training_on_parts_is_compared_with_one_process(data_dir, tmp_path):
    argv = [
        "--data",
        data_dir,
        "--graphs",
        "cora",
        "--ranks",
        "2",
        "--methods",
        "spring",
        "--epochs",
        "3",
        "--out",
        tmp_path,
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, PAPERS / "sdt_gnn" / "accuracy", *map(str, argv)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    alone, spring = (json.loads(line) for line in done.stdout.splitlines())
    assert (
        spring["test"] == alone["test"]
        and spring["loss_by"] < 1e-5
        and spring["bytes_sent"] == spring["bytes_predicted"] > alone["bytes_sent"] == 0
    )
