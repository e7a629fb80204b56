"""The recipes: options of published tables and of every labelled graph, and what runs them.

A recipe's options are fields of TrainConfig; `command` makes the line that a person would type.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO), str(REPO / "runs" / "bench")]

from bench import SMOKE, machine, parse, table  # noqa: E402, F401  (the scripts of this folder import them from here)

from spgnn.config import preset_options  # noqa: E402

KIPF_WELLING = preset_options("planetoid-gcn")
# Test accuracy in percent, Kipf & Welling's table 2.
PUBLISHED = {"cora": 81.5, "citeseer": 70.3, "pubmed": 79.0}
MISS = 0.7  # points below the published mean that still count as reached
# Largest relative difference of a loss that counts as none, and of the last test accuracy. In float32 the
# sums of other ranks round otherwise, and once a hidden unit is on the other side of 0 the losses part by 1e-6.
LIMITS = {"float32": 1e-5, "float64": 1e-12}
SAME_TEST = 1e-6

# Test accuracy of seeds 0 to 4: 0.7447, 0.7427, 0.7435, 0.7440, 0.7440.
ARXIV = {"layers": 2, "hidden": 256, "norm": "layer", "dropout": 0.8, "input_dropout": False}
ARXIV |= {"lr": 0.005, "epochs": 80, "eval_every": 5}


@dataclass(frozen=True)
class Recipe:
    """One labelled graph: where its original files are, the options, and the features that its files lack.

    features  a path in the data folder, "identity" (X = I, written by `features_of`), or "" where the
              graph's own files hold them.
    reach     test score that the recipe has to reach.
    """

    path: str
    options: dict = field(default_factory=dict)
    features: str = ""
    reach: float = 0.0


RECIPES = {
    **{name: Recipe(f"planetoid/ind.{name}", KIPF_WELLING) for name in PUBLISHED},
    "amazon_photo": Recipe("gnn_benchmark/amazon_photo.npz", {"hidden": 64, "dropout": 0.5, "epochs": 100}),
    "coauthor_cs": Recipe("gnn_benchmark/coauthor_cs.npz", {"hidden": 64, "dropout": 0.5, "epochs": 60}),
    "arxiv_graphsaint": Recipe("arxiv_graphsaint", ARXIV, reach=0.74),
    "arxiv_ogb": Recipe("arxiv_ogb", ARXIV, "arxiv_graphsaint/feats_csr.npz", reach=0.74),
    "flickr_graphsaint": Recipe(
        "flickr_graphsaint", {"hidden": 32, "norm": "layer", "weight_decay": 1e-3, "epochs": 40}, "identity", reach=0.5
    ),
    "chameleon_filtered": Recipe("heterophilous/chameleon_filtered.npz", {"hidden": 64, "dropout": 0.5, "epochs": 60}),
    "tolokers": Recipe(
        "heterophilous/tolokers.npz",
        {"hidden": 64, "layers": 3, "norm": "layer", "residual": True, "dropout": 0.2, "epochs": 100},
    ),
}


def parser(description: str, ranks: bool = True, out: str = "papers") -> argparse.ArgumentParser:
    """Return the parser with what all recipes take, and --ranks for those that train; runs lie in runs/out/OUT."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--data", type=Path, default=os.environ.get("SPGNN_DATA"), help="folder of real graphs; default: SPGNN_DATA"
    )
    if ranks:
        made.add_argument(
            "--ranks",
            type=positives,
            default="1",
            help="numbers of ranks, comma-separated; above 1 under mpirun; default: %(default)s",
        )
    made.add_argument(
        "--out", type=Path, default=REPO / "runs" / "out" / out, help=f"folder of the runs; default: runs/out/{out}"
    )
    return made


class Generated:
    """Instead of the folder of real graphs, with --smoke: every name is the same graph, with features of 0 or more."""

    def __init__(self):
        from spgnn import load_graph, save_graph

        graph = load_graph("sbm:n=160,classes=3,degree=6,features=8,seed=1")
        self.folder = tempfile.TemporaryDirectory()
        save_graph(replace(graph, X=graph.X - graph.X.min()), Path(self.folder.name, "generated"))

    def __truediv__(self, path: str) -> str:
        return str(Path(self.folder.name, "generated"))


