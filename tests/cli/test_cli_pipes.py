"""What a command writes into a pipe does not depend on COLUMNS: no line is wrapped, no column left out."""

import re
import shutil
from pathlib import Path

import pytest
from command_line import run

from spgnn import cli
from spgnn.cli.options import Sections
from spgnn.cost.machines import load_machine
from spgnn.doctor import probe

LINES = {
    "train": "train GRAPH --epochs 2 --hidden 4 --out OUT/run",
    "predict": "predict RUN --out OUT/predictions.npy",
    "report": "report RUN RUN2",
    "info": "info GRAPH",
    "check": "check GRAPH",
    "convert": "convert GRAPH OUT/copy",
    "partition": "partition GRAPH -k 2 --method block --out OUT/parts",
    "measure": "measure GRAPH -k 2,3 --method block",
    "simulated": "measure GRAPH -k 2,3 --method block --simulate",
    "plan": "plan GRAPH --ranks 1,2,3 --method block --machine ethernet-1g",
    "too large": "plan GRAPH --ranks 2 --method block --machine ethernet-1g --memory 1MB",
    "verify": "verify GRAPH --hidden 4 --ranks 2 --replication 1",
    "doctor": "doctor --calibrate OUT/here.toml --force",
} | {f"{name} absent": f"{name} ABSENT" for name in cli.COMMANDS}
LINES |= {
    "train absent": "train ABSENT --out none",
    "convert absent": "convert ABSENT OUT/copy",
    "doctor absent": "doctor --calibrate ABSENT/here.toml",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Words of LINES -> paths, which have spaces and are longer than a line of a terminal."""
    home = tmp_path_factory.mktemp("home") / " ".join(["a", "long", "name"] * 9)
    names = {name: str(home / name.lower()) for name in ("GRAPH", "RUN", "RUN2", "OUT", "ABSENT")}
    assert cli.main(["convert", "sbm:n=60,seed=0", names["GRAPH"]]) == 0
    for name, dropout in (("RUN", 0.0), ("RUN2", 0.25)):
        argv = ["train", names["GRAPH"], "--epochs", "1", "--hidden", "4", "--dropout", str(dropout)]
        assert cli.main([*argv, "--out", names[name]]) == 0
    return names


def printed(capsys, names, line) -> tuple[int, str, str]:
    """Run a line of LINES into a new folder OUT; of the lines that it prints each number, a time maybe, becomes 0."""
    shutil.rmtree(names["OUT"], ignore_errors=True), Path(names["OUT"]).mkdir()
    words = [re.sub("[A-Z]+2?", lambda word: names.get(word[0], word[0]), word) for word in line.split()]
    code, *texts = run(capsys, *words)
    lines = [
        [re.sub(r"\d[\d.,]*(e-\d+)?", "0", " ".join(line.split())) for line in text.splitlines()] for text in texts
    ]
    return code, *map("\n".join, lines)


@pytest.mark.parametrize("name", LINES)
def test_a_pipe_gets_the_same_lines_whatever_columns_says(name, names, monkeypatch, capsys):
    monkeypatch.setattr(probe, "calibrate", lambda *_, **__: (load_machine("laptop"), ["latency_s"]))
    texts = set()
    for columns in ("20", "80", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        texts.add(printed(capsys, names, LINES[name]))
    ((code, out, err),) = texts
    assert (code != 0) == (name.endswith("absent") or name == "too large"), err
    if name.endswith("absent"):
        assert out == "" and err.splitlines()[-1].startswith("spgnn: error: ") and "/absent" in err.splitlines()[-1]
    if name == "check":
        assert out.splitlines()[0].endswith("/graph is valid")


@pytest.mark.parametrize("words", [[], ["--help"], *([name, "--help"] for name in cli.COMMANDS)], ids=" ".join)
def test_help_into_a_pipe_has_80_columns_whatever_columns_says(words, monkeypatch, capsys):
    has_all = words[1:] and isinstance(command := cli.spgnn.get_command(None, words[0]), Sections) and command.first
    texts = set()
    for columns in ("20", "80", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        texts.add(run(capsys, *words, *["all"] * bool(has_all)))
    assert len(texts) == 1 and max(map(len, "".join(texts.pop()[1:]).splitlines())) in range(60, 81)
