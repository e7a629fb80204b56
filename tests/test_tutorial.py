"""The tutorial: its files are written, its commands run in one folder, in order, and print the lines that are shown."""

import os
import re
import sys
from pathlib import Path

import pytest
from test_readme import is_same
from worlds import launch, mpirun

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorial"
BLOCK = re.compile(r"^```(python)?\n(.*?)^```$", re.S | re.M)
NOT_RUN = ("./runs/quickstart", ". .venv/", "sbatch", "pip")  # they set up an environment, or need a cluster
VARIES = re.compile(
    r"-?[\d.,]+ ?(?:s|s/epoch|MB|GB|KB)(?![\w/])|load [\d.]+ of \d+ cores?|\"epoch_s\": [\d.e-]+|[\w./-]*/test_\S+"
)
MAIN = "import sys; sys.stdout.isatty = lambda: True; from spgnn.cli import main; sys.exit(main())"  # at a terminal
PROGRAMS = {
    "spgnn": f'exec "{{python}}" -c "{MAIN}" "$@"',
    "python": 'exec "{python}" "$@"',
    "mpirun": 'exec "{mpirun}" "$@"',
    "torchrun": 'exec "{torch}" -m torch.distributed.run "$@"',
    "srun": 'shift 3; exec "{mpirun}" -n 2 "$@"',  # srun -n 2 --mpi=pmi2
}


def steps(text: str) -> list[tuple[str, str]]:
    """Return the (file, text) and (command line, what is shown below it) of a page, in order."""
    found = []
    for language, body in BLOCK.findall(text):
        if language:
            found.append((re.match(r"# (\w+\.py)\n", body)[1], body))
        else:
            commands = re.split(r"^\$ ", body, flags=re.M)[1:]
            found += [re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", command, re.S).groups() for command in commands]
    return found


def is_shown(shown: str, printed: str) -> bool:
    """Whether lines are equal but for times, memory (fractions above 100 too), 5 % of fractions, and `...` at the end."""
    shown, printed = (VARIES.sub("V", " ".join(line.split())) for line in (shown, printed))
    if shown.endswith(" ...") and len(shown) > 4:
        shown = shown.removesuffix(" ...")
        printed = printed[: len(shown)]
    return is_same(shown, printed, rel=0.05, abs=0.05, most=100)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("page", [*sorted(page.name for page in FOLDER.glob("*.md")), "../tables.md"])
def test_a_page_of_the_tutorial_can_be_followed(page, tmp_path, python):
    bin, folder = tmp_path / "bin", tmp_path / "work"
    bin.mkdir(), folder.mkdir()
    for name, line in PROGRAMS.items():
        (bin / name).write_text("#!/bin/sh\n" + line.format(python=python, torch=sys.executable, mpirun=mpirun()))
        (bin / name).chmod(0o755)
    env = {"PATH": f"{bin}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1", "SCALE": "10"}
    for name, body in steps((FOLDER / page).read_text(encoding="utf-8")):
        if name.endswith(".py") and body.startswith("# "):
            (folder / name).write_text(body)
        elif not name.startswith(NOT_RUN):
            done = launch(0, ["bash", "-c", name], limit_s=120, cwd=folder, env=env)
            assert bool(done.code) == ("error:" in body), f"{name}: {done.code}\n{done.out}{done.err}"
            printed = (done.out + done.err).splitlines()
            missing = [line for line in body.splitlines() if not any(is_shown(line, other) for other in printed)]
            assert not [line for line in missing if line.strip() not in ("", "...")], f"{name}: {missing}\n{printed}"
