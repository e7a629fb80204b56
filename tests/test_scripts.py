"""Every script of runs/ runs: --smoke takes each through all of its code at a tiny size."""

import os
import subprocess
from pathlib import Path

import pytest
from warm import warm_python

ROOT = Path(__file__).resolve().parents[1]
# Scripts without --smoke, and what runs them.
ELSEWHERE = {
    "runs/test": "sets up an environment and runs this suite; tests/test_runs.py",
    "runs/quickstart": "sets up an environment; tests/test_runs.py, and its training in tests/test_readme.py",
    "runs/wheel": "sets up an environment and packs it",
    "runs/gpu": "needs a device; tests/test_runs.py with a stand-in for Python",
    "runs/cluster_test": "needs namespaces or Open MPI; tests/test_runs_launch.py, tests/cluster",
    "runs/cluster/with_hosts": "needs namespaces; tests/test_runs_launch.py, tests/cluster",
    "runs/cluster/on_host": "needs namespaces; tests/cluster",
    "runs/launch/hosts": "a template without options; tests/test_runs_launch.py with a stand-in for mpirun",
    "runs/launch/mpirun": "a template without options; tests/test_runs_launch.py with a stand-in for mpirun",
    "runs/launch/slurm": "a template without options; tests/test_runs_launch.py with a stand-in for srun",
}
COLD = ("runs/bench/pipeline",)  # limits its address space to less than torch takes

pytestmark = pytest.mark.slow


def scripts() -> list[str]:
    """Every executable file of runs/."""
    found = (path for path in (ROOT / "runs").rglob("*") if path.is_file() and os.access(path, os.X_OK))
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [name for name in names if not name.startswith("runs/out/")]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with warm_python(tmp_path_factory.mktemp("warm")) as path:
        yield path


@pytest.mark.parametrize("name", [name for name in scripts() if name not in ELSEWHERE])
def test_a_script_runs_at_a_tiny_size_without_data(name, python, tmp_path):
    env = {key: value for key, value in os.environ.items() if key != "SPGNN_DATA"} | {"OMP_NUM_THREADS": "1"}
    if name in COLD:
        import sys

        python = sys.executable
    words = [python, ROOT / name, "--smoke"]
    done = subprocess.run(
        words, env=env | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_scripts_without_smoke_are_there_and_start_no_python():
    for name in ELSEWHERE:
        assert (ROOT / name).read_text().startswith("#!/usr/bin/env bash\n"), name
