"""Subgraphs of a graph by plain dense arithmetic, for layers to run on; and their oracle, the dense operators of each layer."""

import functools

import numpy as np
import scipy.sparse as sp
from dense_operator import DenseOperator
from graphs import dense_operator

from spgnn.config.names import NORMS
from spgnn.samplers import Csr, NormedBlock, Subgraph


def subgraph_of(graph, node_m, matrices, seed=0, index=0):
    """The record with the operators of these blocks, norm -> dense (n, m) each; targets: all labelled rows, of any weight."""
    blocks = tuple({how: operator_of(D) for how, D in of.items()} for of in matrices)
    shapes = tuple(next(iter(of.values())).shape for of in matrices)
    target_t = np.flatnonzero(graph.y[node_m[: shapes[-1][0]]] >= 0)
    weight_t = np.random.default_rng(seed).random(len(target_t)).astype(np.float32) + 0.5
    return Subgraph(index, np.asarray(node_m, np.int64), shapes, blocks, target_t, weight_t)


def operator_of(D):
    A = csr_of(sp.csr_array(D))
    at = sp.csr_array(D)
    at.data = np.arange(1, at.nnz + 1, dtype=np.int64)
    T = sp.csr_array(at.T)
    flipped = T.indptr.astype(np.int64), T.indices.astype(np.int32), T.data - 1
    return NormedBlock(A, lambda: flipped)


def csr_of(A):
    A.sort_indices()
    values = None if (A.data == 1).all() else A.data.astype(np.float64)
    return Csr(A.indptr.astype(np.int64), A.indices.astype(np.int32), values)


@functools.lru_cache
def wholes(graph, norms=NORMS):
    """Norm -> dense operator of the whole graph."""
    return {how: dense_operator(graph, how) for how in norms}


def induced(graph, seed=0, size=25):
    """(node_m, matrices) of the rows and columns of some nodes, in any order."""
    node_m = np.random.default_rng(seed).permutation(graph.n_nodes)[:size]
    return node_m, [{how: D[np.ix_(node_m, node_m)] for how, D in wholes(graph).items()}]


def blocks(graph, layers=2, seed=0, targets=7, keep=0.6):
    """A block for each layer, the first layer first: each output reads itself and some neighbours."""
    rng, matrices = np.random.default_rng(seed), []
    of_graph = wholes(graph)
    out = rng.permutation(graph.n_nodes)[:targets]
    for _ in range(layers):
        is_drawn = (rng.random(graph.A.shape) < keep) | np.eye(graph.n_nodes, dtype=bool)
        read = np.flatnonzero(((of_graph["loops"] * is_drawn)[out] != 0).any(0))
        inputs = np.concatenate([out, np.setdiff1d(read, out)])
        matrices.insert(0, {how: (D * is_drawn)[np.ix_(out, inputs)] for how, D in of_graph.items()})
        out = inputs
    return out, matrices


class DenseSubgraph:
    """The dense operators of a subgraph; `at` gives layer l the block of its number, hops as SubgraphOperators has them."""

    def __init__(self, node_m, matrices, hops=None):
        self.node_m, self.matrices, self.hops = node_m, matrices, hops

    def at(self, layer=None, is_last=False, operator=None, key=0):
        if len(self.matrices) == 1:
            return self._of(self.matrices[0], operator, key)
        hops = self.hops or [1] * len(self.matrices)
        before = sum(hops[: layer - 1])
        if hops[layer - 1]:
            return self._of(self.matrices[before], operator, key)
        rows = len(next(iter(self.matrices[before - 1].values()))) if before else len(self.node_m)
        return self._of({"gcn": np.zeros((rows, rows))}, "gcn", key)

    def _of(self, block, operator, key):
        D = block[operator or "gcn"]
        node_n = self.node_m[: D.shape[1]]
        return DenseOperator(D, lambda how: DenseOperator(block[how], node_n=node_n), node_n).at(key=key)
