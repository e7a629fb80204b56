"""The rules of the house, read from the sources: imports run downward, files are short, nothing prints."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "spgnn"
LONGEST = 450

# A part may import those below it; those on one line may import each other, but for FORBIDDEN.
FLOORS = (
    ("cli", "__main__"),
    ("training", "analysis"),
    ("distgraph",),
    ("layers", "samplers"),
    ("spmm",),
    ("dist", "partition", "data", "graph"),
    ("errors", "config", "machine", "aside", "timeline"),
)
LEVEL = {part: level for level, parts in enumerate(FLOORS) for part in parts}
# (part that may not import, what it may not import): volumes are predicted without torch or a communicator.
FORBIDDEN = {
    ("partition", "torch"),
    ("partition", "mpi4py"),
    ("partition", "spgnn.dist"),
    ("data", "torch"),
    ("data", "mpi4py"),
    ("data", "spgnn.dist"),
    ("graph", "torch"),
    ("graph", "mpi4py"),
    ("graph", "spgnn.dist"),
    ("dist", "torch"),
    ("layers", "spgnn.dist"),
    ("layers", "mpi4py"),
}
# What may import a library that all others stay clear of.
ONLY = {"mpi4py": {"dist/mpi.py"}, "cupy": {"dist/nccl.py"}, "cupy_backends": set()}
PLANETOID = {"data/readers/pickles.py", "data/readers/planetoid.py"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path, package: Path = PACKAGE) -> str:
    return path.relative_to(package).as_posix()


def part_of(name: str) -> str:
    """The part of the house that a file is in: spmm/plan.py -> spmm, graph.py -> graph."""
    return name.split("/")[0].removesuffix(".py")


def imports_of(name: str, text: str) -> list[tuple[int, str]]:
    """Every module that a file imports, at any depth, as (line, absolute name); type hints do not count."""
    tree = ast.parse(text)
    package = ["spgnn", *name.split("/")[:-1]]
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [
                (node.lineno, f"{module}.{alias.name}" if module.startswith("spgnn") else module)
                for alias in node.names
            ]
    return found


def import_faults(name: str, text: str) -> list[str]:
    """The imports of a file that break a rule."""
    faults = []
    part = part_of(name)
    for line, module in imports_of(name, text):
        where = f"spgnn/{name}:{line} imports {module}"
        parts = module.split(".")
        if parts[0] == "spgnn" and len(parts) > 1 and parts[1] in LEVEL and part in LEVEL:
            if parts[1] != part and LEVEL[parts[1]] < LEVEL[part]:
                faults.append(f"{where}: imports run downward")
        for forbidden_part, forbidden in FORBIDDEN:
            if part == forbidden_part and (module == forbidden or module.startswith(forbidden + ".")):
                faults.append(f"{where}: {part} stays clear of {forbidden}")
        is_cuda_side = parts[0] in ("cupy", "cupy_backends") and name.startswith("spmm/cuda/")
        if parts[0] in ONLY and name not in ONLY[parts[0]] and not is_cuda_side:
            faults.append(f"{where}: only {', '.join(sorted(ONLY[parts[0]])) or 'spmm/cuda'} imports {parts[0]}")
    return faults


def call_faults(name: str, text: str) -> list[str]:
    """The calls and handlers of a file that break a rule: print, pickle, a bare except, unseeded random numbers."""
    faults = []
    for node in ast.walk(ast.parse(text)):
        where = f"spgnn/{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" and part_of(name) != "cli":
                faults.append(f"{where}: library code does not print")
            if called.split(".")[0] in ("pickle", "cPickle", "marshal", "dill", "joblib") and name not in PLANETOID:
                faults.append(f"{where}: {called}: only the Planetoid reader unpickles")
            if called.endswith("load") and any(
                k.arg == "allow_pickle" and not (isinstance(k.value, ast.Constant) and k.value.value is False)
                for k in node.keywords
            ):
                faults.append(f"{where}: allow_pickle: a pickle runs what it holds")
            if called in ("torch.load", "torch.save"):
                faults.append(f"{where}: {called} is a pickle; use safetensors")
            if called.endswith("default_rng") and not node.args and not node.keywords:
                faults.append(f"{where}: an unseeded random generator")
            if re.fullmatch(r"((np|numpy)\.)?random\.\w+", called) and not called.endswith(
                ("default_rng", "Generator", "Philox", "PCG64", "SeedSequence")
            ):
                faults.append(f"{where}: {called}: draw from a seeded generator")
        if isinstance(node, (ast.Import, ast.ImportFrom)) and name not in PLANETOID:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(n.split(".")[0] in ("pickle", "cPickle", "dill") for n in names):
                faults.append(f"{where}: only the Planetoid reader imports pickle")
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            faults.append(f"{where}: a bare except")
        if isinstance(node, ast.Global):
            faults.append(f"{where}: a global")
    return faults


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_imports_run_downward(path):
    assert not import_faults(name_of(path), path.read_text())


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_library_code_neither_prints_nor_unpickles_nor_draws_unseeded(path):
    assert not call_faults(name_of(path), path.read_text())


@pytest.mark.parametrize("folder", ["spgnn", "tests", "runs"])
def test_no_file_is_longer_than_450_lines(folder):
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for pattern in ("*.py", "*.cpp", "*.h", "*.cu", "*.cuh")
        for path in (ROOT / folder).rglob(pattern)
        if (lines := len(path.read_text().splitlines())) > LONGEST and "out" not in path.relative_to(ROOT).parts
    }
    assert not long


def test_every_part_of_the_package_has_its_floor():
    parts = {part_of(name_of(path)) for path in sources()} - {"__init__"}
    assert parts <= set(LEVEL), "name the new part in FLOORS"


NOUNS = "Graph Partition Communicator ProcessGrid IndexMap ExchangePlan SpMM DistGraph Layer Stack Trainer VolumeReport".split()
VERBS = "load_graph part_graph distribute train measure".split()


def test_nouns_and_verbs_are_names_of_the_package():
    import spgnn

    assert set(NOUNS + VERBS) <= set(spgnn.__all__)
    assert all(getattr(spgnn, name).__doc__ for name in spgnn.__all__ if name != "__version__")


def test_no_module_is_called_utils():
    assert not [name_of(path) for path in sources() if path.stem in ("utils", "util", "helpers", "common", "misc")]


@pytest.mark.parametrize(
    "name, text, fault",
    [
        ("spmm/plan.py", "from ..layers import GCN", "downward"),
        ("spmm/plan.py", "from .. import training", "downward"),
        ("errors.py", "def f():\n    from .graph import Graph", "downward"),
        ("partition/metis.py", "import torch", "stays clear of torch"),
        ("data/formats.py", "from torch import nn", "stays clear of torch"),
        ("partition/metis.py", "from ..dist import world", "stays clear of spgnn.dist"),
        ("layers/gcn.py", "from ..dist.mpi import Mpi", "stays clear of spgnn.dist"),
        ("spmm/plan.py", "def f():\n    import cupy", "only dist/nccl.py imports cupy"),
        ("dist/launch.py", "from mpi4py import MPI", "only dist/mpi.py"),
    ],
)
def test_a_wrong_import_is_found(name, text, fault):
    assert any(fault in found for found in import_faults(name, text))


@pytest.mark.parametrize(
    "name, text",
    [
        ("layers/gcn.py", "from ..spmm import plan\nimport torch"),
        ("dist/mpi.py", "def f():\n    from mpi4py import MPI"),
        ("spmm/cuda/launcher.py", "def f():\n    import cupy"),
        ("data/formats.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("training/loop.py", "from ..distgraph import DistGraph\nfrom .loss import loss"),
        ("graph.py", "from .errors import GraphError"),
    ],
)
def test_a_right_import_is_not(name, text):
    assert not import_faults(name, text)


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "import pickle",
        "pickle.load(file)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "torch.load(path)",
        "np.random.default_rng()",
        "np.random.rand(3)",
        "try:\n    f()\nexcept:\n    pass",
        "def f():\n    global x",
    ],
)
def test_a_forbidden_call_is_found(text):
    assert call_faults("data/readers/npz.py", text)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["spgnn", "spgnn.dist", "spgnn.cli", "spgnn.data", "spgnn.partition"])
def test_importing_it_starts_neither_torch_nor_mpi(module):
    code = f"import {module}, sys; print([m for m in ('torch', 'mpi4py', 'cupy') if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
