"""What is written is what a person or a script can read."""

import fcntl
import io
import json
import os
import pty
import struct
import sys
import termios

import numpy as np
import pytest

from spgnn import cli
from spgnn.cli import console
from spgnn.cli.console import (
    ProgressBar,
    bytes_text,
    fields_table,
    in_one_unit,
    rows_table,
    value_text,
    write_json,
    write_table,
)
from spgnn.training.epoch_lines import EpochLines


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Make stdout a terminal of so many columns, without colours."""

    def of_columns(columns):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns)), monkeypatch.setenv("NO_COLOR", "1")

    return of_columns


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test moves by hand."""
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_json_is_one_line_with_numpy_numbers_and_null_for_what_is_not_finite(capsys):
    write_json(
        {
            "n": np.int64(3),
            "x": np.float32(0.5),
            "bad": float("nan"),
            "rows": np.eye(2, dtype=int),
            "more": [np.inf],
            "ok": True,
        }
    )
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line) == {"n": 3, "x": 0.5, "bad": None, "rows": [[1, 0], [0, 1]], "more": [None], "ok": True}


@pytest.mark.parametrize(
    "value, text",
    [(117659, "117,659"), (0.73124, "0.7312"), (True, "yes"), (None, "none"), ("", "none"), (np.int32(1000), "1,000"),
     ({"a": 1}, "a 1"), ([1, 2], "1, 2"), ([], "none"), (123456.7, "123,457")],
)  # fmt: skip
def test_a_value_is_written_for_a_person(value, text):
    assert value_text(value) == text


