"""runs/analysis/volumes: its lines are measure's, its MB those of Table 2, its tables those of its lines."""

import json
import subprocess

import pytest
from scripts import RUNS, script

import spgnn
from spgnn.errors import InputError, PartitionError, UsageError
from spgnn.partition import PARTITIONERS, part_graph, part_stream
from spgnn.partition.metrics import label_entropies
from spgnn.partition.registry import Method

script("analysis/volumes")
from study import Study, method_of, parts  # noqa: E402

METHODS = ("block", "metis", "metis:objective=vol", "spring", "dbh")
WIDTHS = (300, 16, 24)
GRAPH = "sbm:n=120,classes=3,degree=6,seed=2"


@pytest.fixture(scope="module")
def graph():
    return spgnn.load_graph(GRAPH)


@pytest.fixture(scope="module")
def records(graph):
    schemes = ("broadcast", "columns", "cover")
    return list(Study(ks=(4, 2), methods=METHODS, schemes=schemes, replications=(1, 2), widths=WIDTHS).lines(graph))


def test_every_line_is_that_of_measure_and_has_the_rows_between_ranks_and_the_labels(graph, records):
    assert len(records) == 2 * len(METHODS) * 3 * 2
    made = {}
    for record in records:
        k, method = record["k"], record["method"]
        name, options = method_of(method)
        part = made.setdefault((k, method), part_graph(graph, k, name, **options))
        report = spgnn.measure(graph, part, record["scheme"], WIDTHS, record["replication"])
        expected = report.to_dict() | {"method": method, "seconds": record["seconds"]}
        assert {key: record[key] for key in expected} == expected
        entropies_k, mean = label_entropies(graph.y, part.owner_N, k)
        assert record["label_entropy"] == mean and record["graph"] == graph.name
        assert (record["label_entropy_min"], record["label_entropy_max"]) == (entropies_k.min(), entropies_k.max())


def test_table_2_is_the_rows_of_each_rank_times_the_bytes_of_a_row(graph, records):
    for r in records:
        name, options = method_of(r["method"])
        part = part_graph(graph, r["k"], name, **options)
        rows_PP = spgnn.measure(graph, part, r["scheme"], WIDTHS, r["replication"]).rows_PP
        send_mb = rows_PP.sum(axis=1) * 300 * 4 / 1e6
        assert r["total_mb"] == pytest.approx(send_mb.sum()) and r["average_send_mb"] == pytest.approx(send_mb.mean())
        assert r["max_send_mb"] == pytest.approx(send_mb.max())
        assert r["max_recv_mb"] == pytest.approx(rows_PP.sum(axis=0).max() * 1.2e-3)
        assert r["send_imbalance_percent"] == pytest.approx(100 * (send_mb.max() / send_mb.mean() - 1))
        # Two ranks hold each part: a slice to be summed, and the sum of one's own, go to the other.
        assert r["sum_mb"] == pytest.approx(0 if r["replication"] == 1 else 2 * 120 * 1.2e-3)


def test_copies_without_halo_count_isolated_nodes_once(graph):
    A = graph.A.copy()
    A.resize((125, 125))
    lonely = spgnn.Graph(A, name="lonely")
    found = list(Study(ks=(4,), methods=("dbh", "metis"), width=7).lines(lonely))
    copies = part_stream(lonely.in_use(), 4, "dbh", balance=1.03).details["cut_replicas"]
    assert copies > 120 and [r["replication_without_halo"] for r in found] == [(copies + 5) / 125, 1.0]
    assert found[0]["label_entropy"] is None and found[0]["width"] == 7
    assert "label_entropy" not in parts(found)[1]


def test_all_leaves_out_what_cannot_cut_the_graph_and_a_named_method_raises(graph, monkeypatch):
    def picky(graph, k, *, seed, balance):
        raise PartitionError("this graph has no colours")

    monkeypatch.setitem(PARTITIONERS, "picky", Method.of("picky", picky))
    for name in ("volume", "spring+", "hdrf", "greedy", "2psl"):
        monkeypatch.delitem(PARTITIONERS, name)
    notes = []
    every = list(Study(ks=(2, 3), methods=("all",)).lines(graph, notes.append))
    assert {r["method"] for r in every} == PARTITIONERS.keys() - {"picky"}
    assert notes.count("picky is left out: this graph has no colours") == 1
    assert sum(note.startswith("k = 3, metis: ") for note in notes) == 1
    with pytest.raises(PartitionError, match="no colours"):
        list(Study(ks=(2,), methods=("picky",)).lines(graph))
    for name in PARTITIONERS.keys() - {"picky"}:
        monkeypatch.delitem(PARTITIONERS, name)
    with pytest.raises(InputError, match="no method could cut it: picky: this graph has no colours"):
        list(Study(ks=(2,), methods=("all",)).lines(graph))


def test_options_of_methods_are_read_and_bad_ones_refused(graph):
    assert method_of("hdrf:weight=1.1:epsilon=2") == ("hdrf", {"weight": 1.1, "epsilon": 2})
    assert method_of("volume:send=false:objective=cover") == ("volume", {"send": False, "objective": "cover"})
    with pytest.raises(UsageError, match="is no option; expected KEY=VALUE"):
        method_of("metis:vol")
    for bad in ({"methods": ("metos",)}, {"schemes": ("colums",)}, {"ks": (4, 3), "replications": (2,)}):
        with pytest.raises(UsageError):
            next(Study(**{"ks": (4,), "methods": ("metis",)} | bad).lines(graph))


def test_what_is_named_twice_is_cut_once(graph):
    twice = Study(ks=(2, 2), methods=("block", "block"), schemes=("columns", "columns"), replications=(1, 1))
    assert len(list(twice.lines(graph))) == 1


@pytest.mark.slow
def test_the_script_prints_the_lines_or_two_tables_that_fit_80_columns(graph, tmp_path, python):
    argv = [python, RUNS / "analysis" / "volumes", GRAPH, "-k", "2"]
    for words in (["--method", "metis,spring", "--width", "300", "--json"], ["--replication", "1,2"]):
        done = subprocess.run([*argv, *words], capture_output=True, text=True, check=True, cwd=tmp_path)
        if "--json" in words:
            asked = Study(ks=(2,), methods=("metis", "spring"), schemes=("columns", "cover"), width=300)
            of_time = {"seconds": None}
            lines = [json.loads(line) | of_time for line in done.stdout.splitlines()]
            assert lines == [line | of_time for line in asked.lines(graph)]
    tables = done.stdout.strip().split("\n\n")
    assert len(tables) == 2 and max(map(len, tables[1].splitlines())) <= 80
