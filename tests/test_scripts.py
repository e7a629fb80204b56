"""Every script of runs/ runs: --smoke takes each through all of its code at a tiny size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import printed, script

from spgnn.config.names import MODELS
from spgnn.layers.registry import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
# Scripts without --smoke, and what runs them.
ELSEWHERE = {
    "runs/test": "sets up an environment and runs this suite; tests/test_runs.py",
    "runs/quickstart": "sets up an environment; tests/test_runs.py, and its training in tests/test_readme.py",
    "runs/site": "sets up an environment and builds the pages; tests/test_docs.py",
    "runs/wheel": "sets up an environment and packs it",
    "runs/gpu": "needs a device; tests/test_runs.py with a stand-in for Python",
    "runs/cluster_test": "needs namespaces or Open MPI; tests/test_runs_launch.py, tests/cluster",
    "runs/cluster/with_hosts": "needs namespaces; tests/test_runs_launch.py, tests/cluster",
    "runs/cluster/on_host": "needs namespaces; tests/cluster",
    "runs/launch/hosts": "a template without options; tests/test_runs_launch.py with a stand-in for mpirun",
    "runs/launch/mpirun": "a template without options; tests/test_runs_launch.py with a stand-in for mpirun",
    "runs/launch/slurm": "a template without options; tests/test_runs_launch.py with a stand-in for srun",
    "runs/launch/torchrun": "a template without options; tests/test_runs_launch.py with a stand-in for torchrun",
}
# One limits its address space to less than torch takes, the other has a warm Python of its own.
COLD = ("runs/bench/pipeline", "runs/trust")

pytestmark = pytest.mark.slow


def scripts() -> list[str]:
    """Every executable file of runs/."""
    found = (path for path in (ROOT / "runs").rglob("*") if path.is_file() and os.access(path, os.X_OK))
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [name for name in names if not name.startswith("runs/out/")]


def run(python, name: str, words, folder: Path) -> subprocess.CompletedProcess:
    env = {key: value for key, value in os.environ.items() if key != "SPGNN_DATA"} | {"OMP_NUM_THREADS": "1"}
    argv = [sys.executable if name in COLD and "--smoke" in words else python, ROOT / name, *words]
    env |= {"PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", [name for name in scripts() if name not in ELSEWHERE])
def test_a_script_runs_at_a_tiny_size_without_data(name, python, tmp_path):
    done = run(python, name, ["--smoke"], tmp_path)
    assert done.returncode == 0 and done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_scripts_without_smoke_are_there_and_start_no_python():
    for name in ELSEWHERE:
        assert (ROOT / name).read_text().startswith("#!/usr/bin/env bash\n"), name


DATA = "--data . --out out"
REFUSED = [  # script, its options, what it says
    ("bench/families", "--graphs coar", "'coar' is not known; expected some of cora,"),
    ("bench/stream", "--only memory,main", "argument --only: 'main'; expected some of"),
    ("bench/pipeline", "--only memory,main", "argument --only: 'main'; expected some of"),
    ("bench/same_results", f"{ROOT} --only papers", "argument --only: 'papers'; expected some of gcn-"),
    ("bench/same_results", ".", "expected spgnn/ with compiled extensions"),
    ("papers/all_graphs", "", "SPGNN_DATA"),
    ("papers/mesh", "", "SPGNN_DATA"),
    ("papers/planetoid", "", "SPGNN_DATA"),
    ("papers/planetoid", f"{DATA} --graphs coral", "'coral' is not known"),
    ("papers/planetoid", f"{DATA} --ranks 0", "argument --ranks: "),
    ("papers/planetoid", f"{DATA} --seeds -1", "argument --seeds: "),
    ("papers/all_graphs", f"{DATA} --ranks 1,x", "argument --ranks: "),
    ("papers/all_graphs", f"{DATA} --epochs 0", "argument --epochs: "),
    ("papers/icpp24/figures", "--out out --ranks 0", "argument --ranks: "),
    ("papers/icpp24/figures", "--out out --machine nowhere", "argument --machine: "),
    ("papers/catgnn/tables", f"{DATA} --balance nan", "argument --balance: "),
    ("papers/catgnn/tables", f"{DATA} --repeat 0", "argument --repeat: "),
    ("papers/sdt_gnn/accuracy", f"{DATA} --epochs 0", "argument --epochs: "),
    ("papers/sdt_gnn/tables", f"{DATA} -k 4,x", "argument -k: '4,x'; expected positive integers"),
    ("papers/sdt_gnn/tables", f"{DATA} --graphs corra", "graph 'corra' is not known"),
    ("papers/sdt_gnn/tables", f"{DATA} --methods sprin", "method 'sprin' is not known"),
    ("papers/sdt_gnn/tables", f"{DATA} --only clustres", "table 'clustres' is not known"),
    ("papers/sdt_gnn/tables", f"{DATA} --settings 8", "--settings 8: expected p:threshold"),
    ("papers/sdt_gnn/tables", f"{DATA} --settings 8:-1", "expected p:threshold"),
    ("papers/entropy_aware/ablation", f"{DATA} --seeds 0", "argument --seeds: "),
    ("papers/entropy_aware/ablation", f"{DATA} --class-balance 2", "argument --class-balance: "),
]


@pytest.mark.parametrize("name, options, said", REFUSED)
def test_a_wrong_option_ends_with_2_and_writes_nothing(name, options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPGNN_DATA", raising=False)
    with pytest.raises(SystemExit) as ended:
        sys.exit(printed(script(name), monkeypatch, capsys, *options.split())[0])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, os.listdir()) == (2, "", []) and said in err


def test_bad_input_of_volumes_ends_with_one_line_and_the_exit_code_of_spgnn(python, tmp_path):
    for words, code, said in (
        (["nowhere.txt"], 3, "nowhere.txt"),
        (["sbm", "--method", "metos"], 2, "did you mean 'metis'"),
        (["sbm", "--width", str(10**320)], 2, "'--width'"),
    ):
        done = run(python, "runs/analysis/volumes", words, tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1) and said in done.stderr


def test_families_are_compared_with_settings_of_each():
    assert {"lightgcn", *script("bench/families").SETTINGS} == {x for x in MODELS if not FAMILIES[x].reads}
