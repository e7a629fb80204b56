"""Docs, README and scripts of runs/: all run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from attack import ROOT, folder

QUICK, FULL = 0, 1  # times; the tests of the suite that run them are not repeated by --quick
planted: list[str] = []
TESTS = "docs commands readme readme_recipes recipes tutorial scripts runs runs_launch look_at_a_run".split()


def attack(seed: int, amount: int):
    """Run the tests that run pages and scripts; return how many passed, and those that failed."""
    with folder() as home:
        root, files = ROOT, [*(f"tests/test_{name}.py" for name in TESTS), "tests/first_hour"]
        if planted:
            root, files = mistaken(home / "spgnn"), ["tests/test_commands.py"]
        python = os.environ.get("TRUST_COLD", sys.executable)  # one that has loaded nothing
        words = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not trust",
            "--basetemp",
            home / "tmp",
            *files,
        ]
        env = os.environ | {"PYTHONPATH": str(root)}
        done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode and not failures:
        failures = [f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"]
    return {"pages and scripts": last.strip("= ")}, failures


def mistaken(copy: Path) -> Path:
    """Write a copy of the program whose README has a command with a mistake; return it."""
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "out", "__pycache__"))
    readme = (copy / "README.md").read_text()
    (copy / "README.md").write_text(readme.replace("spgnn train", "spgnn tran"))
    return copy


def plant() -> None:
    """A command of the README has a mistake."""
    planted.append("README.md")
