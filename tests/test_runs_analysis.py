"""The scripts of runs/analysis: volumes writes what pictures and report read, and errors are those of spgnn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import spgnn

ROOT = Path(__file__).resolve().parents[1]
GRAPH = "sbm:n=120,classes=3,seed=1"

pytestmark = pytest.mark.slow


def run(script: str, *argv, cwd: Path) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "OMPI_"))} | {
        "PYTHONPATH": str(ROOT)
    }
    return subprocess.run(
        [sys.executable, str(ROOT / "runs" / "analysis" / script), *map(str, argv)],
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        timeout=300,
    )


def test_volumes_tells_what_measure_tells_and_the_other_scripts_take_its_folder(tmp_path):
    pytest.importorskip("matplotlib")
    made = run(
        "volumes",
        GRAPH,
        "-k",
        "2,4",
        "--method",
        "metis,spring",
        "--width",
        300,
        "--out",
        "study",
        "--json",
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    lines = [json.loads(line) for line in made.stdout.splitlines()]
    assert (
        lines == [json.loads(line) for line in (tmp_path / "study" / "volumes.jsonl").read_text().splitlines()]
        and len(lines) == 8
    )
    graph = spgnn.load_graph(GRAPH)
    for line in lines:
        part = spgnn.part_graph(graph, line["k"], line["method"])
        report = spgnn.measure(graph, part, line["scheme"], (16, 128, 3)).to_dict()
        assert {key: line[key] for key in report if key != "seconds"} == {
            key: report[key] for key in report if key != "seconds"
        }
        assert line["total_mb"] == pytest.approx(report["total_rows"] * 300 * 4 / 1e6)
    drawn = run("pictures", "study", "--out", "drawn", "--only", "entropies", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["entropies.png", "entropies.svg"]
    report = run("report", "study", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    html = (tmp_path / "study" / "report.html").read_text()
    assert html.count("<img ") == 8 and f"volumes {GRAPH}" in html.replace("&#x27;", "").replace("'", "")


def test_bad_input_ends_with_one_line_and_the_exit_code_of_spgnn(tmp_path):
    for argv, code, text in (
        (["nowhere.txt"], 3, "nowhere.txt"),
        ([GRAPH, "--method", "metos"], 2, "did you mean 'metis'"),
    ):
        made = run("volumes", *argv, cwd=tmp_path)
        assert (made.returncode, made.stderr.count("\n")) == (code, 1) and text in made.stderr, made.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script, argv, code, text", [
    ("volumes", ["--out", "a.txt"], 4, "a.txt: cannot be made"), ("pictures", ["--out", "a.txt/b"], 4, "a.txt/b: cannot be made"),
    ("report", ["--out", "."], 2, ".: is a folder"), ("pictures", ["--formats", "png,pdf"], 2, "--formats png,pdf: a picture is .png or .svg"),
    ("volumes", ["--width", 10**320], 2, "'--width'"),
])  # fmt: skip
def test_output_that_cannot_be_is_refused_before_anything_is_cut(script, argv, code, text, tmp_path):
    (tmp_path / "a.txt").write_text("")
    made = run(script, GRAPH, "-k", "2", "--method", "block", *argv, cwd=tmp_path)
    assert (made.returncode, made.stdout, made.stderr.count("\n")) == (code, "", 1) and text in made.stderr, made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
