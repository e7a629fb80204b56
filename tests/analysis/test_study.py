"""A study: its records are measure's, its MB those of Table 2, its densities the permuted matrix; files give it back."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import spgnn
from spgnn.analysis.study import density, method_of, sent_mb, study
from spgnn.analysis.study_files import load_study, save_study
from spgnn.errors import InputError, PartitionError, UsageError
from spgnn.graph import Graph
from spgnn.partition import PARTITIONERS, part_graph, part_stream
from spgnn.partition.registry import Method
from spgnn.report import tables

METHODS = ("block", "metis", "metis:objective=vol", "spring", "dbh")


@pytest.fixture(scope="module")
def graph():
    return spgnn.load_graph("sbm:n=120,classes=3,degree=6,seed=2")


@pytest.fixture(scope="module")
def found(graph):
    return study(
        graph,
        (2, 4),
        METHODS,
        ("broadcast", "columns", "cover"),
        (1, 2),
        (300, 16, 24),
        made={"command": "volumes sbm"},
    )


def test_every_record_is_that_of_measure(graph, found):
    assert len(found.cases) == 2 * len(METHODS) * 3 * 2
    parts = {}
    for record in found.records:
        k, method = record["k"], record["method"]
        name, options = method_of(method)
        part = parts.setdefault((k, method), part_graph(graph, k, name, **options))
        report = spgnn.measure(graph, part, record["scheme"], (300, 16, 24), record["replication"]).to_dict()
        report |= {"method": method, "seconds": record["seconds"]}
        assert {key: record[key] for key in report} == report


def test_table_2_is_the_rows_of_each_rank_times_the_bytes_of_a_row(found):
    for case in found.cases:
        send_mb = case.rows_PP.sum(axis=1) * 300 * 4 / 1e6
        r = case.record
        assert r["total_mb"] == pytest.approx(send_mb.sum()) and r["average_send_mb"] == pytest.approx(send_mb.mean())
        assert r["max_send_mb"] == pytest.approx(send_mb.max()) and r["max_recv_mb"] == pytest.approx(
            case.rows_PP.sum(axis=0).max() * 1.2e-3
        )
        assert r["send_imbalance_percent"] == pytest.approx(100 * (send_mb.max() / send_mb.mean() - 1))
        # Two ranks hold each part: a slice to be summed, and the sum of one's own, go to the other.
        assert r["sum_mb"] == pytest.approx(0 if r["replication"] == 1 else 2 * 120 * 1.2e-3)


def test_the_paper_s_table_2_follows_from_average_and_maximum():
    # Amazon, f = 300, p = 64: 83.9 MB, 164.0 MB, 95.4 %.
    rows = {
        "total_rows": 64,
        "mean_send_rows": 83.9,
        "max_send_rows": 164.0,
        "max_recv_rows": 1,
        "max_over_mean_send": 164.0 / 83.9,
    }
    assert sent_mb(rows, 300, 4, 0)["send_imbalance_percent"] == pytest.approx(95.4, abs=0.1)


def test_replicas_without_halo_count_isolated_nodes_once(graph):
    A = graph.A.copy()
    A.resize((125, 125))
    lonely = spgnn.Graph(A, name="lonely")
    one = study(lonely, (4,), ("dbh", "metis"))
    details = part_stream(lonely.in_use(), 4, "dbh", balance=1.03).details
    assert details["cut_replicas"] > 120
    assert [r["replication_without_halo"] for r in one.records] == [(details["cut_replicas"] + 5) / 125, 1.0]
    assert one.graph["label_entropy"] is None and one.records[0]["label_entropy"] is None


def test_densities_are_the_permuted_matrix_in_squares(graph):
    graph = graph.in_use()
    part = part_graph(graph, 3, "random")
    dense = (graph.A.toarray() != 0)[part.order_N][:, part.order_N]
    assert np.array_equal(density(graph.A, part.rank_N, 120), dense)
    assert np.array_equal(density(graph.A, part.rank_N, 6), dense.reshape(6, 20, 6, 20).sum(axis=(1, 3)))
    assert density(graph.A, None, 7).sum() == graph.nnz


def test_files_give_the_study_back_and_say_what_measure_says(found, tmp_path):
    save_study(found, tmp_path / "study")
    again = load_study(tmp_path / "study")
    assert (
        again.records
        == found.records
        == [json.loads(line) for line in (tmp_path / "study" / "volumes.jsonl").read_text().splitlines()]
    )
    assert (again.graph, again.made, again.left_out) == (found.graph, found.made, found.left_out)
    for one, other in zip(again.cases, found.cases):
        assert np.array_equal(one.rows_PP, other.rows_PP) and np.array_equal(one.work_P, other.work_P)
    for one, other in zip(again.cuts, found.cuts):
        assert (one.k, one.method, one.entropy, one.replicas) == (other.k, other.method, other.entropy, other.replicas)
        assert all(
            np.array_equal(getattr(one, name), getattr(other, name))
            for name in ("entropies_k", "density_BB", "sizes_k")
        )
        assert (one.clusters is None) == (other.clusters is None)
    with open(tmp_path / "study" / "volumes.csv", newline="") as file:
        for row, record in zip(csv.DictReader(file), found.records, strict=True):
            assert {key: str(record[key]) for key in row} == row
    with open(tmp_path / "study" / "ranks.csv", newline="") as file:
        ranks = list(csv.DictReader(file))
    assert sum(int(row["rows_sent"]) for row in ranks) == sum(record["total_rows"] for record in found.records)
    with open(tmp_path / "study" / "parts.csv", newline="") as file:
        assert sum(int(row["nodes"]) for row in csv.DictReader(file)) == 120 * 2 * len(METHODS)


def test_lines_of_measure_become_a_folder_that_is_read_again(found, tmp_path):
    lines = [record.copy() for record in found.records[:3]]
    lines[1]["simulated"] = {"machine": "m"}
    lines[2]["more"] = 7
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    save_study(load_study(tmp_path / "v.jsonl"), tmp_path / "study")
    again = load_study(tmp_path / "study")
    assert again.records == lines and again.graph["name"] == "v"
    assert again.stored_BB is None and again.cuts == [] and all(case.rows_PP is None for case in again.cases)
    with np.load(tmp_path / "study" / "arrays.npz", allow_pickle=False) as arrays:
        assert [arrays[name] for name in arrays.files] == []
    with open(tmp_path / "study" / "volumes.csv", newline="") as file:
        assert [row["more"] for row in csv.DictReader(file)] == ["", "", "7"]


def test_a_study_that_is_not_whole_is_refused(found, tmp_path):
    save_study(found, tmp_path / "s")
    (tmp_path / "s" / "arrays.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="is not a whole study"):
        load_study(tmp_path / "s")
    lines = (tmp_path / "s" / "volumes.jsonl").read_text().splitlines()
    (tmp_path / "s" / "volumes.jsonl").write_text(lines[0] + "\n" + lines[1][:40] + "\n")
    with pytest.raises(InputError, match=r"volumes.jsonl:2: lacks an object"):
        load_study(tmp_path / "s" / "volumes.jsonl")
    (tmp_path / "s" / "volumes.jsonl").write_text('{"k": 4}\n')
    with pytest.raises(InputError, match=r"volumes.jsonl:1: lacks n, nnz"):
        load_study(tmp_path / "s" / "volumes.jsonl")


def test_all_leaves_out_what_cannot_cut_the_graph_and_a_named_method_raises(graph, monkeypatch):
    def picky(graph, k, *, seed, balance):
        raise PartitionError("this graph has no colours")

    monkeypatch.setitem(PARTITIONERS, "picky", Method.of("picky", picky))
    for name in ("volume", "spring+", "hdrf", "greedy", "2psl"):
        monkeypatch.delitem(PARTITIONERS, name)
    every = study(graph, (2,), ("all",))
    assert every.left_out == {"picky": "this graph has no colours"} and "metis" in every.values("method")
    with pytest.raises(PartitionError, match="no colours"):
        study(graph, (2,), ("picky",))


@pytest.mark.filterwarnings("error")
def test_a_graph_without_edges_is_studied_without_a_word_on_clusters():
    of_none = study(
        Graph(sp.csr_array((5, 5), dtype=np.float32), name="none"), (2,), ("metis", "spring", "dbh"), widths=(4, 3)
    )
    assert tables.clusters(of_none)[0] == []
    assert [row["edge_cut"] for row in tables.parts(of_none)[0]] == [0, 0, 0]


def test_options_of_methods_are_read_and_bad_ones_refused(graph):
    assert method_of("hdrf:weight=1.1:epsilon=2") == ("hdrf", {"weight": 1.1, "epsilon": 2})
    assert method_of("volume:send=false:objective=cover") == ("volume", {"send": False, "objective": "cover"})
    with pytest.raises(UsageError, match="is no option; expected NAME:KEY=VALUE"):
        method_of("metis:vol")
    for bad in (
        {"ks": (4,), "methods": ("metos",)},
        {"ks": (4,), "methods": ("metis",), "schemes": ("colums",)},
        {"ks": (3,), "methods": ("metis",), "replications": (2,)},
    ):
        with pytest.raises(UsageError):
            study(graph, **bad)


def test_what_is_named_twice_is_cut_once(graph):
    twice = study(graph, (2, 2), ("block", "block"), ("columns", "columns"), (1, 1))
    assert len(twice.cases) == len(twice.cuts) == 1


def test_pictures_of_one_k_take_the_largest_up_to_16(found):
    assert found.one_k() == 4 and found.one_k(2) == 2
    with pytest.raises(UsageError, match="expected one of 2, 4"):
        found.one_k(3)
    larger = replace(
        found, cases=[replace(case, record=case.record | {"k": k}) for case, k in zip(found.cases, (64, 32))]
    )
    assert larger.one_k() == 32
