"""The scripts of runs/launch, on a real Slurm and on two hosts at 1 Gbit/s."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from hosts import ok, on_hosts
from worlds import ROOT, launch

HERE = Path(__file__).parent
TRAIN = ("wordnet", "--hidden", "16", "--epochs", "4")
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def curve(folder: Path) -> dict[str, list]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {name: [record[name] for record in records] for name in ("loss", "val", "test")}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def by_slurm(*train, tasks=4, nodes=1, output: Path) -> list:
    """The command that submits runs/launch/slurm and waits for it; output gets its stdout and stderr."""
    sizes = ["--nodes", nodes, "--ntasks-per-node", tasks // nodes]
    return [sys.executable, HERE / "submit.py", "--output", output, *sizes, ROOT / "runs/launch/slurm", *train]


def by_mpirun(*train) -> list:
    return [ROOT / "runs/launch/hosts", *train]


def by_torchrun(*train) -> list:
    """The command that starts runs/launch/torchrun on both hosts."""
    start = shlex.join(map(str, [ROOT / "runs/launch/torchrun", *train]))
    both = f"runs/cluster/on_host h2 {shlex.quote(f'HOSTS=2 HEAD=h1 {start}')} & HOSTS=2 HEAD=h1 {start} && wait $!"
    return ["bash", "-c", both]


@pytest.fixture(scope="module", params=["float64", "float32"])
def alone(request, tmp_path_factory):
    """The curve of one process without a launcher, and its dtype."""
    out = tmp_path_factory.mktemp("alone")
    ok(launch(0, [sys.executable, "-m", "spgnn", "train", *TRAIN, "--dtype", request.param, "--out", out]))
    return curve(out), request.param


@pytest.mark.parametrize(
    "launcher, hosts",
    [("srun", 1), ("srun", 2), ("mpirun", 2), ("torchrun", 2)],
    ids=["srun-one-node", "srun-two-nodes", "mpirun-two-hosts", "torchrun-two-hosts"],
)
def test_four_ranks_train_wordnet_to_the_curve_of_one_process(alone, commands, tmp_path, launcher, hosts):
    expected, dtype = alone
    train = [*TRAIN, "--dtype", dtype, "--out", tmp_path / "run"]
    if launcher == "srun":
        command = by_slurm(*train, nodes=hosts, output=tmp_path / "log")
    else:
        command = by_mpirun(*train) if launcher == "mpirun" else by_torchrun(*train)
    ended = on_hosts(command, hosts=hosts, slurm=launcher == "srun", PATH=commands)
    assert (ended.code, ended.left) == (0, []), ended.err + _text(tmp_path / "log")
    found = curve(tmp_path / "run")
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=TOLERANCE[dtype], atol=0)
    if dtype == "float64":
        assert (found["val"], found["test"]) == (expected["val"], expected["test"])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["ranks"] == 4 and summary["bytes_sent"] == summary["bytes_predicted"] > 0


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_a_killed_rank_ends_the_job_and_is_named(commands, tmp_path, launcher):
    out, log = tmp_path / "run", tmp_path / "log"
    train = ["wordnet", "--hidden", "16", "--epochs", "100000", "--out", out]
    if launcher == "srun":
        command = by_slurm(*train, nodes=2, output=log)
    else:
        command = by_mpirun(*train)
    killer = [
        sys.executable,
        HERE / "kill_rank.py",
        "3",
        out / "metrics.jsonl",
        *command,
    ]  # rank 3 is on the second host
    ended = on_hosts(killer, slurm=launcher == "srun", PATH=commands)
    said = ended.err + _text(log)
    assert ended.code not in (0, 1) and not ended.is_late and not ended.left, said
    assert float(re.search(r"ended ([\d.]+) s after", ended.out).group(1)) < 10
    named = re.findall(r"spgnn: error: killed by SIGKILL .*\n.*rank (\d+); phase: (.*); host (h\d), pid \d+", said)
    assert ("3", "h2") in {(rank, host) for rank, _, host in named}, said
    assert all(phase.startswith("epoch") for _, phase, _ in named), said


def test_a_slurm_job_without_pmi_is_refused_with_the_fix(commands, tmp_path):
    ended = on_hosts(["srun", "-n", "2", "spgnn", "train", "wordnet"], hosts=1, slurm=True, PATH=commands)
    assert ended.code == 4
    assert "srun started 2 processes, but MPI makes jobs of 1 of them" in ended.err and "--mpi=pmi2" in ended.err
