"""Generated graphs with known answers, each seeded and free of Python loops over nodes or edges.

Undirected ones store every edge both ways; `random_directed`, `rmat` and `kronecker` are directed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from ..config import MOST_SEED
from ..errors import ResourceError, UsageError, nearest
from ..graph import Graph, graph_from_coo, random_split

# Edges that rmat draws at once: few enough to stay in cache over all levels.
DRAW = 1 << 16


def path(n: int = 10) -> Graph:
    """0 - 1 - ... - n-1: nnz = 2 (n - 1)."""
    _at_least("path", n=(n, 0))
    v = np.arange(max(n - 1, 0))
    return _undirected(v, v + 1, n, "path")


def star(n: int = 10) -> Graph:
    """Node 0 joined to the n - 1 others: nnz = 2 (n - 1)."""
    _at_least("star", n=(n, 1))
    leaf = np.arange(1, n)
    return _undirected(np.zeros_like(leaf), leaf, n, "star")


def grid(rows: int = 10, cols: int = 10) -> Graph:
    """Node r cols + c joined to its right and lower neighbour: nnz = 2 (2 rows cols - rows - cols)."""
    _at_least("grid", rows=(rows, 1), cols=(cols, 1))
    v = np.arange(rows * cols).reshape(rows, cols)
    src = np.concatenate([v[:, :-1].ravel(), v[:-1].ravel()])
    dst = np.concatenate([v[:, 1:].ravel(), v[1:].ravel()])
    return _undirected(src, dst, rows * cols, "grid")


def complete(n: int = 10) -> Graph:
    """Every pair of nodes joined: nnz = n (n - 1)."""
    _at_least("complete", n=(n, 0))
    src, dst = np.divmod(np.arange(n * n), max(n, 1))
    off = src != dst
    return graph_from_coo(src[off], dst[off], n, name="complete")


def random_directed(n: int = 100, degree: int = 5, seed: int = 0) -> Graph:
    """n degree distinct edges without self-loops, uniform among all such sets: nnz = n degree."""
    _at_least("random_directed", n=(n, 1), degree=(degree, 0))
    if degree > n - 1:
        raise UsageError(f"random_directed: degree = {degree}; expected at most n - 1 = {n - 1}")
    src, dst = _draw_pairs(np.random.default_rng(seed), n, n * degree)
    return graph_from_coo(src, dst, n, name=f"random_directed-{n}-{degree}")


def sbm(
    n: int = 1000,
    classes: int = 4,
    degree: float = 10,
    inside: float = 0.8,
    features: int = 16,
    noise: float = 1.0,
    seed: int = 0,
) -> Graph:
    """Stochastic block model: about n degree / 2 undirected edges, a share `inside` of them in a class.

    Node v has class v mod classes; X = a random unit mean of the class + Gaussian noise, float32;
    a seeded 60/20/20 split.
    Source: Holland, Laskey & Leinhardt 1983, with the number of edges fixed at its mean.
    """
    _at_least("sbm", n=(n, 1), classes=(classes, 1), degree=(degree, 0), features=(features, 0), noise=(noise, 0))
    _at_least("sbm", inside=(inside, 0), outside=(1 - inside, 0))
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    m = int(round(n * degree / 2))
    src = rng.integers(0, n, m)
    # Ids of one class are an arithmetic progression, so an endpoint in a given class is one draw.
    c = np.where(rng.random(m) < inside, y[src], (y[src] + rng.integers(1, max(classes, 2), m)) % classes)
    dst = c + classes * (rng.random(m) * np.maximum((n - c + classes - 1) // classes, 1)).astype(np.int64)
    keep = (src != dst) & (dst < n)
    mean = rng.standard_normal((classes, features))
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
    X = (mean[y] + noise * rng.standard_normal((n, features)) / np.sqrt(max(features, 1))).astype(np.float32)
    fields = {"X": X if features else None, "y": y, "split": random_split(y, seed)}
    return _undirected(src[keep], dst[keep], n, f"sbm-{n}-{classes}", **fields)


def rmat(scale: int = 10, degree: int = 16, a: float = 0.57, b: float = 0.19, c: float = 0.19, seed: int = 0) -> Graph:
    """R-MAT: 2^scale nodes, 2^scale degree directed edges drawn bit by bit from [[a, b], [c, 1-a-b-c]].

    Duplicates are dropped (meta["duplicates"] counts them), self-loops stay: nnz + duplicates = 2^scale degree.
    Source: Chakrabarti, Zhan & Faloutsos 2004; a, b, c as in Graph500.
    """
    _at_least(
        "rmat", scale=(scale, 0), degree=(degree, 0), a=(a, 0), b=(b, 0), c=(c, 0), d=(round(1 - a - b - c, 9), 0)
    )
    if scale > 40:
        raise UsageError(f"rmat: scale = {scale}; expected at most 40")
    n, m = 1 << scale, degree << scale
    rng = np.random.default_rng(seed)
    key = np.empty(m, np.int64)  # src n + dst
    for start in range(0, m, DRAW):
        key[start : start + DRAW] = _draw_keys(rng, scale, min(DRAW, m - start), a, b, c)
    key.sort()
    key = key[np.diff(key, prepend=-1) != 0]
    indptr = np.searchsorted(key, np.arange(n + 1) << scale)
    index = np.int32 if max(n, len(key)) < 2**31 else np.int64
    arrays = np.ones(len(key), np.float32), (key & (n - 1)).astype(index), indptr.astype(index)
    return Graph(sp.csr_array(arrays, shape=(n, n)), name=f"rmat-{scale}-{degree}", meta={"duplicates": m - len(key)})


def kronecker(scale: int = 10, degree: int = 16, seed: int = 0) -> Graph:
    """Kronecker graph of the initiator [[0.9, 0.5], [0.5, 0.1]] / 2: 2^scale nodes, 2^scale degree edges drawn.

    Source: GraphSAINT (parallel), 7.1, after Leskovec et al. 2010; drawn edge by edge as theirs, which
            is R-MAT with these probabilities.
    """
    _at_least("kronecker", scale=(scale, 0), degree=(degree, 0))
    graph = rmat(scale, degree, 0.45, 0.25, 0.25, seed)
    return Graph(graph.A, name=f"kronecker-{scale}-{degree}", meta=graph.meta)


MOST = 2**31 - 1
GALLERY: dict[str, Callable[..., Graph]] = {
    f.__name__: f for f in (path, star, grid, complete, random_directed, sbm, rmat, kronecker)
}


def generate(spec: str) -> Graph:
    """Return the graph of a spec such as "rmat:scale=10,degree=16,seed=0"; omitted parameters have their defaults.

    Raises: UsageError for a name or parameter that does not exist, or a value that is no number.
    """
    name, _, rest = spec.partition(":")
    if name not in GALLERY:
        raise UsageError(f"{spec}: no generated graph is called {name!r}{nearest(name, GALLERY)}")
    known = GALLERY[name].__annotations__
    values = {}
    for item in filter(None, rest.split(",")):
        key, _, text = (part.strip() for part in item.partition("="))
        if key not in known or key == "return":
            raise UsageError(f"{spec}: unknown parameter {key!r}{nearest(key, set(known) - {'return'})}")
        convert = float if known[key] == "float" else int
        try:
            values[key] = convert(text)
        except ValueError:
            raise UsageError(f"{spec}: {key} = {text!r}; expected {convert.__name__}") from None
        most = MOST_SEED if key == "seed" else MOST
        if values[key] > most or (key == "seed" and values[key] < 0):
            raise UsageError(f"{spec}: {key} = {text}; expected 0 to {most}")
    try:
        return GALLERY[name](**values)
    except MemoryError as error:
        raise ResourceError(f"{spec}: does not fit into memory: {error}; ask for fewer nodes or edges") from error


def _undirected(src, dst, n: int, name: str, **fields) -> Graph:
    return graph_from_coo(np.concatenate([src, dst]), np.concatenate([dst, src]), n, name=name, **fields)


def _draw_pairs(rng, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return m distinct ordered pairs of distinct nodes."""
    code = rng.choice(n * (n - 1), m, replace=False, shuffle=False) if m else np.empty(0, np.int64)
    src, dst = np.divmod(code, max(n - 1, 1))
    return src, dst + (dst >= src)


def _draw_keys(rng, scale: int, m: int, a: float, b: float, c: float) -> np.ndarray:
    """Return src 2^scale + dst of m edges: each level of the recursion gives one bit of both."""
    src, dst = np.zeros(m, np.int64), np.zeros(m, np.int64)
    for _ in range(scale):
        u = rng.random(m, np.float32)
        low = u >= np.float32(a + b)  # in the lower half of the matrix: c or d
        right = (u >= np.float32(a)) ^ low ^ (u >= np.float32(a + b + c))  # in the right half: b or d
        for node, bit in ((src, low), (dst, right)):
            node <<= 1
            node |= bit
    return (src << scale) | dst


def _at_least(graph: str, **bounds) -> None:
    for key, (value, low) in bounds.items():
        if not value >= low:
            raise UsageError(f"{graph}: {key} = {value}; expected at least {low}")
