"""The cases of same_results: trainings on the command line and in Python, batches of command lines, their graphs.

A case is a command line, or Python code that uses the API as README shows it: it runs with any checkout.
"""

from __future__ import annotations

import os
import random
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Training:
    """`spgnn train LINE` on some ranks, after the command `first`; {names} are those of `make_inputs`."""

    ranks: int
    line: str
    first: str = ""


# fmt: off
DEFAULTS = "--hidden 16 --epochs 4 --seed 1 --threads 1"
TRAININGS = {
    "cora-paper": Training(1, "{cora} --dropout 0.5 --weight-decay 5e-4 --decay-layers first --feature-norm row --prune always"),
    "cora-deep": Training(1, "{cora} --layers 4 --hidden 32 --norm layer --residual --optimizer sgd --lr 0.1"),
    "cora-float64": Training(1, "{cora} --dtype float64 --no-bias --lr 0.5 --epochs 8 --patience 2"),
    "arxiv-sparse": Training(1, "{arxiv} --layers 3 --eval-every 2 --epochs 5"),
    "arxiv-spmm-first": Training(1, "{dense} --order spmm_first --no-keep"),
    "arxiv-bfloat16": Training(1, "{dense} --dtype bfloat16 --dropout 0.2 --layers 3"),
    "directed-row": Training(1, "{weighted} --edges directed --operator row --dtype float64 --dropout 0.3"),
    "directed-reversed": Training(1, "{weighted} --edges reversed --operator none --lr 0.001 --no-locality"),
    "labels": Training(1, "{weighted} --labels {labels} --prune always --norm layer"),
    "cora-2-cover": Training(2, "{cora} --scheme cover --dropout 0.5 --residual --norm layer --layers 3"),
    "cora-2-patience": Training(2, "{cora} --scheme columns --method spring --lr 0.5 --epochs 8 --patience 2 --eval-every 2"),
    "arxiv-2-prune": Training(2, "{arxiv} --scheme columns --prune always --dropout 0.5"),
    "arxiv-2-spmm-first": Training(2, "{dense} --scheme columns --order spmm_first --no-keep --no-locality --residual --layers 3"),
    "wordnet-2-broadcast": Training(2, "wordnet --scheme broadcast --dtype float64 --no-input-dropout --dropout 0.5 --epochs 3"),
    "directed-2-cover": Training(2, "{weighted} --edges directed --scheme cover --no-input-dropout --dropout 0.5 --prune always"),
    "directed-2-wire": Training(2, "{weighted} --edges directed --scheme cover --wire int8 --wire-gradients float16 --layers 3"),
    "labels-2": Training(2, "{weighted} --labels {labels} --scheme cover --wire float16 --wire-gradients int8 --dropout 0.2"),
    "parts-2": Training(2, "parts --edges directed --layers 3", first=(
        "partition {text} -k 2 --memory 300MB --features {features} --labels {classes} --split {split} --edges directed --out parts")),
    "cora-4-broadcast": Training(4, "{cora} --scheme broadcast --method random --dropout 0.5 --wire bfloat16"),
    "cora-4-replicated": Training(4, "{cora} --scheme cover --replication 2 --dropout 0.5 --prune always --layers 3"),
    "arxiv-4-auto": Training(4, "{arxiv} --layers 3 --norm layer --residual"),
    "arxiv-4-replicated": Training(4, "{dense} --scheme columns --replication 2 --dtype bfloat16 --dropout 0.2"),
    "wordnet-4-replicated": Training(4, "wordnet --scheme broadcast --replication 2 --method block --no-keep --epochs 3"),
    "directed-4-float64": Training(4, "{weighted} --edges directed --scheme cover --replication 2 --dtype float64 --layers 3"),
    "directed-4-spmm-first": Training(4, "{weighted} --edges reversed --scheme columns --order spmm_first --no-keep --wire int8"),
    "parts-4": Training(4, "parts --replication 2 --scheme cover --hidden 32 --dropout 0.1", first=(
        "partition {cora} -k 2 --method volume --objective cover --seed 1 --out parts")),
}

