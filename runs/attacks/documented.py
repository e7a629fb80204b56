"""Docs, README and scripts of runs/: all run."""

import subprocess
import sys

from attack import ROOT

QUICK, FULL = 0, 1  # times; the tests of the suite that run them are not repeated by --quick
TESTS = "docs commands readme readme_recipes recipes tutorial scripts runs runs_launch look_at_a_run".split()


def attack(seed: int, amount: int):
    """Run the tests that run pages and scripts; return how many passed, and those that failed."""
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in TESTS]
    words = [sys.executable, "-m", "pytest", "-q", "-k", "not trust", *files, str(ROOT / "tests" / "first_hour")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    return {"pages and scripts": last.strip("= ")}, [
        line for line in done.stdout.splitlines() if line.startswith("FAILED")
    ]


def plant() -> None:
    """Nothing: a page that fails is a failed test."""
