"""spgnn report: trainings, studies and lines of measure become a page; what is not whole is named."""

import json
import os

import numpy as np
import pytest

from spgnn import cli
from spgnn.analysis.study import study
from spgnn.analysis.study_files import save_study
from spgnn.config import TrainConfig, to_toml
from spgnn.data import load_graph
from spgnn.report.run_report import read_run, run_pictures

SUMMARY = {
    "graph": "sbm", "n": 100, "nnz": 500, "model": "gcn", "best_epoch": 2, "train": 0.9, "val": 0.8, "test": 0.75, "metric": "accuracy",
    "epoch_s": 0.01, "bytes_sent": 1234, "bytes_predicted": 1234, "epochs": 3, "peak_rss_mb": 100.0, "ranks": 2, "scheme": "cover",
    "replication": 1, "method": "metis", "seed": 0, "per_class": [{"class": 0, "precision": 0.5, "recall": 0.25, "f1": 0.33, "support": 40}],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A training's --out folder, of which the second epoch was not evaluated."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(to_toml(TrainConfig(out="run"), {"graph": "sbm"}))
    (run / "env.json").write_text(json.dumps({"spgnn": "0.2.0", "threads": 1}))
    epochs = [
        {"epoch": e, "loss": 2.0 / e, "train": s, "val": s, "test": s, "epoch_s": 0.01 * e, "bytes_sent": 1234}
        for e, s in ((1, 0.5), (2, None), (3, 0.7))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    (run / "summary.json").write_text(json.dumps(SUMMARY))
    return run


def run(capsys, *argv):
    """Return (exit code, stdout, stderr) of one command line."""
    code = cli.main(["report", *map(str, argv)])
    return code, *capsys.readouterr()


@pytest.mark.slow
def test_a_training_becomes_a_page_with_its_curves_options_and_bytes(folder, capsys):
    pytest.importorskip("matplotlib")
    code, out, _ = run(capsys, folder, "--json", "--pictures", folder / "pictures")
    report = json.loads(out)
    assert code == 0 and report["pictures"] == 2 and report["report"] == str(folder / "report.html")
    assert sorted(path.name for path in (folder / "pictures").iterdir()) == [
        "cost.png",
        "cost.svg",
        "learning.png",
        "learning.svg",
    ]
    html = (folder / "report.html").read_text()
    for text in (
        "Training on sbm",
        "3 epochs on 2 ranks; test accuracy 0.7500",
        "1,234, as predicted",
        "scheme = &quot;auto&quot;",
        "<td>0.250</td>",
        html.count("<img ") == 2,
    ):
        assert text is True or text in html
    (folder / "summary.json").unlink()
    assert run(capsys, folder)[0] == 0
    assert "has not ended" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_lines_of_measure_become_a_page_beside_them(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["measure", "sbm:n=90", "-k", "2,4", "--method", "block,metis", "--json"]) == 0
    lines = capsys.readouterr().out
    (tmp_path / "volumes.jsonl").write_text(lines)
    code, out, _ = run(capsys, tmp_path / "volumes.jsonl")
    assert code == 0 and str(tmp_path / "volumes.html") in out
    html = (tmp_path / "volumes.html").read_text()
    assert all(f">{json.loads(line)['bytes_per_epoch']:,}</td>" in html for line in lines.splitlines())


def test_what_is_not_whole_is_named_with_file_and_line(folder, tmp_path, capsys):
    code, _, err = run(capsys, tmp_path / "nothing")
    assert code == 3 and "no such file or folder" in err
    code, _, err = run(capsys, tmp_path)
    assert code == 3 and "no config.toml" in err
    lines = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(lines + '{"epoch": 4}\n')
    code, _, err = run(capsys, folder)
    assert code == 3 and "metrics.jsonl:4: lacks loss, epoch_s, bytes_sent" in err
    (folder / "metrics.jsonl").write_text(lines + "{\n")
    code, _, err = run(capsys, folder)
    assert code == 3 and "metrics.jsonl:4: cannot be read" in err
    (folder / "metrics.jsonl").write_text("")
    code, _, err = run(capsys, folder)
    assert code == 3 and "no epoch has ended" in err
    assert not (folder / "report.html").exists()


def test_a_folder_of_pictures_that_cannot_be_made_is_refused_before_the_page_is_written(folder, capsys):
    pytest.importorskip("matplotlib")
    code, out, err = run(capsys, folder, "--pictures", folder / "env.json")
    assert (code, out) == (4, "") and "env.json: cannot be made" in err
    assert not (folder / "report.html").exists()


def test_ticks_of_epochs_are_whole_numbers(folder):
    pytest.importorskip("matplotlib")
    for draw in run_pictures(read_run(folder)).values():
        for axis in draw().axes:
            np.testing.assert_array_equal(axis.get_xticks() % 1, 0)


def test_k_is_of_studies(folder, tmp_path, capsys):
    code, _, err = run(capsys, folder, "-k", 4)
    assert code == 2 and "applies to studies" in err
    save_study(study(load_graph("sbm:n=60"), (2,), ("block",)), tmp_path / "study")
    code, _, err = run(capsys, tmp_path / "study", "-k", 4)
    assert code == 2 and "k = 4 is not in the study; expected one of 2" in err


def test_a_run_is_read_as_it_was_written(folder):
    found = read_run(folder)
    assert (found.config["graph"], found.environment["threads"], found.summary["test"], len(found.records)) == (
        "sbm",
        1,
        0.75,
        3,
    )


def test_a_summary_that_is_not_whole_and_a_line_with_other_values_are_named(folder, tmp_path, capsys):
    for summary, said in (('{"a": 1}', "lacks ranks, metric, test"), ("[1]", "contains list"), ("[]", "contains list")):
        (folder / "summary.json").write_text(summary)
        code, out, err = run(capsys, folder)
        assert (code, out) == (3, "") and "summary.json" in err and said in err and err.count("\n") == 1
    assert cli.main(["measure", "sbm:n=90", "-k", "2", "--method", "block", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    wrong = [
        ("k", "<script>", "a whole number above 0"),
        ("k", 0, "a whole number above 0"),
        ("method", 3, "a name"),
        ("seconds", [1], "a number"),
    ]
    wrong += [
        ("mean_send_rows", None, "a number"),
        ("seconds", float("nan"), "a number"),
        ("messages", 0.5, "a whole number"),
        ("scheme", "rows", "one of cover"),
    ]
    wrong += [
        ("layers", 5, "a list of layers"),
        ("layers", [{"f_in": "x"}], "a list of layers"),
        ("exchanges", [1], "a list of exchanges"),
    ]
    for name, value, wanted in wrong:
        (tmp_path / "lines.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(line | {name: value}) + "\n")
        code, out, err = run(capsys, tmp_path / "lines.jsonl")
        assert (code, out) == (3, "") and f"lines.jsonl:2: {name} is {value!r}; expected {wanted}" in err
    (tmp_path / "lines.jsonl").write_text(json.dumps(line | {"total_mb": 1.0, "width": 3}) + "\n")
    assert "lines.jsonl:1: lacks average_send_mb" in run(capsys, tmp_path / "lines.jsonl")[2]
    (tmp_path / "lines.jsonl").write_text("[" * 100_000)
    assert run(capsys, tmp_path / "lines.jsonl")[0] == 3


def test_other_values_of_a_training_are_named_with_file_and_line(folder, capsys):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    for name, value in (("loss", "x"), ("epoch", None), ("epoch_s", None), ("bytes_sent", [1]), ("val", "x")):
        (folder / "metrics.jsonl").write_text(
            "\n".join([lines[0], json.dumps(json.loads(lines[1]) | {name: value}), ""])
        )
        code, out, err = run(capsys, folder)
        assert (code, out) == (3, "") and f"metrics.jsonl:2: {name} is {value!r}; expected a" in err
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    for name, value in (
        ("epoch_s", "x"),
        ("ranks", "2"),
        ("test", "x"),
        ("best_epoch", 1.5),
        ("peak_rss_mb", None),
        ("per_class", [{"class": 0}, {}]),
    ):
        (folder / "summary.json").write_text(json.dumps(SUMMARY | {name: value}))
        code, out, err = run(capsys, folder)
        assert (code, out) == (3, "") and f"summary.json: {name} is {value!r}; expected a" in err


@pytest.mark.slow
def test_lines_need_not_have_every_combination(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for argv in (
        ("-k", "2", "--replication", "2"),
        ("-k", "4,8", "--scheme", "cover"),
        ("-k", "4", "--method", "block", "--replication", "2"),
    ):
        assert cli.main(["measure", "sbm:n=90", *argv, "--json"]) == 0
    (tmp_path / "v.jsonl").write_text(capsys.readouterr().out)
    code, out, err = run(capsys, tmp_path / "v.jsonl", "--json")
    assert (code, err) == (0, "") and json.loads(out)["pictures"] == 3


@pytest.mark.slow
def test_a_page_goes_where_a_link_points_and_never_in_the_place_of_a_pipe(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    os.mkfifo(tmp_path / "pipe")
    for wrong, said in ((tmp_path / "pipe", "is no regular file"), (folder, "is a folder")):
        code, out, err = run(capsys, folder, "--out", wrong)
        assert (code, out) == (2, "") and said in err
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("page.html")
    for _ in range(2):
        assert run(capsys, folder, "--out", tmp_path / "link")[0] == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_a_page_is_not_written_over_what_it_is_made_of(folder, tmp_path, capsys):
    for wrong in (folder / "config.toml", folder / "summary.json"):
        before = wrong.read_text()
        code, out, err = run(capsys, folder, "--out", wrong)
        assert (code, out, wrong.read_text()) == (2, "", before) and "is an input of the report" in err


@pytest.mark.slow
def test_a_page_without_ending_touches_no_other_file(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / ".env").write_text("SECRET")
    assert run(capsys, folder, "--out", tmp_path / "env")[0] == 0
    assert (tmp_path / ".env").read_text() == "SECRET"
    assert (tmp_path / "env").read_text().startswith("<!DOCTYPE html>")


def test_a_folder_that_cannot_be_written_is_told_with_the_option(folder, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    code, out, err = run(capsys, folder, "--out", tmp_path / "x.html")
    assert (code, out) == (4, "") and f"--out {tmp_path / 'x.html'}: the folder cannot be written" in err