GRAPHS = ("{cora}", "{cora}", "wordnet", "{weighted}", "{dense}", "sbm:n=3000,classes=6,features=40")
SCHEDULE = (
    ("", "--order spmm_first", ""), ("", "--no-keep"), ("", "--prune"), ("", "--no-overlap"),
    ("", "--wire int8", "--wire bfloat16"), ("", "--wire-gradients float16", "--wire-gradients int8"),
    ("", "", "--edges directed", "--edges reversed"),
)
MEASURE = (
    GRAPHS, ("-k 4", "-k 8", "-k 2,6"), ("--method metis", "--method random", "--method block,spring"),
    ("--scheme cover", "--scheme columns", "--scheme broadcast", "--scheme broadcast,columns,cover"),
    ("", "--replication 2", "--replication 1,2"), ("", "--widths 48,16,24", "--widths 24,64,32,8"), *SCHEDULE,
    ("", "--simulate", "--simulate --machine laptop", "--simulate --machine ethernet-1g"),
)
PLAN = (
    GRAPHS, ("--ranks 1,4", "--ranks 4", "--ranks 8", "--ranks 2,16"), ("", "--method random", "--method block,spring"),
    ("", "--scheme cover", "--scheme columns", "--scheme broadcast"), ("", "--replication 1", "--replication 1,2,4"),
    ("--machine laptop", "--machine ethernet-1g", "--machine perlmutter-like"), ("", "--ranks-per-host 2"), ("", "", "", "--memory 0.3"),
    ("", "--device cuda --device-memory 16", "--device cuda --device-memory 0.05"),
    ("", "--hidden 16", "--hidden 300 --layers 3", "--layers 1", "--widths 24,64,32,8"), ("", "--norm layer"), ("", "--residual"),
    ("", "--dropout 0.5", "--dropout 0.5 --no-input-dropout"), ("", "--dtype float64", "--dtype bfloat16"), *SCHEDULE,
)
PARTITION = (
    *(f"{{cora}} -k 5 --method {name}" for name in "metis volume entropy spring spring+ dbh greedy hdrf 2psl block random".split()),
    *(f"{{weighted}} -k 8 --edges directed --method {name}" for name in "metis volume spring hdrf 2psl block".split()),
    "{cora} -k 7 --method metis --objective vol --seed 3", "{dense} -k 4", "{dense} -k 6 --method spring --balance 1.1",
    "{cora} -k 6 --method volume --objective cover --effort 2 --receive --seed 2",
    "{cora} -k 4 --method volume --start random --no-send --edges reversed",
    "{cora} -k 4 --method entropy -c 0.5 --floor 2 --fanout 5 --similarity dot",
    "{text} -k 3 --memory 300MB --method 2psl --features {features} --labels {classes} --split {split} --hops 2",
)
# fmt: on


def drawn(verb: str, options: tuple[tuple[str, ...], ...], count: int = 60) -> list[str]:
    """Return command lines with one value of each option, drawn from a fixed seed."""
    rng = random.Random(0)
    lines = [" ".join(filter(None, (verb, *map(rng.choice, options), "--json"))) for _ in range(count)]
    # --prune needs the graph's own split.
    return [line.replace(" --prune", "") if "{weighted}" in line else line for line in lines]


# Command lines that one process runs one after the other, in one folder.
BATCHES = {
    "measure": drawn("measure", MEASURE),
    "plan": drawn("plan", PLAN),
    "partition": [
        *(f"partition {line} --json --out parts{number}" for number, line in enumerate(PARTITION)),
        "measure {cora} --partition parts0 --scheme cover,columns --json",
        "plan {cora} --partition parts0 --machine laptop --hidden 16 --json",
    ],
}


def frozen(comm, folder: Path):
    """The first layer is frozen; norm and residual in the second."""
    import spgnn
    from spgnn.layers import GCN, Stack

    graph = spgnn.load_graph("sbm:n=3000,classes=5,features=24,seed=3")
    part = spgnn.part_graph(graph, k=comm.size, method="random")
    dgraph = spgnn.distribute(graph, comm, partition=part, scheme="cover", threads=1)
    first = GCN(24, 16, act="relu")
    first.requires_grad_(False)
    model = Stack(first, GCN(16, 16, act="elu", norm="layer", residual=True), GCN(16, 5), dropout=0.3)
    return spgnn.train(model, dgraph, epochs=5, seed=1, prune="always"), model


def custom_layer(comm, folder: Path):
    """README's own layer, which is no chain, between two that are."""
    import torch

    import spgnn
    from spgnn.layers import GCN, Layer, Stack

    class Residual(Layer):
        def __init__(self, F):
            super().__init__(F, F)
            self.W_FF = self.weight(F, F)

        def forward(self, A, H_nF):
            return torch.relu(A @ (H_nF @ self.W_FF) + H_nF)

    graph = spgnn.load_graph("sbm:n=3000,classes=5,features=24,seed=3")
    dgraph = spgnn.distribute(graph, comm, method="metis", scheme="columns", wire="float16", threads=1)
    model = Stack(GCN(24, 32, act="gelu"), Residual(32), GCN(32, 5), dropout=0.2)
    return spgnn.train(model, dgraph, epochs=5, lr=0.02, seed=2), model


