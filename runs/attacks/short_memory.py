"""Too little address space, and the k-th allocation of the C++ parts fails: exit code 4, no hang, no crash."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np
from attack import FAST, GRAPH, PATIENCE, ROOT, NotRun, folder, here, limit, need, spgnn

QUICK, FULL = 1, 500  # sizes, at most 20, and allocations that fail, of each command
LARGE = "sbm:n=20000,classes=4,features=64,degree=20,seed=1"
# Of a process from its start, in which torch does not fit; in less than 120 MB NumPy's OpenBLAS ends Python, and in 500
# torch does so as it loads.
COLD_MB = (150, 250, 400)
TRAIN = ["train", "g", *FAST, "--epochs", "2"]
COMMANDS = {
    "train": [*TRAIN, "--model", "gat", "--heads", "2"],
    "sampled": [*TRAIN, "--sampler", "walk", "--budget", "50"],
    "average": ["train", "g", *FAST, "--epochs", "2", "--mode", "average", "--parts", "3"],
    "partition": "partition g -k 3 --method volume --out new".split(),
    "stream": "partition e.txt -k 3 --memory 2GB --method spring+ --out new".split(),
    "read": ["info", "e.txt"],
}
FAIL = r"""
#define LEAST 256  // smaller ones are nanobind's too, which does not go on after them
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
static long seen = 0, at = 0;
static bool is_ours(void* caller) {
  Dl_info info;
  return dladdr(caller, &info) && info.dli_fname && std::strstr(info.dli_fname, "/spgnn/");
}
extern "C" void trust_fail_at(long k) { seen = 0; at = k; }
extern "C" long trust_seen() { return seen; }
static void* get(std::size_t size, void* caller) {
  if (at != 0 && size >= LEAST && is_ours(caller) && ++seen == at) throw std::bad_alloc();
  if (void* found = std::malloc(size ? size : 1)) return found;
  throw std::bad_alloc();
}
void* operator new(std::size_t size) { return get(size, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return get(size, __builtin_return_address(0)); }
void operator delete(void* place) noexcept { std::free(place); }
void operator delete[](void* place) noexcept { std::free(place); }
void operator delete(void* place, std::size_t) noexcept { std::free(place); }
void operator delete[](void* place, std::size_t) noexcept { std::free(place); }
"""


def attack(seed: int, amount: int):
    """Run commands in too little address space, and with an allocation that fails; return how often, and what ended wrong."""
    failures, counts = [], {"limits": 0, "refused by limits": 0, "allocations that fail": 0}
    with folder() as home:
        need(here("convert", GRAPH, home / "g"))
        need(here("convert", LARGE, home / "large"))
        rng = np.random.default_rng(seed)
        np.savetxt(home / "e.txt", rng.integers(0, 3000, (30_000, 2)), fmt="%d")
        for name, words in COMMANDS.items():
            words = ["large" if word == "g" else word for word in words]
            for growth in np.geomspace(1 << 20, 400 << 20, min(amount, 20)).astype(int).tolist():
                counts["limits"] += 1
                ended = spgnn(*words, cwd=home, before=[(limit, {"AS": growth})])
                counts["refused by limits"] += ended.code == 4
                failures += [f"{name}, {growth >> 20} MB: {fault}" for fault in [ended.fault(0, 4)] if fault]
                shutil.rmtree(home / "new", ignore_errors=True)
        failures += cold(home, counts, amount)
        try:
            failures += allocations(home, counts, amount, rng)
        except NotRun as reason:
            counts["allocations that fail"] = f"no ({reason})"
    return counts, failures


def cold(home: Path, counts: dict, amount: int) -> list[str]:
    """Start commands from nothing in less than torch needs."""
    wrong = []
    for size_mb in COLD_MB[:amount]:
        counts["limits"] += 1
        words = ["sh", "-c", f'ulimit -v {size_mb << 10}; exec "$@"', "sh", cold_python(), "-m", "spgnn", *TRAIN]
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=120 * PATIENCE)
        counts["refused by limits"] += done.returncode == 4
        if done.returncode != 4 or "Traceback" in done.stderr:
            wrong.append(
                f"from the start in {size_mb} MB: exit code {done.returncode}, expected 4: {done.stderr[-300:]}"
            )
    return wrong


def cold_python() -> str:
    """Return the interpreter itself, not the program that a warm one starts forks with."""
    return os.environ.get("TRUST_COLD", sys.executable)


def allocations(home: Path, counts: dict, amount: int, rng) -> list[str]:
    """Let the k-th `new` of the C++ parts fail. Raises: NotRun without a compiler."""
    from warm import warm_python

    if not (compiler := shutil.which("g++") or shutil.which("c++")):
        raise NotRun("no C++ compiler")
    (home / "fail.cpp").write_text(FAIL)
    library, wrong = home / "fail.so", []
    build = [compiler, "-O1", "-shared", "-fPIC", "-o", library, home / "fail.cpp", "-ldl"]
    subprocess.run(build, check=True, capture_output=True)
    os.environ["LD_PRELOAD"], usual, sys.executable = str(library), sys.executable, cold_python()
    try:
        with tempfile.TemporaryDirectory() as warm, warm_python(Path(warm)) as python:
            del os.environ["LD_PRELOAD"]
            for name, words in COMMANDS.items():
                n = number_of(home, words, python)
                for k in sorted(rng.permutation(n)[:amount].tolist()):
                    ended = spgnn(*words, cwd=home, python=python, before=[(fail_at, {"k": k + 1})])
                    counts["allocations that fail"] += 1
                    wrong += [f"{name}, allocation {k + 1} of {n}: {fault}" for fault in [ended.fault(0, 4)] if fault]
                    shutil.rmtree(home / "new", ignore_errors=True)
    finally:
        os.environ.pop("LD_PRELOAD", None)
        sys.executable = usual
    return wrong


def number_of(home: Path, words: list[str], python: str) -> int:
    """Return how many allocations of the C++ parts a command makes, 500 at most."""
    need(spgnn(*words, cwd=home, python=python, before=[(fail_at, {"k": -1, "to": str(home / "n")})]))
    shutil.rmtree(home / "new", ignore_errors=True)
    return max(1, min(500, int((home / "n").read_text())))


def fail_at(k: int, to: str = "") -> None:
    """Let allocation k of this process fail, -1: none; their number is written to a file at the end.

    The C++ modules are loaded before: where an allocation fails while it loads one, nanobind ends the process.
    """
    import atexit

    for path in (ROOT / "spgnn").rglob("_*.so"):
        import_module(".".join(path.relative_to(ROOT).with_name(path.name.partition(".")[0]).parts))
    library = ctypes.CDLL(None)
    library.trust_fail_at(ctypes.c_long(k))
    if to:
        atexit.register(lambda: Path(to).write_text(str(library.trust_seen())))


def plant() -> None:
    """Missing memory is like any other error."""
    from spgnn import errors

    errors.is_out_of_memory = lambda error: False
    errors.exit_code_of = lambda error: 1
