"""The recipes of CONTRIBUTING print what is shown below them."""

import re
import shlex
from pathlib import Path

import pytest
from worlds import launch

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = {
    name: re.search(r"```python\n(.*?)```\n```\n(.*?)```", PAGE.split(f"## Add a {name}\n")[1].split("\n## ")[0], re.S)
    for name in ("layer", "family", "decoder", "sampler", "partitioner", "format")
}
pytestmark = pytest.mark.slow


def printed_by(python: str, script: Path, folder: Path) -> str:
    """Run a script in a folder and return its output."""
    done = launch(0, [python, script], limit_s=120, cwd=folder)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_is_shown(name, python, tmp_path):
    source, shown = RECIPES[name].groups()
    (tmp_path / "mine.py").write_text(source)
    if not shown.startswith("$ "):
        assert printed_by(python, tmp_path / "mine.py", tmp_path) == shown
        return
    for command, _, output in (part.partition("\n") for part in re.split(r"^\$ ", shown, flags=re.M)[1:]):
        line = re.sub(r"^python", shlex.quote(python), command)
        done = launch(0, ["bash", "-o", "pipefail", "-c", line], limit_s=120, cwd=tmp_path)
        assert (done.code, done.out) == (0, output), done.err


@pytest.mark.parametrize("recipe, file", [
    ("an operator", "torch_operator.py"),
    pytest.param("a communicator", "dist/pipe_communicator.py", marks=pytest.mark.full),
])  # fmt: skip
def test_a_file_to_copy_prints_what_is_shown(recipe, file, python, tmp_path):
    shown = PAGE.split(f"## Add {recipe}\n")[1].split("```\n")[1]
    assert printed_by(python, ROOT / "tests" / file, tmp_path) == shown
