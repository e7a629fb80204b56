"""The cases of same_results: trainings on the command line and in Python, batches of command lines, their graphs.

A case is a command line, or Python code that uses the API as README shows it: it runs with any checkout.
A difference that is meant has a line in EXPLAINED, which the next release empties.
"""

from __future__ import annotations

import random
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Training:
    """`spgnn train LINE` on some ranks, after the command `first` on one; {names} are those of `make_inputs`."""

    ranks: int
    line: str
    first: str = ""

    @property
    def full_line(self) -> str:
        """The line with the defaults, which do not go with --resume; sgc has no hidden layer."""
        if "--resume" in self.line:
            return f"train {self.line}"
        return f"train {DEFAULTS.replace('--hidden 8 ', '') if '--model sgc' in self.line else DEFAULTS} {self.line} --out run"


# fmt: off
DEFAULTS = "--hidden 8 --epochs 3 --seed 1 --threads 1"
# A covering array: each pair of family, kind of step, process grid, type, graph, scheme and wire occurs, and most pairs with
# the partitioner, optimiser, dropout, pruning, and layers. A name is family, step, ranks (2x2: 1.5D with c = 2).
ARRAY = {
    "gcn-drift-4": Training(4, "{multilabel} --jump cat --mode average --parts 4 --interval 2 --correct drift --method block --scheme columns --wire float16 --wire-gradients bfloat16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune never"),
    "gcn-full-2x2": Training(4, "{small} --jump cat --scheme broadcast --replication 2 --wire bfloat16 --dtype float64 --prune never"),
    "gcn-gradients-1": Training(1, "{weighted} --edges reversed --jump max --classifier --mode average --parts 4 --sync gradients --method block --optimizer sgd --lr 0.003"),
    "gcn-average-2": Training(2, "{sparse} --layers 3 --mode average --parts 5 --interval 2 --sampler node --budget 60 --method volume --scheme cover --wire float16 --wire-gradients float16 --dtype bfloat16 --prune always"),
    "gcn-node-3": Training(3, "{weighted} --edges directed --norm layer --residual --sampler node --budget 150 --method volume --scheme columns --wire bfloat16 --wire-gradients bfloat16 --dtype bfloat16 --dropout 0.4 --prune always"),
    "gcn-labor-1": Training(1, "{weighted} --edges reversed --sampler labor --batch 60 --fanout 4,3 --prune always"),
    "gcn-full-2": Training(2, "{multilabel} --norm layer --residual --method random --scheme columns --wire-gradients bfloat16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune always"),
    "sage-node-1": Training(1, "{multilabel} --model sage --sampler node --budget 150 --dtype float64 --optimizer sgd --lr 0.003 --prune always"),
    "sage-labor-2": Training(2, "{sparse} --model sage --aggregator max --jump max --classifier --sampler labor --batch 60 --fanout 4,3 --method volume --scheme cover --wire float16 --wire-gradients bfloat16 --dropout 0.4 --prune never"),
    "sage-full-2x2": Training(4, "{weighted} --edges directed --model sage --aggregator sum --combine cat --jump cat --method spring --scheme broadcast --replication 2 --wire float16 --wire-gradients bfloat16 --dtype bfloat16 --dropout 0.4 --prune never"),
    "sage-average-4": Training(4, "{weighted} --edges reversed --model sage --aggregator gcn --layers 3 --mode average --parts 5 --interval 2 --sampler walk --budget 60 --method random --scheme columns --wire bfloat16 --wire-gradients float16 --dtype float64 --optimizer sgd --lr 0.003"),
    "sage-drift-3": Training(3, "{small} --model sage --norm layer --residual --mode average --parts 4 --interval 2 --correct drift --method block --scheme broadcast --wire float16 --wire-gradients float16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune always"),
    "sage-gradients-2": Training(2, "{weighted} --edges directed --model sage --aggregator max --norm layer --residual --mode average --parts 4 --sync gradients --scheme broadcast --wire float16 --wire-gradients bfloat16 --dtype float64 --optimizer sgd --lr 0.003"),
    "gat-full-2x2": Training(4, "{sparse} --model gat --heads 2 --norm layer --residual --method block --scheme columns --replication 2 --wire-gradients bfloat16 --dtype bfloat16 --prune always"),
    "gat-average-3": Training(3, "{weighted} --edges directed --model gat --heads 4 --attention v2 --norm layer --residual --mode average --parts 5 --interval 2 --sampler neighbour --batch 40 --fanout 4,3 --method spring --scheme broadcast --wire float16 --wire-gradients float16 --dtype float64 --optimizer sgd --lr 0.003 --dropout 0.4 --prune always"),
    "gat-gradients-4": Training(4, "{multilabel} --model gat --heads 2 --heads-out 3 --attention-dropout 0.3 --norm layer --residual --mode average --parts 4 --sync gradients --method spring --scheme cover --wire float16 --wire-gradients float16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune never"),
    "gat-neighbour-2": Training(2, "{weighted} --edges reversed --model gat --heads 1 --attention v2 --sampler neighbour --batch 60 --fanout 4,3 --scheme cover --wire bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune always"),
    "gat-drift-1": Training(1, "{small} --model gat --heads 2 --jump max --classifier --mode average --parts 4 --interval 2 --correct drift --method random --dtype float64 --dropout 0.4"),
    "gat-walk-2": Training(2, "{sparse} --model gat --heads 4 --attention v2 --layers 3 --sampler walk --budget 150 --method volume --scheme columns --wire-gradients bfloat16 --dtype float64 --prune always"),
    "gin-neighbour-2": Training(2, "{weighted} --edges directed --model gin --norm layer --residual --sampler neighbour --batch 60 --fanout 4,3 --method spring --scheme cover --wire bfloat16 --wire-gradients float16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "gin-drift-1": Training(1, "{weighted} --edges directed --model gin --norm layer --residual --mode average --parts 4 --interval 2 --correct drift --method volume --prune never"),
    "gin-labor-3": Training(3, "{multilabel} --model gin --layers 3 --sampler labor --batch 60 --fanout 4,3,3 --method block --scheme broadcast --wire float16 --wire-gradients bfloat16 --dtype float64 --prune always"),
    "gin-full-2x2": Training(4, "{weighted} --edges reversed --model gin --method volume --scheme columns --replication 2 --wire float16 --wire-gradients bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune never"),
    "gin-cluster-4": Training(4, "{small} --model gin --jump cat --sampler cluster --batch 2 --method random --scheme columns --wire float16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "gin-average-1": Training(1, "{sparse} --model gin --jump max --classifier --mode average --parts 5 --interval 2 --dtype float64 --optimizer sgd --lr 0.003"),
    "gin-gradients-2": Training(2, "{small} --model gin --layers 3 --mode average --parts 4 --sync gradients --method block --scheme broadcast --wire bfloat16 --wire-gradients bfloat16 --dtype float64 --dropout 0.4 --prune always"),
    "gin-full-4": Training(4, "{small} --model gin --method block --scheme columns --wire-gradients float16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune never"),
    "mixhop-full-3": Training(3, "{small} --model mixhop --jump max --classifier --method random --scheme cover --wire float16 --wire-gradients bfloat16"),
    "mixhop-walk-3": Training(3, "{weighted} --edges reversed --model mixhop --powers 3 --norm layer --residual --sampler walk --budget 150 --scheme columns --wire float16 --wire-gradients bfloat16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "mixhop-average-2": Training(2, "{sparse} --model mixhop --mode average --parts 5 --interval 2 --method spring --scheme broadcast --wire bfloat16 --wire-gradients bfloat16 --dtype float64 --prune never"),
    "mixhop-full-4": Training(4, "{weighted} --edges directed --model mixhop --powers 3 --layers 3 --method spring --scheme broadcast --wire-gradients float16 --dtype float64 --optimizer sgd --lr 0.003 --prune never"),
    "mixhop-gradients-1": Training(1, "{multilabel} --model mixhop --norm layer --residual --mode average --parts 4 --sync gradients --method volume --dtype bfloat16 --prune never"),
    "mixhop-full-2x2": Training(4, "{small} --model mixhop --powers 3 --jump max --classifier --method block --scheme cover --replication 2 --wire bfloat16 --wire-gradients bfloat16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "mixhop-drift-4": Training(4, "{multilabel} --model mixhop --norm layer --residual --mode average --parts 4 --interval 2 --correct drift --scheme broadcast --wire float16 --dtype float64 --optimizer sgd --lr 0.003"),
    "sgc-average-4": Training(4, "{weighted} --edges directed --model sgc --layers 3 --mode average --parts 5 --interval 2 --scheme cover --wire float16 --wire-gradients float16 --prune never"),
    "sgc-full-2x2": Training(4, "{weighted} --edges reversed --model sgc --powers 3 --method spring --scheme broadcast --replication 2 --wire float16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "sgc-drift-3": Training(3, "{sparse} --model sgc --mode average --parts 4 --interval 2 --correct drift --method volume --scheme columns --wire bfloat16 --wire-gradients bfloat16 --dtype float64 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "sgc-edge-2": Training(2, "{small} --model sgc --powers 3 --layers 3 --sampler edge --budget 100 --method spring --scheme broadcast --wire-gradients bfloat16 --dtype float64 --optimizer sgd --lr 0.003"),
    "sgc-gradients-1": Training(1, "{multilabel} --model sgc --mode average --parts 4 --sync gradients --method block --dtype bfloat16 --optimizer sgd --lr 0.003 --prune never"),
    "appnp-full-4": Training(4, "{weighted} --edges reversed --model appnp --layers 3 --method volume --scheme cover --wire float16 --wire-gradients bfloat16 --dtype float64 --dropout 0.4 --prune never"),
    "appnp-average-1": Training(1, "{small} --model appnp --powers 3 --teleport 0.2 --layers 3 --mode average --parts 5 --interval 2 --method block --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "appnp-cluster-2": Training(2, "{weighted} --edges directed --model appnp --sampler cluster --method random --scheme columns --wire float16 --wire-gradients bfloat16 --optimizer sgd --lr 0.003"),
    "appnp-drift-3": Training(3, "{multilabel} --model appnp --powers 3 --teleport 0.2 --mode average --parts 4 --interval 2 --correct drift --scheme columns --wire bfloat16 --wire-gradients float16 --dtype bfloat16 --prune never"),
    "appnp-full-2x2": Training(4, "{sparse} --model appnp --method spring --scheme broadcast --replication 2 --wire bfloat16 --wire-gradients bfloat16 --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "appnp-gradients-3": Training(3, "{weighted} --edges reversed --model appnp --powers 3 --teleport 0.2 --mode average --parts 4 --sync gradients --method spring --scheme broadcast --wire float16 --wire-gradients bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "gcnii-drift-2": Training(2, "{weighted} --edges reversed --model gcnii --layers 3 --mode average --parts 4 --interval 2 --correct drift --method spring --scheme broadcast --wire-gradients bfloat16"),
    "gcnii-frontier-4": Training(4, "{sparse} --model gcnii --teleport 0.2 --sampler frontier --budget 150 --method block --scheme broadcast --wire bfloat16 --wire-gradients float16 --dtype float64 --dropout 0.4 --prune never"),
    "gcnii-gradients-3": Training(3, "{weighted} --edges directed --model gcnii --layers 3 --mode average --parts 4 --sync gradients --scheme cover --wire float16 --wire-gradients bfloat16 --dtype bfloat16 --optimizer sgd --lr 0.003 --prune never"),
    "gcnii-full-2x2": Training(4, "{multilabel} --model gcnii --teleport 0.2 --layers 3 --method random --scheme columns --replication 2 --wire float16 --wire-gradients bfloat16"),
    "gcnii-average-1": Training(1, "{small} --model gcnii --mode average --parts 5 --interval 2 --sampler edge --budget 50 --method volume --dtype float64 --optimizer sgd --lr 0.003"),
    "ngnn-gradients-3": Training(3, "{sparse} --model ngnn --mode average --parts 4 --sync gradients --method random --scheme broadcast --wire bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune never"),
    "ngnn-neighbour-4": Training(4, "{small} --model ngnn --norm layer --residual --sampler neighbour --batch 60 --fanout 4,3 --method random --scheme columns --wire-gradients bfloat16 --dtype float64 --prune always"),
    "ngnn-full-2": Training(2, "{multilabel} --model ngnn --layers 3 --method random --scheme cover --wire float16 --wire-gradients bfloat16 --dtype bfloat16 --dropout 0.4"),
    "ngnn-full-2x2": Training(4, "{weighted} --edges directed --model ngnn --jump max --classifier --method block --scheme cover --replication 2 --wire float16 --wire-gradients float16 --dtype float64 --optimizer sgd --lr 0.003"),
    "ngnn-full-1": Training(1, "{weighted} --edges reversed --model ngnn --norm layer --residual --dtype float64"),
    "ngnn-average-2": Training(2, "{multilabel} --model ngnn --jump max --classifier --mode average --parts 5 --interval 2 --sampler walk --budget 60 --method random --scheme cover --wire-gradients bfloat16 --dtype float64 --optimizer sgd --lr 0.003 --dropout 0.4 --prune never"),
    "ngnn-frontier-2": Training(2, "{small} --model ngnn --jump cat --sampler frontier --budget 150 --method volume --scheme cover --dtype bfloat16"),
    "ngnn-drift-2": Training(2, "{weighted} --edges directed --model ngnn --norm layer --residual --mode average --parts 4 --interval 2 --correct drift --method spring --scheme cover --wire float16 --wire-gradients bfloat16 --dtype bfloat16"),
    "mlp-gradients-2": Training(2, "{small} --model mlp --mode average --parts 4 --sync gradients --method volume --scheme columns --wire float16 --dtype float64"),
    "mlp-full-2x2": Training(4, "{multilabel} --model mlp --layers 3 --method volume --scheme cover --replication 2 --wire bfloat16 --wire-gradients float16 --optimizer sgd --lr 0.003 --dropout 0.4 --prune always"),
    "mlp-full-3": Training(3, "{sparse} --model mlp --norm layer --residual --scheme broadcast --wire-gradients bfloat16 --dtype bfloat16 --prune never"),
    "mlp-drift-4": Training(4, "{weighted} --edges reversed --model mlp --norm layer --residual --mode average --parts 4 --interval 2 --correct drift --method random --scheme broadcast --wire float16 --wire-gradients bfloat16 --dtype float64 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "mlp-average-1": Training(1, "{weighted} --edges directed --model mlp --layers 3 --mode average --parts 5 --interval 2 --method spring --dtype bfloat16 --optimizer sgd --lr 0.003 --dropout 0.4"),
    "mlp-cluster-4": Training(4, "{weighted} --edges reversed --model mlp --sampler cluster --method block --scheme cover --optimizer sgd --lr 0.003 --dropout 0.4 --prune always"),
}
SPECIAL = {
    "paper": Training(1, "{sparse} --dropout 0.5 --weight-decay 5e-4 --decay-layers first --feature-norm row --no-bias --prune always"),
    "patience": Training(2, "{small} --scheme columns --lr 0.5 --epochs 9 --patience 2 --eval-every 2"),
    "operators": Training(2, "{weighted} --edges directed --operator row --model gcn --no-input-dropout --dropout 0.3"),
    "unweighted": Training(1, "{weighted} --edges reversed --operator none --lr 0.001"),
    "large-1": Training(1, "{large} --layers 3 --hidden 64"),  # rows of a block in another order, tiles of long rows
    "large-2": Training(2, "{large} --hidden 64 --dtype bfloat16 --dropout 0.2 --scheme cover"),
    "wordnet-2": Training(2, "wordnet --epochs 2 --scheme cover"),
    "parts-2": Training(2, "parts --edges directed --layers 3", first=(
        "partition {text} -k 2 --memory 300MB --features {features} --labels {classes} --split {split} --edges directed --out parts")),
    "parts-2x2": Training(4, "parts --replication 2 --scheme cover --dropout 0.1", first=(
        "partition {small} -k 2 --method volume --objective cover --seed 1 --out parts")),
    "layerwise-2": Training(2, "parts --mode average --evaluation layerwise --interval 2 --model sage", first=(
        "partition {small} -k 5 --method spring --hops 1 --out parts")),
    "personal-2": Training(2, "{small} --mode average --parts 3 --personal 2 --model sage --sampler neighbour --batch 40 --fanout 4,3"),
    "resume-1": Training(1, "--resume run --epochs 6", first="train {small} --dropout 0.4 --patience 9 {defaults} --out run"),
    "resume-3": Training(3, "--resume run --epochs 5", first="train {sparse} --model gat --heads 2 {defaults} --out run"),
    "resume-average-2": Training(2, "--resume run --epochs 6", first=(
        "train {small} --mode average --parts 4 --interval 2 --correct drift --dropout 0.2 {defaults} --epochs 4 --out run")),
    "resume-sampled-2": Training(2, "--resume run --epochs 5", first=(
        "train {small} --model sage --sampler walk --budget 100 --subgraphs 2 {defaults} --out run")),
}
TRAININGS = ARRAY | SPECIAL

GRAPHS = ("{small}", "{sparse}", "{weighted}", "rmat:scale=11,degree=8 --features {rmat}", "sbm:n=3000,classes=6,features=40")
SCHEDULE = (
    ("", "--prune"),
    ("", "--wire float16", "--wire bfloat16"), ("", "--wire-gradients float16", "--wire-gradients bfloat16"),
    ("", "", "--edges directed", "--edges reversed"),
)
MEASURE = (
    GRAPHS, ("-k 4", "-k 8", "-k 2,6"), ("--method metis", "--method random", "--method block,spring"),
    ("--scheme cover", "--scheme columns", "--scheme broadcast", "--scheme broadcast,columns,cover"),
    ("", "--replication 2", "--replication 1,2"), ("", "--hidden 16", "--hidden 64 --layers 3"), *SCHEDULE,
    ("", "--simulate", "--simulate --machine laptop", "--simulate --machine ethernet-1g"),
)
PLAN = (
    GRAPHS, ("--ranks 1,4", "--ranks 4", "--ranks 8", "--ranks 2,16"), ("", "--method random", "--method block,spring"),
    ("", "--scheme cover", "--scheme columns", "--scheme broadcast"), ("", "--replication 1", "--replication 1,2,4"),
    ("--machine laptop", "--machine ethernet-1g", "--machine perlmutter-like"), ("", "--ranks-per-host 2"), ("", "", "", "--memory 0.3"),
    ("", "--hidden 16", "--hidden 300 --layers 3", "--layers 1"), ("", "--norm layer"), ("", "--residual"),
    ("", "--dropout 0.5", "--dropout 0.5 --no-input-dropout"), ("", "--dtype float64", "--dtype bfloat16"), *SCHEDULE,
)
PARTITION = (
    *(f"{{small}} -k 5 --method {name}" for name in "metis volume entropy spring spring+ dbh greedy hdrf 2psl block random".split()),
    *(f"{{weighted}} -k 8 --edges directed --method {name}" for name in "metis volume spring hdrf 2psl block".split()),
    "{small} -k 7 --method metis --objective vol --seed 3", "{large} -k 4", "{large} -k 6 --method spring --balance 1.1",
    "{small} -k 6 --method volume --objective cover --receive --seed 2",
    "{small} -k 4 --method volume --start random --minimise total --edges reversed",
    "{small} -k 4 --method entropy -c 0.5 --fanout 5",
    "{text} -k 3 --memory 300MB --method 2psl --features {features} --labels {classes} --split {split} --hops 2",
)
# fmt: on


def drawn(verb: str, options: tuple[tuple[str, ...], ...], count: int = 60) -> list[str]:
    """Return command lines with one value of each option, drawn from a fixed seed."""
    rng = random.Random(0)
    lines = [" ".join(filter(None, (verb, *map(rng.choice, options), "--json"))) for _ in range(count)]
    # --prune needs the graph's own split.
    return [line.replace(" --prune", "") if "{weighted}" in line or "rmat" in line else line for line in lines]


# Command lines that one process runs one after the other, in one folder.
BATCHES = {
    "measure": drawn("measure", MEASURE),
    "plan": drawn("plan", PLAN),
    "partition": [
        *(f"partition {line} --json --out parts{number}" for number, line in enumerate(PARTITION)),
        "measure {small} --partition parts0 --scheme cover,columns --json",
        "plan {small} --partition parts0 --machine laptop --hidden 16 --json",
    ],
    "predict": [
        f"train {{small}} --model sage {DEFAULTS} --out run --json",
        "predict run --out again --json",
        "partition {small} -k 3 --hops 1 --method spring --out parts --json",
        "predict run --graph parts --evaluation layerwise --out layerwise --json",
        "predict run --graph {other} --embeddings H --out other --json",
    ],
}
# Differences that are meant: pattern of "CASE PATH", as fnmatch has it -> why. They are printed, and count as equal.
_OF_TARGETS = "the loss of an epoch on subgraphs is that of its targets; weights and scores are equal"
_SAMPLED = ("neighbour", "labor", "frontier", "walk", "node", "edge", "cluster", "average", "sampled")
_STAGES = "buffers of the stages of a process row count as those of one exchange, within 0.1 % of a rank's memory"
EXPLAINED: dict[str, str] = {
    **{f"* *scores.*.{name}": "a score of several labels" for name in ("roc_auc", "average_precision")},
    "predict* *metric": "names what train, val and test are",
    "* *.memory_parts_mb.column panels": "are memory_parts_mb.tiles",
    "* *.memory_parts_mb.tiles": "were memory_parts_mb.column panels",
    **{f"*.{name}": _STAGES for name in ("simulated.memory_mb", "host_mb", "device_mb", "device_parts_mb.*")},
    **{f"plan *.{name}": _STAGES for name in ("memory_mb", "memory_parts_mb.*", "memory_rank")},
    "* *.fastest": "is the scheme that a training takes",
    "* summary.moments": "Adam's moments are always averaged",
    "* summary.halo": "halos are always truncated",
    "* summary.workload.T": "buffers of a training are those that a dry run counts",
    "* summary.workload.how": "parts take the memory that is predicted",
    "resume-* summary.bytes_sent": "a run that is continued counts the epochs on its own ranks",
    "* summary.clip": "an argument of the sampler's class alone",
    "* summary.clusters": "an argument of the sampler's class alone",
    "* summary.cluster_batch": "is summary.batch",
    "* summary.batch": "was summary.cluster_batch",
    **{f"*-{step}-* records?*?.loss": _OF_TARGETS for step in _SAMPLED},
    "personal-2 records?*?.loss": _OF_TARGETS,
    **{
        f"{case} {what}": "last bits of softmax"
        for case in ("gat-*", "resume-3")
        for what in ("weights*", "records*.loss")
    },
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


def spmm_first(comm, folder: Path):
    """The schedule of other systems; own rows as they are stored."""
    import spgnn
    from spgnn.layers import GCN, Stack

    graph = spgnn.load_graph(folder / "weighted.npz", features=folder / "features.npy", labels=folder / "classes.npy")
    how = {
        "order": "spmm_first",
        "keep": False,
        "locality": False,
        "scheme": "columns",
        "wire": "float16",
        "threads": 1,
    }
    dgraph = spgnn.distribute(graph.with_edges("reversed"), comm, **how)
    model = Stack(GCN(12, 16, act="relu"), GCN(16, 16, act="relu"), GCN(16, 5))
    return spgnn.train(model, dgraph, epochs=5), model


# name -> ranks, whether they are threads of one process, and what they run
PYTHON = {
    "python-frozen": (2, False, frozen),
    "python-custom-layer": (3, True, custom_layer),
    "python-replicated": (4, True, replicated),
    "python-multilabel": (2, True, multilabel),
    "python-spmm-first": (4, True, spmm_first),
}
CASES = (*TRAININGS, *PYTHON, *BATCHES)


def make_inputs(folder: Path) -> dict[str, str]:
    """Write the graphs that are files and return what each {name} of a command line stands for."""
    rng, n = np.random.default_rng(0), 500

    def save(name: str, values) -> None:
        np.save(folder / f"{name}.npy", values)

    # A directed weighted graph with hubs, self-loops and nodes without an edge; an edge weighs as much as its reverse.
    ends = (n * rng.random((2, 8 * n)) ** 2).astype(np.int64)
    A = sp.csr_array((np.ones(8 * n, np.float32), tuple(ends)), shape=(n, n))
    A.sum_duplicates()
    rows, columns = A.nonzero()
    A.data = (0.1 + np.maximum(rows, columns) * 31 % 97 + np.minimum(rows, columns) * 17 % 89 / 89).astype(np.float32)
    sp.save_npz(folder / "weighted.npz", A)
    np.savetxt(folder / "weighted.txt", ends.T, fmt="%d", header=f"Nodes: {n} Edges: {ends.shape[1]}")
    save("features", rng.standard_normal((n, 12), dtype=np.float32))
    save("classes", rng.integers(-1, 5, n))
    save("labels", (rng.random((n, 6)) < 0.3).astype(np.int8))
    save("split", rng.integers(-1, 3, n).astype(np.int8))
    sp.save_npz(
        folder / "sparse.npz",
        sp.random_array((600, 90), density=0.05, format="csr", dtype=np.float32, random_state=rng),
    )
    save("rmat", rng.standard_normal((1 << 11, 24), dtype=np.float32))
    # Rows enough for another order of them (16,384 or more), nonzeros enough for tiles (a million, 24 per row).
    save("large", rng.standard_normal((1 << 15, 24), dtype=np.float32))
    save("large_y", rng.integers(0, 7, 1 << 15))

    quoted = lambda name: shlex.quote(str(folder / name))
    inputs = {name: quoted(f"{name}.npy") for name in ("features", "classes", "labels", "split", "rmat")}
    weighted, small = quoted("weighted.npz"), "sbm:n=600,classes=4,degree=6,features=20"
    return inputs | {
        "defaults": DEFAULTS,
        "small": f"{small},seed=1",
        "other": f"{small},seed=2",
        "sparse": f"{small},seed=1 --features {quoted('sparse.npz')}",
        "weighted": f"{weighted} --features {inputs['features']} --labels {inputs['classes']}",
        "multilabel": f"{weighted} --features {inputs['features']} --labels {inputs['labels']}",
        "large": f"rmat:scale=15,degree=40 --features {quoted('large.npy')} --labels {quoted('large_y.npy')}",
        "text": quoted("weighted.txt"),
    }
