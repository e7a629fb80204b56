"""Small graphs of every kind that the operator tests run over."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from spgnn.data.by_type import typed_graph as typed_graph_of
from spgnn.graph import Graph, graph_from_coo

KINDS = {  # options of random_graph
    "directed": {},
    "undirected": {"use": "undirected"},
    "weighted": {"use": "undirected", "weighted": True},
    "weighted directed": {"weighted": True, "sparse": True},
}


def random_graph(
    n=40, edges=160, f=6, classes=3, seed=0, sparse=False, weighted=False, use="directed", train_every=0
) -> Graph:
    """A directed graph with an isolated node, self-loops, unlabelled nodes and a split.

    Args: train_every  one in so many nodes trains and the others validate; 0: a random split.
    """
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, max(n - 1, 1), (2, edges if n > 1 else 0))
    X = rng.standard_normal((n, f))
    if sparse:
        X = sp.csr_array(X * (rng.random((n, f)) < 0.2))
    y = rng.integers(0, classes, n)
    y[rng.random(n) < 0.1] = -1
    y[0] = classes - 1
    split = rng.choice(np.array([0, 0, 0, 1, 2, -1], np.int8), n)
    split[0] = 0
    if train_every:
        split[:] = np.where(np.arange(n) % train_every == 0, 0, 1)
    weights = rng.random(len(src)) + 0.5 if weighted else None
    if weighted and use == "undirected":  # an edge weighs as much as its reverse
        weights = (rng.random((n, n)) + 0.5)[np.minimum(src, dst), np.maximum(src, dst)]
    graph = graph_from_coo(src, dst, n, weights=weights, duplicates="max", X=X, y=y, split=split)
    return graph.with_edges(use)


def dense_operator(graph: Graph, how: str = "gcn") -> np.ndarray:
    """D_r^-1/2 (A + I) D_c^-1/2, D_r^-1/2 A D_c^-1/2, D^-1 A, D^-1 (A + I), A or the pattern of A + I by plain dense arithmetic."""
    A = graph.A.toarray().astype(np.float64)
    inverse = lambda x: np.divide(1.0, x, out=np.zeros_like(x), where=x > 0)
    stored = sp.csr_array(graph.A)
    stored.data = np.ones_like(stored.data)
    pattern = stored.toarray().astype(np.float64)
    if how == "loops":
        return np.maximum(pattern, np.eye(len(A)))
    if how in ("gcn", "row_loops"):
        A = A + np.diag(1.0 - np.diag(pattern))
    if how in ("row", "row_loops"):
        return inverse(A.sum(1))[:, None] * A
    if how in ("gcn", "sym"):
        A = inverse(np.sqrt(A.sum(1)))[:, None] * A * inverse(np.sqrt(A.sum(0)))[None, :]
    return A


def typed_graph(authors=12, papers=20, seed=0) -> Graph:
    """Authors who write papers that cite papers, and venues without edges; papers have classes and a split."""
    rng = np.random.default_rng(seed)
    author, paper, cites = rng.integers(0, authors, 40), rng.integers(0, papers, 40), rng.integers(0, papers, (2, 30))
    starts = [0, authors, authors + papers, authors + papers + 3]
    y, split = np.full(starts[-1], -1), np.full(starts[-1], -1, np.int8)
    y[authors:-3], split[authors:-3] = rng.integers(0, 3, papers), rng.integers(0, 3, papers)
    X = sp.block_diag([rng.standard_normal((authors, 4)), rng.standard_normal((papers, 3)), np.ones((3, 1))], "csr")
    meta = {"typed": True, "node_types": {"names": ["author", "paper", "venue"], "starts": starts}}
    names = ("author writes paper", "paper cites paper", "venue has paper")
    ends = np.r_[author, authors + cites[0]], np.r_[authors + paper, authors + cites[1]]
    fields = {"edge_y": np.repeat([0, 1], [40, 30]), "edge_classes": names, "meta": meta, "name": "typed"}
    return graph_from_coo(*ends, starts[-1], X=sp.csr_array(X), y=y, split=split, **fields)


def acm(data_dir: Path, per_class=60) -> Graph:
    """The typed graph of ACM: papers by authors about subjects, of which papers have classes; 60 or 20 of each train."""
    home = data_dir / "typed/acm"
    y, split = np.load(home / "labels.npy").astype(np.int64), np.full(4019, -1, np.int8)
    for role, name in enumerate(("train", "val", "test")):
        split[np.load(home / f"{name}_{per_class}.npy")] = role
    ends = {("paper", word, to): np.loadtxt(home / f"p{to[0]}.txt", np.int64).T for word, to in (("by", "author"), ("about", "subject"))}  # fmt: skip
    of = {"paper": {"X": sp.load_npz(home / "p_feat.npz"), "y": y, "split": split}}
    of |= {"author": {"X": sp.load_npz(home / "a_feat.npz")}, "subject": {}}
    return typed_graph_of({"paper": 4019, "author": 7167, "subject": 60}, of, ends, None, name="acm")
