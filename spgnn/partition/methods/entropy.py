"""METIS with edge weights from similarity of features and degree: parts of few classes, low in entropy.

Shapes: N nodes, E neighbours of all nodes, F features.
Source: entropy-aware paper (Deshmukh et al. 2023), section III-A and Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import scipy.sparse as sp

from ...errors import GraphError, UsageError, check_choice, is_integer, is_number
from ...graph import Graph
from ...machine import cores
from .. import _loops
from ..metrics import csr_arrays
from ..registry import partitioner
from .metis import kway, neighbours

SIMILARITIES = ("cosine", "dot")
SCALE = 100  # Alg. 1, line 5
CHUNK = 1 << 20  # nonzeros whose weights are computed at a time
LARGEST = 2**31 - 1  # of a weight: METIS adds them up in 64 bits


@partitioner("entropy")
def entropy(
    graph: Graph, k: int, *, seed: int, balance: float, c: float = 1.0, floor: int = 1, fanout: int = 25,
    similarity: Literal["cosine", "dot"] = "cosine",
) -> np.ndarray:  # fmt: skip
    """Minimise the cut of `edge_weights`; balance bounds the nodes of a part, as in the paper, not their work.

    Args:   c           weight of the similarity; the degrees have weight 1.
            floor       smallest weight of an edge, 1 or more, as METIS requires.
            fanout      neighbours that GraphSAGE samples per node: K of the paper, 25 there.
            similarity  "cosine", as in the paper's program, or "dot", as in its Algorithm 1.
    Raises: GraphError for a graph without features; UsageError for an invalid option.
    """
    if k == 1 or k >= graph.n_nodes:
        _check(graph, c, floor, fanout, similarity)
        return np.arange(graph.n_nodes) % k
    pattern = neighbours(graph.A, graph.is_both_ways)
    weights_E = edge_weights(graph, pattern, c=c, floor=floor, fanout=fanout, similarity=similarity)
    owner_N = kway(graph.name, pattern, k, np.ones(graph.n_nodes, np.int64), weights_E, seed=seed, balance=balance)
    most = max(int(balance * graph.n_nodes / k), -(-graph.n_nodes // k))
    return _evened(owner_N, k, most, pattern, weights_E)


def edge_weights(
    graph: Graph,
    pattern: sp.csr_array,
    *,
    c: float = 1.0,
    floor: int = 1,
    fanout: int = 25,
    similarity: Literal["cosine", "dot"] = "cosine",
) -> np.ndarray:
    """Return w_uv = max(floor, round(100 (c s(x_u, x_v) + (p_u + p_v) / 2))), p_v = 1 - exp(-fanout / |N(v)|), (E,) int64.

    Departs from Algorithm 1, line 5, where METIS requires it: p of both ends is averaged, as W_uv and W_vu must be equal,
    and weights that are not positive are raised to the floor. X is not changed: the paper's program normalises the
    features in place and trains on them.

    Args: pattern  of `neighbours`: symmetric, no self-loops.
    """
    _check(graph, c, floor, fanout, similarity)
    similar_E = dots(pattern.indptr, pattern.indices, graph.X)
    degree_N = np.diff(pattern.indptr)
    every = np.arange(graph.n_nodes + 1)
    norm_N = np.sqrt(dots(every, every[:-1], graph.X)) if similarity == "cosine" else None
    sampled_N = -np.expm1(-fanout / np.maximum(degree_N, 1))  # Alg. 1, line 4
    weights_E = np.empty(len(similar_E), np.int64)
    for e, rows in _chunks(pattern):
        columns = pattern.indices[e]
        if norm_N is not None:  # a node whose features are all 0 has similarity 0
            norms = norm_N[rows] * norm_N[columns]
            np.divide(similar_E[e], norms, out=similar_E[e], where=norms > 0)
        weight = SCALE * (c * similar_E[e] + (sampled_N[rows] + sampled_N[columns]) / 2)
        if not weight.max(initial=0) <= LARGEST:
            raise UsageError(
                f"entropy: an edge of {graph.name} has weight {weight.max():.3g}; expected at most {LARGEST}: "
                f"use similarity cosine, or a smaller c than {c:g}"
            )
        weights_E[e] = np.maximum(np.rint(weight), floor)
    return weights_E


def dots(indptr: np.ndarray, indices: np.ndarray, X: np.ndarray | sp.csr_array) -> np.ndarray:
    """Return x_i . x_j for each nonzero (i, j) of a pattern, (E,) float64, bitwise equal for (j, i).

    Args: X  (N, F) floats, or CSR; other numbers are converted to float64.
    """
    indptr, indices = (np.ascontiguousarray(array, np.int64) for array in (indptr, indices))
    values = X if isinstance(X, np.ndarray) else X.data
    dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
    values = np.ascontiguousarray(values, dtype)
    if sp.issparse(X):
        return _loops.sparse_dots(indptr, indices, *csr_arrays(X), values, X.shape[1], cores())
    return _loops.dense_dots(indptr, indices, values, cores())


def _evened(owner_N: np.ndarray, k: int, most: int, pattern: sp.csr_array, weights_E: np.ndarray) -> np.ndarray:
    """Return owner_N with at most `most` nodes in each part; where METIS left more, as on stars, those least tied to it move."""
    sizes_k = np.bincount(owner_N, minlength=k)
    if sizes_k.max() <= most:
        return owner_N
    tie_N = np.zeros(len(owner_N))
    for e, rows in _chunks(pattern):
        is_own = owner_N[rows] == owner_N[pattern.indices[e]]
        tie_N += np.bincount(rows[is_own], weights_E[e][is_own], len(owner_N))
    order = np.lexsort((tie_N, owner_N))
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes_k) - sizes_k, sizes_k)  # in its part
    leaving = order[place < (sizes_k - most)[owner_N[order]]]
    owner_N = owner_N.copy()
    owner_N[leaving] = np.repeat(np.arange(k), np.maximum(most - sizes_k, 0))[: len(leaving)]
    return owner_N


def _chunks(pattern: sp.csr_array) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of the nonzeros, of whole rows, and the row of each."""
    indptr = pattern.indptr
    start = 0
    while start < pattern.shape[0]:
        end = max(int(np.searchsorted(indptr, indptr[start] + CHUNK, side="right")) - 1, start + 1)
        rows = np.repeat(np.arange(start, end), np.diff(indptr[start : end + 1]))
        yield slice(int(indptr[start]), int(indptr[end])), rows
        start = end


def _check(graph: Graph, c: float, floor: int, fanout: int, similarity: str) -> None:
    if graph.X is None:
        raise GraphError(
            f"entropy: {graph.name} has no features, which its edge weights are computed from; give --features FILE, or use --method metis"
        )
    check_choice("entropy: similarity", similarity, SIMILARITIES)
    if not is_number(c) or not 0 <= c < math.inf:
        raise UsageError(f"entropy: c = {c!r}; expected a number of 0 or more")
    for name, value in (("floor", floor), ("fanout", fanout)):
        if not is_integer(value) or not 1 <= value <= LARGEST:
            raise UsageError(f"entropy: {name} = {value!r}; expected an integer from 1 to {LARGEST}")
