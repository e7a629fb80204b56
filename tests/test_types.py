"""The package has types without an error, and a user's script has them in the strict mode of a checker."""

import ast
import re
import shutil
import subprocess
import sys

import pytest
from measures import PACKAGE, ROOT

import spgnn
import spgnn.layers
import spgnn.spmm

SCRIPT = ROOT / "tests/typed_user_script.py"


def errors_of(*args) -> list[str]:
    """The errors that pyrefly finds in files and folders."""
    if (pyrefly := shutil.which("pyrefly")) is None:
        pytest.skip("pyrefly is not installed: pip install 'spgnn[dev]'")
    options = ("--python-interpreter-path", sys.executable, "--output-format", "min-text")
    command = [pyrefly, "check", *options, *map(str, args)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", run.stdout + run.stderr).splitlines()
    assert any("errors" in line or "error" in line for line in lines), lines
    return [line for line in lines if line.strip().startswith("ERROR")]


def test_the_package_has_types_without_an_error():
    assert not errors_of("--preset", "default", PACKAGE)


def test_a_script_of_a_user_passes_the_strict_mode():
    assert not errors_of("--preset", "strict", SCRIPT)


def test_the_typed_script_of_a_user_runs():
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=300)
    assert re.fullmatch(r"loss \d\.\d{4}, \d+ nodes in a subgraph\n", run.stdout), run.stdout + run.stderr


@pytest.mark.parametrize("package", [spgnn, spgnn.layers, spgnn.spmm])
def test_a_type_checker_finds_the_names_that_are_imported_late(package):
    """`from spgnn import train` is resolved by __getattr__, which no checker follows."""
    tree = ast.parse(open(package.__file__).read())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    told = {alias.asname for node in block.body for alias in node.names}
    assert told >= set(package.__all__) - {"__version__"}
    assert all(hasattr(package, name) for name in told)
