"""spgnn report: a run, several runs and lines of measure become a page; an invalid file is named."""

import json
import os
import re

import numpy as np
import pytest

from spgnn import cli
from spgnn.config import TrainConfig, to_toml
from spgnn.report.run_report import differing_options, draw_cost, draw_learning, pictures, read_run, read_runs

SUMMARY = {
    "graph": "sbm", "n": 100, "nnz": 500, "model": "gcn", "best_epoch": 2, "train": 0.9, "val": 0.8, "test": 0.75,
    "metric": "accuracy", "epoch_s": 0.01, "bytes_sent": 1234, "bytes_predicted": 1234, "epochs": 3,
    "peak_rss_mb": 100.0, "ranks": 2, "scheme": "cover", "replication": 1, "method": "metis", "seed": 0,
    "per_class": [{"class": 0, "precision": 0.5, "recall": 0.25, "f1": 0.33, "support": 40}] * 2,
    "classes": ["noun", "<b>verb"],
}  # fmt: skip
DETAILS = {
    "explanation": {"scheme": "cover: as asked", "rows": "all", "layers": [
        {"layer": 1, "f_in": 5, "f_out": 2, "product": "A (H W)", "bytes_forward": 600, "bytes_backward": 634, "why": "2 < 5"}
    ]},
    "sent_PP": [[0, 1000], [234, 0]], "confusion_CC": [[9, 1], [4, 36]],
}  # fmt: skip
EPOCHS = [
    {"epoch": e, "loss": 2.0 / e, "train": s, "val": s, "test": s, "epoch_s": 0.01 * e, "bytes_sent": 1234}
    for e, s in ((1, 0.5), (2, None), (3, 0.7))
]


