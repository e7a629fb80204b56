"""README: its code prints what it shows, its commands run, and it stays short; so does CHANGES."""

import os
import re
import shlex
from pathlib import Path

import pytest
from pairs import full_beyond
from worlds import launch

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
CONSOLE = re.findall(r"```\n(\$ .*?)```", README, re.S)
NUMBER = re.compile(r"-?[\d,]*\.?\d+(?:[eE][-+]?\d+)?")
QUICKSTART = "./runs/quickstart"


def commands() -> dict[str, str]:
    """Return each command line of the README, without its comment -> what is shown below it."""
    pairs = [shown.partition("\n") for block in CONSOLE for shown in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return {line.partition("#")[0].strip(): output for line, _, output in pairs}


def is_same(shown: str, printed: str, rel=0.01, abs=1e-12, most=float("inf")) -> bool:
    """Whether two outputs are equal but for fractions that differ by at most 1 %, accuracies on other processors, or are above most."""
    if NUMBER.split(shown) != NUMBER.split(printed):
        return False
    pairs = [(a.replace(",", ""), b.replace(",", "")) for a, b in zip(NUMBER.findall(shown), NUMBER.findall(printed))]
    is_near = lambda a, b: float(a) > most or float(a) == pytest.approx(float(b), rel=rel, abs=abs)
    return all(a == b or ("." in a and is_near(a, b)) for a, b in pairs)


def run(line: str, python: str, folder: Path) -> str:
    """Run a command line with a Python in a folder and return what it printed."""
    argv = shlex.split(line)
    n = int(argv[2]) if argv[0] == "mpirun" else 0
    argv = argv[3:] if n else argv
    argv = {"spgnn": [python, "-m", "spgnn"], "python": [python]}[argv[0]] + argv[1:]
    done = launch(n, argv, limit_s=120, cwd=folder)
    assert done.code == 0, done.err
    return done.out


def test_the_readme_has_at_most_100_lines_of_120_columns():
    lines = README.splitlines()
    assert len(lines) <= 100 and max(map(len, lines)) <= 120


def test_cells_of_its_tables_have_at_most_40_characters():
    rows = [line.strip("|").split("|") for line in README.splitlines() if line.startswith("|")]
    cells = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", cell).strip() for row in rows for cell in row]
    assert len(rows) == 19 and not [cell for cell in cells if len(cell) > 40]


def test_entries_of_changes_are_single_lines_under_known_headings():
    lines = [line for line in (ROOT / "CHANGES.md").read_text(encoding="utf-8").splitlines() if line]
    headings = {line for line in lines if line.startswith("### ")}
    assert headings <= {"### Added", "### Changed", "### Removed", "### Fixed"}
    assert not [line for line in lines if not line.startswith(("- ", "#")) or len(line) > 120]


def test_the_six_files_to_start_with_are_there():
    files = re.findall(r"\]\((spgnn/[\w/]+\.py)\)", README)
    assert len(files) == 6 and all((ROOT / name).is_file() for name in files)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("line", full_beyond(1, [line for line in commands() if "demo.py" in line]))
def test_the_script_prints_what_is_shown(line, python, tmp_path):
    (tmp_path / "demo.py").write_text(PYTHON[0])
    printed = run(line, python, tmp_path)
    assert is_same(commands()[line], printed), printed


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("line", [line for line in commands() if " spgnn " in f" {line}"])
def test_the_command_runs_and_prints_the_lines_of_the_quickstart(line, python, tmp_path):
    printed = run(line, python, tmp_path)
    assert os.listdir(tmp_path) == [shlex.split(line)[-1]]
    shown = commands()[QUICKSTART].splitlines()
    assert {NUMBER.sub("0", row) for row in shown} <= {NUMBER.sub("0", row) for row in printed.splitlines()}
    assert {row for row in shown if "bytes" in row} <= set(printed.splitlines())


@pytest.mark.slow
def test_the_custom_layer_trains_the_same_on_any_ranks():
    names = {}
    exec("import spgnn\nfrom spgnn.layers import GCN, Stack\n" + PYTHON[1], names)
    spgnn, GCN = names["spgnn"], names["GCN"]

    def body(comm):
        dgraph = spgnn.distribute(spgnn.load_graph("sbm:n=300,seed=0"), comm, method="random")
        model = names["Stack"](GCN(16, 8, act="relu"), names["Residual"](8), GCN(8, 4))
        return spgnn.train(model, dgraph, epochs=5).records[-1]["loss"]

    alone = spgnn.run_threads(1, body)[0]
    assert spgnn.run_threads(3, body) == pytest.approx([alone] * 3, rel=1e-5)
