"""PlannedGraph: a graph as a training reads it, and the nodes that it trains on.

Shapes: N nodes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..cost.memory import array_bytes, csr_bytes
from ..cost.schedule import keeps_sparse
from ..errors import GraphError
from ..graph import WITH_LOOPS, Graph, given_split, labelled, random_split, with_self_loops


class PlannedGraph:
    """A graph and what the plan asks of it, each found once.

    Args: stored       as it was read; edges how it is used.
          n_features   of the dense float32 X that a training reads where the graph has none.
          operator     of the adjacency matrix, see `normalise`.
          split, seed  which nodes train, see `train_nodes`.
    """

    def __init__(
        self,
        stored: Graph,
        edges: str = "auto",
        n_features: int = 0,
        operator: str = "gcn",
        split: str = "auto",
        seed: int = 0,
    ):
        self.graph = stored.with_edges(edges)
        self.operator, self.split, self.seed = operator, split, seed
        self.is_symmetric = self.graph.is_both_ways
        A, X = self.graph.A, self.graph.X
        x_bytes = 4 * stored.n_nodes * n_features if X is None else array_bytes(X)
        if sp.issparse(X):
            x_bytes = csr_bytes(X.nnz, len(X.indptr), 4)
        self.read = {  # what rank 0 reads
            "nodes": stored.n_nodes,
            "stored_nnz": stored.nnz,
            "nnz": A.nnz,
            "x_bytes": x_bytes,
            "y_bytes": array_bytes(stored.y),
            "is_symmetrised": A is not stored.A,
        }

    @property
    def has_sparse_input(self) -> bool:
        return sp.issparse(self.graph.X)

    @cached_property
    def pattern(self) -> sp.csr_array:
        """The nonzeros that layers multiply with: A, with the self-loops of the operator."""
        return with_self_loops(self.graph.A) if self.operator in WITH_LOOPS else self.graph.A

    @cached_property
    def keeps_sparse(self) -> bool:
        """A X of sparse X is worth keeping, as distribute decides it."""
        return stays_sparse(self.graph, self.pattern)

    @cached_property
    def left_N(self) -> tuple[np.ndarray, ...]:
        """Nonzeros of each row of X, and of A X where it is kept, (N,) int64."""
        X = self.graph.X
        x_N = np.diff(X.indptr).astype(np.int64)
        if not self.keeps_sparse:
            return (x_N,)
        ones = lambda M: sp.csr_array((np.ones(M.nnz, np.float32), M.indices, M.indptr), shape=M.shape)
        return x_N, np.diff((ones(self.pattern) @ ones(X)).indptr).astype(np.int64)

    @cached_property
    def train_N(self) -> np.ndarray:
        """The nodes whose labels are trained on, (N,) bool."""
        return train_nodes(self.graph, self.split, self.seed)


def train_nodes(graph: Graph, split: str, seed: int) -> np.ndarray:
    """Return the nodes whose labels are trained on, (N,) bool, as `spgnn train --split SPLIT --seed SEED` has them.

    Raises: GraphError for a graph without labels, or without the split that is named; UsageError for another name.
    """
    split_N = given_split(graph.name, graph.split, split)
    if split_N is None and graph.y is None:
        raise GraphError(f"{graph.name} has no split and no labels, and row pruning needs training nodes; omit --prune")
    if split_N is None:
        split_N = random_split(graph.y, seed)
    return split_N == 0 if graph.y is None else (split_N == 0) & labelled(graph.y)


def stays_sparse(graph: Graph, A: sp.csr_array | None = None) -> bool:
    """Return whether A X of sparse X is worth caching, as training decides it; A: default: with self-loops, as of gcn."""
    A = with_self_loops(graph.A) if A is None else A
    bound = int(np.bincount(A.indices, minlength=graph.n_nodes) @ np.diff(graph.X.indptr))
    return keeps_sparse(bound, graph.X.nnz, A.nnz)
