"""The first hour of a user: 60 commands and 30 snippets of Python, each by its exit code and the words that it prints.

commands.txt has an exit code and a command a line, variables before it; below it, indented, what is printed, or with ! what
is not. snippets.txt has snippets apart by lines `--- what it prints`. Both work in a folder with the tables of make_tables.
"""

import contextlib
import io
import shlex
from pathlib import Path

import numpy as np
import pytest

from spgnn import cli

HERE = Path(__file__).parent


def make_tables() -> None:
    """Write tables of 60 people of three teams, who write to their own, in many forms."""
    rng = np.random.default_rng(0)
    names, team = (
        [f"{b}, {a}" for a in "Ada Ben Cleo Dan Eva Finn".split() for b in "abcdefghij"],
        rng.integers(3, size=60),
    )
    pairs = [
        (a, b) for a, b in rng.integers(60, size=(900, 2)) if a != b and (team[a] == team[b] or rng.random() < 0.1)
    ]
    mails = [f'"{names[a]}","{names[b]}",{1 + (a + b) % 5},2026-01-02' for a, b in pairs]
    Path("mails.csv").write_text("\n".join(["from,to,mails,last", *mails, ""]))
    teams = ["art", "law", "sale"]
    rows = [f'"{names[i]}",{20 + i},{team[i]}.5,desk {i % 4},{teams[team[i]] if i % 9 else ""}' for i in range(60)]
    Path("people.csv").write_text("\n".join(["name,age,years,desk,team", *rows, ""]))
    roles = [f'"{names[i]}",{["train", "train", "val", "test"][i % 4]}' for i in range(60)]
    Path("roles.csv").write_text("\n".join(["name,split", *roles, ""]))
    Path("holes.csv").write_text("\n".join(["name,age", *(f'"{name}",{i or ""}' for i, name in enumerate(names)), ""]))
    Path("plain.txt").write_text("".join(f"{a} {b}\n" for a, b in pairs))
    Path("tabs.tsv").write_text("".join(f"{a}\t{b}\t{a + b}\n" for a, b in pairs))
    Path("semi.csv").write_text("a;b;w\n" + "".join(f"{a}.0;{b}.0;1.5\n" for a, b in pairs))
    Path("gaps.csv").write_text("src,dst\n" + "".join(f"{a * 1000 + 7},{b * 1000 + 7}\n" for a, b in pairs))
    Path("one.txt").write_text("".join(f"{a + 1} {b + 1}\n" for a, b in pairs))
    Path("web.gml").write_text("graph [\n  node [ id 1 ]\n]\n")
    Path("web.graphml").write_text('<?xml version="1.0"?>\n<graphml></graphml>\n')
    Path("empty.csv").write_text("")
    Path("broken.txt").write_text("0 1\n1 x\n")
    np.save("X.npy", rng.random((60, 4), np.float32)), np.save("y.npy", team), np.save("short.npy", team[:50])


def spoken(line: str) -> tuple[int, str]:
    """Return the exit code of a command line, and what it printed on both streams."""
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words[: words.index("spgnn")])
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(out),
        pytest.MonkeyPatch.context() as env,
    ):
        for name, value in variables.items():
            env.setenv(name, value)
        code = cli.main(words[words.index("spgnn") + 1 :])
    return code, out.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_tables()


@pytest.mark.slow
def test_commands_end_and_print_as_they_should(folder):
    blocks = (HERE / "commands.txt").read_text(encoding="utf-8").split("\n\n")
    faults = []
    for block in [block for block in blocks if block[:1].isdigit()]:
        line, *expected = block.strip().split("\n")
        code, text = spoken(line[2:])
        is_right = [
            (word.strip()[1:] not in text) if word.strip()[0] == "!" else word.strip() in text for word in expected
        ]
        faults += [] if code == int(line[0]) and all(is_right) else [f"{line}: {code} {is_right}\n{text[-1500:]}"]
    assert len(blocks) >= 60 and not faults, "\n".join(faults)


@pytest.mark.slow
def test_snippets_print_as_they_should(folder):
    snippets = (HERE / "snippets.txt").read_text(encoding="utf-8").split("\n--- ")
    faults, names = [], {}
    for number, snippet in enumerate(snippets[1:]):
        expected, _, source = snippet.partition("\n")
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            try:
                exec(source, names)
            except Exception as error:  # its message is expected
                print(f"{type(error).__name__}: {error}")
        faults += [] if expected in out.getvalue() else [f"{number}: {source}\n{out.getvalue()}\nexpected: {expected}"]
    assert len(snippets) > 30 and not faults, "\n".join(faults)
