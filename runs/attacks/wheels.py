"""The wheel, in an environment without a compiler: installs and trains."""

import shutil
import subprocess

from attack import ROOT, NotRun, folder

QUICK, FULL = 0, 1  # times; it builds everything


def attack(seed: int, amount: int):
    """Run runs/wheel, which builds a wheel and tries it; return what it said last."""
    if not shutil.which("g++"):
        raise NotRun("no C++ compiler")
    with folder() as home:
        done = subprocess.run([str(ROOT / "runs" / "wheel")], cwd=home, capture_output=True, text=True)
    said = (done.stdout.strip().splitlines() or [""])[-1]
    return {"wheel": said[:80]}, [
        f"runs/wheel ended with {done.returncode}: {done.stderr[-800:]}"
    ] if done.returncode else []


def plant() -> None:
    """Nothing: runs/wheel ends with the exit code of what it tries."""
