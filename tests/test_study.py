"""runs/analysis/volumes: its lines are measure's, its MB those of Table 2, its tables those of its lines."""

import json
import subprocess

import pytest
from scripts import RUNS, script

import spgnn
from spgnn.errors import UsageError
from spgnn.partition import part_graph
from spgnn.partition.metrics import label_entropies

script("analysis/volumes")
from study import Study, method_of  # noqa: E402

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


def test_options_of_methods_are_read_and_bad_ones_refused(graph):
    assert method_of("hdrf:weight=1.1:epsilon=2") == ("hdrf", {"weight": 1.1, "epsilon": 2})
    assert method_of("volume:send=false:objective=cover") == ("volume", {"send": False, "objective": "cover"})
    with pytest.raises(UsageError, match="is no option; expected KEY=VALUE"):
        method_of("metis:vol")
    for bad in ({"methods": ("metos",)}, {"schemes": ("colums",)}, {"ks": (4, 3), "replications": (2,)}):
        with pytest.raises(UsageError):
            next(Study(**{"ks": (4,), "methods": ("metis",)} | bad).lines(graph))


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