def positives(text: str) -> list[int]:
    """Return the positive integers of a comma-separated list; argparse tells of another."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r}; expected positive integers separated by commas, such as 4,8,16")
    return [int(word) for word in words]


def from_least(least: int) -> Callable[[str], int]:
    """Return what reads an integer of least or more; argparse tells of another."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}; expected an integer, {least} or more")
        return int(text)

    return read


def data_folder(args: argparse.Namespace) -> Path | Generated:
    """Return the folder of real graphs, or what stands for it with --smoke; end with code 2 where none is named."""
    if args.smoke:
        return Generated()
    if args.data is None or not args.data.is_dir():
        print("give the folder of real graphs: --data DIR, or set SPGNN_DATA", file=sys.stderr)
        sys.exit(2)
    return args.data


def chosen(names: str, known: Sequence[str], what: str = "graph") -> list[str]:
    """Return the names of a comma-separated list; end with code 2 at one that is not known."""
    listed = names.split(",")
    for name in listed:
        if name not in known:
            print(f"{what} {name!r} is not known; expected some of {','.join(known)}", file=sys.stderr)
            sys.exit(2)
    return listed


def command(graph: Path, options: dict, ranks: int, out: Path) -> list[str]:
    """Return the line that a person types: mpirun -n RANKS spgnn train GRAPH ..."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return [*launcher, "spgnn", "train", str(graph), *words, "--out", str(out), "--overwrite"]


def run(line: Sequence[str]) -> tuple[dict, list[dict]]:
    """Run such a line with this interpreter; return the summary and the record of each epoch.

    Ends with the code of a training that fails; its message stands above.
    """
    argv = list(line)
    if argv[0] == "mpirun":
        beside = Path(sys.prefix) / "bin" / "mpirun"
        argv[0] = str(beside) if beside.exists() else shutil.which("mpirun") or "mpirun"
    at = argv.index("spgnn")
    argv[at : at + 1] = [sys.executable, "-m", "spgnn"]
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(argv, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL)
    if done.returncode:
        print(f"this line ended with code {done.returncode}: {shlex.join(line)}", file=sys.stderr)
        sys.exit(done.returncode)
    out = Path(argv[argv.index("--out") + 1])
    records = [json.loads(record) for record in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return json.loads((out / "summary.json").read_text(encoding="utf-8")), records


def features_of(recipe: Recipe, data: Path, folder: Path) -> dict:
    """Return the option that names the features which the graph's own files lack; {} where they have them.

    "identity" writes X = I (N, N) as CSR into the folder: each node has a feature of its own, and the
    first layer learns a row of weights a node. Source: Kipf & Welling 2017, appendix A.1.
    """
    if not recipe.features:
        return {}
    if recipe.features != "identity":
        return {} if isinstance(data, Generated) else {"features": str(data / recipe.features)}
    from spgnn.data import load_graph

    n = load_graph(data / recipe.path).n_nodes
    folder.mkdir(parents=True, exist_ok=True)
    sp.save_npz(folder / "identity.npz", sp.eye_array(n, dtype=np.float32, format="csr"))
    return {"features": str(folder / "identity.npz")}


def on_one_rank(graph: Path, feature_norm: str):
    """Return the DistGraph of this process as one rank of one thread: Planetoid's kernels are too short for two."""
    import torch

    from spgnn import distribute, load_graph
    from spgnn.dist import SelfCommunicator

    torch.set_num_threads(1)
    return distribute(load_graph(graph), SelfCommunicator(), feature_norm=feature_norm, threads=1)


def last_test(dgraph, options: dict, seed: int) -> float:
    """Train once and return the test accuracy of the last epoch's weights, which nothing has chosen."""
    from spgnn.config import TrainConfig
    from spgnn.layers.registry import ModelSpec
    from spgnn.training import Trainer

    config = TrainConfig(**options, seed=seed, eval_every=options["epochs"])
    model = ModelSpec.of(config, dgraph.n_features, dgraph.n_classes).build()
    return Trainer(model, dgraph, config).fit().records[-1]["test"]


def difference(first: list[dict], second: list[dict]) -> tuple[float, float]:
    """Return how far two curves are apart: largest relative difference of a loss, largest difference of a score.

    Args: the records of all epochs; each epoch has its scores.
    """
    if len(first) != len(second):
        return float("inf"), float("inf")
    one, two = (
        np.array([[r["loss"], r["train"], r["val"], r["test"]] for r in records]) for records in (first, second)
    )
    apart = np.abs(two - one)
    return float((apart[:, 0] / np.abs(one[:, 0])).max()), float(apart[:, 1:].max())
