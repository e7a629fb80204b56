"""What the benchmarks on two hosts share: arxiv with 128 random features in two parts, and a training on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

WITH_HOSTS = Path(__file__).resolve().parents[1] / "cluster" / "with_hosts"
N_FEATURES = 128
SPGNN = [sys.executable, "-m", "spgnn"]


def arxiv() -> Path:
    """Return the folder of ogbn-arxiv, in SPGNN_DATA."""
    folder = os.environ.get("SPGNN_DATA")
    if not folder:
        sys.exit("set SPGNN_DATA to the folder of real graphs")
    return Path(folder) / "arxiv_graphsaint"


def cut(folder: Path, hosts: int) -> Path:
    """Write 128 seeded random features and the METIS parts of arxiv; return the folder of parts."""
    n = len(json.loads((arxiv() / "class_map.json").read_text()))
    X = np.random.default_rng(0).standard_normal((n, N_FEATURES), dtype=np.float32)
    np.save(folder / "X.npy", X)
    run([*SPGNN, "partition", arxiv(), "-k", hosts, "--features", folder / "X.npy", "--out", folder / "parts", "--json"])
    return folder / "parts"


def train(parts: Path, rate: str, hosts: int, *options) -> dict:
    """Train on the parts, one rank a host; return the summary and `wire_bytes`, what left the first host's card."""
    card = "/sys/class/net/eth0/statistics/tx_bytes"
    launch = f'cat {card}; mpirun -f "$HOSTFILE" -ppn 1 -n {hosts} "$@"; code=$?; cat {card}; exit $code'
    command = [*SPGNN, "train", arxiv(), "--partition", parts, "--json", *options]
    lines = run([WITH_HOSTS, "--hosts", hosts, "--rate", rate, "--", "sh", "-c", launch, "sh", *command]).splitlines()
    return json.loads(lines[1]) | {"wire_bytes": int(lines[2]) - int(lines[0])}


def run(command: list) -> str:
    """Return the standard output of a command; where it fails, show its errors and leave."""
    beside = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ["PATH"]])
    paths = os.pathsep.join([str(WITH_HOSTS.parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=os.environ | {"PATH": beside, "PYTHONPATH": paths})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr.strip()[-3000:]}")
    return done.stdout
