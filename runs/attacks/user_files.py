"""Files and objects of a user's first week, generated, and what a command or a call returns or reports."""

import dataclasses
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp
from attack import FAST, folder, here
from attack import spgnn as command

N = 24
TRAIN = [*FAST, "--epochs", 2]
# name -> (lines of edges, exit codes, what is said); 0, 1: ids from 0, 2: a small number, 3, 4: the ids from 1
EDGES = {
    "times": ("{0} {1} 10824{2:05d}", (0, 3), "look like times"),
    "ids from 1": ("{3} {4}", (3,), "no edge names node 0"),
    "ids with gaps": ("{3}0000007 {4}0000007", (3,), "--relabel"),
    "names": ("name{0} name{1}", (3,), "--relabel"),
    "numbers in quotes": ('"{0}","{1}"', (0, 3), ""),
    "semicolons": ("{0};{1};{2}", (0, 3), ""),
    "ids that are floats": ("{0}.0,{1}.0", (0, 3), ""),
    "NetworkX's braces": ("{0} {1} {{}}", (0, 3), ""),
    "four columns": ("{0},{1},{2},13{2:08d}", (3,), "--source 1 --target 2 --weight 3"),
}
# name -> (content of a file, its ending, exit codes, what is said)
FORMATS = {
    "GML": ('graph [\n  node [\n    id 0\n    label "a"\n  ]\n  edge [\n    source 0\n    target 0\n  ]\n]\n', ".gml", (3,), "networkx"),
    "GraphML": ("<?xml version='1.0'?>\n<graphml><graph edgedefault='undirected'><node id='a'/></graph></graphml>\n", ".graphml", (3,), "networkx"),
    "GEXF": ("<?xml version='1.0'?>\n<gexf version='1.2'><graph><nodes><node id='0'/></nodes></graph></gexf>\n", ".gexf", (3,), "networkx"),
    "Pajek": ("*vertices 2\n1 a\n2 b\n*edges\n1 2 1.0\n", ".net", (3,), "networkx"),
    "node-link JSON": ('{"directed": false, "nodes": [{"id": "a"}], "links": []}\n', ".json", (3,), "networkx"),
    "DIMACS colours": ("c two nodes\np edge 2 1\ne 1 2\n", ".col", (0,), "2 nodes"),
    "DIMACS paths": ("c two nodes\np sp 2 2\na 1 2 5\na 2 1 5\n", ".gr", (0,), "2 nodes"),
}  # fmt: skip


