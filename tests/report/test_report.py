"""spgnn report: a run and several runs become a page, whole and valid whatever names are in it; invalid files are named."""

import base64
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import run as command

from spgnn.config import TrainConfig, to_toml
from spgnn.errors import ResourceError
from spgnn.report.figures import draw, draw_cost, draw_learning
from spgnn.report.page import Page, runs_page
from spgnn.report.runs import Run, differing_options, read_run, read_runs

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
    return command(capsys, "report", *argv)


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
        "<dt>bytes_predicted</dt><dd>1,234</dd>",
        "<td>0.250</td>",
        "<dd>0.2.0</dd>",
        '<td>5</td><td>2</td><td class="text">A (H W)</td><td>600</td><td>634</td>',
        "Scheme: cover: as asked.",
        ">1</td></tr>",
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
def test_the_backend_that_a_notebook_names_is_not_needed(folder):
    env = os.environ | {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run([sys.executable, "-m", "spgnn", "report", folder], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_where_nothing_is_sent_there_is_no_picture_of_it(folder, capsys):
    pytest.importorskip("matplotlib")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch | {"bytes_sent": 0}) + "\n" for epoch in EPOCHS))
    (folder / "summary.json").write_text(json.dumps(SUMMARY | {"bytes_sent": 0, "bytes_predicted": 0}))
    (folder / "details.json").write_text(json.dumps(DETAILS | {"sent_PP": [[0]]}))
    assert [axis.get_title() for axis in draw_cost(read_runs([folder])).axes] == ["time per epoch; median 20 ms"]
    assert run(capsys, folder)[0] == 0
    html = (folder / "report.html").read_text()
    assert "Bytes between ranks" not in html and "dashed" not in html and "<dt>bytes_sent</dt><dd>0</dd>" in html


@pytest.mark.slow
def test_curves_are_those_of_the_epochs(folder, runs):
    pytest.importorskip("matplotlib")
    (folder / "summary.json").write_text(json.dumps(SUMMARY | {"best_epoch": 3}))
    loss, scores = draw_learning({"run": read_run(folder)}).axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), [(1, 2), (2, 1), (3, 2 / 3)])
    lines = {line.get_label(): line.get_xydata().tolist() for line in scores.lines}
    assert lines["val 0.7000"] == lines["test 0.7000"] == [[1, 0.5], [3, 0.7]] and scores.get_title() == "accuracy"
    assert scores.collections[0].get_offsets().tolist() == [[3, 0.7]]  # the stored weights
    seconds, sent = draw_cost({"run": read_run(folder)}).axes
    assert seconds.lines[0].get_ydata().tolist() == [0.01, 0.02, 0.03]
    counted, predicted = (line.get_ydata() for line in sent.lines)
    assert counted.tolist() == [1234] * 3 and predicted[0] == 1234
    for drawn in (draw_learning, draw_cost):
        figure = drawn(found := read_runs(runs))
        assert [text.get_text() for text in figure.legends[0].get_texts()] == list(found)
        for axis in figure.axes:
            colours = [line.get_color() for line in axis.lines if line.get_linestyle() == "-"]
            assert (
                len(colours) == len(set(colours)) == 3 and (axis.get_xticks() % 1 == 0).all()
            )  # epochs are whole numbers


def test_several_runs_are_a_table_with_a_row_each_and_the_options_that_differ(runs, capsys):
    code, out, _ = run(capsys, *runs)
    assert code == 0 and not (runs[0] / "report.html").exists()
    results, options = out.strip().split("\n\n")
    assert [line.split("  ")[0] for line in results.splitlines()] == ["run", "a/run", "b/run", "third (not ended)"]
    assert options.split("\n")[0].split()[3:] == ["hidden", "dropout", "lr"]
    assert [line.split()[-1] for line in options.splitlines()[1:]] == ["0.01", "0.5", "0.01"]
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
    (["nowhere"], 3, "no such folder"), (["run", "nowhere"], 3, "no such folder"), ([], 2, "RUN"),
    (["run", "run"], 2, "is given twice"), (["lines.jsonl"], 3, "is a file; expected the --out folder of `spgnn train`"),
    (["run", "--out", "run/config.toml"], 2, "is an input of the report"), (["run", "--out", "run"], 2, "is a folder"),
    (["run", "other", "--out", "other/metrics.jsonl"], 2, "is an input of the report"),
    (["run", "--out", "pipe"], 2, "is no regular file"), (["run", "--out", "lines.jsonl/x.html"], 4, "lines.jsonl: cannot be made"),
    (["run", "--pictures", "run/env.json"], 4, "env.json: cannot be made"),
])  # fmt: skip
def test_what_cannot_be_reported_is_refused_before_anything_is_written(tmp_path, capsys, monkeypatch, argv, code, said):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run"), write_run(tmp_path / "other"), os.mkfifo("pipe")
    (tmp_path / "lines.jsonl").write_text("{}")
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
        ("per_class", [{"class": 0}, 1]),
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


VOID = {"meta", "link", "img"}


class Checker(HTMLParser):
    """Counts elements, and notes what is open at the wrong end, or refers to anything."""

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.images = [], [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.open += [] if tag in VOID else [tag]
        self.images += [values["src"]] if tag == "img" else []
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            if not values.get(name, "data:").startswith("data:"):
                self.faults.append(f"<{tag} {name}={values[name][:40]}>")
        if tag in ("script", "iframe", "object", "embed", "base", "form") or any(n.startswith("on") for n in values):
            self.faults.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.faults and not checker.open
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]*", "", html)
    assert not re.search(r"https?:|//|@import|url\(|javascript:", without_pictures)
    return checker


def run_of(graph: str, **values) -> Run:
    """A training that has not ended, of 30 epochs."""
    records = [
        {"epoch": e, "loss": 9 / e, "val": e / 30, "epoch_s": 0.1, "bytes_sent": 5} | values for e in range(1, 31)
    ]
    return Run("folder", {"graph": graph}, {}, records, {}, {})


HOSTILE = [r"a$\foo$b", "\x1b[2J\n", "_a", "<b>&", "\udcff", "g" * 250, "\u202egnp"]


@pytest.mark.slow
def test_the_figures_of_hostile_names_are_inside_the_page_valid_and_repeat_to_the_byte():
    pytest.importorskip("matplotlib")
    runs = {name: run_of(name) for name in HOSTILE}
    figures = draw(runs)
    assert figures == draw(runs) and list(figures) == ["learning.png", "learning.svg", "cost.png", "cost.svg"]
    html = runs_page(runs, figures).html()
    for image, name in zip(checked(html).images, ("learning.svg", "cost.svg"), strict=True):
        kind, _, data = image.partition(",")
        content = base64.b64decode(data, validate=True)
        assert kind == "data:image/svg+xml;base64" and content == figures[name]
        assert 600 < float(ElementTree.fromstring(content).get("width")[:-2]) < 900  # points
    assert "default-src 'none'" in html and "color-scheme: light dark" in html and "<b>" not in html


def test_text_of_others_is_escaped():
    page = Page("<script>alert(1)</script>", '"><img src=x>')
    page.section("a & b", "1 < 2")
    page.properties({"<b>": "<i>"})
    page.table([{"x": "<u>", "y": None}], {"x": "<s>", "y": "y"})
    page.shaded(np.ones((2, 2)), ["<b>", "<i>"], 1, str)
    page.figure(b"<svg>", '"><script>')
    checked(page.html())
    assert not re.search("<(script|u|b|i|s)>", page.html())


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ResourceError, match=r"pip install 'spgnn\[plot\]'"):
        draw({"a": run_of("g")})
