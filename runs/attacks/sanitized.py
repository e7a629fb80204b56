"""C++ under AddressSanitizer and UndefinedBehaviorSanitizer, over the tests of kernels, readers, partitioners and samplers: clean."""

import os
import re
import shutil
import subprocess
import sys

from attack import ROOT, NotRun, folder

QUICK, FULL = 0, 1  # times; it compiles everything
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
TESTS = ("tests/spmm", "tests/samplers", "tests/partition", "tests/data", "tests/graph")


def attack(seed: int, amount: int):
    """Build a copy with sanitizers and run tests in it; return how many passed, and the reports."""
    library = (
        subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True)
        if shutil.which("g++")
        else None
    )
    if not library or not os.path.isabs(library.stdout.strip()):
        raise NotRun("no g++ with libasan")
    with folder() as home:
        skip = shutil.ignore_patterns(".git", ".venv", "build", "out", "*.so", "__pycache__")
        shutil.copytree(ROOT, copy := home / "spgnn", ignore=skip)
        env = os.environ | {
            "CFLAGS": FLAGS,
            "CXXFLAGS": FLAGS,
            "LDFLAGS": "-fsanitize=address,undefined",
            "PYTHONPATH": str(copy),
        }
        build = subprocess.run(
            [sys.executable, "setup.py", "build_ext", "--inplace"], cwd=copy, env=env, capture_output=True, text=True
        )
        if build.returncode:
            return {"built": "no"}, [build.stderr[-1500:]]
        env |= {
            "LD_PRELOAD": library.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0,halt_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:xdist",
            "-m",
            "not mpi and not full and not data",
            *TESTS,
        ]
        done = subprocess.run(words, cwd=copy, env=env, capture_output=True, text=True)
    text = done.stdout + done.stderr
    reports = re.findall(r"(?:ERROR: AddressSanitizer|runtime error)[^\n]*", text)
    failures = reports or ([text[-1500:]] if done.returncode else [])
    return {"tests": (done.stdout.strip().splitlines() or [""])[-1].strip("= ")}, failures


def plant() -> None:
    """Nothing: a report of a sanitizer ends a test."""