def write_run(folder, is_ended=True, **options):
    """A training's --out folder, of which the second epoch was not evaluated."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(TrainConfig(out=str(folder), **options), {"graph": "sbm"}))
    (folder / "env.json").write_text(json.dumps({"spgnn": "0.2.0", "threads": 1, "ranks": 2}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in EPOCHS))
    if is_ended:
        (folder / "summary.json").write_text(json.dumps(SUMMARY | {"test": options.get("lr", 0.75)}))
        (folder / "details.json").write_text(json.dumps(DETAILS))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture
def runs(tmp_path):
    a, b = write_run(tmp_path / "a" / "run"), write_run(tmp_path / "b" / "run", lr=0.5, dropout=0.25)
    return [a, b, write_run(tmp_path / "third", is_ended=False, hidden=7)]


def run(capsys, *argv):
    """Return (exit code, stdout, stderr) of one command line."""
    code = cli.main(["report", *map(str, argv)])
    return code, *capsys.readouterr()


@pytest.mark.slow
def test_a_training_becomes_a_page_with_its_curves_options_and_bytes(folder, capsys):
    pytest.importorskip("matplotlib")
    code, out, _ = run(capsys, folder, "--json", "--pictures", folder / "pictures")
    files = [str(folder / "pictures" / name) for name in ("learning.png", "learning.svg", "cost.png", "cost.svg")]
    assert code == 0 and json.loads(out) == {"report": str(folder / "report.html"), "pictures": 2, "files": files}
    assert sorted(map(str, (folder / "pictures").iterdir())) == sorted(files)
    html = (folder / "report.html").read_text()
    assert html.count("<img ") == 2
    for text in (
        "Training on sbm",
        "3 epochs on 2 ranks; test accuracy 0.7500",
        "1,234, as predicted",
        "scheme = &quot;auto&quot;",
        "<td>0.250</td>",
        "<dd>0.2.0</dd>",
        '<td class="text">5 → 2</td><td class="text">A (H W)</td><td>1,234</td>',
        "Scheme: cover: as asked.",
        ">1 kB</td></tr>".replace(" kB", ""),
        ">0.234</td>",
        '<td class="text">noun</td>',
        '<td class="text">noun (4)</td>',
        "&lt;b&gt;verb",
        ">36</td>",
    ):
        assert text in html, text
    assert "<b>" not in html
    headings = [
        "Result", "Options", "Layers", "Learning", "Cost per epoch", "Bytes between ranks", "Classes", "Confusion",
    ]  # fmt: skip
    assert re.findall(r"<h2[^>]*>([^<]*)", html) == [*headings, "Environment"]
    (folder / "summary.json").unlink(), (folder / "details.json").unlink()
    assert run(capsys, folder)[0] == 0
    assert "has not ended" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_where_nothing_is_sent_there_is_no_picture_of_it(folder, capsys):
    pytest.importorskip("matplotlib")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch | {"bytes_sent": 0}) + "\n" for epoch in EPOCHS))
    (folder / "summary.json").write_text(json.dumps(SUMMARY | {"bytes_sent": 0, "bytes_predicted": 0}))
    (folder / "details.json").write_text(json.dumps(DETAILS | {"sent_PP": [[0]]}))
    assert [axis.get_title()[:4] for axis in draw_cost(read_runs([folder])).axes] == ["time"]
    assert run(capsys, folder)[0] == 0
    html = (folder / "report.html").read_text()
    assert "Bytes between ranks" not in html and "dashed" not in html and "0, as predicted" in html


@pytest.mark.slow
def test_curves_are_those_of_the_epochs(folder, runs):
    pytest.importorskip("matplotlib")
    (folder / "summary.json").write_text(json.dumps(SUMMARY | {"best_epoch": 3}))
    loss, scores = draw_learning({"run": read_run(folder)}).axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), [(1, 2), (2, 1), (3, 2 / 3)])
    assert loss.get_yscale() == "log" and scores.get_ylabel() == "accuracy"
    lines = {line.get_label(): line.get_xydata().tolist() for line in scores.lines}
    assert lines["validation 0.7000"] == lines["test 0.7000"] == [[1, 0.5], [3, 0.7]]
    dots = [line.get_xydata().tolist() for line in scores.lines if line.get_linestyle() == "None"]
    assert dots == [[[3, 0.7]]]  # the stored weights
    seconds, sent = draw_cost({"run": read_run(folder)}).axes
    assert seconds.lines[0].get_ydata().tolist() == [10, 20, 30] and "median 20 ms" in seconds.get_title()
    counted, predicted = (line.get_ydata() for line in sent.lines)
    assert counted.tolist() == [1.234] * 3 and predicted[0] == 1.234 and sent.get_ylabel() == "kB, all ranks"
    for picture in pictures(found := read_runs(runs)).values():
        figure = picture.draw(2)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == list(found)
        assert len({(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}) == 3
    for axis in figure.axes:
        np.testing.assert_array_equal(axis.get_xticks() % 1, 0)  # epochs are whole numbers


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("losses", [[None, None], [0.0, 0.0], [-1.0, 2.0], [3.0]])
def test_any_loss_has_a_picture(folder, losses):
    pytest.importorskip("matplotlib")
    epochs = [EPOCHS[i] | {"loss": loss, "bytes_sent": 0, "val": None} for i, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    for picture in pictures(read_runs([folder])).values():
        picture.titled().draw_without_rendering()


def test_several_runs_are_a_table_with_a_row_each_and_the_options_that_differ(runs, capsys):
    code, out, _ = run(capsys, *runs)
    assert code == 0 and not (runs[0] / "report.html").exists()
    results, options = out.strip().split("\n\n")
    assert [line.split("  ")[0] for line in results.splitlines()] == ["run", "a/run", "b/run", "third (not ended)"]
    assert options.split("\n")[0].split()[3:] == ["hidden", "dropout", "lr"]
    assert [line.split()[-1] for line in options.splitlines()[1:]] == ["0.01", "0.5", "0.01"]
    assert max(map(len, out.splitlines())) <= 80
    assert list(differing_options(read_runs(runs))) == ["hidden", "dropout", "lr"]  # not those of the call


def test_json_of_several_runs_has_an_object_per_run(runs, capsys):
    code, out, _ = run(capsys, *runs, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [line["options"]["lr"] for line in lines] == [0.01, 0.5, 0.01]
    assert [line["test"] for line in lines] == [75.0, 50.0, 70.0] and lines[2]["best_epoch"] == 3
    assert [line["epoch_ms"] for line in lines] == [25.0] * 3 and lines[0]["sent_mb"] == 0.001234


@pytest.mark.slow
def test_a_page_of_several_runs_has_their_table_options_and_curves(runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    code, out, _ = run(capsys, *runs, "--out", tmp_path / "compare.html", "--pictures", tmp_path / "drawn")
    html = (tmp_path / "compare.html").read_text()
    assert code == 0 and html.count("<img ") == 2 and "All other options are the same" in html
    assert ">third (not ended)</td>" in html and "<td>25.00</td>" in html and ">0.25</td>" in html
    assert str(tmp_path / "compare.html") in out and len(list((tmp_path / "drawn").iterdir())) == 4
    assert run(capsys, runs[0], write_run(tmp_path / "same"), "--out", tmp_path / "equal.html")[0] == 0
    assert "All options are the same" in (tmp_path / "equal.html").read_text()


@pytest.mark.slow
def test_lines_of_measure_become_a_page_next_to_them(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for argv in (
        ("-k", "2,4", "--method", "block,metis"),
        ("-k", "2", "--method", "block", "--replication", "2"),
        ("-k", "4,8", "--scheme", "cover", "--method", "block"),
        ("-k", "4", "--method", "block", "--model", "gat"),  # its layers have no f_in
    ):
        assert cli.main(["measure", "sbm:n=90", *argv, "--json"]) == 0
    lines = capsys.readouterr().out
    (tmp_path / "volumes.jsonl").write_text(lines)
    code, out, _ = run(capsys, tmp_path / "volumes.jsonl", "--json")
    assert code == 0 and json.loads(out) == {"report": str(tmp_path / "volumes.html"), "pictures": 2}
    html = (tmp_path / "volumes.html").read_text()
    assert all(f">{json.loads(line)['bytes_per_epoch']:,}</td>" in html for line in lines.splitlines())
    code, _, err = run(capsys, tmp_path / "volumes.jsonl", "-k", 3)
    assert code == 2 and "k = 3 is not in the study; expected one of 2, 4, 8" in err


@pytest.mark.parametrize("name, text, said", [
    ("config.toml", None, "has no config.toml"),
    ("config.toml", "a = ", "config.toml: cannot be read"),
    ("metrics.jsonl", '{"epoch": 4}\n', "metrics.jsonl:1: lacks loss, epoch_s, bytes_sent"),
    ("metrics.jsonl", json.dumps(EPOCHS[0]) + "\n{\n", "metrics.jsonl:2: cannot be read"),
    ("metrics.jsonl", "", "metrics.jsonl: is empty"),
    ("summary.json", '{"a": 1}', "summary.json: lacks ranks, metric, test"),
    ("summary.json", "{}", "summary.json: lacks ranks, metric, test"),
    ("summary.json", "[]", "summary.json: contains list"),
    ("env.json", "[1]", "env.json: contains list"),
])  # fmt: skip
def test_an_invalid_file_of_a_run_is_named(folder, tmp_path, capsys, name, text, said):
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    for argv in ([folder], [write_run(tmp_path / "other"), folder]):
        code, out, err = run(capsys, *argv)
        assert (code, out, err.count("\n")) == (3, "", 1) and said in err
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("argv, code, said", [
    (["nowhere"], 3, "no such file or folder"), (["run", "nowhere"], 3, "no such file or folder"), ([], 2, "RUN"),
    (["run", "run"], 2, "is given twice"), (["run", "-k", "4"], 2, "applies to studies"),
    (["run", "--out", "run/config.toml"], 2, "is an input of the report"), (["run", "--out", "run"], 2, "is a folder"),
    (["run", "other", "--out", "other/metrics.jsonl"], 2, "is an input of the report"),
    (["lines.jsonl", "--out", "lines.jsonl"], 2, "is an input of the report"),
    (["run", "--out", "pipe"], 2, "is no regular file"), (["run", "--out", "lines.jsonl/x.html"], 4, "lines.jsonl: cannot be made"),
    (["run", "--pictures", "run/env.json"], 4, "env.json: cannot be made"),
])  # fmt: skip
def test_what_cannot_be_reported_is_refused_before_anything_is_written(tmp_path, capsys, monkeypatch, argv, code, said):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run"), write_run(tmp_path / "other"), os.mkfifo("pipe")
    assert cli.main(["measure", "path:n=9", "-k", "2", "--method", "block", "--json"]) == 0
    (tmp_path / "lines.jsonl").write_text(capsys.readouterr().out)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    found, out, err = run(capsys, *argv)
    assert (found, out) == (code, "") and said in err
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_other_values_of_a_run_are_named_with_file_and_line(folder, capsys):
    for name, value in (("loss", "x"), ("epoch", None), ("epoch_s", None), ("bytes_sent", [1]), ("val", "x")):
        lines = [json.dumps(EPOCHS[0]), json.dumps(EPOCHS[1] | {name: value})]
        (folder / "metrics.jsonl").write_text("\n".join(lines))
        code, out, err = run(capsys, folder)
        assert (code, out) == (3, "") and f"metrics.jsonl:2: {name} is {value!r}; expected a" in err
    (folder / "metrics.jsonl").write_text(json.dumps(EPOCHS[0]))
    for name, value in (
        ("epoch_s", "x"),
        ("ranks", "2"),
        ("test", "x"),
        ("best_epoch", 1.5),
        ("peak_rss_mb", None),
        ("per_class", [{"class": 0}, {}]),
        ("classes", [1, 2]),
    ):
        (folder / "summary.json").write_text(json.dumps(SUMMARY | {name: value}))
        code, out, err = run(capsys, folder)
        assert (code, out) == (3, "") and f"summary.json: {name} is {value!r}; expected a" in err
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    for name, value in (("explanation", {}), ("sent_PP", [[1], [2]]), ("confusion_CC", [[-1]])):
        (folder / "details.json").write_text(json.dumps(DETAILS | {name: value}))
        code, out, err = run(capsys, folder)
        assert (code, out) == (3, "") and f"details.json: {name} is {value!r}; expected " in err


def test_other_values_of_a_line_are_named_with_file_and_line(tmp_path, capsys):
    assert cli.main(["measure", "sbm:n=90", "-k", "2", "--method", "block", "--json"]) == 0
    line, path = json.loads(capsys.readouterr().out), tmp_path / "lines.jsonl"
    for name, value, wanted in (
        ("k", "<script>", "a whole number above 0"),
        ("k", 0, "a whole number above 0"),
        ("method", 3, "a name"),
        ("method", "a\nb", "a name"),
        ("seconds", [1], "a number"),
        ("mean_send_rows", None, "a number"),
        ("seconds", float("nan"), "a number"),
        ("messages", 0.5, "a whole number"),
        ("messages", -1, "a whole number"),
        ("messages", True, "a whole number"),
        ("scheme", "rows", "one of cover"),
        ("layers", 5, "a list of layers"),
        ("layers", [{"f_in": "x"}], "a list of layers"),
        ("width", 0, "a whole number above 0"),
        ("label_entropy", "x", "a number or null"),
        ("made", [1], "an object"),
        ("rows_PP", [[1], [2]], "rows of as many whole numbers"),
        ("rows_PP", [["x"]], "rows of as many whole numbers"),
    ):
        path.write_text(json.dumps(line) + "\n" + json.dumps(line | {name: value}) + "\n")
        code, out, err = run(capsys, path)
        assert (code, out) == (3, "") and f"lines.jsonl:2: {name} is {value!r}; expected {wanted}" in err
    for text, said in (("[" * 100_000, ":1: cannot be read"), ("[1]", ":1: contains list"), ("", ": is empty")):
        path.write_text(text)
        code, out, err = run(capsys, path)
        assert (code, out) == (3, "") and f"lines.jsonl{said}" in err