@pytest.mark.parametrize("count, text", [
    (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (3_420_000, "3.42 MB"), (5e9, "5 GB"), (7e12, "7 TB"),
    (2e15, "2e+03 TB"),
])  # fmt: skip
def test_bytes_have_their_unit(count, text):
    assert bytes_text(count) == text


def test_a_table_of_rows_aligns_words_left_and_numbers_right():
    rows = [{"k": 4, "method": "metis", "rows": 1234567}, {"k": 16, "method": "block", "rows": 8}]
    assert rows_table(rows, {"k": "k", "method": "method", "rows": "rows sent"}).splitlines() == [
        " k  method  rows sent",
        " 4  metis   1,234,567",
        "16  block           8",
    ]


WIDE = {key: f"column {key}" for key in "abcdefghi"}  # 8 characters and 2 spaces each: 88 columns


@pytest.mark.parametrize("room, omit, heads, more", [
    (88, "ih", ["abcdefghi"], ""), (87, "ih", ["abcdefgh"], "1 more column: COLUMNS=88 "),
    (77, "ihg", ["abcdefg"], "2 more columns: COLUMNS=88 "),
    (60, "hi", ["abcdef", "ag"], "2 more columns: COLUMNS=88 "),
    (20, "", ["ab", "ac", "ad", "ae", "af", "ag", "ah", "ai"], ""),
])  # fmt: skip
def test_a_table_leaves_out_columns_or_is_stacked_where_the_terminal_is_narrow(
    room, omit, heads, more, terminal, capsys
):
    terminal(room)
    write_table([dict.fromkeys(WIDE, "x"), dict.fromkeys(WIDE, 1.0)], WIDE, omit)
    out, err = capsys.readouterr()
    blocks = [block.splitlines() for block in out.strip("\n").split("\n\n")]
    assert [block[0].split("  ") for block in blocks] == [[WIDE[key] for key in names] for names in heads]
    assert all(len(block) == 3 for block in blocks)
    assert err.removeprefix("spgnn: ").startswith(more) and bool(err) == bool(more)


def test_bytes_of_a_column_have_the_unit_of_the_largest_in_its_heading():
    for sizes, heading, texts in (
        ([12_345_678, 999, None], "MB/epoch", ["12.35", "0.00", ""]),
        ([999, 0], "B/epoch", ["999", "0"]),
        ([2.5e15], "TB/epoch", ["2,500"]),
        ([], "B/epoch", []),
    ):
        rows = [{"sent": size} for size in sizes]
        assert (in_one_unit(rows, "sent", "epoch"), [row["sent"] for row in rows]) == (heading, texts)


@pytest.mark.parametrize("argv", [
    ["measure", "-k", "4,16", "--replication", "1,2"],
    ["measure", "-k", "4"],
    ["measure", "-k", "4", "--replication", "1,2", "--simulate"],
    ["plan", "--ranks", "2,4"],
    ["plan", "--ranks", "2", "--memory", "0.001"],
    ["partition", "-k", "4"],
    ["info"],
])  # fmt: skip
def test_results_fit_the_columns_of_the_terminal_and_a_wide_one_shows_more(argv, terminal, capsys):
    command, *options = argv
    shown = {}
    for columns in (80, 200):
        terminal(columns)
        cli.main([command, "sbm:n=3000", *options, *(["--method", "block"] if command in ("measure", "plan") else [])])
        shown[columns] = capsys.readouterr().out
        assert shown[columns] and not [line for line in shown[columns].splitlines() if len(line) > columns]
    assert len(shown[80].split()) <= len(shown[200].split())


@pytest.mark.parametrize(
    "name, value, is_coloured", [("NO_COLOR", "", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)]
)
def test_colour_is_on_a_terminal_alone_and_not_with_no_color(name, value, is_coloured, monkeypatch, capsys):
    rows, columns = [{"mark": "*", "s": 1}, {"mark": " ", "s": 2}], {"mark": "", "s": "s"}
    write_table(rows, columns, colour=lambda row: {"*": "green"}.get(row["mark"], ""))
    assert capsys.readouterr().out == "   s\n*  1\n   2\n"
    monkeypatch.setenv("TERM", "xterm"), monkeypatch.setenv(name, value)
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    write_table(rows, columns, colour=lambda row: {"*": "green"}.get(row["mark"], ""))
    coloured = "\x1b[1m   s\x1b[0m\n\x1b[32m*  1\x1b[0m\n   2\n"
    assert stream.getvalue() == (coloured if is_coloured else "   s\n*  1\n   2\n")


def test_a_long_value_wraps_below_itself_on_a_terminal(terminal):
    assert len(fields_table("star " * 20, {"n": "word " * 30}).splitlines()) == 2
    terminal(80)
    text = fields_table("star " * 20, {"n": "word " * 30})
    assert max(map(len, text.splitlines())) <= 80 and "\n         word" in text and "\n  star" in text


def test_progress_is_a_line_every_few_seconds_where_there_is_no_terminal(clock, capsys):
    with ProgressBar("reading a") as progress:
        for clock[0] in np.arange(0, 10, 0.5):
            progress(int(clock[0] * 1e6), 10_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "spgnn: reading a: 30 %, 3 MB of 10 MB"
    assert len(err.splitlines()) == 3


def record(epoch, **scores):
    return {"epoch": epoch, "loss": 1 / epoch, "epoch_s": 0.25, "train": None, "val": None, "test": None} | scores


def test_the_first_and_the_last_epoch_are_shown_and_one_every_few_seconds(clock, capsys):
    lines = EpochLines(100)
    for epoch in range(1, 101):
        clock[0] += 0.1
        lines(record(epoch, train=0.5, val=0.4, test=0.3))
    lines.end()
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "spgnn: epoch   1 of 100  loss 1.0000  train 0.5000  val 0.4000  test 0.3000  0.250 s/epoch"
    assert shown[-1].startswith("spgnn: epoch 100 of 100")
    assert 3 < len(shown) < 7


def drawn_on_a_terminal(monkeypatch, columns, draw) -> list[str]:
    """The lines that draw() writes to a terminal of so many columns, each over the one before."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("COLUMNS", "200")  # what a shell once had
        draw()
        print("end", file=stream, flush=True)
        text = ""
        while not text.endswith("end\r\n"):
            text += os.read(ours, 1 << 16).decode()
    os.close(ours)
    return text.removesuffix("end\r\n").split("\r\x1b[K")


def test_a_message_wraps_between_words_on_a_terminal_alone(monkeypatch, capsys):
    text = "error: " + "word " * 30 + "/a/path/that/is/long/and-stays-whole" * 3 + "\n  rank 1; phase: load"
    console.write_error(f"spgnn: {text}")
    assert capsys.readouterr().err == f"spgnn: {text}\n"
    item = "error: x\n  item" + " word" * 20
    assert "".join(drawn_on_a_terminal(monkeypatch, 60, lambda: console.say(item))).count("\n    word") == 1
    first, *more = "".join(drawn_on_a_terminal(monkeypatch, 60, lambda: console.say(text))).splitlines()
    assert (
        len(first) < 60 + len("\x1b[31;1m\x1b[0m")
        and first.startswith("spgnn: \x1b[31;1merror:\x1b[0m word")
        and more[-1] == "  rank 1; phase: load"
    )
    assert all(line.startswith("  ") for line in more) and f"  {text.split()[31]}" in more


@pytest.mark.parametrize("columns", [80, 40, 20])
def test_the_line_of_an_epoch_fits_the_terminal(clock, monkeypatch, columns):
    def draw():
        lines = EpochLines(1000)
        for epoch in (1, 1000):
            clock[0] += 1.0
            lines(record(epoch, loss=12.3456, train=0.5, val=0.4, test=0.3))
        lines.end()

    start, first, last = drawn_on_a_terminal(monkeypatch, columns, draw)
    assert start == "" and last.endswith("\r\n") and "\n" not in first
    for line in (first, last):
        assert len(line.rstrip()) < columns
        assert line.startswith("epoch") and ("loss 12.3456" in line) == (columns >= 40)
        assert ("val 0.4000  test 0.3000" in line) == (columns == 80) and "train" not in line


@pytest.mark.parametrize("columns", [80, 40, 20])
def test_a_bar_fits_the_terminal_and_shows_the_end_of_a_path(clock, monkeypatch, columns):
    def draw():
        with ProgressBar("reading /a/very/long/path/to/some/folder/with/graphs/of/all/kinds/edges.txt") as progress:
            clock[0] += 1.0
            progress(5_000_000, 10_000_000)

    start, drawn, end = drawn_on_a_terminal(monkeypatch, columns, draw)
    assert (start, end) == ("", "") and len(drawn) < columns
    assert " 50 %" in drawn and ("edges.txt" in drawn) == (columns >= 40)


def test_a_message_takes_the_place_of_an_open_line_and_the_last_epoch_ends_its_own(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr := Terminal())
    lines = EpochLines(2)
    for epoch in (1, 2):
        lines._next_s = 0
        lines(record(epoch))
        console.say(f"after {epoch}")
    shown = [line.rpartition("\x1b[K")[2] for line in stderr.getvalue().split("\n")]
    assert shown[0] == "spgnn: after 1" and shown[1].startswith("epoch 2 of 2") and shown[2] == "spgnn: after 2"
