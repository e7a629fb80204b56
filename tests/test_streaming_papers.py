"""The recipes of SDT-GNN and CATGNN: what they measure is what a partition is."""

import json
import sys

import numpy as np
import pytest
from scripts import RUNS, printed, script

sys.path.insert(0, str(RUNS / "papers"))

import partitions  # noqa: E402
from published_streaming import TABLE_2  # noqa: E402

from spgnn import load_graph  # noqa: E402
from spgnn.partition import part_graph  # noqa: E402

SMALL = {"cora": "sbm:n=120,seed=0", "wing": "grid:rows=9,cols=9"}


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


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
def test_the_clusters_of_table_2_are_within_15_percent(data_dir, tmp_path, monkeypatch, capsys):
    words = ["--data", data_dir, "--only", "clusters", "--graphs", "flickr,arxiv", "--out", tmp_path, "--json"]
    code, text = printed(script("papers/sdt_gnn/tables"), monkeypatch, capsys, *words)
    records = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    for name, paper in TABLE_2.items():
        found = next(r for r in records if (r["graph"], r["k"], r["threshold"]) == (name, 8, 0.05))
        assert abs(found["clusters"] / paper.before - 1) < 0.15 and abs(found["merged"] / paper.after - 1) < 0.15
