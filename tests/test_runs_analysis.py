"""runs/analysis/volumes: lines that `spgnn report` takes, tables that fit a terminal, errors of spgnn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import spgnn
from spgnn.report.study_report import read_study, study_page

ROOT = Path(__file__).resolve().parents[1]
GRAPH = "sbm:n=120,classes=3,seed=1"

pytestmark = pytest.mark.slow


def run(*argv, cwd: Path) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "OMPI_"))}
    script = [sys.executable, ROOT / "runs" / "analysis" / "volumes", *map(str, argv)]
    env |= {"PYTHONPATH": str(ROOT)}
    return subprocess.run(script, capture_output=True, text=True, env=env, cwd=cwd, timeout=300)


def test_it_tells_what_measure_tells_and_a_page_is_made_of_it(tmp_path):
    pytest.importorskip("matplotlib")
    asked = ("-k", "2,4", "--method", "metis,spring", "--width", 300)
    made = run(GRAPH, *asked, "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (tmp_path / "study.jsonl").write_text(made.stdout)
    lines = read_study(tmp_path / "study.jsonl")
    assert lines == [json.loads(line) for line in made.stdout.splitlines()] and len(lines) == 8
    graph = spgnn.load_graph(GRAPH)
    for line in lines:
        part = spgnn.part_graph(graph, line["k"], line["method"])
        report = spgnn.measure(graph, part, line["scheme"], (16, 128, 3)).to_dict() | {"seconds": line["seconds"]}
        assert report == {key: line[key] for key in report}
        assert line["total_mb"] == pytest.approx(report["total_rows"] * 300 * 4 / 1e6)
    page = study_page(lines)
    assert page.pictures == 3 and f"volumes {GRAPH}" in page.html().replace("&#x27;", "")


def test_its_tables_fit_80_columns(tmp_path):
    made = run(GRAPH, "-k", "2", "--method", "metis:objective=vol", "--replication", "1,2", cwd=tmp_path)
    volumes, parts = made.stdout.strip().split("\n\n")
    assert volumes.count("\n") == 4 and parts.count("\n") == 1 and " summed" in volumes
    assert max(map(len, parts.splitlines())) <= 80


def test_bad_input_ends_with_one_line_and_the_exit_code_of_spgnn(tmp_path):
    for argv, code, text in (
        (["nowhere.txt"], 3, "nowhere.txt"),
        ([GRAPH, "--method", "metos"], 2, "did you mean 'metis'"),
        ([GRAPH, "--width", 10**320], 2, "'--width'"),
    ):
        made = run(*argv, cwd=tmp_path)
        assert (made.returncode, made.stdout, made.stderr.count("\n")) == (code, "", 1) and text in made.stderr
    assert list(tmp_path.iterdir()) == []
