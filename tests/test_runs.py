"""The set-up scripts: valid, runnable from anywhere, and clear where a tool is missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ("runs/setup.sh", "runs/test", "runs/quickstart", "runs/site", ".ci/run")
OF_CLUSTERS = ("cluster_test", *(f"launch/{name}" for name in ("mpirun", "hosts", "slurm", "torchrun")))
OF_CLUSTERS += tuple(f"cluster/{name}" for name in ("with_hosts", "on_host", "slurm.sh", "openmpi.sh"))
CHECKED = (*SCRIPTS, "runs/gpu", *(f"runs/{name}" for name in OF_CLUSTERS))
# What the scripts call, beside Python, a compiler and apt-get.
TOOLS = "bash env basename cat cut dirname find grep head id rm sha256sum sort xargs nproc".split()


@pytest.fixture
def bare_machine(tmp_path):
    """A checkout of the scripts and a PATH with only TOOLS and a Python on it."""
    for name in (*SCRIPTS, "runs/constraints.txt"):
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "repo" / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name))
    return tmp_path / "repo", tools


def python_of(tools: Path, version: str, includes: str) -> None:
    """Put a python3 on the PATH that only answers what the set-up asks it."""
    major, minor = version.split(".")
    (tools / "python3").write_text(
        "#!/bin/bash\n"
        f'case "$*" in *version_info*) (({minor} < 11)) && exit 1; echo "$0" ;; *ensurepip*) ;; *include*) echo \'{includes}\' ;; esac\n'
    )
    (tools / "python3").chmod(0o755)


def run(script: Path, tools: Path, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(script)], env={"PATH": str(tools)}, cwd=cwd, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", CHECKED)
def test_a_script_is_valid_bash_that_stops_at_the_first_error_and_names_no_machine(name):
    assert subprocess.run(["bash", "-n", ROOT / name], timeout=60).returncode == 0
    text = (ROOT / name).read_text()
    assert not re.findall(r"https?://|--index-url|--extra-index-url|--find-links|/home/|/root/|/tmp/|/work/", text)
    if not name.endswith(".sh"):
        assert os.access(ROOT / name, os.X_OK)
        assert text.startswith("#!/usr/bin/env bash\n") and "\nset -euo pipefail\n" in text


@pytest.mark.parametrize("name, version, has_headers, said, packages", [
    *((name, "3.12", True, "C++ compiler", "g++") for name in ("runs/test", "runs/quickstart", "runs/site", ".ci/run")),
    ("runs/test", "3.12", False, "C++ compiler", "python3-dev g++"),
    ("runs/test", "3.9", False, "Python 3.11 or later", "python3 python3-venv python3-dev g++"),
])  # fmt: skip
def test_what_is_missing_is_one_line_that_says_what_to_install(
    bare_machine, tmp_path, name, version, has_headers, said, packages
):
    repo, tools = bare_machine
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "Python.h").touch()
    python_of(tools, version, tmp_path / "include" if has_headers else "/nowhere")
    found = run(repo / name, tools, tmp_path)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (4, "", 1)
    assert said in found.stderr and found.stderr.endswith(f"apt-get install {packages}\n")


@pytest.fixture
def device_script(tmp_path):
    """runs/gpu from another folder, with a Python that only prints what it is asked, and fails where that is told."""
    python = tmp_path / "python"
    python.write_text('#!/bin/bash\necho "$*"\n[[ -z ${HANGS:-} || $* != *pytest* ]] || sleep 60\nexit "${CODE:-0}"\n')
    python.chmod(0o755)
    how = dict(cwd=tmp_path, capture_output=True, text=True, timeout=60)
    return lambda *words, **env: subprocess.run(
        ["bash", ROOT / "runs" / "gpu", *words], env=os.environ | {"PYTHON": str(python), "LC_ALL": "C"} | env, **how
    )


def test_what_needs_a_device_leaves_its_tables_in_a_folder_that_is_named_from_where_one_stands(device_script, tmp_path):
    (tmp_path / "data" / "arxiv_graphsaint").mkdir(parents=True)
    found = device_script("tables", SPGNN_DATA="data")
    assert found.returncode == 0, found.stderr
    written = sorted(path.stem for path in (tmp_path / "tables").iterdir())
    layers = ["epoch-gat", "epoch-gatv2", "epoch-meshgraphnet"]
    assert written == ["epoch-arxiv", *layers, "epoch-rmat", "epoch-sagemax", "pytest", "spmm"]
    assert (tmp_path / "tables" / "spmm.txt").read_text().startswith("runs/bench/gpu_spmm --graphs arxiv;rmat:scale=20")


def test_what_needs_a_device_runs_the_stages_that_are_named(device_script):
    asked = [line.split()[0] for line in device_script("tables", "spmm", "build").stdout.splitlines()]
    assert asked == ["setup.py", "runs/bench/gpu_spmm"]  # in the order in which one needs the other
    wrong = device_script("tables", "epoch")
    assert wrong.returncode == 2 and wrong.stderr == "runs/gpu: no stage epoch; expected build, tests, spmm or epochs\n"


@pytest.mark.slow
def test_a_stage_that_fails_or_hangs_does_not_cost_those_that_follow(device_script):
    for found in (
        device_script("tables", "tests", "spmm", CODE="3"),
        device_script("tables", "tests", "spmm", HANGS="1", STAGE_S="1"),
    ):
        assert found.returncode == 1 and "gpu_spmm" in found.stdout


def test_an_environment_of_the_same_python_is_used_again(tmp_path):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/bash\necho 'Python 3.12.1 (main) [GCC 12.2.0]'\n")  # brackets are no pattern
    python.chmod(0o755)
    (tmp_path / "bin" / "pip").write_text(f"#!{python}\n")
    text = (ROOT / "runs" / "setup.sh").read_text()
    function = text[text.index("is_own_venv() {") : text.index("has_headers() {")]
    command = f'venv="{tmp_path}"\n{function}\nis_own_venv "{python}"'
    env = os.environ | {"LC_ALL": "C"}  # bash warns of a locale that is not installed
    assert subprocess.run(["bash", "-c", command], env=env, timeout=60).returncode == 0


def test_a_script_beside_a_clone_imports_the_package(tmp_path):
    """The folder of a clone is named spgnn too, and has no load_graph."""
    (tmp_path / "spgnn").mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import spgnn; spgnn.load_graph"]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
