"""The rules of the house, read from the sources: imports run downward, files are short, nothing prints."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import measures
import pytest
from command_line import in_python
from measures import PACKAGE, ROOT, imports_of

LONGEST = 450

# Imports run from left to right: a part may import those after it, none before it.
ORDER = (
    "__main__ cli experiment report doctor exactness training analysis links distgraph layers spmm timeline dist cost "
    "samplers partition data graph config atomic machine terminal errors"
).split()
LEVEL = {part: place for place, part in enumerate(ORDER)}
# (part that may not import, what it may not import): volumes are predicted without torch or a communicator.
FORBIDDEN = {
    ("partition", "torch"), ("partition", "mpi4py"), ("partition", "spgnn.dist"), ("data", "torch"),
    ("data", "mpi4py"), ("data", "spgnn.dist"), ("graph", "torch"), ("graph", "mpi4py"), ("graph", "spgnn.dist"),
    ("dist", "torch"), ("cost", "torch"), ("cost", "mpi4py"), ("cost", "spgnn.dist"), ("samplers", "torch"),
    ("samplers", "spgnn.dist"), ("timeline", "torch"), ("layers", "spgnn.dist"), ("layers", "mpi4py"),
}  # fmt: skip
# Files that may import what their part stays clear of: the communicator of torchrun is torch's.
EXCEPT = {("dist/gloo.py", "torch")}
# What may import a library that all others stay clear of.
ONLY = {
    "mpi4py": {"dist/mpi/library.py", "dist/mpi/mpi_communicator.py"},
    "cupy": {"dist/device/nccl.py"},
    "cupy_backends": set(),
}
# Names that several packages use for a file of the same role; the commands of cli/ and the readers are named after what
# they run or read.
ROLES = {"__init__.py", "checks.py", "consistency.py", "metrics.py", "registry.py"}
NAMED_AFTER = ("cli/", "data/readers/")
# Working papers of the authors, which a reader of the repository does not have.
ELSEWHERE = re.compile(r"\b(DESIGN|TARGETS|SECOND_HALF|PITFALLS|DEFECTS|REVIEW)\b")
PLANETOID = {"data/readers/pickles.py", "data/readers/planetoid.py"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path, package: Path = PACKAGE) -> str:
    return path.relative_to(package).as_posix()


def part_of(name: str) -> str:
    """The part of the house that a file is in: spmm/exchange/exchange_plan.py -> spmm, graph.py -> graph."""
    return name.split("/")[0].removesuffix(".py")


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
            is_inside = module == forbidden or module.startswith(forbidden + ".")
            if part == forbidden_part and is_inside and (name, forbidden) not in EXCEPT:
                faults.append(f"{where}: {part} stays clear of {forbidden}")
        is_cuda_side = parts[0] in ("cupy", "cupy_backends") and name.startswith("spmm/kernels/cuda/")
        if parts[0] in ONLY and name not in ONLY[parts[0]] and not is_cuda_side:
            faults.append(
                f"{where}: only {', '.join(sorted(ONLY[parts[0]])) or 'spmm/kernels/cuda'} imports {parts[0]}"
            )
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


def in_all_sources(rule) -> list[str]:
    """The faults that rule(name, text) finds in the files of the package."""
    return [fault for path in sources() for fault in rule(name_of(path), path.read_text())]


def test_imports_run_downward():
    assert not in_all_sources(import_faults)


def test_library_code_neither_prints_nor_unpickles_nor_draws_unseeded():
    assert not in_all_sources(call_faults)


def test_no_file_is_longer_than_450_lines():
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for folder in ("spgnn", "tests", "runs")
        for pattern in ("*.py", "*.cpp", "*.h", "*.cu", "*.cuh")
        for path in (ROOT / folder).rglob(pattern)
        if (lines := len(path.read_text().splitlines())) > LONGEST and "out" not in path.relative_to(ROOT).parts
    }
    assert not long


@pytest.fixture(scope="module")
def known() -> dict:
    return json.loads(measures.LIST.read_text())


def test_measures_hold_but_for_a_list_of_exceptions_that_only_gets_shorter(known):
    assert not measures.house_faults(measures.measure(measures.sources()), known)


def test_habits_of_writing_only_get_fewer(known):
    counts = measures.count_habits(measures.prose())
    assert not {
        habit: (count, known["words"][habit]) for habit, count in counts.items() if count > known["words"][habit]
    }


def test_measures_see_inherited_methods_and_attributes_and_all_parameters():
    base = "class A:\n" + "".join(f"    def f{i}(self):\n        self.x{i} = 1\n" for i in range(10))
    more = "class B(A):\n" + "".join(f"    def g{i}(self): ...\n" for i in range(11))
    wide = "    def wide(self, a, b, /, c, d, *rest, e, f, g, **h): ...\n    def __len__(self): ...\n"
    record = "@dataclass\nclass R:\n    a: int\n    b: int\n@dataclass(frozen=True)\nclass F:\n    a: int\n"
    layer = "class L:\n    def f(self, h):\n        self.h, self.W = h, self.weight(h)\n        self.V, self.U = (self.weight(h) for _ in 'VU')\n"
    found = measures.measure({"a.py": base + layer, "b.py": "from .a import A\n" + more + wide, "c.py": more + record})
    assert found["methods"] == {"A": 10, "B": 22, "R": 0, "F": 0, "L": 1}
    assert found["attributes"] == {"A": 10, "B": 10, "R": 2, "F": 0, "L": 1}
    assert found["parameters"]["B.wide"] == 9
    assert found["lines"]["A.f0"] == 2
    assert found["same name"]["B"] == 2


def test_the_list_of_exceptions_is_exact():
    found = measures.measure({"a.py": "def f(a, b, c, d, e, f, g, h, i): ...\n"})
    none = {rule: {} for rule in measures.LIMITS}
    assert measures.house_faults(found, none) == ["parameters of f: 9, at most 8"]
    assert measures.house_faults(found, none | {"parameters": {"f": 9}}) == []
    assert "listed with 10" in measures.house_faults(found, none | {"parameters": {"f": 10}})[0]
    assert "--shrink" in measures.house_faults(found, none | {"lines": {"gone": 90}, "parameters": {"f": 9}})[0]


def test_habits_are_counted_over_line_ends():
    text = measures.in_one_line("# 4 bytes a\n# row; the size is that\n# of A; a rank a node owns\n")
    counts = measures.count_habits(iter([text]))
    assert (counts["a rank, as a rate"], counts["that of"], counts["goes on"]) == (1, 1, 0)


def test_every_part_of_the_package_has_its_place_in_the_order():
    parts = {part_of(name_of(path)) for path in sources()} - {"__init__"}
    assert parts <= set(LEVEL), "name the new part in ORDER"


def test_a_circle_is_found_however_late_it_is_imported():
    texts = {
        "a.py": "from .b import f",
        "b.py": "def f():\n    from .c import g",
        "c.py": "from . import a",
        "d.py": "from . import a",
    }
    for texts["c.py"] in (
        texts["c.py"],
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import a",
        'from importlib import import_module\nimport_module(".a", __package__)',
        'from importlib import import_module\nNAMES = ["a"]\nimport_module(f".{NAMES[0]}", __package__)',
    ):
        assert measures.circles(measures.import_graph(texts)) == [["a.py", "b.py", "c.py"]]
    texts["c.py"] = "from . import other"
    assert not measures.circles(measures.import_graph(texts))


def test_no_two_files_have_one_name():
    homes: dict[str, list[str]] = {}
    for path in sources():
        if path.name not in ROLES and not name_of(path).startswith(NAMED_AFTER):
            homes.setdefault(path.name, []).append(name_of(path))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_no_two_test_files_have_one_name():
    names = Counter(
        path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py")
    )
    assert not [name for name, count in names.items() if count > 1]  # pytest imports each by its name


def texts_of_the_repository() -> list[Path]:
    folders = [path for folder in ("spgnn", "tests", "runs", "docs") for path in (ROOT / folder).rglob("*")]
    kinds = (".py", ".md", ".cpp", ".h", ".cu", ".cuh", ".sh", ".toml", "")
    found = [path for path in folders if path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts]
    return [path for path in [*found, *ROOT.glob("*.md")] if "runs/out" not in path.as_posix()]


def test_no_page_is_cited_that_is_not_in_the_repository():
    cited = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts_of_the_repository()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), start=1)
        if ELSEWHERE.search(line)
    ]
    assert not cited


def test_pages_have_at_most_120_columns():
    assert not [
        f"{page.relative_to(ROOT)}:{number}: {len(line)} columns"
        for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 120
    ]


def python_scripts() -> list[Path]:
    scripts = [
        path
        for path in (ROOT / "runs").rglob("*")
        if path.is_file() and not path.suffix and "out" not in path.relative_to(ROOT).parts
    ]
    return [
        path for path in scripts if path.read_bytes()[:2] == b"#!" and b"python" in path.read_bytes().splitlines()[0]
    ]


def test_every_script_is_formatted_and_linted():
    listed = (ROOT / "ruff.toml").read_text()
    assert not [path for path in python_scripts() if f'"{path.relative_to(ROOT).as_posix()}"' not in listed]


@pytest.mark.slow
@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=["lint", "format"])
def test_python_is_as_ruff_wants_it(command):
    ruff = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--quiet", "."], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ruff.returncode == 0, f"run: ruff check --fix . && ruff format .\n{ruff.stdout}{ruff.stderr}"


@pytest.mark.slow
def test_cpp_is_as_clang_format_wants_it():
    files = [
        str(p)
        for suffix in ("*.cpp", "*.h", "*.cu", "*.cuh")
        for d in ("spgnn", "tests")
        for p in sorted((ROOT / d).rglob(suffix))
    ]
    tool = Path(sys.executable).parent / "clang-format"
    done = subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"run: clang-format -i FILES\n{done.stderr[:2000]}"


def test_no_folder_of_tests_is_left_out(pytestconfig):
    skipped = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    names = {part for folder in folders for part in folder.relative_to(ROOT).parts}
    assert not [(name, pattern) for name in names for pattern in skipped if fnmatch(name, pattern)]


NOUNS = "Graph Partition Communicator ProcessGrid IndexMap ExchangePlan SpMM DistGraph Layer Stack Trainer VolumeReport".split()
VERBS = "load_graph part_graph distribute train measure".split()


def test_nouns_and_verbs_are_names_of_the_package():
    import spgnn

    assert set(NOUNS + VERBS) <= set(spgnn.__all__)
    assert all(getattr(spgnn, name).__doc__ for name in spgnn.__all__ if name != "__version__")


def test_no_module_is_called_utils():
    assert not [name_of(path) for path in sources() if path.stem in ("utils", "util", "helpers", "common", "misc")]


@pytest.mark.parametrize("name, text, fault", [
    ("spmm/operator/dist_spmm.py", "from ...layers import GCN", "downward"),
    ("spmm/operator/dist_spmm.py", "from ... import training", "downward"),
    ("errors.py", "def f():\n    from .graph import Graph", "downward"),
    ("partition/methods/metis.py", "import torch", "stays clear of torch"),
    ("data/formats.py", "from torch import nn", "stays clear of torch"),
    ("partition/methods/metis.py", "from ...dist import world", "stays clear of spgnn.dist"),
    ("layers/gcn.py", "from ..dist.mpi import Mpi", "stays clear of spgnn.dist"),
    ("spmm/exchange/exchange_plan.py", "def f():\n    import cupy", "only dist/device/nccl.py imports cupy"),
    ("dist/launch.py", "from mpi4py import MPI", "only dist/mpi/library.py, dist/mpi/mpi"),
])  # fmt: skip
def test_a_wrong_import_is_found(name, text, fault):
    assert any(fault in found for found in import_faults(name, text))


@pytest.mark.parametrize("name, text", [
    ("layers/gcn.py", "from ..spmm import operator\nimport torch"),
    ("dist/mpi/mpi_communicator.py", "def f():\n    from mpi4py import MPI"),
    ("spmm/kernels/cuda/launcher.py", "def f():\n    import cupy"),
    ("data/formats.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
    ("training/trainer.py", "from ..distgraph import DistGraph\nfrom .loss import loss"),
    ("graph.py", "from .errors import GraphError"),
])  # fmt: skip
def test_a_right_import_is_not(name, text):
    assert not import_faults(name, text)


@pytest.mark.parametrize("text", [
    "print(1)", "import pickle", "pickle.load(file)", "np.load(path, allow_pickle=True)",
    "np.load(path, allow_pickle=flag)", "torch.load(path)", "np.random.default_rng()", "np.random.rand(3)",
    "try:\n    f()\nexcept:\n    pass", "def f():\n    global x",
])  # fmt: skip
def test_a_forbidden_call_is_found(text):
    assert call_faults("data/readers/npz.py", text)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["spgnn", "spgnn.dist", "spgnn.cli", "spgnn.data", "spgnn.partition"])
def test_importing_it_starts_neither_torch_nor_mpi(module):
    code = f"import {module}, sys; print([m for m in ('torch', 'mpi4py', 'cupy', 'networkx', 'torch_geometric', 'dgl') if m in sys.modules])"
    run = in_python(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
