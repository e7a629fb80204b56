"""C++ under AddressSanitizer and UndefinedBehaviorSanitizer, its threads under ThreadSanitizer, over their tests: clean."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from attack import ROOT, NotRun, folder

QUICK, FULL = 0, 1  # times; it compiles everything
# Sanitizers -> (library, extensions, tests). libgomp is not compiled for ThreadSanitizer, which would see races in loops of
# OpenMP that are none: the threads that it watches are those of std::thread.
RUNS = {
    "address,undefined": ("libasan.so", (), ("tests/spmm", "tests/samplers", "tests/partition", "tests/data", "tests/graph")),
    "thread": ("libtsan.so", ("partition._loops", "samplers._samplers"), ("tests/partition/test_cover.py", "tests/samplers")),
}  # fmt: skip
# No optimisation that hides a fault, no strip; objects of nanobind have types that other libraries do not see.
COMPILER = "-fno-sanitize-recover=undefined -fno-sanitize=vptr -fno-omit-frame-pointer -g1 -O1"
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1",
}
UNDEFINED = "runtime error: "
REPORTED = 86  # exit code of a process that a sanitizer ends
PYTHON = os.environ.get("TRUST_COLD", sys.executable)  # one that has loaded nothing
PLANTED_IN = ["tests/partition/test_cover.py"]
planted: dict[str, tuple[str, str]] = {}  # sanitizers -> what a header has, and what it has in its place


def attack(seed: int, amount: int):
    """Build copies with sanitizers and run tests in them; return what pytest said, and the reports."""
    figures, failures = {}, []
    for sanitizers, (library, extensions, tests) in RUNS.items():
        with folder() as home:
            preloaded = " ".join([found(library), found("libstdc++.so")])
            build(home, sanitizers, ("partition._loops",) if planted else extensions)
            common = f"exitcode={REPORTED}:log_path={home / 'report'}"
            env = {key: f"{value}:{common}" for key, value in OPTIONS.items()}
            env |= {"LD_PRELOAD": preloaded, "PYTHONPATH": str(home / "spgnn")}
            words = ["-m", "pytest", *"-q -s -p no:xdist -p no:cacheprovider".split(), "--basetemp", home / "tmp"]
            words += ["-m", "not mpi and not full and not data", *(PLANTED_IN if planted else tests)]
            command = ["setarch", "-R", PYTHON, *words]  # ThreadSanitizer needs its own addresses
            done = subprocess.run(command, cwd=home / "spgnn", env=os.environ | env, capture_output=True, text=True)
            reports = [path.read_text()[:1500] for path in sorted(home.glob("report.*"))]
        said = done.stdout + done.stderr
        figures[sanitizers] = (done.stdout.strip().splitlines() or [""])[-1].strip("= ")
        reports = [report for report in reports if "ERROR: " in report or "WARNING: ThreadSanitizer" in report]
        if UNDEFINED in said:  # it is written to stderr, log_path or not
            reports.append(said[max(0, said.index(UNDEFINED) - 200) :][:1500])
        # A test that fails alone is one of limits that sanitizers exceed.
        if not reports and (done.returncode not in (0, 1) or " passed" not in figures[sanitizers]):
            reports = [f"the tests ended with {done.returncode}: {said[-1500:]}"]
        failures += [f"{sanitizers}: {report}" for report in reports]
    return figures, failures


def found(library: str) -> str:
    """Return the path of a library of the compiler. Raises: NotRun without one."""
    if not shutil.which("g++"):
        raise NotRun("no g++")
    path = subprocess.run(["g++", f"-print-file-name={library}"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(path):
        raise NotRun(f"g++ has no {library}")
    return path


def build(home: Path, sanitizers: str, extensions: tuple[str, ...]) -> None:
    """Write a copy of the program whose extensions, or all if none is named, are compiled with sanitizers."""
    built = ("*.so", "build") if not extensions else ("build",)
    skip = shutil.ignore_patterns(".git", ".venv", "out", "__pycache__", *built)
    shutil.copytree(ROOT, copy := home / "spgnn", ignore=skip)
    if extensions:
        for name in extensions:
            [path.unlink() for path in (copy / "spgnn").glob(f"{name.replace('.', '/')}.*.so")]
        setup = (copy / "setup.py").read_text()
        only = f"EXTENSIONS = {{name: EXTENSIONS[name] for name in {extensions}}}\n\nsetup("
        (copy / "setup.py").write_text(setup.replace("\nsetup(", f"\n{only}"))
    if sanitizers in planted:
        header, (right, wrong) = copy / "spgnn" / "partition" / "cover.h", planted[sanitizers]
        header.write_text(header.read_text().replace(right, wrong))
    keep_names = 'for word; do shift; [ "$word" = -s ] || set -- "$@" "$word"; done'
    (compiler := home / "cxx").write_text(
        f'#!/bin/sh\n{keep_names}\nexec g++ "$@" -fsanitize={sanitizers} {COMPILER}\n'
    )
    compiler.chmod(0o755)
    words = [PYTHON, "setup.py", "build_ext", "--inplace"]
    env = os.environ | {"CXX": shlex.quote(str(compiler)), "PYTHONPATH": ""}
    done = subprocess.run(words, cwd=copy, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the build with -fsanitize={sanitizers} failed: {done.stderr[-1500:]}")


def plant() -> None:
    """A table is a number too short, and threads count tasks without an atomic."""
    planted["address,undefined"] = ("first_(k + 1)", "first_(k)")
    planted["thread"] = ("std::atomic<int64_t> next{0};", "int64_t next = 0;")