def write(home: Path, rng) -> np.ndarray:
    """Write e.txt, x.npy and y.npy of a ring with chords; return its edges (2, E)."""
    ring = np.arange(N)
    edges = np.hstack([[ring, (ring + 1) % N], rng.permutation(N)[: 2 * (N // 3)].reshape(2, -1)])
    edges = edges[:, edges[0] != edges[1]]
    np.savetxt(home / "e.txt", edges.T, fmt="%d")
    np.save(home / "x.npy", rng.normal(size=(N, 4)).astype(np.float32))
    np.save(home / "y.npy", np.arange(N) % 3)
    return edges


def commands(home: Path, rng) -> Iterator[tuple[str, list, tuple, str]]:
    """Yield (name, command, exit codes, what it has to say) of each kind of files, which are written before."""
    edges = write(home, rng)
    many, shares, signs = np.arange(N), rng.random((N, 2)), rng.normal(size=(N, 6))
    save = lambda name, value: np.save(home / name, value)
    train = lambda edges="e.txt", x="x.npy", y="y.npy": ["train", edges, "--features", x, "--labels", y, *TRAIN]
    yield "plain files", train(), (0,), ""
    save("pm.npy", np.where(many % 2, 1, -1))
    yield "labels -1 and 1", train(y="pm.npy"), (0,), "-1 .* means no label"
    np.savetxt(home / "w.csv", np.vstack([edges, rng.choice([-10, -5, -1, 1, 2], edges.shape[1])]).T, "%d", ",")
    yield "negative weights", [*train("w.csv"), "--edges", "directed"], (3,), "Use --operator none"
    save("z.npy", signs - signs.mean(axis=0) - 0.1)
    yield "standardised features", [*train(x="z.npy"), "--feature-norm", "row"], (3,), "signs would change"
    save("u.npy", np.column_stack([1.4e9 + 1e8 * shares[:, 0], many, shares[:, 1]]))
    yield "columns of other scales", train(x="u.npy"), (0, 5), "differ in scale"
    C = np.abs(np.corrcoef(rng.standard_normal((N, 40))))
    sp.save_npz(home / "c.npz", sp.csr_array(C * (1 + np.triu(np.full((N, N), 1e-16)))))
    yield "weights symmetric up to rounding", train("c.npz"), (0,), ""
    (home / "members.csv").write_text("id,days,new\n" + "".join(f"{9000 + i},{i % 2 == 0},{i}\n" for i in many))
    yield "labels as a table", train(y="members.csv"), (3,), "which column"
    save("s.npy", np.where(many, 1 + many % 2, 0))
    yield "one training node", [*train(), "--split", "s.npy"], (0,), r"all training nodes \(1\) are of class 0"
    save("text.npy", np.array(["Hi", "Lo"] * (N // 2)))
    yield "labels as text", train(y="text.npy"), (0,), r"classes \(Hi, Lo\)"
    save("nan.npy", np.where(many % 5, many % 3, np.nan))
    yield "labels with NaN", train(y="nan.npy"), (0,), ""
    np.savetxt(home / "few.txt", [[0, 1], [1, 2], [2, N - 1]], "%d")
    edge = "--sampler edge --budget 4 --model sage".split()
    yield "training nodes without edges", [*train("few.txt"), *edge], (0,), "without an edge"
    for name, (line, codes, said) in EDGES.items():
        rows = (line.format(*values) for values in zip(*edges, rng.integers(1, 9, edges.shape[1]), *(edges + 1)))
        (home / "odd.txt").write_text("\n".join(rows) + "\n")
        yield name, train("odd.txt"), codes, said
    for name, (text, ending, codes, said) in FORMATS.items():
        (home / f"four{ending}").write_text(text)
        yield f"a file of {name}", ["info", f"four{ending}"], codes, said


def objects(rng) -> Iterator[tuple[str, object, object]]:
    """Yield (name, what a call returns, what it has to) of objects of other libraries."""
    import networkx as nx
    import torch

    import spgnn

    loops = rng.permutation(N)
    A = sp.csr_array((np.ones(2 * N), (np.r_[loops, np.roll(loops, 1)], np.r_[np.roll(loops, 1), loops])))
    G, bare = nx.MultiGraph(), A.copy()
    G.add_edge(0, 1, weight=1.0), G.add_edge(0, 1, weight=2.0)
    ends = np.vstack(A.nonzero())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        A.setdiag(0)  # stores zeros
    normal = lambda matrix: spgnn.from_scipy(matrix).normalise("gcn").toarray().astype(float).round(6).tolist()
    yield "a diagonal of stored zeros", normal(A), normal(bare)
    yield "an edge_index", spgnn.load_graph(torch.from_numpy(ends)).nnz, bare.nnz
    yield "a dense matrix", spgnn.load_graph(bare.toarray()).nnz, bare.nnz
    yield "parallel edges of NetworkX", spgnn.load_graph(G).A.toarray().tolist(), nx.to_numpy_array(G).tolist()
    for shape in ((-1, 1), (-1,)):
        values = torch.arange(1.0, 1 + ends.shape[1]).reshape(shape)
        data = SimpleNamespace(edge_index=torch.from_numpy(ends), x=None, y=None, num_nodes=N, edge_attr=values)
        graph = spgnn.from_pyg(data)
        yield f"edge_attr of shape {shape}", np.sort(graph.edge_attr, axis=0).ravel().tolist(), values.ravel().tolist()
    yield from directed_layers(rng)


def directed_layers(rng) -> Iterator[tuple[str, object, object]]:
    """Yield (name, rows of a layer on a directed graph as PyG has it, those of dense matrices): of u -> v, v reads u."""
    import torch

    import spgnn
    from spgnn.layers import GIN, SAGE

    S_NN = rng.random((N, N)) < 0.2
    np.fill_diagonal(S_NN, False)
    X_NF, S_NN = torch.from_numpy(rng.normal(size=(N, 4))), torch.from_numpy(S_NN.astype(float))
    edge_index = S_NN.T.nonzero().T  # u -> v where v reads u
    data = SimpleNamespace(edge_index=edge_index, x=X_NF, y=torch.arange(N) % 3, num_nodes=N)
    graph = spgnn.distribute(spgnn.from_pyg(data), dtype="float64")
    places = lambda rows: rows.detach().numpy().round(9).tolist()
    sage, gin = (spgnn.Stack(layer).double() for layer in (SAGE(4, 3, "mean"), GIN(4, 3)))
    W = dict(sage.layers[0].named_parameters())
    mean_NF = S_NN @ X_NF / S_NN.sum(1, keepdim=True).clamp(min=1)
    yield "SAGE, directed", places(sage(graph)), places(mean_NF @ W["W_n"] + X_NF @ W["W_s"] + W["b_C"])
    W = dict(gin.layers[0].named_parameters())
    hidden_NC = torch.relu((S_NN @ X_NF + X_NF) @ W["W_1"] + W["b_1"])
    yield "GIN, directed", places(gin(graph)), places(hidden_NC @ W["W_2"] + W["b_C"])


def losses(home: Path, rng) -> Iterator[tuple[str, object, object]]:
    """Yield (name, loss of an epoch that moves no weight, what it has to be) of trainings in different ways.

    One training node under a sampler of which most updates have none; a job of torchrun. Rows beyond the largest
    number of float16 are a warning.
    """
    import torch

    import spgnn
    from spgnn.layers import MLP

    write(home, rng)
    loss_of = lambda run: round(json.loads((home / run / "metrics.jsonl").read_text().splitlines()[0])["loss"], 5)

    def loss(run, *words, **how) -> object:
        words = ["train", *words, *FAST, "--epochs", 1, "--lr", 1e-12, "--out", run]
        ended = command(*words, cwd=home, **how) if how else here(*words)
        return loss_of(run) if ended.code == 0 else f"exit code {ended.code}: {ended.err[-300:]}"

    graph = spgnn.load_graph("e.txt", features="x.npy", labels="y.npy")
    graph = dataclasses.replace(
        graph.in_use(), split=np.where(np.arange(N) == 5, 0, 1 + np.arange(N) % 2).astype(np.int8)
    )
    dense, first = spgnn.distribute(graph, dtype="float64"), []
    for sampler in ("none", spgnn.samplers.Cluster(graph, clusters=8, batch=1)):
        torch.manual_seed(1)
        history = spgnn.train(spgnn.Stack(MLP(4, 3)), dense, epochs=1, lr=1e-12, sampler=sampler, graph=graph)
        first.append(round(history.records[0]["loss"], 9))
    yield "one training node under a sampler", first[1], first[0]
    files = ["e.txt", "--features", "x.npy", "--labels", "y.npy"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    two = loss("c", *files, launcher=torchrun)
    yield "a job of torchrun", two, loss("d", *files)
    yield "its ranks", json.loads((home / "c" / "env.json").read_text()).get("ranks"), 2
    np.save(home / "x.npy", 1e6 * rng.random((N, 4)))
    words = [*files, *FAST, "--epochs", 1, "--model", "gin", "--method", "random", "--wire", "float16"]
    ended = command("train", *words, "--lr", 1e-12, cwd=home, ranks=2)
    yield "float16 beyond its largest number", (ended.code, "65,504" in ended.err), (0, True)


def attack(seed: int) -> tuple[int, list[str]]:
    """Run every command and call on files and objects of one seed; return how many, and what is wrong."""
    failures, count, before = [], 0, os.getcwd()
    with folder() as home:
        os.chdir(home)
        try:
            for name, words, codes, said in commands(home, np.random.default_rng(seed)):
                ended, count = here(*words), count + 1
                fault = ended.fault(*codes) or ("" if re.search(said, ended.err) else f"{said!r} is not said")
                failures += [f"{name}: {fault}: {ended.err[-400:]}"] if fault else []
            found = [*objects(np.random.default_rng(seed)), *losses(home, np.random.default_rng(seed))]
        finally:
            os.chdir(before)
    for name, got, expected in found:
        count += 1
        failures += [] if got == expected else [f"{name}: got {got}, expected {expected}"[:400]]
    return count, failures
