"""spgnn compare: runs become rows and one page; options that differ are named."""

import json
import os

import pytest

from spgnn import cli
from spgnn.config import TrainConfig, to_toml
from spgnn.report.run_comparison import differing_options, read_runs

SUMMARY = {
    "ranks": 2, "metric": "accuracy", "test": 0.75, "train": 0.9, "val": 0.8, "best_epoch": 2, "bytes_sent": 1234,
    "bytes_predicted": 1234, "epoch_s": 0.01, "peak_rss_mb": 100.0, "epochs": 3,
}  # fmt: skip


def write_run(folder, is_ended=True, **options):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(TrainConfig(out=str(folder), **options), {"graph": "sbm"}))
    (folder / "env.json").write_text(json.dumps({"ranks": 2}))
    epochs = [
        {"epoch": e, "loss": 2.0 / e, "train": s, "val": s, "test": s, "epoch_s": 0.01 * e, "bytes_sent": 1234}
        for e, s in ((1, 0.5), (2, None), (3, 0.7))
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    if is_ended:
        (folder / "summary.json").write_text(json.dumps(SUMMARY | {"test": options.get("lr", 0.01)}))
    return folder


@pytest.fixture
def runs(tmp_path):
    a, b = write_run(tmp_path / "a" / "run"), write_run(tmp_path / "b" / "run", lr=0.5, dropout=0.25)
    return [a, b, write_run(tmp_path / "third", is_ended=False, hidden=7)]


def compare(capsys, *argv):
    code = cli.main(["compare", *map(str, argv)])
    return code, *capsys.readouterr()


def test_a_table_has_a_row_per_run_and_the_options_that_differ(runs, capsys):
    code, out, _ = compare(capsys, *runs)
    assert code == 0
    results, options = out.split("\n\n")
    rows = [line.split("  ")[0] for line in results.splitlines()]
    assert rows == ["run", "a/run", "b/run", "third (not ended)"]
    assert options.split("\n")[0].split()[3:] == ["hidden", "dropout", "lr"]
    assert [line.split()[-1] for line in options.splitlines()[1:]] == ["0.01", "0.5", "0.01"]


def test_options_of_a_call_are_no_difference(runs):
    assert list(differing_options(read_runs(runs))) == ["hidden", "dropout", "lr"]


def test_json_has_an_object_per_run(runs, capsys):
    code, out, _ = compare(capsys, *runs, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [line["options"]["lr"] for line in lines] == [0.01, 0.5, 0.01]
    assert [line["test"] for line in lines] == [1.0, 50.0, 70.0] and lines[2]["best_epoch"] == 3


@pytest.mark.slow
def test_a_page_has_the_curves_of_all_runs_and_reads_no_other_file(runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    code, out, _ = compare(capsys, *runs, "--out", tmp_path / "compare.html")
    html = (tmp_path / "compare.html").read_text()
    assert code == 0 and html.count("<img ") == 2 and "Options that differ" in html
    assert 'src="http' not in html and out.endswith(f"page  {tmp_path / 'compare.html'}\n")


@pytest.mark.parametrize("argv, code, said", [
    (["a/run"], 2, "expected two runs or more"), (["a/run", "a/run"], 2, "is given twice"),
    (["a/run", "nowhere"], 3, "nowhere has no config.toml"), (["a/run", "b/run", "--out", "a/run/metrics.jsonl"], 2, "is a file of the run"),
    (["a/run", "b/run", "--out", "no/c.html"], 4, "no such folder"),
])  # fmt: skip
def test_what_cannot_be_compared_is_named(runs, tmp_path, capsys, monkeypatch, argv, code, said):
    monkeypatch.chdir(tmp_path)
    before = os.listdir(tmp_path / "a" / "run")
    found, _, err = compare(capsys, *argv)
    assert found == code and said in err and os.listdir(tmp_path / "a" / "run") == before
