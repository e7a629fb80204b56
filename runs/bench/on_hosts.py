"""What the benchmarks on two hosts share: a graph in METIS parts, and a training on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

WITH_HOSTS = Path(__file__).resolve().parents[1] / "cluster" / "with_hosts"
N_FEATURES = 128
LOCAL = "local"
SPGNN = [sys.executable, "-m", "spgnn"]


def cut(graph: str, folder: Path, hosts: int, ranks: int = 1, method: str = "metis") -> list:
    """Write the parts of a graph for so many ranks a host; return the words by which `spgnn train` names graph and parts.

    Args: graph  arxiv (in SPGNN_DATA; with 128 seeded random features), or what `spgnn train` takes.
    """
    folder.mkdir(exist_ok=True)
    source = [graph]
    if graph == "arxiv":
        data = os.environ.get("SPGNN_DATA") or sys.exit("set SPGNN_DATA to the folder of real graphs")
        source = [Path(data) / "arxiv_graphsaint", "--features", folder / "X.npy"]
        n = len(json.loads((source[0] / "class_map.json").read_text()))
        np.save(folder / "X.npy", np.random.default_rng(0).standard_normal((n, N_FEATURES), dtype=np.float32))
    how = ["-k", hosts * ranks, "--hosts", hosts, "--method", method, "--out", folder / "parts", "--json"]
    run([*SPGNN, "partition", *source, *how])
    return [source[0], "--partition", folder / "parts"]


def train(parts: list, rate: str, hosts: int, *options, ranks: int = 1) -> dict:
    """Train on what cut() returned, so many ranks a host; return the summary and `wire_bytes`, sent by the first host's card.

    Args: rate  of each host's card, such as 1gbit; local: as many ranks on this machine, without hosts or a card.
    """
    if rate == LOCAL:
        lines = run(
            ["mpirun", "-n", hosts * ranks, *SPGNN, "train", *parts, "--json", "--out", "none", *options]
        ).splitlines()
        return json.loads(lines[0]) | {"wire_bytes": 0}
    card = "/sys/class/net/eth0/statistics/tx_bytes"
    launch = f'cat {card}; mpirun -f "$HOSTFILE" -ppn {ranks} -n {hosts * ranks} "$@"; code=$?; cat {card}; exit $code'
    command = [*SPGNN, "train", *parts, "--json", "--out", "none", *options]
    lines = run([WITH_HOSTS, "--hosts", hosts, "--rate", rate, "--", "sh", "-c", launch, "sh", *command]).splitlines()
    return json.loads(lines[1]) | {"wire_bytes": int(lines[2]) - int(lines[0])}


def run(command: list) -> str:
    """Return the standard output of a command; where it fails, show its errors and leave."""
    beside = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ["PATH"]])
    paths = os.pathsep.join([str(WITH_HOSTS.parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": beside, "PYTHONPATH": paths},
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr.strip()[-3000:]}")
    return done.stdout
