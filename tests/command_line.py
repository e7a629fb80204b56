"""A command line of spgnn in this process, and code in a Python of its own."""

import os
import subprocess
import sys
from pathlib import Path

from spgnn import cli

ROOT = Path(__file__).resolve().parents[1]


def run(capsys, *argv) -> tuple[int, str, str]:
    """Return (exit code, stdout, stderr) of one command line."""
    code = cli.main([str(word) for word in argv])
    return code, *capsys.readouterr()


def in_python(code: str, *words, **env) -> subprocess.CompletedProcess:
    """Run code in a Python of its own, which finds spgnn."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | env
    argv = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