def replicated(comm, folder: Path):
    """1.5D on a directed weighted graph in float64, by gradient descent."""
    import torch

    import spgnn
    from spgnn.layers import GCN, Stack

    graph = spgnn.load_graph(folder / "weighted.npz", features=folder / "features.npy", labels=folder / "classes.npy")
    dgraph = spgnn.distribute(
        graph.with_edges("directed"), comm, replication=2, scheme="cover", dtype=torch.float64, threads=1
    )
    model = Stack(GCN(12, 16, act="tanh", bias=False), GCN(16, 5))
    return spgnn.train(model, dgraph, epochs=5, optimizer="sgd", lr=0.1, weight_decay=1e-3, eval_every=2), model


def multilabel(comm, folder: Path):
    """Several labels a node; a second training goes on from the weights of the first."""
    import spgnn
    from spgnn.layers import GCN, Stack

    graph = spgnn.load_graph(folder / "weighted.npz", features=folder / "features.npy", labels=folder / "labels.npy")
    dgraph = spgnn.distribute(graph.with_edges("reversed"), comm, method="random", order="spmm_first", threads=1)
    model = Stack(GCN(12, 16, act="sigmoid"), GCN(16, 6), dropout=0.4, input_dropout=False)
    spgnn.train(model, dgraph, epochs=3, seed=1)
    return spgnn.train(model, dgraph, epochs=3, seed=2, patience=1), model


# name -> ranks, whether they are threads of one process, and what they run
PYTHON = {
    "python-frozen": (2, False, frozen),
    "python-custom-layer": (3, True, custom_layer),
    "python-replicated": (4, True, replicated),
    "python-multilabel": (2, True, multilabel),
}
CASES = (*TRAININGS, *PYTHON, *BATCHES)


def make_inputs(folder: Path) -> dict[str, str]:
    """Write the graphs that are no files of SPGNN_DATA and return what each {name} of a command line stands for."""
    rng = np.random.default_rng(0)
    data, n = os.environ.get("SPGNN_DATA"), 3000
    if data:
        graphs = {"cora": Path(data) / "planetoid" / "ind.cora", "arxiv": Path(data) / "arxiv_graphsaint"}
        with np.load(graphs["arxiv"] / "adj_full.npz") as arrays:
            n_arxiv, own_labels = int(arrays["shape"][0]), ""
        X = graphs["arxiv"] / "feats_csr.npz"
    else:
        n_arxiv = 1 << 15
        graphs = {"cora": "sbm:n=2708,classes=7,degree=5,features=200", "arxiv": "rmat:scale=15,degree=14"}
        X, y = folder / "arxiv_sparse.npz", folder / "arxiv_y.npy"
        sp.save_npz(X, sp.random_array((n_arxiv, 200), density=0.02, format="csr", dtype=np.float32, rng=rng))
        np.save(y, rng.integers(0, 40, n_arxiv))
        own_labels = f" --labels {shlex.quote(str(y))}"
    np.save(folder / "arxiv_dense.npy", rng.standard_normal((n_arxiv, 24), dtype=np.float32))

    # A directed weighted graph with hubs, self-loops and nodes without an edge; an edge weighs as much as its reverse.
    ends = (n * rng.random((2, 8 * n)) ** 2).astype(np.int64)
    A = sp.csr_array((np.ones(8 * n, np.float32), tuple(ends)), shape=(n, n))
    A.sum_duplicates()
    rows, columns = A.nonzero()
    A.data = (0.1 + np.maximum(rows, columns) * 31 % 97 + np.minimum(rows, columns) * 17 % 89 / 89).astype(np.float32)
    sp.save_npz(folder / "weighted.npz", A)
    np.savetxt(folder / "weighted.txt", ends.T, fmt="%d", header=f"Nodes: {n} Edges: {ends.shape[1]}")
    np.save(folder / "features.npy", rng.standard_normal((n, 12), dtype=np.float32))
    np.save(folder / "classes.npy", rng.integers(-1, 5, n))
    np.save(folder / "labels.npy", (rng.random((n, 6)) < 0.3).astype(np.int8))
    np.save(folder / "split.npy", rng.integers(-1, 3, n).astype(np.int8))

    quoted = lambda path: shlex.quote(str(path))
    inputs = {name: quoted(folder / f"{name}.npy") for name in ("features", "classes", "labels", "split")}
    return inputs | {
        "cora": quoted(graphs["cora"]),
        "arxiv": f"{quoted(graphs['arxiv'])} --features {quoted(X)}{own_labels}",
        "dense": f"{quoted(graphs['arxiv'])} --features {quoted(folder / 'arxiv_dense.npy')}{own_labels}",
        "weighted": f"{quoted(folder / 'weighted.npz')} --features {inputs['features']} --labels {inputs['classes']}",
        "text": quoted(folder / "weighted.txt"),
    }
